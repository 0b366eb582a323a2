//! The superblock and the entries of the table, as bytes: `docs/minicache.md` has the table of fields.

use anabranch_cache::digest::{Digest, HashKind};
use anabranch_mmtp::id::LENGTH_MAX;
use anabranch_mmtp::{ContentId, tree};

use crate::name::Name;

/// The bytes of an entry.
pub const ENTRY_BYTES: usize = 256;
/// The place of the table in the image.
pub const TABLE_AT: u64 = 4_096;
/// The fewest and the most entries of a table. Both are powers of two, as their number is.
pub const ENTRIES_RANGE: (u32, u32) = (16, 1 << 22);
/// The number of entries unless another is wanted.
pub const ENTRIES: u32 = 65_536;
/// The smallest and the largest chunk in bytes. Both are powers of two, as the size is.
pub const CHUNK_RANGE: (u32, u32) = (4 << 10, 16 << 20);
/// The bytes of a chunk unless others are wanted.
pub const CHUNK_BYTES: u32 = 64 << 10;
/// The most chunks of an image.
const CHUNKS_MAX: u64 = 1 << 40;
/// The bytes of the superblock, with its check.
pub const SUPERBLOCK_BYTES: usize = 64;
/// The most bytes of a media type and of a label.
pub const TEXT_BYTES_MAX: usize = 48;

const MAGIC: [u8; 8] = *b"anbmini1";
const ENTRY_MAGIC: [u8; 4] = *b"MCE1";
/// The bytes of an entry that its check is of.
const CHECKED_BYTES: usize = 224;
const HASH_BYTES: u64 = 32;

/// The places of fields in an entry that are read by the 8 bytes.
pub(crate) const GENERATION_AT: usize = 8;
pub(crate) const ROOT_AT: usize = 32;
pub(crate) const DIGEST_AT: usize = 64;

/// Returns a number of a superblock or an entry.
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The shape of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    entries: u32,
    chunk_bytes: u32,
    chunks: u64,
}

/// The reason why an image cannot have a shape, or why bytes are no superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The magic is another one.
    #[error("it is no image of MiniCache, or one of another version")]
    Magic,
    /// The check of the superblock fails.
    #[error("its superblock is damaged")]
    Check,
    /// The number of entries is not allowed.
    #[error("a table has a power of two of entries, from {} to {}", ENTRIES_RANGE.0, ENTRIES_RANGE.1)]
    Entries,
    /// The size of a chunk is not allowed.
    #[error("a chunk has a power of two of bytes, from {} to {}", CHUNK_RANGE.0, CHUNK_RANGE.1)]
    Chunk,
    /// The image has too few chunks or too many.
    #[error("there is no room for a chunk, or too much for one image")]
    Chunks,
}

impl Layout {
    /// Makes the shape of an image with `entries` entries and `chunks` chunks of `chunk_bytes` bytes.
    ///
    /// # Errors
    /// If one of them is not allowed.
    pub fn new(entries: u32, chunk_bytes: u32, chunks: u64) -> Result<Self, LayoutError> {
        let fits = |number: u32, (least, most): (u32, u32)| {
            number.is_power_of_two() && (least..=most).contains(&number)
        };
        if !fits(entries, ENTRIES_RANGE) {
            return Err(LayoutError::Entries);
        }
        if !fits(chunk_bytes, CHUNK_RANGE) {
            return Err(LayoutError::Chunk);
        }
        if !(1..=CHUNKS_MAX).contains(&chunks) {
            return Err(LayoutError::Chunks);
        }
        Ok(Self { entries, chunk_bytes, chunks })
    }

    /// Makes the shape of an image that takes at most `bytes` bytes in all.
    ///
    /// # Errors
    /// If a number is not allowed, or there is no room for a chunk.
    pub fn of_size(entries: u32, chunk_bytes: u32, bytes: u64) -> Result<Self, LayoutError> {
        let one = Self::new(entries, chunk_bytes, 1)?;
        Self::new(entries, chunk_bytes, bytes.saturating_sub(one.chunks_at()) / u64::from(chunk_bytes))
    }

