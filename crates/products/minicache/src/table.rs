//! The table in memory, and opens by name: no lock, no allocation.
//!
//! The index has a word of 64 bits for each name of each entry. A name belongs into the word that its first
//! bytes say, or into the first free one of the next 31: as there are twice as many words as names, that is
//! nearly always one of the same cache line. A word holds 32 further bits of the name, the slot, and
//! whether the entry's check has been made: it is made when the entry is first found, so that a start need
//! not hash the table.
//!
//! One thread at a time changes the table ([`insert`](Table::insert), [`close`](Table::close),
//! [`clear`](Table::clear)); any number look names up meanwhile. A slot that is pinned is not closed, so that
//! the chunks of an object that is being sent are not given to another one.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anabranch_cache::digest::Digest;

use crate::disk::Disk;
use crate::layout::{DIGEST_AT, ENTRY_BYTES, Entry, GENERATION_AT, Layout, ROOT_AT, names_at};
use crate::name::{Key, Name};

/// The words that a name may be in. Half of all are used, so that so many in a row are not used by chance.
const WORDS_TRIED: usize = 32;
/// The words of the index for each entry: two names, and as many free ones.
const WORDS_PER_ENTRY: usize = 4;
const ENTRY_WORDS: usize = ENTRY_BYTES / 8;
/// The bytes of the table that are read at once.
const READ_BYTES: usize = 256 << 10;

/// The bits of a word of the index that are of the name.
const TAG_BITS: u64 = !0 << 32;
/// The bit of a word of the index that says that the entry's check has been made.
const CHECKED: u64 = 1 << 31;
/// The bits of a word that hold the slot, plus one.
const SLOT_BITS: u64 = CHECKED - 1;
/// The bit of a slot's pins that says that the slot is closed.
const CLOSED: u32 = 1 << 31;

/// The use of an object since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// The answers that began.
    pub hits: u64,
    /// The bytes of it that were sent.
    pub bytes: u64,
    /// The second of the last answer, counted from the start of the process; 0 if there was none.
    pub last_s: u64,
}

#[derive(Debug, Default)]
struct Counted {
    hits: AtomicU64,
    bytes: AtomicU64,
    last_s: AtomicU64,
}

/// An object that was found: as much of its entry as an open needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The number of its entry.
    pub slot: u32,
    /// The entry's generation.
    pub generation: u64,
    /// The length in bytes.
    pub length: u64,
    /// The first of its chunks.
    pub first_chunk: u64,
}

/// The index has no place left near where a name belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowded;

/// The table of an image, in memory.
#[derive(Debug)]
pub struct Table {
    layout: Layout,
    /// The index, and then the entries: one piece of memory, for huge pages.
    words: Box<[AtomicU64]>,
    pins: Box<[AtomicU32]>,
    uses: Box<[Counted]>,
}

fn zeros<T: Default>(count: usize) -> Box<[T]> {
    (0..count).map(|_| T::default()).collect()
}

