//! Copies and restores the files that a killed process leaves on the disk.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Makes a directory for a run, in memory if the system has a file system in memory. On a disk, every `fsync`
/// of a run would take the disk's time.
pub(in crate::get) fn run_dir() -> tempfile::TempDir {
    let memory = tempfile::tempdir_in("/dev/shm");
    memory.or_else(|_| tempfile::tempdir()).expect("a directory")
}

/// The bytes of all files below a directory, by their paths in it.
pub(in crate::get) type Files = BTreeMap<OsString, Vec<u8>>;

/// Returns all files below `dir`: those that a process leaves if it is killed now.
pub(in crate::get) fn files(dir: &Path) -> Files {
    let (mut found, mut waiting) = (Files::new(), vec![PathBuf::new()]);
    while let Some(at) = waiting.pop() {
        for entry in fs::read_dir(dir.join(&at)).expect("a directory") {
            let entry = entry.expect("an entry");
            let path = at.join(entry.file_name());
            if entry.file_type().expect("its type").is_dir() {
                waiting.push(path);
            } else {
                found.insert(path.into(), fs::read(entry.path()).expect("a file"));
            }
        }
    }
    found
}

/// Makes the files below `dir` exactly `as_they_were`.
pub(in crate::get) fn restore(dir: &Path, as_they_were: &Files) {
    for name in files(dir).keys().filter(|name| !as_they_were.contains_key(*name)) {
        fs::remove_file(dir.join(name)).expect("a file");
    }
    for (name, bytes) in as_they_were {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, bytes).expect("a file");
    }
}