    /// Parses a superblock: the first [`SUPERBLOCK_BYTES`] of an image.
    ///
    /// # Errors
    /// If the bytes are no superblock.
    pub fn parse(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Self, LayoutError> {
        if bytes[..8] != MAGIC {
            return Err(LayoutError::Magic);
        }
        if blake3::hash(&bytes[..32]).as_bytes() != &bytes[32..] || bytes[24..32] != [0; 8] {
            return Err(LayoutError::Check);
        }
        Self::new(number(bytes, 8, 4) as u32, number(bytes, 12, 4) as u32, number(bytes, 16, 8))
    }

    /// Returns the superblock.
    #[must_use]
    pub fn superblock(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.entries.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.chunk_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.chunks.to_le_bytes());
        let check = blake3::hash(&bytes[..32]);
        bytes[32..].copy_from_slice(check.as_bytes());
        bytes
    }

    /// Returns the number of entries.
    #[must_use]
    pub const fn entries(&self) -> u32 {
        self.entries
    }

    /// Returns the bytes of a chunk.
    #[must_use]
    pub const fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// Returns the number of chunks.
    #[must_use]
    pub const fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Returns the place of an entry in the image.
    #[must_use]
    pub const fn entry_at(&self, slot: u32) -> u64 {
        TABLE_AT + slot as u64 * ENTRY_BYTES as u64
    }

    /// Returns the place of the first chunk in the image.
    #[must_use]
    pub const fn chunks_at(&self) -> u64 {
        self.entry_at(self.entries).next_multiple_of(self.chunk_bytes as u64)
    }

    /// Returns the place of a chunk in the image.
    #[must_use]
    pub const fn chunk_at(&self, chunk: u64) -> u64 {
        self.chunks_at() + chunk * self.chunk_bytes as u64
    }

    /// Returns the bytes of the image.
    #[must_use]
    pub const fn image_bytes(&self) -> u64 {
        self.chunk_at(self.chunks)
    }

    /// Returns the chunks that an object of `length` bytes takes.
    #[must_use]
    pub fn chunks_of(&self, length: u64) -> u64 {
        extent_bytes(length).div_ceil(u64::from(self.chunk_bytes)).max(1)
    }
}

/// Returns the place of an object's hashes after its first byte.
#[must_use]
pub const fn hashes_at(length: u64) -> u64 {
    length.next_multiple_of(HASH_BYTES)
}

/// Returns the bytes of an object with its hashes.
#[must_use]
pub fn extent_bytes(length: u64) -> u64 {
    let id = ContentId { root: [0; 32], length: length.min(LENGTH_MAX) };
    let values: u64 = (0..tree::levels(&id)).map(|level| tree::cvs(&id, level)).sum();
    hashes_at(id.length) + values * HASH_BYTES
}

/// A text of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    bytes: [u8; TEXT_BYTES_MAX],
    len: u8,
}

impl Default for Text {
    fn default() -> Self {
        Self { bytes: [0; TEXT_BYTES_MAX], len: 0 }
    }
}

impl Text {
    /// Makes a text of a label: what is too long is cut between characters.
    #[must_use]
    pub fn cut(text: &str) -> Self {
        let ends = (0..=text.len().min(TEXT_BYTES_MAX)).rev();
        let end = ends.into_iter().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        Self::new(&text[..end]).unwrap_or_default()
    }

    /// Makes a text. Returns `None` if it is longer than [`TEXT_BYTES_MAX`] bytes.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; TEXT_BYTES_MAX];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(Self { bytes, len: text.len() as u8 })
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }

    fn parse(bytes: &[u8], len: u8) -> Option<Self> {
        let bytes: [u8; TEXT_BYTES_MAX] = bytes.try_into().ok()?;
        let (text, rest) = bytes.split_at_checked(usize::from(len))?;
        str::from_utf8(text).ok()?;
        rest.iter().all(|byte| *byte == 0).then_some(Self { bytes, len })
    }
}

