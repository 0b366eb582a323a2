//! Any manifest: one encoding, and no path that leaves its directory.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use anabranch_mmtp::collection::{Collection, MAGIC, is_file_name};

fuzz_target!(|bytes: &[u8]| {
    let _ = Collection::parse(bytes);
    let manifest = [MAGIC, bytes].concat();
    let Ok(collection) = Collection::parse(&manifest) else { return };
    assert_eq!(collection.encode(), manifest);
    let entries = collection.entries();
    let files: BTreeSet<&[u8]> = entries.iter().map(|entry| entry.path.as_slice()).collect();
    assert_eq!(files.len(), entries.len());
    for path in &files {
        assert!(path.split(|byte| *byte == b'/').all(is_file_name));
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        assert!(slashes.map(|(at, _)| &path[..at]).all(|directory| !files.contains(directory)));
    }
    let mut shuffled = entries.to_vec();
    shuffled.reverse();
    assert_eq!(Collection::new(shuffled).as_ref(), Ok(&collection));
});
