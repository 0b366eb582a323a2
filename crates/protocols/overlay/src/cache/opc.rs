//! Object-oriented packet caching (Y. Thomas, G. Xylomenos, C. Tsilopoulos, G. C. Polyzos, Object-oriented
//! Packet Caching for ICN, ACM ICN 2015).
//!
//! Contents are read in order, so the end of one is of no use without its beginning. What is here of an
//! object is a run of chunks from its first on: one entry of the index for all of them, which says how many.
//! A chunk is taken in if it is the first, or follows the last that is here. Room is made at the end of the
//! object that was not *asked for* for longest; that a chunk comes in does not count as a use. An object
//! never makes room for itself.
//!
//! The objects are segments, under a cut. Of a whole content a cache would see only what goes over its own
//! path: with several paths that is hardly ever the next chunk.

use std::collections::BTreeMap;

use anabranch_mmtp::id::SEGMENT_BLOCKS;
use anabranch_mmtp::{ChunksPerBlock, ContentId};

use super::key::ChunkKey;

/// What an object takes besides its chunks: its key twice, its place in two trees.
const OBJECT_BYTES: usize = 192;
/// What a chunk takes besides its bytes: pointer and length, twice, because a list grows by doubling.
const CHUNK_BYTES: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ObjectKey {
    content: ContentId,
    cut: ChunksPerBlock,
    segment: u64,
}

struct Object {
    used: u64,
    /// From the first of the object on.
    chunks: Vec<Box<[u8]>>,
}

/// See the [module](self).
pub(super) struct Opc {
    objects: BTreeMap<ObjectKey, Object>,
    /// The objects by when they were last asked for.
    order: BTreeMap<u64, ObjectKey>,
    /// Counts uses.
    uses: u64,
    stored: usize,
    capacity: usize,
    /// Blocks of an object.
    blocks: u64,
}

impl Opc {
    /// An empty cache of `capacity` bytes, for segments.
    pub(super) const fn of_segments(capacity: usize) -> Self {
        Self::new(capacity, SEGMENT_BLOCKS)
    }

    /// The same for whole contents.
    pub(super) const fn of_contents(capacity: usize) -> Self {
        Self::new(capacity, u64::MAX)
    }

    const fn new(capacity: usize, blocks: u64) -> Self {
        Self { objects: BTreeMap::new(), order: BTreeMap::new(), uses: 0, stored: 0, capacity, blocks }
    }

    /// Bytes held, index included.
    pub(super) const fn stored(&self) -> usize {
        self.stored
    }

    /// The object of a chunk, and the chunk's place in it.
    fn place(&self, key: &ChunkKey) -> (ObjectKey, usize) {
        let per_object = self.blocks.saturating_mul(u64::from(key.cut.get()));
        let object = ObjectKey { content: key.content, cut: key.cut, segment: key.chunk / per_object };
        (object, usize::try_from(key.chunk % per_object).unwrap_or(usize::MAX))
    }

    /// The chunk, whose object is the last to lose anything now.
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

    /// A chunk passes. Whether it was taken in; one that is here already is replaced if it differs.
    pub(super) fn insert(&mut self, key: &ChunkKey, bytes: &[u8]) -> bool {
        let (key, i) = self.place(key);
        let Some(object) = self.objects.get_mut(&key) else {
            return i == 0 && self.insert_object(key, bytes);
        };
        if let Some(here) = object.chunks.get_mut(i) {
            // A chunk has one length; should it not, what is here stays.
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

    /// Makes room for `size` bytes, but not in object `growing`; false if there is none.
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

    /// Holds that both indices name the same, that no object is empty, and that the sizes add up.
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

    /// The objects, that which loses a chunk next first: the first byte of its content's name, its number,
    /// how many chunks are here.
    #[cfg(test)]
    pub(super) fn by_use(&self) -> Vec<(u8, u64, usize)> {
        let len = |key: &ObjectKey| self.objects.get(key).map_or(0, |object| object.chunks.len());
        self.order.values().map(|key| (key.content.root[0], key.segment, len(key))).collect()
    }
}
