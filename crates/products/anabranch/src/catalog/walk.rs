//! Finds the files below a path.
//!
//! A path that the caller names may be a symbolic link; it is followed. Below a named directory, a link is
//! followed only to a regular file inside that directory. Links that leave the directory, links to
//! directories (which may form a cycle) and dangling links are skipped with a warning. So is everything else
//! that is not a regular file.

use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anabranch_mmtp::collection::ENTRIES_MAX;

use super::warnings::Warnings;
use crate::filenames::show;
use crate::hashing::HashJob;
use crate::target::is_reserved;
use crate::{Error, ErrorKind, Result};

/// The file or directory at a path that the caller named.
pub(crate) struct Root {
    pub(crate) path: PathBuf,
    pub(crate) directory: bool,
    /// The file itself, or all files below the directory.
    pub(crate) files: Vec<FoundFile>,
}

/// A file that was found at a named path or below it.
pub(crate) struct FoundFile {
    /// The real path, without links.
    pub(crate) path: PathBuf,
    /// The path below the directory, with components separated by `/`.
    pub(crate) relative: Vec<u8>,
    /// The length in bytes when the file was found.
    pub(crate) length: u64,
    pub(crate) executable: bool,
}

impl FoundFile {
    fn new(path: PathBuf, relative: Vec<u8>, meta: &Metadata) -> Self {
        Self { path, relative, length: meta.len(), executable: meta.permissions().mode() & 0o111 != 0 }
    }
}

/// Checks that a path can be offered: a file, or a directory that can be listed. Returns it without links.
///
/// # Errors
/// If the path does not exist, is not readable, or is neither a file nor a directory.
pub(crate) fn check(named: &Path) -> Result<(PathBuf, Metadata)> {
    let unreadable = |e: io::Error| ErrorKind::Usage.cannot("read", named, e);
    let path = named.canonicalize().map_err(unreadable)?;
    let meta = path.metadata().map_err(unreadable)?;
    if meta.is_dir() {
        std::fs::read_dir(&path).map_err(unreadable)?;
    } else if !meta.is_file() {
        return Err(
            Error::usage(format!("cannot offer {}: neither a file nor a directory", show(named))).at(named)
        );
    }
    Ok((path, meta))
}

/// Finds the file at a named path, or all files below it, sorted by their relative paths. Reports skipped
/// entries to `warnings`. Ends early when `job` is stopped.
///
/// # Errors
/// If the path cannot be offered, or has too many files.
pub(crate) fn walk(named: &Path, job: &HashJob, warnings: &Warnings) -> Result<Root> {
    let (path, meta) = check(named)?;
    if meta.is_file() {
        let file = FoundFile::new(path.clone(), Vec::new(), &meta);
        return Ok(Root { path, directory: false, files: vec![file] });
    }
    let mut files = Vec::new();
    let mut dirs = vec![path.clone()];
    while let Some(dir) = dirs.pop() {
        if job.is_stopped() {
            break;
        }
        match entries(&dir) {
            Ok(entries) => {
                for entry in entries {
                    match inspect(&path, &entry) {
                        Ok(Entry::File(file)) => files.push(file),
                        Ok(Entry::Directory) => dirs.push(entry),
                        Err(why) => warnings.add(format!("skipped {}: {why}", show(&entry))),
                    }
                }
            }
            Err(e) => warnings.add(format!("skipped {}: {e}", show(&dir))),
        }
        if files.len() > ENTRIES_MAX {
            return Err(Error::system(format!(
                "cannot offer {}: more than {ENTRIES_MAX} files; offer parts of it",
                show(named)
            ))
            .at(named));
        }
    }
    files.sort_unstable_by(|a, b| a.relative.cmp(&b.relative));
    Ok(Root { path, directory: true, files })
}

enum Entry {
    File(FoundFile),
    Directory,
}

fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
}

/// Returns the kind of an entry below `root`, or the reason why it is skipped.
fn inspect(root: &Path, path: &Path) -> Result<Entry, String> {
    let meta = path.symlink_metadata().map_err(|e| e.to_string())?;
    let relative = path.strip_prefix(root).map_err(|e| e.to_string())?.as_os_str().as_bytes().to_vec();
    // A download made this file, and receivers would refuse its name.
    if is_reserved(path.file_name().unwrap_or_default().as_bytes()) {
        return Err("what a get left unfinished".into());
    }
    let kind = meta.file_type();
    if kind.is_dir() {
        return Ok(Entry::Directory);
    }
    if kind.is_file() {
        return Ok(Entry::File(FoundFile::new(path.to_owned(), relative, &meta)));
    }
    if !kind.is_symlink() {
        return Err("neither a file nor a directory".into());
    }
    let target = path.canonicalize().map_err(|_| "a symbolic link to nowhere".to_owned())?;
    if !target.starts_with(root) {
        return Err(format!("a symbolic link that leaves {}", show(root)));
    }
    let meta = target.symlink_metadata().map_err(|e| e.to_string())?;
    if !meta.is_file() {
        return Err("a symbolic link to something that is no file".into());
    }
    Ok(Entry::File(FoundFile::new(target, relative, &meta)))
}
