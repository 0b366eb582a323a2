//! What a whole file is held against, and its hashes.

use std::fs::File;

use mirror::digests::{Digests, Hasher};

use super::dest_path::DestPath;
use super::part::{interrupted, read_up_to};
use crate::Result;

/// What a file must be before it gets its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinalCheck {
    /// Its blocks together give the root of its id.
    Root,
    /// The same, where nobody could check the blocks as they came.
    Whole,
    /// It has these hashes, at least one. The root of its id only names the journal.
    Sha2(Digests),
    /// All its blocks are there: who brought them has checked what there was to check. Here too the root of
    /// its id only names the journal.
    Blocks,
}

pub(super) fn hash(place: &DestPath, file: &File, progress: &mut dyn FnMut(u64) -> bool) -> Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    read_all(place, file, progress, |bytes| {
        hasher.update(bytes);
    })?;
    Ok(*hasher.finalize().as_bytes())
}

pub(crate) struct Hashes {
    pub(crate) root: [u8; 32],
    /// Of the kinds that were asked for.
    pub(crate) digests: Digests,
}

/// The root of a file, and its hashes of the kinds that `wanted` has.
pub(super) fn hashes(
    place: &DestPath,
    file: &File,
    wanted: &Digests,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Hashes> {
    let (mut blake3, mut sha2) = (blake3::Hasher::new(), Hasher::of(wanted));
    read_all(place, file, progress, |bytes| {
        blake3.update(bytes);
        sha2.update(bytes);
    })?;
    Ok(Hashes { root: *blake3.finalize().as_bytes(), digests: sha2.finish() })
}

fn read_all(
    place: &DestPath,
    file: &File,
    progress: &mut dyn FnMut(u64) -> bool,
    mut each: impl FnMut(&[u8]),
) -> Result<()> {
    let (mut bytes, mut at) = (vec![0; 1 << 20], 0);
    loop {
        let read = read_up_to(file, &mut bytes, at);
        let read = read.map_err(|e| place.failure("read", place.name(), &e))?;
        each(&bytes[..read]);
        at += read as u64;
        if read == 0 {
            return Ok(());
        }
        if !progress(at) {
            return Err(interrupted());
        }
    }
}