impl Table {
    /// Reads the table of an image.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(disk: &dyn Disk, layout: Layout) -> io::Result<Self> {
        let entries = layout.entries() as usize;
        let index_words = entries * WORDS_PER_ENTRY;
        let mut words: Vec<AtomicU64> = Vec::with_capacity(index_words + entries * ENTRY_WORDS);
        anabranch_net::prefer_huge_pages(words.spare_capacity_mut());
        words.resize_with(index_words, AtomicU64::default);
        let mut buffer = vec![0; READ_BYTES.min(entries * ENTRY_BYTES)];
        for first in (0..layout.entries()).step_by(buffer.len() / ENTRY_BYTES) {
            disk.read_at(layout.entry_at(first), &mut buffer)?;
            words.extend(buffer.as_chunks().0.iter().map(|word| AtomicU64::new(u64::from_le_bytes(*word))));
            let index = &mut words[..index_words];
            for (slot, bytes) in (first..).zip(buffer.as_chunks::<ENTRY_BYTES>().0) {
                let Some([root, digest]) = names_at(bytes) else { continue };
                for key in [Key::of(&bytes[root..]), Key::of(&bytes[digest..])] {
                    // An entry that finds no place is not found; `Image::check` tells it.
                    if let Some(word) = next_free(index, key, usize::MAX) {
                        *index[word].get_mut() = word_of(key, slot);
                    }
                }
            }
        }
        Ok(Self { layout, words: words.into_boxed_slice(), pins: zeros(entries), uses: zeros(entries) })
    }

    /// Returns the shape of the image.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Finds an object by its name, which is compared as a whole.
    #[must_use]
    pub fn find(&self, name: &Name) -> Option<Found> {
        let key = name.key();
        let tag = key.1 & TAG_BITS;
        for place in places(self.index(), key) {
            let word = self.index()[place].load(Ordering::Acquire);
            if word & TAG_BITS != tag || word & SLOT_BITS == 0 {
                continue;
            }
            let slot = (word & SLOT_BITS) as u32 - 1;
            let words = self.words(slot);
            if !has_name(words, name) {
                continue;
            }
            if word & CHECKED == 0 {
                if self.entry(slot).is_none() {
                    continue;
                }
                let checked = word | CHECKED;
                let (all, seen) = (Ordering::AcqRel, Ordering::Relaxed);
                let _ = self.index()[place].compare_exchange(word, checked, all, seen);
            }
            let [generation, length, first_chunk] =
                [1, 2, 3].map(|at: usize| words[at].load(Ordering::Acquire));
            return Some(Found { slot, generation, length, first_chunk });
        }
        None
    }

    /// Pins an object that was found. Returns `false` if the slot has been given to another one meanwhile;
    /// otherwise the caller calls [`unpin`](Self::unpin) once.
    #[must_use]
    pub fn pin(&self, found: &Found) -> bool {
        let pins = self.pins[found.slot as usize].fetch_add(1, Ordering::AcqRel);
        let generation = &self.words(found.slot)[GENERATION_AT / 8];
        let is_same = pins & CLOSED == 0 && generation.load(Ordering::Acquire) == found.generation;
        if !is_same {
            self.unpin(found.slot);
        }
        is_same
    }

    /// Returns the entry of an object that is pinned: its check was made when it was found.
    #[must_use]
    pub fn pinned(&self, found: &Found) -> Option<Entry> {
        Entry::decode(&self.bytes(found.slot), &self.layout)
    }

    /// Ends one use of a slot that [`pin`](Self::pin) began.
    pub fn unpin(&self, slot: u32) {
        self.pins[slot as usize].fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns the entry of a slot, after its check. Returns `None` if it is empty or damaged.
    #[must_use]
    pub fn entry(&self, slot: u32) -> Option<Entry> {
        // Most slots of a new image are empty: one word tells.
        if self.words(slot)[0].load(Ordering::Relaxed) == 0 {
            return None;
        }
        Entry::parse(&self.bytes(slot), &self.layout)
    }

    fn bytes(&self, slot: u32) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(self.words(slot)) {
            *to = word.load(Ordering::Acquire).to_le_bytes();
        }
        bytes
    }

    /// Returns the slots whose entries are whole, with these.
    pub fn entries(&self) -> impl Iterator<Item = (u32, Entry)> {
        (0..self.layout.entries()).filter_map(|slot| Some((slot, self.entry(slot)?)))
    }

    /// Returns whether a slot has bytes that are neither zeros nor a whole entry.
    #[must_use]
    pub fn is_damaged(&self, slot: u32) -> bool {
        let is_zero = self.words(slot).iter().all(|word| word.load(Ordering::Relaxed) == 0);
        !is_zero && self.entry(slot).is_none()
    }

    /// Puts an entry into a slot that is empty or damaged, after it was written.
    ///
    /// # Errors
    /// [`Crowded`] if a name finds no place; the slot is as it was.
    pub fn insert(&self, slot: u32, entry: &Entry) -> Result<(), Crowded> {
        let names = entry.names();
        let keys = names.map(|name| name.key());
        let first = next_free(self.index(), keys[0], usize::MAX).ok_or(Crowded)?;
        let second = next_free(self.index(), keys[1], first).ok_or(Crowded)?;
        let bytes = entry.encode();
        for (word, bytes) in self.words(slot).iter().zip(bytes.as_chunks().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Release);
        }
        for (place, key) in [first, second].into_iter().zip(keys) {
            self.index()[place].store(word_of(key, slot) | CHECKED, Ordering::Release);
        }
        Ok(())
    }

    /// Makes an object that no answer uses impossible to find. Returns whether it was possible: then
    /// [`clear`](Self::clear) follows.
    #[must_use]
    pub fn close(&self, slot: u32) -> bool {
        let pins = &self.pins[slot as usize];
        if pins.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        for name in self.entry(slot).iter().flat_map(Entry::names) {
            for place in places(self.index(), name.key()) {
                if self.index()[place].load(Ordering::Acquire) & SLOT_BITS == u64::from(slot) + 1 {
                    self.index()[place].store(0, Ordering::Release);
                }
            }
        }
        true
    }

    /// Makes a slot that was closed free.
    pub fn clear(&self, slot: u32) {
        self.words(slot).iter().for_each(|word| word.store(0, Ordering::Release));
        let Counted { hits, bytes, last_s } = &self.uses[slot as usize];
        [hits, bytes, last_s].into_iter().for_each(|number| number.store(0, Ordering::Relaxed));
        // A late reader may have added itself: it will take itself away.
        self.pins[slot as usize].fetch_sub(CLOSED, Ordering::AcqRel);
    }

    /// Counts an answer that began in second `now_s` of the process.
    pub fn count_hit(&self, slot: u32, now_s: u64) {
        let counted = &self.uses[slot as usize];
        counted.hits.fetch_add(1, Ordering::Relaxed);
        counted.last_s.store(now_s, Ordering::Relaxed);
    }

    /// Counts bytes of an object that were sent.
    pub fn count_bytes(&self, slot: u32, bytes: u64) {
        self.uses[slot as usize].bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the use of an object since the start.
    #[must_use]
    pub fn uses(&self, slot: u32) -> Use {
        let Counted { hits, bytes, last_s } = &self.uses[slot as usize];
        let [hits, bytes, last_s] = [hits, bytes, last_s].map(|number| number.load(Ordering::Relaxed));
        Use { hits, bytes, last_s }
    }

    fn index(&self) -> &[AtomicU64] {
        &self.words[..self.pins.len() * WORDS_PER_ENTRY]
    }

    fn words(&self, slot: u32) -> &[AtomicU64] {
        &self.words[self.pins.len() * WORDS_PER_ENTRY + slot as usize * ENTRY_WORDS..][..ENTRY_WORDS]
    }
}

