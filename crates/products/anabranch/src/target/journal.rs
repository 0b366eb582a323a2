//! The journal beside a part, which records the blocks that the part holds.
//!
//! A header names the content. Then follows one slot per block, at a fixed place: it is empty (zeros) or
//! contains the block's chaining value and a check. A slot that was torn by a crash fails its check and
//! counts as empty. Slots have fixed places, rather than being appended to a log, so that nothing can be
//! recorded twice; and in order they are the leaf list of the hash tree, so that a whole part is checked
//! against the content's root hash in constant memory.
//!
//! A content may have other names than its root hash: hashes of the whole file, and the URLs and versions
//! from which it came. The next transfer may know fewer or more of these names than this one. So up to
//! [`ALIASES_MAX`] aliases are recorded in the slots behind the slot of the last block. Some aliases are not
//! names but [clues](url_clue): they tell a later transfer that knows none of the names why it cannot resume.
//! Behind the aliases follow up to [`BANNED_MAX`] mirrors whose whole file was [wrong](refuted_clue), and
//! then the mirror that was most recently [tried alone](alone_clue).
//!
//! Where no hash of the parts is known, a slot also has a [mark](Slot::mark), which tells the mirror that
//! delivered the block.
//!
//! ```text
//! header  0  magic "anabrjnl"     slot  0  chaining value (32)    or  0  chaining value (32)
//!         8  version (4)               32  check (8)                 32  mark (1), not 0
//!        12  block bytes (4)                                         33  check (7)
//!        16  root (32)
//!        48  length (8)
//!        56  check (8)            numbers little-endian; a check is the start of a BLAKE3 hash
//! ```
//!
//! Parsing has no side effects and accepts any bytes without panic.

use std::fmt;
use std::ops::Range;

use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::{BLOCK_BYTES, LENGTH_MAX};
use anabranch_mmtp::tree::ChainingValue;

/// The length of the header in bytes.
pub const HEADER_BYTES: usize = 64;
/// The length of a slot in bytes.
pub const SLOT_BYTES: usize = 40;
/// The journal version that is written and understood.
pub const VERSION: u32 = 1;

/// The greatest number of aliases that a journal records.
pub const ALIASES_MAX: usize = 16;

/// The greatest number of mirrors whose whole file was wrong that a journal records.
pub const BANNED_MAX: usize = 16;

/// The number of slots behind the slots of blocks.
pub const BEHIND_MAX: usize = ALIASES_MAX + BANNED_MAX + 1;

/// The greatest number of URL clues that one transfer adds.
pub const URL_CLUES_MAX: usize = 4;

/// The clue that a transfer knew some hash of the content.
pub const HASH_CLUE: [u8; 32] = *b"why:hash\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// The clue that a transfer knew nothing by which the content could be recognised: no hash, no version.
pub const NOTHING_CLUE: [u8; 32] = *b"why:nothing\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// The record of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The chaining value of the block.
    pub cv: ChainingValue,
    /// The [number](Behind::number_of) of the mirror that delivered the block; 0 if a hash vouches for the
    /// block itself, or if the journal has no number for that mirror.
    pub mark: u8,
}

const MAGIC: [u8; 8] = *b"anabrjnl";
/// The first bytes of every clue. The clue of a URL whose version was not known begins with [`UNVERSIONED`]
/// instead, which extends this prefix.
const CLUE: &[u8] = b"why:";
const UNVERSIONED: &[u8] = b"why:any:";

/// The reason why bytes are not a readable journal header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Nothing was written yet, or only zeros reached the disk: the journal counts as new.
    Blank,
    /// The file is no journal, or is damaged.
    Foreign,
    /// The journal has another version.
    Version(u32),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank => f.write_str("blank"),
            Self::Foreign => f.write_str("not a journal of this program, or damaged"),
            Self::Version(version) => {
                write!(f, "a journal of version {version}; this program writes {VERSION}")
            }
        }
    }
}

impl std::error::Error for Unreadable {}

/// Returns the header of a journal about `id`.
#[must_use]
pub fn header(id: &ContentId) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
    bytes[16..48].copy_from_slice(&id.root);
    bytes[48..56].copy_from_slice(&id.length.to_le_bytes());
    let check = check(&[&bytes[..56]]);
    bytes[56..].copy_from_slice(&check);
    bytes
}

