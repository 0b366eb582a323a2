//! Which blocks of an object are what was written: compared with the object's tree of hashes when they are
//! first sent, and then trusted.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::{BLOCK_BYTES, SEGMENT_BLOCKS};
use anabranch_mmtp::tree::{self, ChainingValue, CheckResult, PAGE_CVS, Verifier};

use crate::disk::Disk;
use crate::layout::{Entry, Layout, hashes_at};

/// The blocks that are read and compared at once.
const RUN_BLOCKS: u64 = 16;
const HASH_BYTES: usize = 32;
/// The error of a disk that cannot read a sector.
const EIO: i32 = 5;

/// The reason why bytes of an object cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// This block, or the hashes that prove it, are not what was written.
    #[error("block {0} is not what was written")]
    Damaged(u64),
    /// The system cannot read the image.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What is known of an object's blocks.
#[derive(Debug)]
pub struct Proof {
    id: ContentId,
    /// The place of the first byte in the image.
    data_at: u64,
    verifier: Mutex<Verifier>,
    /// A bit for each block that is right; a word for each segment.
    right: Box<[AtomicU64]>,
}

const _: () = assert!(SEGMENT_BLOCKS == u64::BITS as u64, "a segment has a word");

impl Proof {
    /// Begins with no block known.
    #[must_use]
    pub fn new(entry: &Entry, layout: &Layout) -> Self {
        let right = (0..entry.id.segments()).map(|_| AtomicU64::new(0)).collect();
        let data_at = layout.chunk_at(entry.first_chunk);
        Self { id: entry.id, data_at, verifier: Mutex::new(Verifier::new(entry.id)), right }
    }

    /// Returns the name and the length of the object.
    #[must_use]
    pub const fn id(&self) -> ContentId {
        self.id
    }

    /// Returns the place of a byte of the object in the image.
    #[must_use]
    pub const fn place(&self, offset: u64) -> u64 {
        self.data_at + offset
    }

    /// Returns once every block that these bytes are in has been compared with its hash, now or before.
    /// Blocks are read into `buffer`.
    ///
    /// # Errors
    /// The number of a damaged block, or the error of the system.
    pub fn prove(&self, disk: &dyn Disk, range: Range<u64>, buffer: &mut Vec<u8>) -> Result<(), ProofError> {
        let block_bytes = BLOCK_BYTES as u64;
        let (mut block, end) =
            (range.start / block_bytes, range.end.min(self.id.length).div_ceil(block_bytes));
        while block < end {
            if self.is_right(block) {
                block += 1;
                continue;
            }
            let segment_end = (block / SEGMENT_BLOCKS + 1) * SEGMENT_BLOCKS;
            let last = end.min(segment_end).min(block + RUN_BLOCKS);
            let run = (block..last).find(|next| self.is_right(*next)).unwrap_or(last);
            self.prove_run(disk, block..run, buffer)?;
            block = run;
        }
        if self.id.length == 0 && !self.id.is_empty_content() {
            return Err(ProofError::Damaged(0));
        }
        Ok(())
    }

    fn is_right(&self, block: u64) -> bool {
        let word = self.right.get((block / SEGMENT_BLOCKS) as usize);
        word.is_some_and(|word| word.load(Ordering::Acquire) >> (block % SEGMENT_BLOCKS) & 1 == 1)
    }

    /// Compares blocks of one segment.
    fn prove_run(&self, disk: &dyn Disk, run: Range<u64>, buffer: &mut Vec<u8>) -> Result<(), ProofError> {
        let bytes: usize = run.clone().map(|block| self.id.block_len(block)).sum();
        buffer.resize(bytes.max(buffer.len()), 0);
        let buffer = &mut buffer[..bytes];
        let at = self.place(run.start * BLOCK_BYTES as u64);
        disk.read_at(at, buffer).map_err(|error| damaged_if_lost(error, run.start))?;
        let mut verifier = self.verifier.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((level, page)) = verifier.missing_page(run.start) {
            let hashes = self.page(disk, level, page).map_err(|error| damaged_if_lost(error, run.start))?;
            let added = verifier.add_page(level, page, hashes.as_chunks::<HASH_BYTES>().0);
            added.map_err(|_| ProofError::Damaged(run.start))?;
        }
        let mut right = 0;
        let mut outcome = Ok(());
        for (block, bytes) in run.clone().zip(buffer.chunks(BLOCK_BYTES)) {
            match verifier.check(block, bytes) {
                CheckResult::Valid(_) => right |= 1 << (block % SEGMENT_BLOCKS),
                CheckResult::Invalid | CheckResult::PageMissing => {
                    outcome = Err(ProofError::Damaged(block));
                    break;
                }
            }
        }
        // The page is read again for the next run: memory does not grow with the object.
        let segment = run.start / SEGMENT_BLOCKS;
        if tree::levels(&self.id) > 1 {
            verifier.forget_page(0, segment);
        }
        self.right[segment as usize].fetch_or(right, Ordering::Release);
        outcome
    }

