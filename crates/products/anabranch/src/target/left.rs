//! What an earlier transfer left beside the bytes: who brought them; if there was no hash, what has been
//! compared with another mirror, and who was found to lie; and if there was, of whom all was wrong.

use anabranch_mmtp::tree::ChainingValue;

use super::journal::{COMPARED, alone_clue, url_clues};

/// What is known of blocks that were there before.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// The [mark](super::journal::Slot::mark) of each block, whether it is there or not.
    pub(super) marks: Vec<u8>,
    /// The earlier transfer asked mirrors that are not asked now: some of it may be theirs.
    pub(crate) lacks_mirrors: bool,
    /// The clues of the URLs that earlier transfers asked; `None` if they may have asked others too.
    pub(super) asked: Option<Vec<[u8; 32]>>,
    /// The clues of mirrors that have [lied](super::journal::banned_clue), or of which all was
    /// [wrong](super::journal::refuted_clue).
    pub(crate) banned: Vec<[u8; 32]>,
    /// The [clues](super::journal::url_clue) of URLs that had another version then.
    pub(crate) changed: Vec<[u8; 32]>,
    /// The [clue](super::journal::alone_clue) of the mirror that was tried alone last.
    pub(super) alone: Option<[u8; 32]>,
}

/// The same, and the part that has it.
pub(crate) struct LeftIn<'a> {
    pub(crate) left: &'a Left,
    /// What it records of a block.
    pub(super) cv: Box<dyn Fn(u64) -> Option<ChainingValue> + 'a>,
    /// See [`refuted`](Self::refuted).
    pub(super) refuted: RefutedOf<'a>,
}

/// What was wrong of the mirror that has a URL, if anything was.
pub(super) type RefutedOf<'a> = Box<dyn Fn(&str) -> Option<Refuted> + 'a>;

/// What was wrong of a mirror, where the hash of the whole is the one of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refuted {
    /// All of the version that it has now.
    Now,
    /// All of the version that it had then. It has another now, or gives none.
    Then,
}

/// What a mirror is called in [marks](super::journal::Slot::mark).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// By the version that it has: all with this number is of that.
    pub(crate) version: Option<u8>,
    /// By its URL alone, where it gives no version, or another in the midst of a transfer.
    pub(crate) url: Option<u8>,
    /// By other versions that the URL had, but for that with which the part was begun.
    pub(crate) before: Vec<u8>,
}

impl LeftIn<'_> {
    /// What an earlier transfer found out of the mirror that has this URL.
    pub(crate) fn refuted(&self, url: &str) -> Option<Refuted> {
        (self.refuted)(url)
    }
}

impl anabranch_mirror::verified_pool::Earlier for LeftIn<'_> {
    fn bringer(&self, block: u64) -> u8 {
        self.left.mark(block) & !COMPARED
    }

    fn is_compared(&self, block: u64) -> bool {
        self.left.mark(block) & COMPARED != 0
    }

    fn cv(&self, block: u64) -> Option<ChainingValue> {
        (self.cv)(block)
    }
}

impl Left {
    /// Whether no earlier transfer asked this URL: nothing of what they left is from it.
    pub(crate) fn is_new(&self, url: &str) -> bool {
        let its = url_clues(url);
        self.asked.as_ref().is_some_and(|asked| !its.iter().any(|clue| asked.contains(clue)))
    }

    /// Whether this URL was tried alone last.
    pub(crate) fn was_tried(&self, url: &str) -> bool {
        self.alone == Some(alone_clue(url))
    }

    fn mark(&self, block: u64) -> u8 {
        usize::try_from(block).ok().and_then(|index| self.marks.get(index)).copied().unwrap_or(0)
    }

    pub(super) fn set_mark(&mut self, block: u64, mark: u8) {
        if let Some(there) = usize::try_from(block).ok().and_then(|index| self.marks.get_mut(index)) {
            *there = mark;
        }
    }
}
