//! Computes all hashes of a file in one reading: one thread reads, and three threads compute one kind each.

use std::fs::File;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::tree::{ChainingValue, block_cv, root_of_leaves};
use sha2::{Digest as _, Sha256};

use crate::Control;
use crate::hashing::{READ_BYTES, read_blocks};

/// The number of reads that wait for a thread.
const QUEUE_READS: usize = 8;

/// The hashes of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hashed {
    pub(super) id: ContentId,
    pub(super) sha256: [u8; 32],
    /// The SHA-256 of each piece.
    pub(super) pieces: Vec<[u8; 32]>,
    /// The chaining values of all blocks; none if there is at most one block.
    pub(super) leaves: Vec<ChainingValue>,
}

type Bytes = Arc<Vec<u8>>;

/// Hashes a file of `length` bytes, and its pieces of `piece_bytes`. `advance` counts the bytes that are
/// read.
///
/// # Errors
/// If the file cannot be read or is too short; `Interrupted` when `advance` answers [`Control::Stop`].
pub(super) fn hash(
    file: &File,
    length: u64,
    piece_bytes: u64,
    advance: &mut dyn FnMut(u64) -> Control,
) -> io::Result<Hashed> {
    thread::scope(|scope| {
        let (to_whole, reads) = sync_channel(QUEUE_READS);
        let whole = scope.spawn(move || whole(&reads));
        let (to_pieces, reads) = sync_channel(QUEUE_READS);
        let pieces = scope.spawn(move || pieces(&reads, piece_bytes));
        let (to_leaves, reads) = sync_channel(QUEUE_READS);
        let leaves = scope.spawn(move || leaves(&reads));
        let mut first = Bytes::default();
        read_blocks(file, length, 0.., advance, |number, bytes| {
            let bytes = Arc::new(mem::take(bytes));
            for to in [&to_whole, &to_pieces, &to_leaves] {
                // If a thread has panicked, that is found when it is joined.
                let _ = to.send(Arc::clone(&bytes));
            }
            if number == 0 {
                first = bytes;
            }
        })?;
        drop((to_whole, to_pieces, to_leaves));
        let sha256 = join(whole);
        let pieces = join(pieces);
        let mut leaves = join(leaves);
        let root = root_of_leaves(leaves.iter().copied()).unwrap_or_else(|| {
            // The content has at most 16 KiB: their hash is the root.
            leaves.clear();
            ContentId::of(&first).root
        });
        Ok(Hashed { id: ContentId { root, length }, sha256, pieces, leaves })
    })
}

/// Hashes a file of at most [`READ_BYTES`], without its pieces and leaves. Threads would take longer.
pub(super) fn hash_small(
    file: &File,
    length: u64,
    advance: &mut dyn FnMut(u64) -> Control,
) -> io::Result<Hashed> {
    debug_assert!(length <= READ_BYTES as u64, "it is read at once");
    let mut content = Vec::new();
    read_blocks(file, length, 0..1, advance, |_, bytes| content = mem::take(bytes))?;
    let (id, sha256) = (ContentId::of(&content), Sha256::digest(&content).into());
    Ok(Hashed { id, sha256, pieces: Vec::new(), leaves: Vec::new() })
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn whole(reads: &Receiver<Bytes>) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for bytes in reads {
        hasher.update(&*bytes);
    }
    hasher.finalize().into()
}

fn pieces(reads: &Receiver<Bytes>, piece_bytes: u64) -> Vec<[u8; 32]> {
    let (mut hashes, mut hasher, mut missing) = (Vec::new(), Sha256::new(), piece_bytes);
    for bytes in reads {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let len = missing.min(rest.len() as u64);
            let (part, more) = rest.split_at(len as usize);
            hasher.update(part);
            (rest, missing) = (more, missing - len);
            if missing == 0 {
                hashes.push(hasher.finalize_reset().into());
                missing = piece_bytes;
            }
        }
    }
    if missing < piece_bytes {
        hashes.push(hasher.finalize().into());
    }
    hashes
}

fn leaves(reads: &Receiver<Bytes>) -> Vec<ChainingValue> {
    let mut leaves = Vec::new();
    for bytes in reads {
        let first = leaves.len() as u64;
        leaves.extend((first..).zip(bytes.chunks(BLOCK_BYTES)).map(|(n, bytes)| block_cv(n, bytes)));
    }
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_mmtp::tree::Outboard;
    use std::io::Write as _;

    fn hash(content: &[u8], length: u64, piece_bytes: u64, answer: Control) -> io::Result<Hashed> {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(content).expect("room");
        let mut done = 0;
        let mut advance = |bytes| {
            done += bytes;
            answer
        };
        let hashed = super::hash(&file, length, piece_bytes, &mut advance)?;
        assert_eq!(done, length);
        Ok(hashed)
    }

    #[test]
    fn one_reading_gives_all() {
        let lengths = [0, 1, 16_383, 16_384, 16_385, 1 << 20, (1 << 20) + 1, 3_000_000];
        for (length, piece) in lengths.into_iter().flat_map(|l| [(l, 16_384), (l, 1 << 20), (l, 1_572_864)]) {
            let content: Vec<u8> = (0..length).map(|n| (n / 251) as u8).collect();
            let tree = Outboard::of_bytes(&content);
            let want = Hashed {
                id: tree.id(),
                sha256: Sha256::digest(&content).into(),
                pieces: content.chunks(piece).map(|piece| Sha256::digest(piece).into()).collect(),
                leaves: tree.leaves().to_vec(),
            };
            assert_eq!(
                hash(&content, length as u64, piece as u64, Control::Continue).expect("it is read"),
                want
            );
        }
    }

    #[test]
    fn it_stops() {
        assert!(hash(&[0; 10], 11, 16_384, Control::Continue).is_err(), "a file that has become shorter");
        let stopped = hash(&[0; 10], 10, 16_384, Control::Stop).expect_err("stopped");
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
    }
}