/// Returns the content that a journal beginning with `bytes` is about.
///
/// # Errors
/// If the bytes are no readable header.
pub fn parse_header(bytes: &[u8]) -> Result<ContentId, Unreadable> {
    let head = bytes.get(..HEADER_BYTES).unwrap_or(bytes);
    if head.iter().all(|b| *b == 0) {
        return Err(Unreadable::Blank);
    }
    let (Some(head), true) = (head.first_chunk::<HEADER_BYTES>(), head.starts_with(&MAGIC)) else {
        return Err(Unreadable::Foreign);
    };
    if check(&[&head[..56]]) != head[56..] {
        return Err(Unreadable::Foreign);
    }
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if number(8) != VERSION {
        return Err(Unreadable::Version(number(8)));
    }
    let (mut root, mut length) = ([0; 32], [0; 8]);
    root.copy_from_slice(&head[16..48]);
    length.copy_from_slice(&head[48..56]);
    let length = u64::from_le_bytes(length);
    if number(12) != BLOCK_BYTES as u32 || length > LENGTH_MAX {
        return Err(Unreadable::Foreign);
    }
    Ok(ContentId { root, length })
}

/// Returns the slot that records a chaining value and a mark for `block` of `id`.
#[must_use]
pub fn slot(id: &ContentId, block: u64, Slot { cv, mark }: &Slot) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    bytes[..32].copy_from_slice(cv);
    bytes[32..].copy_from_slice(&slot_check(id, block, cv, *mark));
    bytes
}

/// Returns what `slot` records for `block` of `id`; `None` if it is empty, torn or of another block.
#[must_use]
pub fn parse_slot(id: &ContentId, block: u64, slot: &[u8]) -> Option<Slot> {
    let (cv, rest) = slot.split_first_chunk::<32>()?;
    let written = rest.first_chunk::<8>()?;
    // Zeros are by far the most frequent slot, so they are recognised without hashing.
    let is = |mark: &u8| *written != [0; 8] && slot_check(id, block, cv, *mark) == *written;
    [0, written[0]].into_iter().find(is).map(|mark| Slot { cv: *cv, mark })
}

/// Returns the slot that holds `record` at position `n`, counted from 0, behind the slots of the blocks of
/// `id`: see [`Behind`].
#[must_use]
pub fn slot_behind(id: &ContentId, n: usize, record: &[u8; 32]) -> [u8; SLOT_BYTES] {
    slot(id, id.blocks() + n as u64, &Slot { cv: *record, mark: 0 })
}

/// Returns the clue that a transfer asked this URL, whatever version of the content it had.
#[must_use]
pub fn url_clue(url: &str) -> [u8; 32] {
    let mut clue = blake3::derive_key("anabranch 2026-11 URL that a transfer asked", url.as_bytes());
    clue[..CLUE.len()].copy_from_slice(CLUE);
    clue
}

/// Returns the clue that a transfer asked this URL while its version was not known, because the response had
/// neither a strong validator nor a date.
#[must_use]
pub fn unversioned_clue(url: &str) -> [u8; 32] {
    let mut clue = url_clue(url);
    clue[..UNVERSIONED.len()].copy_from_slice(UNVERSIONED);
    clue
}

/// Returns the clue of this URL: [`url_clue`] if its version is known now, else [`unversioned_clue`].
#[must_use]
pub fn url_clue_of(url: &str, has_version: bool) -> [u8; 32] {
    if has_version { url_clue(url) } else { unversioned_clue(url) }
}

/// Returns both clues that a journal may have of this URL.
#[must_use]
pub fn url_clues(url: &str) -> [[u8; 32]; 2] {
    [url_clue(url), unversioned_clue(url)]
}

/// Returns the record of a mirror whose whole file arrived and was not what is `wanted`, so that the mirror
/// is not asked for that again. `of` is the name of the mirror's version.
#[must_use]
pub fn refuted_clue(of: &[u8; 32], wanted: &[u8; 32]) -> [u8; 32] {
    let context = "anabranch 2026-11 version that is not what a hash is of";
    blake3::derive_key(context, &[*of, *wanted].concat())
}

/// Returns the record of the mirror with this URL as the most recent one that was tried alone.
#[must_use]
pub fn alone_clue(url: &str) -> [u8; 32] {
    blake3::derive_key("anabranch 2026-11 URL of a mirror that is tried alone", url.as_bytes())
}

/// Whether an alias is the clue of a URL, with or without a version.
#[must_use]
pub fn is_url_clue(alias: &[u8; 32]) -> bool {
    is_clue(alias) && ![HASH_CLUE, NOTHING_CLUE].contains(alias)
}

/// Whether an alias is the clue of a URL whose version was not known.
#[must_use]
pub fn is_unversioned_clue(alias: &[u8; 32]) -> bool {
    alias.starts_with(UNVERSIONED)
}