/// An entry of the table: one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// A number that grows with every entry that is written.
    pub generation: u64,
    /// The name that mmTP uses: the BLAKE3 hash, and the length.
    pub id: ContentId,
    /// The other hash by which the object is found.
    pub digest: Digest,
    /// The first of its chunks.
    pub first_chunk: u64,
    /// The value of `Content-Type`.
    pub media_type: Text,
    /// A name for people.
    pub label: Text,
}

const fn kind_number(kind: HashKind) -> u8 {
    match kind {
        HashKind::Sha256 => 0,
        HashKind::Sha512 => 1,
        HashKind::Sha512Of256 => 2,
    }
}

impl Entry {
    /// Parses an entry of an image of this shape. Returns `None` if it is empty, if its check fails, or if
    /// its extent is not inside the area of chunks.
    #[must_use]
    pub fn parse(bytes: &[u8; ENTRY_BYTES], layout: &Layout) -> Option<Self> {
        let (checked, check) = bytes.split_at(CHECKED_BYTES);
        let is_entry = bytes[..4] == ENTRY_MAGIC && blake3::hash(checked).as_bytes() == check;
        is_entry.then(|| Self::decode(bytes, layout)).flatten()
    }

    /// Parses an entry without its check, which was made before.
    pub(crate) fn decode(bytes: &[u8; ENTRY_BYTES], layout: &Layout) -> Option<Self> {
        if bytes[..4] != ENTRY_MAGIC || bytes[7] != 0 {
            return None;
        }
        let (hash, rest) = bytes[DIGEST_AT..128].split_at(if bytes[4] == 1 { 64 } else { 32 });
        let digest = match bytes[4] {
            0 => Digest::Sha256(hash.try_into().ok()?),
            1 => Digest::Sha512(hash.try_into().ok()?),
            2 => Digest::Sha512Of256(hash.try_into().ok()?),
            _ => return None,
        };
        let length = number(bytes, 16, 8);
        let first_chunk = number(bytes, 24, 8);
        if length > LENGTH_MAX || rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        let end = first_chunk.checked_add(layout.chunks_of(length))?;
        let root = bytes[ROOT_AT..ROOT_AT + 32].try_into().ok()?;
        (end <= layout.chunks).then_some(Self {
            generation: number(bytes, GENERATION_AT, 8),
            id: ContentId { root, length },
            digest,
            first_chunk,
            media_type: Text::parse(&bytes[128..176], bytes[5])?,
            label: Text::parse(&bytes[176..224], bytes[6])?,
        })
    }

    /// Returns the bytes of the entry.
    #[must_use]
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&ENTRY_MAGIC);
        bytes[4] = kind_number(self.digest.kind());
        (bytes[5], bytes[6]) = (self.media_type.len, self.label.len);
        bytes[8..16].copy_from_slice(&self.generation.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.id.length.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first_chunk.to_le_bytes());
        bytes[ROOT_AT..ROOT_AT + 32].copy_from_slice(&self.id.root);
        let digest = self.digest.bytes();
        bytes[DIGEST_AT..DIGEST_AT + digest.len()].copy_from_slice(digest);
        bytes[128..176].copy_from_slice(&self.media_type.bytes);
        bytes[176..224].copy_from_slice(&self.label.bytes);
        let check = blake3::hash(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(check.as_bytes());
        bytes
    }

    /// Returns the names by which the object is found.
    #[must_use]
    pub const fn names(&self) -> [Name; 2] {
        [Name::Root(self.id.root), Name::Digest(self.digest)]
    }
}

