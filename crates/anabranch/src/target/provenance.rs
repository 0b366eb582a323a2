//! Who brought what, what has been compared and who lied, where no hash is known: from the journal and into
//! it.

use std::ops::Range;

use super::left::{Left, LeftIn};
use super::{State, Target, journal};
use crate::Result;

impl Target {
    /// What is known of what earlier transfers left, if they did: who brought it, and more if no hash of the
    /// content is known. It can be asked for once.
    pub(crate) fn take_left(&mut self) -> Option<Left> {
        match &mut self.state {
            State::Part(part) => part.left.take(),
            State::Whole(_) => None,
        }
    }

    /// The same, with this part.
    pub(crate) fn with_left<'a>(&'a self, left: &'a Left) -> LeftIn<'a> {
        let cv = |block| match &self.state {
            State::Part(part) => part.record(block).map(|slot| slot.cv),
            State::Whole(_) => None,
        };
        LeftIn { left, cv: Box::new(cv) }
    }

    /// The number of a mirror in [marks](super::journal::Slot::mark), by its URL, if the version that it has
    /// now has a name in the journal.
    pub(crate) fn number_of(&self, url: &str) -> Option<u8> {
        match &self.state {
            State::Part(part) => part.numbers.get(&journal::url_clue(url)).copied(),
            State::Whole(_) => None,
        }
    }

    /// What mirrors brought of these blocks has been compared: the next transfer need not do it.
    ///
    /// # Errors
    /// [`Error::Target`](crate::Error::Target) if that cannot be recorded.
    pub(crate) fn compared(&mut self, blocks: Range<u64>) -> Result<()> {
        let blocks = blocks.start..blocks.end.min(self.id.blocks());
        match &mut self.state {
            State::Part(part) if !self.demands.proof.is_something() => part.compared(&self.place, blocks),
            _ => Ok(()),
        }
    }

    /// What this transfer brought has been [taken back](Self::forget): the next one that knows the content by
    /// the names that earlier ones had goes on with what these left, and no other.
    ///
    /// # Errors
    /// [`Error::Target`](crate::Error::Target) if that cannot be recorded.
    pub(crate) fn disown(&mut self) -> Result<()> {
        match &mut self.state {
            State::Part(part) => part.disown(&self.place),
            State::Whole(_) => Ok(()),
        }
    }

    /// A mirror has lied, as others say: the next transfer does not ask it.
    ///
    /// # Errors
    /// [`Error::Target`](crate::Error::Target) if that cannot be recorded.
    pub(crate) fn ban(&mut self, url: &str) -> Result<()> {
        match &mut self.state {
            State::Part(part) => part.ban(&self.place, journal::banned_clue(url)),
            State::Whole(_) => Ok(()),
        }
    }
}
