//! What an earlier transfer left beside the bytes: who brought them; and if there was no hash, what has been
//! compared with another mirror, and who was found to lie.

use mmtp::tree::ChainingValue;

use super::journal::{COMPARED, unversioned_clue, url_clue};

/// What is known of blocks that were there before.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// The [mark](super::journal::Slot::mark) of each block, whether it is there or not.
    pub(super) marks: Vec<u8>,
    /// The earlier transfer asked mirrors that are not asked now: some of it may be theirs.
    pub(crate) lacks_mirrors: bool,
    /// The clues of the URLs that earlier transfers asked; `None` if they may have asked others too.
    pub(super) asked: Option<Vec<[u8; 32]>>,
    /// The [clues](super::journal::banned_clue) of mirrors that have lied.
    pub(crate) banned: Vec<[u8; 32]>,
    /// The [clues](super::journal::url_clue) of URLs that had another version then.
    pub(crate) changed: Vec<[u8; 32]>,
}

/// The same, and the part that has it.
pub(crate) struct LeftIn<'a> {
    pub(crate) left: &'a Left,
    /// What it records of a block.
    pub(super) cv: Box<dyn Fn(u64) -> Option<ChainingValue> + 'a>,
}

impl mirror::verified_pool::Earlier for LeftIn<'_> {
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
        let its = [url_clue(url), unversioned_clue(url)];
        self.asked.as_ref().is_some_and(|asked| !its.iter().any(|clue| asked.contains(clue)))
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