/// Returns where the two names begin in the bytes of an entry whose check has not been made: by these it
/// will be looked for. Returns `None` for bytes that are no entry at first sight.
pub(crate) fn names_at(bytes: &[u8; ENTRY_BYTES]) -> Option<[usize; 2]> {
    (bytes[..4] == ENTRY_MAGIC).then_some([ROOT_AT, DIGEST_AT])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout() -> Layout {
        Layout::new(16, 4_096, 1 << 20).unwrap()
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let digest = (0..3, any::<[u8; 32]>(), any::<[u8; 32]>()).prop_map(|(kind, a, b)| match kind {
            0 => Digest::Sha256(a),
            1 => Digest::Sha512([a, b].concat().try_into().unwrap()),
            _ => Digest::Sha512Of256(a),
        });
        (any::<u64>(), any::<[u8; 32]>(), 0..1_u64 << 30, digest, 0..1_u64 << 18, ".{0,12}").prop_map(
            |(generation, root, length, digest, first_chunk, label)| Entry {
                generation,
                id: ContentId { root, length },
                digest,
                first_chunk,
                media_type: Text::new("text/plain").unwrap(),
                label: Text::cut(&label),
            },
        )
    }

    proptest! {
        #[test]
        fn an_entry_reads_as_it_was_written_and_any_other_bit_makes_it_empty(
            entry in entry(), bit in 0..ENTRY_BYTES * 8,
        ) {
            let mut bytes = entry.encode();
            prop_assert_eq!(Entry::parse(&bytes, &layout()), Some(entry));
            for (at, name) in names_at(&bytes).unwrap().into_iter().zip(entry.names()) {
                prop_assert!(bytes[at..].starts_with(name.bytes()));
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Entry::parse(&bytes, &layout()), None);
        }

        #[test]
        fn a_superblock_reads_as_it_was_written_and_any_other_bit_is_refused(
            entries in 4..=22_u32, chunk in 12..=24_u32, chunks in 1..CHUNKS_MAX, bit in 0..512_usize,
        ) {
            let layout = Layout::new(1 << entries, 1 << chunk, chunks).unwrap();
            let mut bytes = layout.superblock();
            prop_assert_eq!(Layout::parse(&bytes), Ok(layout));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Layout::parse(&bytes).is_err());
        }
    }

    #[test]
    fn shapes_are_bounded() {
        assert_eq!(Layout::new(17, 4_096, 1), Err(LayoutError::Entries));
        assert_eq!(Layout::new(16, 4_097, 1), Err(LayoutError::Chunk));
        assert_eq!(Layout::new(16, 4_096, 0), Err(LayoutError::Chunks));
        assert_eq!(Layout::of_size(16, 4_096, 10_000), Err(LayoutError::Chunks));
        let layout = Layout::of_size(ENTRIES, CHUNK_BYTES, 1 << 30).unwrap();
        assert!(layout.image_bytes() <= 1 << 30 && layout.image_bytes() > (1 << 30) - 65_536);
        assert_eq!(layout.chunks_at() % 65_536, 0);
        // One block has no hashes; 65 have a list of 65 and a list of two.
        assert_eq!(extent_bytes(16_384), 16_384);
        assert_eq!(extent_bytes(65 * 16_384), 65 * 16_384 + 67 * 32);
        assert_eq!(layout.chunks_of(0), 1, "two objects never have one place");
    }

    #[test]
    fn an_extent_beyond_the_end_is_empty() {
        let mut entry = Entry {
            generation: 1,
            id: ContentId::of(b"x"),
            digest: Digest::Sha256([7; 32]),
            first_chunk: (1 << 20) - 1,
            media_type: Text::default(),
            label: Text::cut(&"ß".repeat(40)),
        };
        assert_eq!(entry.label.as_str(), "ß".repeat(24));
        assert_eq!(Entry::parse(&entry.encode(), &layout()), Some(entry));
        for first_chunk in [1 << 20, u64::MAX] {
            entry.first_chunk = first_chunk;
            assert_eq!(Entry::parse(&entry.encode(), &layout()), None);
        }
    }
}
