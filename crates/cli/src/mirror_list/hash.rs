//! All hashes of a file in one reading of it: one thread reads, one each works out a kind.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use mmtp::ContentId;
use mmtp::id::BLOCK_BYTES;
use mmtp::tree::{ChainingValue, block_cv, root_of_leaves};
use sha2::{Digest as _, Sha256};

/// Bytes read at once: whole blocks.
const SEGMENT_BYTES: usize = 64 * BLOCK_BYTES;
/// Segments that wait for a thread.
const QUEUE_SEGMENTS: usize = 8;

/// What to hash.
pub(super) struct Hashing<'a> {
    pub(super) file: &'a File,
    pub(super) length: u64,
    /// Bytes of a piece.
    pub(super) piece_bytes: u64,
    /// Bytes read so far.
    pub(super) done: &'a AtomicU64,
    /// Set to stop.
    pub(super) stop: &'a AtomicBool,
}

/// The hashes of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hashed {
    pub(super) id: ContentId,
    pub(super) sha256: [u8; 32],
    /// SHA-256 of each piece.
    pub(super) pieces: Vec<[u8; 32]>,
    /// The chaining values of all blocks; none for at most one block.
    pub(super) leaves: Vec<ChainingValue>,
}

type Segment = Arc<Vec<u8>>;

impl Hashing<'_> {
    /// # Errors
    /// If the file cannot be read or is too short, or on [`stop`](Self::stop).
    pub(super) fn run(&self) -> io::Result<Hashed> {
        thread::scope(|scope| {
            let (to_whole, segments) = sync_channel(QUEUE_SEGMENTS);
            let whole = scope.spawn(move || whole(&segments));
            let (to_pieces, segments) = sync_channel(QUEUE_SEGMENTS);
            let pieces = scope.spawn(move || pieces(&segments, self.piece_bytes));
            let (to_leaves, segments) = sync_channel(QUEUE_SEGMENTS);
            let leaves = scope.spawn(move || leaves(&segments));
            let (mut at, mut first) = (0, Segment::default());
            while at < self.length {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                let len = (self.length - at).min(SEGMENT_BYTES as u64);
                let mut bytes = vec![0; len as usize];
                self.file.read_exact_at(&mut bytes, at)?;
                let segment = Arc::new(bytes);
                for to in [&to_whole, &to_pieces, &to_leaves] {
                    // A thread that has panicked is found when it is joined.
                    let _ = to.send(Arc::clone(&segment));
                }
                if at == 0 {
                    first = segment;
                }
                at += len;
                self.done.store(at, Ordering::Relaxed);
            }
            drop((to_whole, to_pieces, to_leaves));
            let sha256 = join(whole);
            let pieces = join(pieces);
            let mut leaves = join(leaves);
            let root = root_of_leaves(leaves.iter().copied()).unwrap_or_else(|| {
                // At most one block: its hash is the root.
                leaves.clear();
                ContentId::of(&first).root
            });
            Ok(Hashed { id: ContentId { root, length: self.length }, sha256, pieces, leaves })
        })
    }
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn whole(segments: &Receiver<Segment>) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for segment in segments {
        hasher.update(&*segment);
    }
    hasher.finalize().into()
}

fn pieces(segments: &Receiver<Segment>, piece_bytes: u64) -> Vec<[u8; 32]> {
    let (mut hashes, mut hasher, mut missing) = (Vec::new(), Sha256::new(), piece_bytes);
    for segment in segments {
        let mut rest = &segment[..];
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

fn leaves(segments: &Receiver<Segment>) -> Vec<ChainingValue> {
    let mut leaves = Vec::new();
    for segment in segments {
        let first = leaves.len() as u64;
        leaves.extend((first..).zip(segment.chunks(BLOCK_BYTES)).map(|(n, bytes)| block_cv(n, bytes)));
    }
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmtp::tree::Outboard;
    use std::io::Write as _;

    fn hash(content: &[u8], length: u64, piece_bytes: u64, stop: bool) -> io::Result<Hashed> {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(content).expect("room");
        let (done, stop) = (AtomicU64::new(0), AtomicBool::new(stop));
        let hashed = Hashing { file: &file, length, piece_bytes, done: &done, stop: &stop }.run()?;
        assert_eq!(done.into_inner(), length);
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
            assert_eq!(hash(&content, length as u64, piece as u64, false).expect("it is read"), want);
        }
    }

    #[test]
    fn it_stops() {
        assert!(hash(&[0; 10], 11, 16_384, false).is_err(), "a file that has become shorter");
        let stopped = hash(&[0; 10], 10, 16_384, true).expect_err("stopped");
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
    }
}