/// Whether the words of an entry say that it has this name.
fn has_name(words: &[AtomicU64], name: &Name) -> bool {
    let (at, kind) = match name {
        Name::Root(_) => (ROOT_AT, None),
        Name::Digest(Digest::Sha256(_)) => (DIGEST_AT, Some(0)),
        Name::Digest(Digest::Sha512(_)) => (DIGEST_AT, Some(1)),
        Name::Digest(Digest::Sha512Of256(_)) => (DIGEST_AT, Some(2)),
    };
    // The kind is the byte after the magic.
    let same_kind = kind.is_none_or(|kind| words[0].load(Ordering::Acquire) >> 32 & 0xff == kind);
    let wanted = name.bytes().as_chunks().0;
    // Without a branch for each word.
    let differ = wanted.iter().zip(&words[at / 8..]).fold(0, |differ, (wanted, word)| {
        differ | (word.load(Ordering::Acquire) ^ u64::from_le_bytes(*wanted))
    });
    same_kind && differ == 0
}

const _: () = assert!(GENERATION_AT == 8, "`find` reads generation, length and first chunk as words 1 to 3");

/// Returns the places of the index that a name may be in.
fn places(index: &[AtomicU64], key: Key) -> impl Iterator<Item = usize> + use<> {
    let mask = index.len() - 1;
    (0..WORDS_TRIED).map(move |n| (key.0 as usize).wrapping_add(n) & mask)
}

/// Returns a free place for a name, other than `taken`.
fn next_free(index: &[AtomicU64], key: Key, taken: usize) -> Option<usize> {
    places(index, key).find(|place| *place != taken && index[*place].load(Ordering::Relaxed) == 0)
}

fn word_of(key: Key, slot: u32) -> u64 {
    key.1 & TAG_BITS | (u64::from(slot) + 1)
}

#[cfg(test)]
mod tests;
