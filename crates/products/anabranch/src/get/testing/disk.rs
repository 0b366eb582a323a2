//! What is on the disk when a process is killed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// The bytes of all files in a directory.
pub(super) type Files = BTreeMap<OsString, Vec<u8>>;

/// All files in `dir`: what a process that is killed now leaves behind.
pub(super) fn files(dir: &Path) -> Files {
    let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
    entries.map(|entry| (entry.file_name(), fs::read(entry.path()).expect("a file"))).collect()
}

/// Makes `dir` as it was.
pub(super) fn restore(dir: &Path, as_it_was: &Files) {
    for name in files(dir).keys().filter(|name| !as_it_was.contains_key(*name)) {
        fs::remove_file(dir.join(name)).expect("a file");
    }
    for (name, bytes) in as_it_was {
        fs::write(dir.join(name), bytes).expect("a file");
    }
}
