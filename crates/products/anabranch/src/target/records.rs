//! The records of a part about mirrors: which mirror delivered each block, and whose whole file was wrong.

use anabranch_mmtp::tree::ChainingValue;

use super::dest_path::DestPath;
use super::journal::{Record, alone_clue, refuted_clue, url_clue};
use super::part::Part;

/// The records of a part about mirrors.
pub(crate) struct Records<'a> {
    pub(super) part: &'a Part,
    pub(super) place: &'a DestPath,
    /// A name of the hashes that the file must have; `None` if there are none.
    pub(super) wanted: Option<[u8; 32]>,
}

impl Records<'_> {
    /// Returns the [mark](super::journal::Slot::mark) of a block that an earlier transfer left.
    pub(crate) fn mark(&self, block: u64) -> u8 {
        self.part.marks.get(block as usize).copied().unwrap_or(0)
    }

    /// Returns the chaining value of a block that is recorded.
    pub(crate) fn cv(&self, block: u64) -> Option<ChainingValue> {
        self.part.record(self.place, block).map(|slot| slot.cv)
    }

    /// Returns the mark of blocks that came from this URL in the version that it has now; `None` if the
    /// version is not known or the journal has no number for it.
    pub(crate) fn number_of(&self, url: &str) -> Option<u8> {
        self.part.number_of(self.part.versions.get(&url_clue(url))?)
    }

    /// Whether the whole file of the version that this URL has now arrived in an earlier transfer and was
    /// wrong.
    pub(crate) fn is_refuted(&self, url: &str) -> bool {
        self.refuted_clue(url).is_some_and(|clue| self.part.journal.behind.has(Record::Refuted, &clue))
    }

    /// Whether this URL is the one that an earlier transfer most recently tried alone.
    pub(crate) fn was_tried_alone(&self, url: &str) -> bool {
        self.part.journal.behind.has(Record::TriedAlone, &alone_clue(url))
    }

    /// Whether this URL had another version when the part was begun. Always false where a hash of the content
    /// is known.
    pub(crate) fn has_changed(&self, url: &str) -> bool {
        self.part.changed.contains(&url_clue(url))
    }

    /// Returns the record that the whole file of the version that this URL has now was wrong; `None` if no
    /// hash is known or the version is not known.
    pub(super) fn refuted_clue(&self, url: &str) -> Option<[u8; 32]> {
        Some(refuted_clue(self.part.versions.get(&url_clue(url))?, &self.wanted?))
    }
}
