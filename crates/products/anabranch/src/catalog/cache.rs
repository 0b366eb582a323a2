//! Keeps hashes between starts: one cache file for each file that was hashed, below the user's cache
//! directory.
//!
//! ```text
//!  0  magic "anabrhsh"      48  length, modified s, ns,       96  leaves, 32 bytes each
//!  8  version (8)               changed s, ns (8 each)      then  BLAKE3 of all before (32)
//! 16  root (32)             88  device, inode: (8), (8)
//! ```
//! Numbers are little-endian. A cache file that is not exactly right is ignored, and the file is hashed
//! again.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::tree::{ChainingValue, Outboard};

use crate::file_identity::FileIdentity;

/// The number of cache files that are kept; beyond that the oldest are removed.
pub(crate) const FILES_MAX: usize = 65_536;

const MAGIC: [u8; 8] = *b"anabrhsh";
const VERSION: u64 = 1;
const HEAD: usize = 104;

/// Returns the bytes of the cache file for a file in the state `identity`.
pub(crate) fn encode(identity: &FileIdentity, outboard: &Outboard) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + outboard.leaves().len() * 32 + 32);
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend(outboard.id().root);
    out.extend(head(identity));
    for leaf in outboard.leaves() {
        out.extend(leaf);
    }
    out.extend(blake3::hash(&out).as_bytes());
    out
}

fn head(identity: &FileIdentity) -> [u8; 56] {
    let numbers = [
        identity.length,
        identity.modified.0.cast_unsigned(),
        identity.modified.1.cast_unsigned(),
        identity.changed.0.cast_unsigned(),
        identity.changed.1.cast_unsigned(),
        identity.inode.0,
        identity.inode.1,
    ];
    let mut bytes = [0; 56];
    for (to, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        to.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// Reads a cache file. Returns `None` unless it is whole and about a file in exactly this state.
pub(crate) fn parse(bytes: &[u8], identity: &FileIdentity) -> Option<Outboard> {
    let (body, check) = bytes.split_last_chunk::<32>()?;
    let (fixed, leaves) = body.split_first_chunk::<HEAD>()?;
    let right = fixed[..8] == MAGIC && fixed[8..16] == VERSION.to_le_bytes() && fixed[48..] == head(identity);
    if !right || leaves.len() % 32 != 0 || blake3::hash(body).as_bytes() != check {
        return None;
    }
    let leaves: Vec<ChainingValue> =
        leaves.chunks_exact(32).filter_map(|leaf| leaf.try_into().ok()).collect();
    Outboard::from_leaves(leaves, identity.length).filter(|outboard| outboard.id().root == fixed[16..48])
}

pub(crate) fn load(dir: &Path, path: &Path, identity: &FileIdentity) -> Option<Outboard> {
    let file = file_for(dir, path);
    // A cache file of an unexpected length is not read into memory.
    let expected = HEAD as u64 + identity.length.div_ceil(BLOCK_BYTES as u64) * 32 + 32;
    (fs::metadata(&file).ok()?.len() == expected)
        .then(|| fs::read(&file).ok())?
        .and_then(|b| parse(&b, identity))
}

pub(crate) fn store(dir: &Path, path: &Path, identity: &FileIdentity, outboard: &Outboard) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let file = file_for(dir, path);
    let fresh = file.with_extension(format!("{}.new", std::process::id()));
    let write = || {
        let mut out = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        out.write_all(&encode(identity, outboard))?;
        fs::rename(&fresh, &file)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&fresh);
    })
}

/// Removes the oldest cache files if there are more than [`FILES_MAX`].
pub(crate) fn prune(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let excess = paths.len().saturating_sub(FILES_MAX);
    if excess > 0 {
        let age = |path: &PathBuf| fs::metadata(path).and_then(|meta| meta.modified()).ok();
        let mut aged: Vec<_> = paths.into_iter().map(|path| (age(&path), path)).collect();
        aged.sort_unstable();
        for (_, path) in aged.into_iter().take(excess) {
            let _ = fs::remove_file(path);
        }
    }
}

fn file_for(dir: &Path, path: &Path) -> PathBuf {
    dir.join(&blake3::hash(path.as_os_str().as_bytes()).to_hex().as_str()[..40])
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: FileIdentity =
        FileIdentity { inode: (1, 2), length: 3 * BLOCK_BYTES as u64, modified: (-3, 4), changed: (5, 6) };

    #[test]
    fn only_what_is_exactly_right_is_taken() {
        let outboard = Outboard::of_bytes(&[7; 3 * BLOCK_BYTES]);
        let bytes = encode(&IDENTITY, &outboard);
        assert_eq!(parse(&bytes, &IDENTITY), Some(outboard));
        for other in [
            FileIdentity { inode: (1, 3), ..IDENTITY },
            FileIdentity { inode: (0, 2), ..IDENTITY },
            FileIdentity { length: 1, ..IDENTITY },
            FileIdentity { modified: (-3, 5), ..IDENTITY },
            FileIdentity { changed: (6, 6), ..IDENTITY },
        ] {
            assert_eq!(parse(&bytes, &other), None);
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(&flipped, &IDENTITY), None);
        }
        for len in 0..bytes.len() {
            assert_eq!(parse(&bytes[..len], &IDENTITY), None);
        }
    }

    #[test]
    fn stored_and_loaded() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = dir.path().join("deep/er");
        let outboard = Outboard::of_bytes(&[7; 3 * BLOCK_BYTES]);
        let path = Path::new("/some/file");
        assert_eq!(load(&cache, path, &IDENTITY), None);
        for _ in 0..2 {
            store(&cache, path, &IDENTITY, &outboard).expect("stored");
            assert_eq!(load(&cache, path, &IDENTITY).as_ref(), Some(&outboard));
        }
        assert_eq!(load(&cache, Path::new("/other"), &IDENTITY), None);
        assert_eq!(fs::read_dir(&cache).expect("a directory").count(), 1);
        fs::write(file_for(&cache, path), b"rubbish").expect("a file");
        assert_eq!(load(&cache, path, &IDENTITY), None);
        prune(&cache);
    }
}
