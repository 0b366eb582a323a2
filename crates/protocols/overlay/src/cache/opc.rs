//! Object-oriented packet caching (Y. Thomas, G. Xylomenos, C. Tsilopoulos, G. C. Polyzos, Object-oriented
//! Packet Caching for ICN, ACM ICN 2015).
//!
//! Contents are read in order, so the end of a content is useless without its beginning. The cache holds a
//! run of chunks of an object, from its first chunk on: one entry of the index, with the length of the run,
//! stands for all of them. A chunk is stored if it is the first of its object or follows the run. Room is
//! made at the end of the object that was not *asked for* for the longest time; storing a chunk does not
//! count as a use. An object never makes room for itself.
//!
//! The objects are segments, under a cut. With several paths, a cache would see only a part of a whole
//! content, and hardly ever the chunk that comes next.

use std::collections::BTreeMap;

use anabranch_mmtp::id::SEGMENT_BLOCKS;
use anabranch_mmtp::{ChunksPerBlock, ContentId};

use super::key::ChunkKey;

/// The bytes that an object takes besides its chunks: its key twice, and its entries in two trees.
const OBJECT_BYTES: usize = 192;
/// The bytes that a chunk takes besides its payload: pointer and length, twice, because a list grows by
/// doubling.
const CHUNK_BYTES: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ObjectKey {
    content: ContentId,
    cut: ChunksPerBlock,
    segment: u64,
}

struct Object {
    used: u64,
    /// The chunks, from the first of the object on.
    chunks: Vec<Box<[u8]>>,
}

/// The cache; see the [module](self).
pub(super) struct Opc {
    objects: BTreeMap<ObjectKey, Object>,
    /// The keys of the objects, by their last use.
    order: BTreeMap<u64, ObjectKey>,
    /// Counts the uses; each use has a number of its own.
    uses: u64,
    stored: usize,
    capacity: usize,
    /// The number of blocks in an object.
    blocks: u64,
}

impl Opc {
    /// Creates an empty cache of `capacity` bytes whose objects are segments.
    pub(super) const fn of_segments(capacity: usize) -> Self {
        Self::new(capacity, SEGMENT_BLOCKS)
    }

    /// Creates an empty cache of `capacity` bytes whose objects are whole contents.
    pub(super) const fn of_contents(capacity: usize) -> Self {
        Self::new(capacity, u64::MAX)
    }

    const fn new(capacity: usize, blocks: u64) -> Self {
        Self { objects: BTreeMap::new(), order: BTreeMap::new(), uses: 0, stored: 0, capacity, blocks }
    }

    /// Returns the bytes held, index included.
    pub(super) const fn stored(&self) -> usize {
        self.stored
    }

    /// Returns the object of a chunk, and the position of the chunk in it.
    fn place(&self, key: &ChunkKey) -> (ObjectKey, usize) {
        let per_object = self.blocks.saturating_mul(u64::from(key.cut.get()));
        let object = ObjectKey { content: key.content, cut: key.cut, segment: key.chunk / per_object };
        (object, usize::try_from(key.chunk % per_object).unwrap_or(usize::MAX))
    }

    /// Returns the chunk. Its object is then the last to lose a chunk.
    pub(super) fn get(&mut self, key: &ChunkKey) -> Option<&[u8]> {
        let (key, i) = self.place(key);
        let object = self.objects.get_mut(&key)?;
        let chunk = object.chunks.get(i)?;
        self.order.remove(&object.used);
        self.uses += 1;
        object.used = self.uses;
        self.order.insert(self.uses, key);
        Some(chunk)
    }

    /// Offers a chunk that passes. Returns whether it was stored; a different chunk with its key and length
    /// is replaced.
    pub(super) fn insert(&mut self, key: &ChunkKey, bytes: &[u8]) -> bool {
        let (key, i) = self.place(key);
        let Some(object) = self.objects.get_mut(&key) else {
            return i == 0 && self.insert_object(key, bytes);
        };
        if let Some(here) = object.chunks.get_mut(i) {
            // A chunk has one length; if this one has another, the stored chunk stays.
            let replaces = **here != *bytes && here.len() == bytes.len();
            if replaces {
                *here = bytes.into();
            }
            return replaces;
        }
        if i != object.chunks.len() {
            return false;
        }
        let size = bytes.len() + CHUNK_BYTES;
        if !self.make_room(size, Some(&key)) {
            return false;
        }
        if let Some(object) = self.objects.get_mut(&key) {
            object.chunks.push(bytes.into());
            self.stored += size;
        }
        true
    }

    fn insert_object(&mut self, key: ObjectKey, bytes: &[u8]) -> bool {
        let size = bytes.len() + CHUNK_BYTES + OBJECT_BYTES;
        if !self.make_room(size, None) {
            return false;
        }
        self.uses += 1;
        self.order.insert(self.uses, key);
        self.objects.insert(key, Object { used: self.uses, chunks: vec![bytes.into()] });
        self.stored += size;
        true
    }

    /// Makes room for `size` bytes, but not in the object `growing`. Returns `false` if there is no room.
    fn make_room(&mut self, size: usize, growing: Option<&ObjectKey>) -> bool {
        if size > self.capacity {
            return false;
        }
        while self.stored + size > self.capacity {
            let Some((used, key)) = self.order.first_key_value().map(|(used, key)| (*used, *key)) else {
                return false;
            };
            if Some(&key) == growing {
                return false;
            }
            let last = self.objects.get_mut(&key).and_then(|object| object.chunks.pop());
            self.stored -= last.map_or(0, |last| last.len() + CHUNK_BYTES);
            if self.objects.get(&key).is_none_or(|object| object.chunks.is_empty()) {
                self.order.remove(&used);
                self.stored -= self.objects.remove(&key).map_or(0, |_| OBJECT_BYTES);
            }
        }
        true
    }

    /// Checks that both indices have the same keys, that no object is empty, and that the sizes add up.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut sum = 0;
        for (key, object) in &self.objects {
            assert!(!object.chunks.is_empty() && self.order.get(&object.used) == Some(key));
            sum += OBJECT_BYTES + object.chunks.iter().map(|chunk| chunk.len() + CHUNK_BYTES).sum::<usize>();
        }
        assert!(self.stored == sum && sum <= self.capacity, "{} of {sum}", self.stored);
        assert_eq!(self.order.len(), self.objects.len());
    }

    /// Returns the objects, those that lose chunks next first: the first byte of the content's root, the
    /// number of the segment, and the number of stored chunks.
    #[cfg(test)]
    pub(super) fn by_use(&self) -> Vec<(u8, u64, usize)> {
        let len = |key: &ObjectKey| self.objects.get(key).map_or(0, |object| object.chunks.len());
        self.order.values().map(|key| (key.content.root[0], key.segment, len(key))).collect()
    }
}
