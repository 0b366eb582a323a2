//! Makes the list of a file: its hashes, for which it is read once, and its mirrors.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anabranch_mirror::digests::{Digests, PieceHashes};
use anabranch_mirror::leaf_list::{self, LEAVES_MAX, LeafList};
use anabranch_mirror::metalink::{self, Hashes, MIRRORS_MAX, Metalink, Mirror, Pieces, is_safe_name};
use anabranch_mirror::url::{Url, encode_component};

use super::hash::{Hashed, hash};
use super::listed::MirrorList;
use super::make::{self, MadeMirrorList, MakeMirrorList, exists, piece_bytes, write};
use crate::file_identity::FileIdentity;
use crate::filenames::show;
use crate::hashing::HashJob;
use crate::{Control, Error, ErrorKind, Event, Result};

/// The content and the paths of the files to write, computed before the file is read.
struct Plan {
    name: String,
    mirrors: Vec<Mirror>,
    metalink: PathBuf,
    leaves: PathBuf,
}

impl Plan {
    fn of(args: &MakeMirrorList) -> Result<Self> {
        let named = args.path.file_name().and_then(|name| name.to_str()).filter(|name| is_safe_name(name));
        let name = named.ok_or_else(|| {
            let file = show(&args.path);
            Error::usage(format!("a Metalink cannot name {file}: expected a name in UTF-8 without controls"))
                .at(&args.path)
        })?;
        let directory = args.directory.as_deref().or(args.path.parent()).unwrap_or(Path::new(""));
        let at = |suffix: &str| directory.join(format!("{name}{suffix}"));
        Ok(Self {
            name: name.to_owned(),
            mirrors: mirrors(&args.urls, name)?,
            metalink: at(".meta4"),
            leaves: at(leaf_list::SUFFIX),
        })
    }
}

/// Returns the mirrors in the given order, each once.
fn mirrors(urls: &[Url], name: &str) -> Result<Vec<Mirror>> {
    let mirrors = make::mirrors(urls, |url| match url.path().ends_with('/') && !url.has_query() {
        true => url.join(&encode_component(name)),
        false => Ok(url.clone()),
    })?;
    match mirrors.len() {
        0..=MIRRORS_MAX => Ok(mirrors),
        n => Err(Error::usage(format!("{n} mirrors, expected at most {MIRRORS_MAX}"))),
    }
}

/// Writes the Metalink of a file, and its leaf list.
pub(super) fn make(
    args: &MakeMirrorList,
    listener: &mut dyn FnMut(Event) -> Control,
) -> Result<MadeMirrorList> {
    let plan = Plan::of(args)?;
    for path in [&plan.metalink, &plan.leaves] {
        if !args.overwrite && path.symlink_metadata().is_ok() {
            return Err(exists(path));
        }
    }
    let unreadable = |e: io::Error| ErrorKind::System.cannot("read", &args.path, e);
    let file = File::open(&args.path).map_err(|e| ErrorKind::Usage.cannot("read", &args.path, e))?;
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err(
            Error::usage(format!("cannot read {}: not a regular file", show(&args.path))).at(&args.path)
        );
    }
    let identity = FileIdentity::to_hash(&file).map_err(unreadable)?;
    let bytes = piece_bytes(args.piece_bytes, identity.length)?;
    let job = HashJob::default();
    job.set_total(identity.length);
    let work = || hash(&file, identity.length, bytes, &mut |bytes| job.advance(bytes));
    let hashed = args.watch(&job, listener, work)?.map_err(unreadable)?;
    identity.check_hashed(&file).map_err(unreadable)?;
    write_all(args, plan, hashed, bytes, listener)
}

fn write_all(
    args: &MakeMirrorList,
    plan: Plan,
    hashed: Hashed,
    bytes: u64,
    listener: &mut dyn FnMut(Event) -> Control,
) -> Result<MadeMirrorList> {
    let Hashed { id, sha256, pieces, leaves } = hashed;
    let list = if LeafList::encoded_len(id.length) <= LEAVES_MAX as u64 {
        let list =
            LeafList::new(id, leaves).ok_or_else(|| Error::system("the hashes do not fit together"))?;
        write(&plan.leaves, &list.encode(), args.overwrite)?;
        true
    } else {
        // The listener's answer is ignored: half of the files are written, so it is too late to stop.
        let _ =
            listener(Event::Notice("too long for a leaf list: the hashes of the pieces have to do".into()));
        false
    };
    let file = metalink::File {
        name: plan.name.clone(),
        size: Some(id.length),
        hashes: Hashes { digests: Digests::of_sha256(sha256), blake3: Some(id.root) },
        pieces: (!pieces.is_empty()).then_some(Pieces { bytes, hashes: PieceHashes::Sha256(pieces) }),
        mirrors: plan.mirrors,
        leaves: list.then(|| leaf_list::reference(&plan.name)),
        ..metalink::File::default()
    };
    let metalink = Metalink { files: vec![file] };
    let text =
        metalink.emit().map_err(|e| Error::usage(format!("no Metalink can say this: {e}")).because(e))?;
    write(&plan.metalink, text.as_bytes(), args.overwrite)?;
    Ok(MadeMirrorList {
        metalink: plan.metalink,
        leaf_list: list.then_some(plan.leaves),
        list: MirrorList::of(&metalink),
        of_directory: false,
        bytes: id.length,
    })
}

#[cfg(test)]
mod tests {
    use super::super::parse_url;
    use super::*;

    #[test]
    fn urls_of_mirrors() {
        let of = |urls: &[&str]| {
            let urls: Vec<Url> = urls.iter().map(|url| parse_url(url).unwrap()).collect();
            let mirrors = mirrors(&urls, "a b").unwrap();
            mirrors.iter().map(|m| format!("{} {}", m.priority, m.url)).collect::<Vec<_>>()
        };
        assert_eq!(of(&["http://h/x", "https://h/pub/"]), ["1 http://h/x", "2 https://h/pub/a%20b"]);
        assert_eq!(of(&["http://h/d/?n=x/"]), ["1 http://h/d/?n=x/"], "it names no directory");
        assert_eq!(of(&["http://h", "http://h/", "http://h/a%20b"]), ["1 http://h/a%20b"]);
        for bad in ["", "x", "ftp://h/x", "http://user:pass@h/x", "file:///x"] {
            assert!(parse_url(bad).is_err(), "{bad}");
        }
    }
}