/// Whether an alias is a clue rather than a name of the content.
#[must_use]
pub fn is_clue(alias: &[u8; 32]) -> bool {
    alias.starts_with(CLUE)
}

/// The kinds of records behind the slots of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Another name of the content, or a [clue](url_clue).
    Alias,
    /// A mirror whose whole file was [wrong](refuted_clue).
    Refuted,
    /// The mirror that was most recently [tried alone](alone_clue).
    TriedAlone,
}

impl Record {
    /// Returns the numbers, counted from 0, of the slots for records of this kind.
    const fn places(self) -> Range<usize> {
        match self {
            Self::Alias => 0..ALIASES_MAX,
            Self::Refuted => ALIASES_MAX..BEHIND_MAX - 1,
            Self::TriedAlone => BEHIND_MAX - 1..BEHIND_MAX,
        }
    }
}

/// The records in the slots behind the slots of the blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind([Option<[u8; 32]>; BEHIND_MAX]);

impl Default for Behind {
    fn default() -> Self {
        Self([None; BEHIND_MAX])
    }
}

impl Behind {
    /// Parses the slots behind the last block of `id`. A damaged slot counts as empty.
    #[must_use]
    pub fn parse(id: &ContentId, slots: &[u8]) -> Self {
        let mut all = Self::default();
        let slots = (id.blocks()..).zip(slots.chunks_exact(SLOT_BYTES));
        for (place, (n, slot)) in all.0.iter_mut().zip(slots) {
            *place = parse_slot(id, n, slot).filter(|slot| slot.mark == 0).map(|slot| slot.cv);
        }
        all
    }

    /// Returns all records of this kind.
    pub fn all(&self, kind: Record) -> impl Iterator<Item = [u8; 32]> + '_ {
        self.0[kind.places()].iter().copied().flatten()
    }

    /// Whether `record` is recorded.
    #[must_use]
    pub fn has(&self, kind: Record, record: &[u8; 32]) -> bool {
        self.0[kind.places()].contains(&Some(*record))
    }

    /// Adds a record and returns the number of its slot; `None` if it is recorded already or there is no
    /// room. A mirror that is tried alone replaces the previous one.
    pub fn add(&mut self, kind: Record, record: [u8; 32]) -> Option<usize> {
        if self.has(kind, &record) {
            return None;
        }
        let free = kind.places().find(|n| self.0[*n].is_none() || kind == Record::TriedAlone)?;
        self.0[free] = Some(record);
        Some(free)
    }

    /// Returns the number by which [marks](Slot::mark) denote a mirror. `name` is the name of the mirror's
    /// version. The result is `None` if `name` is neither the `root` of the header nor an alias.
    #[must_use]
    pub fn number_of(&self, name: &[u8; 32], root: &[u8; 32]) -> Option<u8> {
        let place = self.0[Record::Alias.places()].iter().position(|alias| alias.as_ref() == Some(name));
        let place = if name == root { Some(0) } else { place.map(|place| 1 + place) };
        place.and_then(|place| u8::try_from(1 + place).ok())
    }
}

/// Returns the offset of the slot of `block` in the journal.
#[must_use]
pub const fn slot_offset(block: u64) -> u64 {
    HEADER_BYTES as u64 + block.saturating_mul(SLOT_BYTES as u64)
}

/// Parses a whole journal. Returns the content and the recorded blocks.
///
/// # Errors
/// If the header is not readable.
pub fn parse(bytes: &[u8]) -> Result<(ContentId, Vec<(u64, Slot)>), Unreadable> {
    let id = parse_header(bytes)?;
    let slots = bytes[HEADER_BYTES..].chunks_exact(SLOT_BYTES);
    let records = (0..id.blocks()).zip(slots).filter_map(|(g, slot)| Some((g, parse_slot(&id, g, slot)?)));
    Ok((id, records.collect()))
}

fn slot_check(id: &ContentId, block: u64, cv: &ChainingValue, mark: u8) -> [u8; 8] {
    let block = block.to_le_bytes();
    if mark == 0 {
        return check(&[&id.root, &block, cv]);
    }
    let [check @ .., _] = check(&[&id.root, &block, cv, &[mark]]);
    let mut bytes = [mark; 8];
    bytes[1..].copy_from_slice(&check);
    bytes
}

