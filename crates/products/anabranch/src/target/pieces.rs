//! Compares a whole file with hashes of its pieces.

use std::fs::File;

use anabranch_mirror::metalink::Pieces;
use anabranch_mmtp::ContentId;
use nix::fcntl::OFlag;

use super::dest_path::DestPath;
use super::existing::exists;
use super::journal_file::read_up_to;
use super::part::interrupted;
use crate::{Error, Result};

/// The number of bytes that are read at once.
const READ_BYTES: u64 = 1 << 20;

/// Returns the root hash and the length of the file at `place` if all its pieces have the right hashes.
/// `progress` is called with the number of bytes read so far and stops the check by returning false.
///
/// # Errors
/// [`ErrorKind::Target`](crate::ErrorKind::Target) if the file has other pieces and `force` does not allow
/// replacing it, or if it cannot be read; [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if
/// `progress` stopped the check.
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

/// Returns the offset of the first wrong piece of `file`, which is `length` bytes long; if the file has
/// another number of pieces than `pieces`, its end. `each` is called with the bytes just read and the number
/// of bytes read so far, and stops the check by returning false.
///
/// # Errors
/// [`ErrorKind::Target`](crate::ErrorKind::Target) if the file cannot be read,
/// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if `each` stopped the check.
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
