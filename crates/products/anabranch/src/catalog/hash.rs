//! Hashes the files of a catalog on all processors.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::tree::{ChainingValue, Outboard, block_cv};

use super::cache;
use super::walk::FoundFile;
use crate::file_identity::{FileIdentity, open_file};
use crate::hashing::{HashJob, READ_BYTES, read_blocks};
use crate::monitor::lock;

/// The number of blocks of 16 KiB in one read.
const READ_GROUPS: u64 = (READ_BYTES / BLOCK_BYTES) as u64;
/// The length in bytes from which all threads hash a file together; each shorter file is hashed by one
/// thread.
const SHARED_BYTES: u64 = 8 << 20;
/// The time for which a file must have been unchanged before its hashes are kept. A file that changed later
/// may change again without a new time, because file systems count time in coarse steps.
const SETTLED: Duration = Duration::from_secs(1);

/// A hash tree, and the state of the file to which it belongs.
type Hashed = (Outboard, FileIdentity);

/// Hashes each file, or takes its hashes from the directory `cache`.
pub(super) fn all(job: &HashJob, cache: Option<&Path>, files: &[FoundFile]) -> Vec<io::Result<Hashed>> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let mut results: Vec<io::Result<_>> =
        files.iter().map(|_| Err(io::ErrorKind::Interrupted.into())).collect();
    let next = AtomicUsize::new(0);
    let small = Mutex::new(&mut results);
    thread::scope(|scope| {
        for _ in 0..threads.min(files.len()) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some(file) = files.get(n) else { break };
                    if file.length < SHARED_BYTES && !job.is_stopped() {
                        let result = one(job, cache, file, 1);
                        lock(&small)[n] = result;
                    }
                }
            });
        }
    });
    for (file, result) in files.iter().zip(&mut results) {
        if file.length >= SHARED_BYTES && !job.is_stopped() {
            *result = one(job, cache, file, threads);
        }
    }
    results
}

fn one(job: &HashJob, cache: Option<&Path>, found: &FoundFile, threads: usize) -> io::Result<Hashed> {
    let file = open_file(&found.path)?;
    let identity = FileIdentity::to_hash(&file)?;
    // Hashing a short file is as fast as reading its hashes.
    let cache = cache.filter(|_| identity.length > READ_BYTES as u64);
    if let Some(outboard) = cache.and_then(|dir| cache::load(dir, &found.path, &identity)) {
        let _ = job.advance(identity.length);
        return Ok((outboard, identity));
    }
    let outboard = hash(job, &file, identity.length, threads)?;
    identity.check_hashed(&file)?;
    if let Some(dir) = cache
        && has_settled(&identity)
    {
        // If the cache cannot be written, only the next start takes longer.
        let _ = cache::store(dir, &found.path, &identity, &outboard);
    }
    Ok((outboard, identity))
}

#[expect(
    clippy::disallowed_methods,
    reason = "compared with the times of a file, which are of the wall clock"
)]
fn has_settled(identity: &FileIdentity) -> bool {
    let changed = u64::try_from(identity.changed.0).unwrap_or(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now > Duration::from_secs(changed + 1) + SETTLED
}

/// Returns the hash tree of the first `length` bytes of a file.
pub(super) fn hash(job: &HashJob, file: &File, length: u64, threads: usize) -> io::Result<Outboard> {
    let mut advance = |bytes| job.advance(bytes);
    if length <= BLOCK_BYTES as u64 {
        let mut outboard = None;
        read_blocks(file, length, 0..1, &mut advance, |_, bytes| {
            outboard = Some(Outboard::of_bytes(bytes));
        })?;
        return Ok(outboard.unwrap_or_else(|| Outboard::of_bytes(&[])));
    }
    let next = AtomicU64::new(0);
    // Each thread takes the next part of the file that no thread has taken.
    let worker = || -> io::Result<Vec<(u64, Vec<ChainingValue>)>> {
        let mut done = Vec::new();
        let reads = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        read_blocks(file, length, reads, &mut |bytes| job.advance(bytes), |read, bytes| {
            let blocks = (read * READ_GROUPS..).zip(bytes.chunks(BLOCK_BYTES));
            done.push((read, blocks.map(|(block, bytes)| block_cv(block, bytes)).collect()));
        })?;
        Ok(done)
    };
    let mut parts = Vec::new();
    if threads == 1 {
        parts = worker()?;
    } else {
        let all = thread::scope(|scope| {
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            handles
                .into_iter()
                .map(|h| h.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
                .collect::<Vec<_>>()
        });
        for some in all {
            parts.extend(some?);
        }
    }
    parts.sort_unstable_by_key(|(read, _)| *read);
    let leaves = parts.into_iter().flat_map(|(_, leaves)| leaves).collect();
    Outboard::from_leaves(leaves, length).ok_or_else(|| io::Error::other("hashes do not fit the length"))
}
