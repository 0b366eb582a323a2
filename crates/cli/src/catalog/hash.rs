//! Hashes files, as fast as all processors together can.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mmtp::ContentId;
use mmtp::id::{BLOCK_BYTES, LENGTH_MAX, SEGMENT_BLOCKS};
use mmtp::tree::{ChainingValue, Outboard, block_cv};

use super::walk::Found;
use super::{Builder, Stamp, cache, open_file};

/// Bytes read at once.
const SEGMENT_BYTES: usize = SEGMENT_BLOCKS as usize * BLOCK_BYTES;
/// Files from this length on are hashed by all threads together, shorter ones by one thread each.
const SHARED_BYTES: u64 = 8 << 20;
/// A file that changed less than this before it was hashed may change again without a new time: file systems
/// count time in coarse steps. Its hashes are not kept.
const SETTLED: Duration = Duration::from_secs(1);

/// The hash tree of each file, and the state of the file that it belongs to.
pub(super) fn all(builder: &Builder, files: &[Found]) -> Vec<io::Result<(Outboard, Stamp)>> {
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
                    if file.length < SHARED_BYTES && !builder.stopped() {
                        let result = one(builder, file, 1);
                        small.lock().unwrap_or_else(PoisonError::into_inner)[n] = result;
                    }
                }
            });
        }
    });
    for (file, result) in files.iter().zip(&mut results) {
        if file.length >= SHARED_BYTES && !builder.stopped() {
            *result = one(builder, file, threads);
        }
    }
    results
}

fn one(builder: &Builder, found: &Found, threads: usize) -> io::Result<(Outboard, Stamp)> {
    let file = open_file(&found.path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file any more"));
    }
    let stamp = Stamp::of(&file)?;
    if stamp.length > LENGTH_MAX {
        return Err(io::Error::other("longer than 64 TiB"));
    }
    // Reading a few blocks is as fast as finding their hashes.
    let cache = builder.cache.as_ref().filter(|_| stamp.length > SEGMENT_BYTES as u64);
    if let Some(outboard) = cache.and_then(|dir| cache::load(dir, &found.path, &stamp)) {
        builder.hashed_bytes.fetch_add(stamp.length, Ordering::Relaxed);
        return Ok((outboard, stamp));
    }
    let outboard = hash(builder, &file, stamp.length, threads)?;
    if Stamp::of(&file)? != stamp {
        return Err(io::Error::other("it changed while it was being hashed; try again when it is at rest"));
    }
    if let Some(dir) = cache
        && has_settled(&stamp)
    {
        // A cache that cannot be written costs time at the next start, nothing else.
        let _ = cache::store(dir, &found.path, &stamp, &outboard);
    }
    Ok((outboard, stamp))
}

#[expect(
    clippy::disallowed_methods,
    reason = "compared with the times of a file, which are of the wall clock"
)]
fn has_settled(stamp: &Stamp) -> bool {
    let changed = u64::try_from(stamp.changed.0).unwrap_or(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now > Duration::from_secs(changed + 1) + SETTLED
}

fn hash(builder: &Builder, file: &File, length: u64, threads: usize) -> io::Result<Outboard> {
    if length <= BLOCK_BYTES as u64 {
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, 0)?;
        builder.hashed_bytes.fetch_add(length, Ordering::Relaxed);
        return Ok(Outboard::of_bytes(&bytes));
    }
    let id = ContentId { root: [0; 32], length };
    let next = AtomicU64::new(0);
    let worker = || -> io::Result<Vec<(u64, Vec<ChainingValue>)>> {
        let mut bytes = vec![0; SEGMENT_BYTES];
        let mut done = Vec::new();
        loop {
            let segment = next.fetch_add(1, Ordering::Relaxed);
            if segment >= id.segments() {
                return Ok(done);
            }
            if builder.stopped() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let offset = segment * SEGMENT_BYTES as u64;
            let len = (length - offset).min(SEGMENT_BYTES as u64) as usize;
            file.read_exact_at(&mut bytes[..len], offset)?;
            let blocks = (segment * SEGMENT_BLOCKS..).zip(bytes[..len].chunks(BLOCK_BYTES));
            done.push((segment, blocks.map(|(block, bytes)| block_cv(block, bytes)).collect()));
            builder.hashed_bytes.fetch_add(len as u64, Ordering::Relaxed);
        }
    };
    let mut segments = Vec::new();
    if threads == 1 {
        segments = worker()?;
    } else {
        let parts = thread::scope(|scope| {
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            handles
                .into_iter()
                .map(|h| h.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
                .collect::<Vec<_>>()
        });
        for part in parts {
            segments.extend(part?);
        }
    }
    segments.sort_unstable_by_key(|(segment, _)| *segment);
    let leaves = segments.into_iter().flat_map(|(_, leaves)| leaves).collect();
    Outboard::from_leaves(leaves, length).ok_or_else(|| io::Error::other("hashes do not fit the length"))
}
