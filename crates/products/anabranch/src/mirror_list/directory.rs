//! Makes the list of a directory: one Metalink that describes all its files.

use std::io;
use std::path::Path;

use anabranch_mirror::digests::{Digests, PieceHashes};
use anabranch_mirror::metalink::{
    self, FILES_MAX, Hashes, METALINK_MAX, Metalink, Mirror, Pieces, is_safe_name,
};
use anabranch_mirror::url::{Url, encode_component};

use super::hash::{Hashed, hash, hash_small};
use super::listed::MirrorList;
use super::make::{self, MadeMirrorList, MakeMirrorList, exists, piece_bytes, write};
use crate::catalog::{FoundFile, Warnings, walk};
use crate::file_identity::{FileIdentity, open_file};
use crate::filenames::{hidden_warning, show};
use crate::hashing::{HashJob, READ_BYTES};
use crate::{Control, Error, ErrorKind, Event, Result};

/// Writes the Metalink of a directory.
pub(super) fn make(
    args: &MakeMirrorList,
    listener: &mut dyn FnMut(Event) -> Control,
) -> Result<MadeMirrorList> {
    // If the directory was named `.`, its real path has its name.
    let real = match args.path.file_name() {
        Some(_) => args.path.clone(),
        None => args.path.canonicalize().map_err(|e| ErrorKind::Usage.cannot("read", &args.path, e))?,
    };
    let name = real.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        Error::usage(format!("{} has no name in UTF-8 to call a Metalink by", show(&real))).at(&real)
    })?;
    let beside = args.directory.as_deref().or(real.parent()).unwrap_or(Path::new(""));
    let path = beside.join(format!("{name}.meta4"));
    if !args.overwrite && path.symlink_metadata().is_ok() {
        return Err(exists(&path));
    }
    if let Some(url) = args.urls.iter().find(|url| url.has_query()) {
        return Err(Error::usage(format!(
            "{url} has a query, so no file can be below it: the URL of a directory ends in / and has none"
        ))
        .at(url));
    }
    let (job, warnings) = (HashJob::default(), Warnings::default());
    let root = walk(&args.path, &job, &warnings)?;
    let hidden = hidden_warning(&args.path, root.files.iter().map(|file| &file.relative[..]));
    for warning in warnings.take().into_iter().chain(hidden) {
        if listener(Event::Notice(warning)) == Control::Stop {
            job.stop();
        }
    }
    match root.files.len() {
        0 => return Err(Error::usage(format!("{} has no files", show(&args.path))).at(&args.path)),
        n if n > FILES_MAX => {
            return Err(Error::usage(format!(
                "{} has {n} files, and a Metalink describes at most {FILES_MAX}: make one of each directory \
                 in it, or pack small files into an archive",
                show(&args.path)
            ))
            .at(&args.path));
        }
        _ => {}
    }
    let length = root.files.iter().map(|file| file.length).sum();
    job.set_total(length);
    let files = args.watch(&job, listener, || describe_all(args, &root.files, &job))??;
    let metalink = Metalink { files };
    let text =
        metalink.emit().map_err(|e| Error::usage(format!("no Metalink can say this: {e}")).because(e))?;
    if text.len() > METALINK_MAX {
        return Err(Error::usage(format!(
            "the Metalink would have {} bytes, and {METALINK_MAX} are the most that is read: name fewer \
             mirrors, choose larger `piece_bytes`, or make one of each directory in {}",
            text.len(),
            show(&args.path)
        ))
        .at(&args.path));
    }
    write(&path, text.as_bytes(), args.overwrite)?;
    Ok(MadeMirrorList {
        metalink: path,
        leaf_list: None,
        list: MirrorList::of(&metalink),
        of_directory: true,
        bytes: length,
    })
}

/// Hashes all files, one after the other, until `job` is stopped.
fn describe_all(args: &MakeMirrorList, files: &[FoundFile], job: &HashJob) -> Result<Vec<metalink::File>> {
    let mut described = Vec::new();
    for found in files {
        if job.is_stopped() {
            break;
        }
        let name = std::str::from_utf8(&found.relative).ok().filter(|name| is_safe_name(name));
        let name = name.ok_or_else(|| {
            Error::usage(format!(
                "a Metalink cannot name {}: expected a name in UTF-8 without controls",
                show(&found.path)
            ))
            .at(&found.path)
        })?;
        let bytes = piece_bytes(args.piece_bytes, found.length)?;
        let hashed =
            hash_found(found, bytes, job).map_err(|e| ErrorKind::System.cannot("read", &found.path, e))?;
        described.push(metalink::File {
            name: name.to_owned(),
            size: Some(hashed.id.length),
            hashes: Hashes { digests: Digests::of_sha256(hashed.sha256), blake3: Some(hashed.id.root) },
            pieces: (hashed.pieces.len() > 1)
                .then_some(Pieces { bytes, hashes: PieceHashes::Sha256(hashed.pieces) }),
            mirrors: mirrors(&args.urls, name)?,
            ..metalink::File::default()
        });
    }
    Ok(described)
}

fn hash_found(found: &FoundFile, piece_bytes: u64, job: &HashJob) -> io::Result<Hashed> {
    let file = open_file(&found.path)?;
    let identity = FileIdentity::to_hash(&file)?;
    let mut advance = |bytes| job.advance(bytes);
    let hashed = if identity.length <= READ_BYTES as u64 {
        hash_small(&file, identity.length, &mut advance)?
    } else {
        hash(&file, identity.length, piece_bytes, &mut advance)?
    };
    identity.check_hashed(&file)?;
    Ok(hashed)
}

/// Returns the URLs of a file of a directory that is at `urls`.
fn mirrors(urls: &[Url], name: &str) -> Result<Vec<Mirror>> {
    let path: Vec<String> = name.split('/').map(encode_component).collect();
    let path = path.join("/");
    make::mirrors(urls, |url| {
        let slash = if url.as_str().ends_with('/') { "" } else { "/" };
        Url::parse(&format!("{}{slash}{path}", url.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_files() {
        let urls = ["http://h/d", "http://h/d/", "https://g"].map(|url| Url::parse(url).expect("a URL"));
        let mirrors = mirrors(&urls, "a b/c#d").expect("mirrors");
        let urls: Vec<String> = mirrors.iter().map(|mirror| mirror.url.to_string()).collect();
        assert_eq!(urls, ["http://h/d/a%20b/c%23d", "https://g/a%20b/c%23d"]);
    }
}
