//! A whole file, held against hashes of its pieces.

use std::fs::File;

use anabranch_mirror::metalink::Pieces;
use anabranch_mmtp::ContentId;
use nix::fcntl::OFlag;

use super::dest_path::DestPath;
use super::existing::exists;
use super::journal_file::read_up_to;
use super::part::interrupted;
use crate::{Error, Result};

/// Bytes that are read in one go.
const READ_BYTES: u64 = 1 << 20;

/// What the place holds if that is a file with just these pieces. `progress` is called with the bytes read so
/// far and stops it by returning false.
///
/// # Errors
/// [`ErrorKind::Target`](crate::ErrorKind::Target) if a file is there that has others, and `force` does not
/// allow to replace it, or if it cannot be read; [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if
/// `progress` stopped it.
pub(crate) fn is_there_in_pieces(
    place: &DestPath,
    pieces: &Pieces,
    force: bool,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<ContentId>> {
    let Some(entry) = place.stat(place.name())?.filter(|entry| entry.file) else { return Ok(None) };
    let file =
        place.open(place.name(), OFlag::O_RDONLY).map_err(|e| place.failure("read", place.name(), e))?;
    let mut root = blake3::Hasher::new();
    let wrong = wrong_piece(place, &file, entry.length, pieces, &mut |bytes, all| {
        root.update(bytes);
        progress(all)
    })?;
    match wrong {
        None => Ok(Some(ContentId { root: *root.finalize().as_bytes(), length: entry.length })),
        Some(_) if force => Ok(None),
        Some(_) => Err(exists(&place.path())),
    }
}

/// The first byte of the first piece that `file`, of `length` bytes, does not have; where it has another
/// number of pieces, its end. `each` is called with what was read and how much that is so far, and stops it
/// by returning false.
///
/// # Errors
/// [`ErrorKind::Target`](crate::ErrorKind::Target) if it cannot be read,
/// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if `each` stopped it.
pub(crate) fn wrong_piece(
    place: &DestPath,
    file: &File,
    length: u64,
    pieces: &Pieces,
    each: &mut dyn FnMut(&[u8], u64) -> bool,
) -> Result<Option<u64>> {
    if !pieces.fit(length) {
        return Ok(Some(length));
    }
    let mut bytes = vec![0; READ_BYTES as usize];
    for (piece, hash) in (0..).zip(pieces.hashes.iter()) {
        let first = piece * pieces.bytes;
        let (mut at, end) = (first, length.min(first + pieces.bytes));
        let mut hasher = pieces.hashes.hasher();
        while at < end {
            let read = &mut bytes[..(end - at).min(READ_BYTES) as usize];
            let got = read_up_to(file, read, at).map_err(|e| place.failure("read", place.name(), e))?;
            if got < read.len() {
                return Err(Error::target("the file became shorter while it was read").at(place.path()));
            }
            hasher.update(read);
            at += got as u64;
            if !each(read, at) {
                return Err(interrupted());
            }
        }
        if !hasher.is(hash) {
            return Ok(Some(first));
        }
    }
    Ok(None)
}
