//! What the journal knows of mirrors: which one brought each block, and whose whole file was wrong.

use anabranch_mmtp::bitmap::Bitmap;
use anabranch_mmtp::tree::ChainingValue;

use super::journal::{alone_clue, refuted_clue, url_clue};
use super::part::Part;
use super::{State, Target};
use crate::Result;
use crate::filenames::show;

/// What earlier transfers recorded of the part that they left.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// The [mark](super::journal::Slot::mark) of each block, whether it is there or not.
    pub(super) marks: Vec<u8>,
    /// The [clues](url_clue) of URLs that had another version then; only where no hash is known.
    pub(super) changed: Vec<[u8; 32]>,
    /// The [clue](alone_clue) of the mirror that was tried alone last.
    pub(super) alone: Option<[u8; 32]>,
}

impl Left {
    pub(super) fn set_mark(&mut self, block: u64, mark: u8) {
        if let Some(there) = usize::try_from(block).ok().and_then(|index| self.marks.get_mut(index)) {
            *there = mark;
        }
    }
}

/// The same, and what else the part records.
pub(crate) struct Records<'a> {
    target: &'a Target,
    part: &'a Part,
    left: Option<&'a Left>,
}

impl Records<'_> {
    /// The [mark](super::journal::Slot::mark) of a block that is there.
    pub(crate) fn mark(&self, block: u64) -> u8 {
        let marks = self.left.map_or(&[][..], |left| &left.marks);
        usize::try_from(block).ok().and_then(|index| marks.get(index)).copied().unwrap_or(0)
    }

    /// The chaining value of a block that is there.
    pub(crate) fn cv(&self, block: u64) -> Option<ChainingValue> {
        self.part.record(block).map(|slot| slot.cv)
    }

    /// The mark of blocks from the mirror of this URL, of the version that it has now; none if it has none.
    pub(crate) fn number_of(&self, url: &str) -> Option<u8> {
        self.part.number_of(self.part.versions.get(&url_clue(url))?)
    }

    /// Whether all of the version that this URL has now was there in an earlier transfer, and was wrong.
    pub(crate) fn is_refuted(&self, url: &str) -> bool {
        let clue = self.target.refuted_clue(self.part, url);
        clue.is_some_and(|clue| self.part.banned.contains(&clue))
    }

    /// Whether an earlier transfer tried this URL alone last.
    pub(crate) fn was_tried_alone(&self, url: &str) -> bool {
        self.left.is_some_and(|left| left.alone == Some(alone_clue(url)))
    }

    /// Whether this URL had another version when the part was begun; only where no hash is known.
    pub(crate) fn has_changed(&self, url: &str) -> bool {
        self.left.is_some_and(|left| left.changed.contains(&url_clue(url)))
    }
}

impl Target {
    /// What is recorded of mirrors; nothing if the file has its name already.
    pub(crate) fn records(&self) -> Option<Records<'_>> {
        let State::Part(part) = &self.state else { return None };
        Some(Records { target: self, part, left: part.left.as_ref() })
    }

    /// Only these blocks of the part count now. The others are kept until they are [written](Self::write)
    /// once more.
    pub(crate) fn count_only(&mut self, blocks: &Bitmap) {
        let State::Part(part) = &mut self.state else { return };
        for block in (0..self.id.blocks()).filter(|block| !blocks.contains(*block)) {
            if self.there.remove(block) {
                // Their bytes stay where they are: zeros that come instead have to be written.
                (part.virgin, part.has_others) = (false, true);
                self.done_bytes -= self.id.block_len(block) as u64;
            }
        }
    }

    /// What there is to say of a part that an earlier transfer left of another file, and that stays for now.
    pub(crate) fn note_of_what_stays(&self) -> Option<String> {
        let State::Part(part) = &self.state else { return None };
        let (name, bytes) = part.others.stays.as_ref()?;
        Some(format!(
            "{} is of another file, of {bytes} bytes: it stays while that of {} bytes comes",
            show(self.place.path().with_file_name(name)),
            self.id.length
        ))
    }

    /// That nothing keeps a second transfer away from the part.
    pub(crate) fn note_of_no_lock(&self) -> Option<String> {
        let State::Part(part) = &self.state else { return None };
        part.is_without_lock().then(|| {
            format!(
                "the file system of {} has no locks: let no other get write that file meanwhile",
                show(self.place.path())
            )
        })
    }

    /// The clue that all of the version which a URL has now was wrong; none if no hash tells, or it has none.
    fn refuted_clue(&self, part: &Part, url: &str) -> Option<[u8; 32]> {
        let (version, wanted) = (part.versions.get(&url_clue(url))?, self.demands.proof.name(&self.id)?);
        Some(refuted_clue(version, &wanted))
    }

    /// All of this mirror is here, and is not what is wanted: the next transfer that wants the same does not
    /// ask it, if it has the same version then.
    ///
    /// # Errors
    /// [`Error::Target`](crate::Error::Target) if that cannot be recorded.
    pub(crate) fn refute(&mut self, url: &str) -> Result<()> {
        let State::Part(part) = &self.state else { return Ok(()) };
        let clue = self.refuted_clue(part, url);
        match (&mut self.state, clue) {
            (State::Part(part), Some(clue)) => part.ban(&self.place, clue),
            _ => Ok(()),
        }
    }

    /// This mirror is tried alone, and brings something: the next transfer goes on with it.
    ///
    /// # Errors
    /// [`Error::Target`](crate::Error::Target) if that cannot be recorded.
    pub(crate) fn tried_alone(&mut self, url: &str) -> Result<()> {
        match &mut self.state {
            State::Part(part) => part.tried_alone(&self.place, alone_clue(url)),
            State::Whole(_) => Ok(()),
        }
    }
}