fn check(parts: &[&[u8]]) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    let mut check = [0; 8];
    hasher.finalize_xof().fill(&mut check);
    // A check of zeros is replaced, because zeros mean an empty slot.
    if check == [0; 8] { [1; 8] } else { check }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ID: ContentId = ContentId { root: [9; 32], length: 3 * BLOCK_BYTES as u64 + 1 };

    const RECORDS: [(u64, Slot); 2] =
        [(1, Slot { cv: [1; 32], mark: 0 }), (2, Slot { cv: [2; 32], mark: 5 })];

    fn journal() -> Vec<u8> {
        let mut bytes = header(&ID).to_vec();
        bytes.extend([0; SLOT_BYTES]);
        RECORDS.iter().for_each(|(block, record)| bytes.extend(slot(&ID, *block, record)));
        bytes
    }

    #[test]
    fn what_was_written_is_read() {
        assert_eq!(parse(&journal()), Ok((ID, RECORDS.to_vec())));
        assert_eq!(slot_offset(2) as usize, journal().len() - SLOT_BYTES);
    }

    #[test]
    fn torn_and_foreign_journals() {
        let whole = journal();
        for len in HEADER_BYTES..whole.len() {
            let (id, records) = parse(&whole[..len]).expect("a header");
            assert_eq!(id, ID);
            assert!(records.len() <= 1);
        }
        for len in 1..HEADER_BYTES {
            assert_eq!(parse(&whole[..len]), Err(Unreadable::Foreign));
        }
        assert_eq!(parse(&[]), Err(Unreadable::Blank));
        assert_eq!(parse(&[0; 4096]), Err(Unreadable::Blank));
        assert_eq!(parse(&[b'x'; 4096]), Err(Unreadable::Foreign));
        let mut newer = header(&ID);
        newer[8] = 2;
        let sum = check(&[&newer[..56]]);
        newer[56..].copy_from_slice(&sum);
        assert_eq!(parse(&newer), Err(Unreadable::Version(2)));
    }

    #[test]
    fn a_flipped_bit_costs_one_record_at_most() {
        let whole = journal();
        for bit in HEADER_BYTES * 8..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (_, records) = parse(&bytes).expect("a header");
            assert!((1..=2).contains(&records.len()));
            assert!(records.iter().all(|record| RECORDS.contains(record)));
        }
    }

    #[test]
    fn each_name_has_a_number_of_its_own() {
        let root = [77; 32];
        let mut behind = Behind::default();
        let names = || (0..ALIASES_MAX as u8).map(|n| [n + 1; 32]);
        assert!(names().all(|name| behind.add(Record::Alias, name).is_some()));
        assert_eq!(behind.add(Record::Alias, [76; 32]), None, "there is no room");
        let names = names().chain([root]);
        let numbers: BTreeSet<_> = names.map(|name| behind.number_of(&name, &root)).collect();
        assert_eq!(numbers.len(), ALIASES_MAX + 1);
        assert!(!numbers.contains(&None) && !numbers.contains(&Some(0)));
        assert_eq!(behind.number_of(&root, &root), Some(1), "that of the header");
        assert_eq!(behind.number_of(&[78; 32], &root), None);
    }

    #[test]
    fn slots_behind_the_last_block_are_records() {
        let mut bytes = journal();
        bytes.extend([0; SLOT_BYTES]);
        bytes.extend(slot_behind(&ID, 0, &[4; 32]));
        bytes.extend([1; SLOT_BYTES]);
        bytes.extend(slot_behind(&ID, 2, &[5; 32]));
        assert_eq!(parse(&bytes).expect("a header").1.len(), 2, "they are no blocks");
        let behind = Behind::parse(&ID, &bytes[slot_offset(ID.blocks()) as usize..]);
        assert_eq!(behind.0[..3], [Some([4; 32]), None, Some([5; 32])], "what is damaged is left out");
        let many = [0; 2 * ALIASES_MAX].map(|_| slot_behind(&ID, 0, &[4; 32])).concat();
        assert_eq!(Behind::parse(&ID, &many).0.iter().flatten().count(), 1, "each has its place");
        let mut all = Behind::default();
        let mut slots = vec![0; BEHIND_MAX * SLOT_BYTES];
        for (kind, record) in [
            (Record::Alias, [4; 32]),
            (Record::Refuted, [6; 32]),
            (Record::TriedAlone, [7; 32]),
            (Record::TriedAlone, [8; 32]),
        ] {
            let n = all.add(kind, record).expect("room");
            slots[n * SLOT_BYTES..][..SLOT_BYTES].copy_from_slice(&slot_behind(&ID, n, &record));
            assert_eq!(all.add(kind, record), None, "it is there");
        }
        let read = Behind::parse(&ID, &slots);
        assert_eq!(read, all);
        assert_eq!(read.all(Record::Refuted).collect::<Vec<_>>(), [[6; 32]]);
        assert_eq!(read.all(Record::TriedAlone).collect::<Vec<_>>(), [[8; 32]], "the last one");
    }
}
