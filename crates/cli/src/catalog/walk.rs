//! Finds the files below a path.
//!
//! A path that was named may be a symbolic link: whoever named it meant it. Below a named directory a link is
//! followed only to a regular file inside that directory; links that leave it, links to directories (which
//! may run in circles) and dangling ones are skipped with a warning, and so is everything that is no regular
//! file.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use mmtp::collection::ENTRIES_MAX;

use super::Builder;
use crate::exit::{Failure, Outcome};
use crate::names::show;
use crate::target::PART_PREFIX;

/// What is at a path that was named.
pub(crate) struct Root {
    pub(crate) path: PathBuf,
    pub(crate) directory: bool,
    /// The file itself, or all files below the directory.
    pub(crate) files: Vec<Found>,
}

/// A file that was found.
pub(crate) struct Found {
    /// Its real path, without links.
    pub(crate) path: PathBuf,
    /// Its path below the directory, components separated by `/`.
    pub(crate) relative: Vec<u8>,
    pub(crate) length: u64,
    pub(crate) executable: bool,
}

impl Found {
    fn new(path: PathBuf, relative: Vec<u8>, meta: &std::fs::Metadata) -> Self {
        Self { path, relative, length: meta.len(), executable: meta.permissions().mode() & 0o111 != 0 }
    }
}

pub(crate) fn walk(builder: &Builder, named: &Path) -> Outcome<Root> {
    let unreadable = |e: io::Error| Failure::usage(format!("cannot read {}: {e}", show(named)));
    let path = named.canonicalize().map_err(unreadable)?;
    let meta = path.metadata().map_err(unreadable)?;
    if meta.is_file() {
        let file = Found::new(path.clone(), Vec::new(), &meta);
        return Ok(Root { path, directory: false, files: vec![file] });
    }
    if !meta.is_dir() {
        return Err(Failure::usage(format!("cannot offer {}: neither a file nor a directory", show(named))));
    }
    std::fs::read_dir(&path).map_err(unreadable)?;
    let mut files = Vec::new();
    let mut dirs = vec![path.clone()];
    while let Some(dir) = dirs.pop() {
        if builder.stopped() {
            break;
        }
        match entries(&dir) {
            Ok(entries) => {
                for entry in entries {
                    match look(&path, &entry) {
                        Ok(Look::File(file)) => files.push(file),
                        Ok(Look::Directory) => dirs.push(entry),
                        Err(why) => builder.warn(format!("skipped {}: {why}", show(&entry))),
                    }
                }
            }
            Err(e) => builder.warn(format!("skipped {}: {e}", show(&dir))),
        }
        if files.len() > ENTRIES_MAX {
            return Err(Failure::other(format!(
                "cannot offer {}: more than {ENTRIES_MAX} files; offer parts of it",
                show(named)
            )));
        }
    }
    files.sort_unstable_by(|a, b| a.relative.cmp(&b.relative));
    Ok(Root { path, directory: true, files })
}

enum Look {
    File(Found),
    Directory,
}

fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
}

/// Whether a receiver made it and would refuse the name.
fn is_part(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let head = name.get(..PART_PREFIX.len()).unwrap_or_default();
    head.eq_ignore_ascii_case(PART_PREFIX.as_bytes())
}

fn look(root: &Path, path: &Path) -> Result<Look, String> {
    let meta = path.symlink_metadata().map_err(|e| e.to_string())?;
    let relative = path.strip_prefix(root).map_err(|e| e.to_string())?.as_os_str().as_bytes().to_vec();
    if is_part(path) {
        return Err("what a get left unfinished".into());
    }
    let kind = meta.file_type();
    if kind.is_dir() {
        return Ok(Look::Directory);
    }
    if kind.is_file() {
        return Ok(Look::File(Found::new(path.to_owned(), relative, &meta)));
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
    Ok(Look::File(Found::new(target, relative, &meta)))
}
