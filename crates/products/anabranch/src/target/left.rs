//! What an earlier transfer recorded of the part that it left.

/// What earlier transfers recorded of the part that they left.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// The [mark](super::journal::Slot::mark) of each block, whether it is there or not.
    pub(super) marks: Vec<u8>,
    /// The [clues](super::journal::url_clue) of URLs that had another version then; only where no hash is
    /// known.
    pub(super) changed: Vec<[u8; 32]>,
    /// The [clue](super::journal::alone_clue) of the mirror that was tried alone last.
    pub(super) alone: Option<[u8; 32]>,
}

impl Left {
    /// Nothing is known yet of the mirrors of so many blocks.
    pub(super) fn new(blocks: u64, changed: Vec<[u8; 32]>, alone: Option<[u8; 32]>) -> Self {
        Self { marks: vec![0; usize::try_from(blocks).unwrap_or(usize::MAX)], changed, alone }
    }

    pub(super) fn set_mark(&mut self, block: u64, mark: u8) {
        if let Some(there) = usize::try_from(block).ok().and_then(|index| self.marks.get_mut(index)) {
            *there = mark;
        }
    }
}