    /// Returns hashes of the tree, within one page, after they were compared with the root.
    ///
    /// # Errors
    /// If they are damaged or cannot be read.
    pub fn hashes(
        &self,
        disk: &dyn Disk,
        level: u8,
        first: u64,
        count: usize,
    ) -> Result<Vec<ChainingValue>, ProofError> {
        let mut verifier = self.verifier.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hashes = Vec::new();
        for above in (level..tree::levels(&self.id)).rev() {
            let page = first >> (PAGE_CVS.trailing_zeros() * u32::from(above - level + 1));
            if above > level && verifier.has_page(above, page) {
                continue;
            }
            let read = self.page(disk, above, page).map_err(|error| damaged_if_lost(error, first))?;
            hashes = read.as_chunks::<HASH_BYTES>().0.to_vec();
            verifier.add_page(above, page, &hashes).map_err(|_| ProofError::Damaged(first))?;
        }
        if level == 0 && tree::levels(&self.id) > 1 {
            verifier.forget_page(0, first / PAGE_CVS);
        }
        let from = (first % PAGE_CVS) as usize;
        let some = hashes.get(from..from + count).filter(|some| !some.is_empty());
        some.map(<[_]>::to_vec).ok_or(ProofError::Damaged(first))
    }

    /// Reads a page of hashes, which prove nothing yet.
    fn page(&self, disk: &dyn Disk, level: u8, page: u64) -> io::Result<Vec<u8>> {
        let mut hashes = vec![0; tree::page_len(&self.id, level, page) * HASH_BYTES];
        disk.read_at(self.hash_place(level, page * PAGE_CVS), &mut hashes)?;
        Ok(hashes)
    }

    /// Returns the place of a hash in the image.
    fn hash_place(&self, level: u8, number: u64) -> u64 {
        let before: u64 = (0..level).map(|below| tree::cvs(&self.id, below)).sum();
        self.place(hashes_at(self.id.length)) + (before + number) * HASH_BYTES as u64
    }

    /// The memory that it takes beyond its own size.
    const fn bytes(&self) -> usize {
        self.right.len() * 8
    }
}

/// Turns the error of a disk that has lost bytes into damage. Other errors damage nothing.
fn damaged_if_lost(error: io::Error, block: u64) -> ProofError {
    if error.kind() == io::ErrorKind::UnexpectedEof || error.raw_os_error() == Some(EIO) {
        return ProofError::Damaged(block);
    }
    error.into()
}

/// The most objects whose proofs are kept.
const KEPT_MAX: usize = 4_096;
/// The most bytes that their bits take: those of 128 GiB.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The proofs of the objects that were used last, each for an entry.
#[derive(Debug, Default)]
pub struct Proofs {
    kept: BTreeMap<u32, (u64, Arc<Proof>)>,
    order: VecDeque<u32>,
    bytes: usize,
}

impl Proofs {
    /// Returns the proof of an entry: the one that is kept, or a new one.
    pub fn get(&mut self, slot: u32, entry: &Entry, layout: &Layout) -> Arc<Proof> {
        match self.kept.get(&slot) {
            Some((generation, proof)) if *generation == entry.generation => return Arc::clone(proof),
            Some(_) => self.forget(slot),
            None => {}
        }
        let proof = Arc::new(Proof::new(entry, layout));
        self.bytes += proof.bytes();
        self.kept.insert(slot, (entry.generation, Arc::clone(&proof)));
        self.order.push_back(slot);
        while self.order.len() > KEPT_MAX || self.bytes > KEPT_BYTES_MAX && self.order.len() > 1 {
            let Some(oldest) = self.order.front().copied() else { break };
            self.forget(oldest);
        }
        proof
    }

    /// Forgets what is known of a slot's object.
    pub fn forget(&mut self, slot: u32) {
        if let Some((_, proof)) = self.kept.remove(&slot) {
            self.bytes -= proof.bytes();
            self.order.retain(|kept| *kept != slot);
        }
    }
}
