//! `mirror-list make` of a directory: one Metalink that describes all its files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mirror::metalink::{self, FILES_MAX, Hashes, METALINK_MAX, Metalink, Mirror, Pieces, is_safe_name};
use mirror::url::{Url, encode_component};
use mmtp::ContentId;
use mmtp::id::LENGTH_MAX;
use sha2::{Digest as _, Sha256};

use super::hash::{Hashed, Hashing};
use super::{Make, PIECE_BYTES, exists, piece_bytes, show, write};
use crate::catalog::{Builder, Found, Stamp, open_file, walk};
use crate::exit::{Failure, Outcome};
use crate::names::{hidden_warning, show as shown};

/// Writes the Metalink of the directory that was named.
pub(super) fn make(args: &Make, watch: impl FnOnce(&Work<'_>) -> Outcome<Vec<metalink::File>>) -> Outcome {
    // If it was named `.`, its real name.
    let real = match args.file.file_name() {
        Some(_) => args.file.clone(),
        None => args
            .file
            .canonicalize()
            .map_err(|e| Failure::usage(format!("cannot read {}: {e}", shown(&args.file))))?,
    };
    let name = real.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        Failure::usage(format!("{} has no name in UTF-8 to call a Metalink by", shown(&real)))
    })?;
    let beside = args.output.as_deref().or(real.parent()).unwrap_or(Path::new(""));
    let path = beside.join(format!("{name}.meta4"));
    if !args.force && path.symlink_metadata().is_ok() {
        return Err(exists(&path));
    }
    if let Some(url) = args.urls.iter().find(|url| url.has_query()) {
        return Err(Failure::usage(format!(
            "{url} has a query, so no file can be below it: the URL of a directory ends in / and has none"
        )));
    }
    let builder = Builder::default();
    let root = walk(&builder, &args.file)?;
    for warning in builder.warnings() {
        eprintln!("anabranch: {warning}");
    }
    let paths = root.files.iter().map(|file| &file.relative[..]);
    if let Some(warning) = hidden_warning(&args.file, paths) {
        eprintln!("anabranch: {warning}");
    }
    match root.files.len() {
        0 => return Err(Failure::usage(format!("{} has no files", shown(&args.file)))),
        n if n > FILES_MAX => {
            return Err(Failure::usage(format!(
                "{} has {n} files, and a Metalink describes at most {FILES_MAX}: make one of each directory \
                 in it, or pack small files into an archive",
                shown(&args.file)
            )));
        }
        _ => {}
    }
    let length = root.files.iter().map(|file| file.length).sum();
    let work = Work { args, files: root.files, length, done: AtomicU64::new(0) };
    let files = watch(&work)?;
    let metalink = Metalink { files };
    let text = metalink.emit().map_err(|e| Failure::usage(format!("no Metalink can say this: {e}")))?;
    if text.len() > METALINK_MAX {
        return Err(Failure::usage(format!(
            "the Metalink would have {} bytes, and {METALINK_MAX} are the most that is read: name fewer \
             mirrors, choose a larger --piece-size, or make one of each directory in {}",
            text.len(),
            shown(&args.file)
        )));
    }
    write(&path, text.as_bytes(), args.force)?;
    show::made_directory(args, &metalink.files, length, &path)
}

/// What there is to hash.
pub(super) struct Work<'a> {
    args: &'a Make,
    files: Vec<Found>,
    /// Bytes of all files.
    pub(super) length: u64,
    /// Bytes of files that are hashed.
    pub(super) done: AtomicU64,
}

impl Work<'_> {
    /// Hashes all files, one after the other, until it is to `stop`.
    ///
    /// # Errors
    /// If a file cannot be read or named, or changes meanwhile.
    pub(super) fn run(&self, stop: &AtomicBool) -> Outcome<Vec<metalink::File>> {
        let mut files = Vec::new();
        for found in &self.files {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let name = std::str::from_utf8(&found.relative).ok().filter(|name| is_safe_name(name));
            let name = name.ok_or_else(|| {
                Failure::usage(format!(
                    "a Metalink cannot name {}: expected a name in UTF-8 without controls",
                    shown(&found.path)
                ))
            })?;
            let bytes = piece_bytes(self.args.piece_size, found.length)?;
            let before = self.done.load(Ordering::Relaxed);
            let hashed = self.hash(found, bytes, stop).map_err(|e| unreadable(&found.path, &e))?;
            self.done.store(before + hashed.id.length, Ordering::Relaxed);
            files.push(metalink::File {
                name: name.to_owned(),
                size: Some(hashed.id.length),
                hashes: Hashes { sha256: Some(hashed.sha256), sha512: None, blake3: Some(hashed.id.root) },
                pieces: (hashed.pieces.len() > 1).then_some(Pieces { bytes, sha256: hashed.pieces }),
                mirrors: mirrors(&self.args.urls, name)?,
                ..metalink::File::default()
            });
        }
        Ok(files)
    }

    fn hash(&self, found: &Found, piece_bytes: u64, stop: &AtomicBool) -> io::Result<Hashed> {
        let file = open_file(&found.path)?;
        let stamp = Stamp::of(&file)?;
        if !file.metadata()?.is_file() || stamp.length > LENGTH_MAX {
            return Err(io::Error::other("not a regular file of at most 64 TiB"));
        }
        let hashed = match stamp.length {
            // Threads would take longer than hashing.
            0..=PIECE_BYTES => small(&file, stamp.length)?,
            length => Hashing { file: &file, length, piece_bytes, done: &AtomicU64::new(0), stop }.run()?,
        };
        match Stamp::of(&file)? == stamp {
            true => Ok(hashed),
            false => Err(io::Error::other("it changed while it was being hashed")),
        }
    }
}

/// The hashes of a short file, without pieces.
fn small(file: &File, length: u64) -> io::Result<Hashed> {
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let (id, sha256) = (ContentId::of(&bytes), Sha256::digest(&bytes).into());
    Ok(Hashed { id, sha256, pieces: Vec::new(), leaves: Vec::new() })
}

/// Where a file of the directory is, the directory being at these URLs.
fn mirrors(urls: &[Url], name: &str) -> Outcome<Vec<Mirror>> {
    let path: Vec<String> = name.split('/').map(encode_component).collect();
    let path = path.join("/");
    let mut mirrors: Vec<Mirror> = Vec::new();
    for url in urls {
        let bad = |e| Failure::usage(format!("{url}: {e}"));
        let slash = if url.as_str().ends_with('/') { "" } else { "/" };
        let url = Url::parse(&format!("{}{slash}{path}", url.as_str())).map_err(bad)?;
        if mirrors.iter().all(|mirror| mirror.url != url) {
            mirrors.push(Mirror { url, priority: mirrors.len() as u32 + 1, location: None });
        }
    }
    Ok(mirrors)
}

fn unreadable(path: &PathBuf, e: &io::Error) -> Failure {
    Failure::other(format!("cannot read {}: {e}", shown(path)))
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
