//! The target's records about mirrors: which mirror delivered each block, and whose whole file was wrong.

use anabranch_mmtp::bitmap::Bitmap;

use super::journal::{Record, alone_clue};
use super::records::Records;
use super::{State, Target};
use crate::Result;
use crate::filenames::show;

impl Target {
    /// Returns what the journal records about mirrors; `None` if the file already has its name.
    pub(crate) fn records(&self) -> Option<Records<'_>> {
        let State::Part(part) = &self.state else { return None };
        Some(Records { part, place: &self.place, wanted: self.demands.proof.name(&self.id) })
    }

    /// Counts only these blocks of the part as arrived. The bytes of the other blocks are kept until they are
    /// [written](Self::write) once more.
    pub(crate) fn count_only(&mut self, blocks: &Bitmap) {
        let State::Part(part) = &mut self.state else { return };
        for block in (0..self.id.blocks()).filter(|block| !blocks.contains(*block)) {
            if self.there.remove(block) {
                // Their bytes stay in the file, so zeros that arrive later must be written.
                (part.virgin, part.has_others) = (false, true);
                self.done_bytes -= self.id.block_len(block) as u64;
            }
        }
    }

    /// Returns a notice about a part of another file that an earlier transfer left and that stays for now.
    pub(crate) fn note_of_what_stays(&self) -> Option<String> {
        let State::Part(part) = &self.state else { return None };
        let (name, bytes) = part.others.stays.as_ref()?;
        Some(format!(
            "{} is of another file, of {bytes} bytes: it stays while that of {} bytes comes",
            show(self.place.path().with_file_name(name)),
            self.id.length
        ))
    }

    /// Returns a notice that no lock keeps a second transfer away from the part, if that is so.
    pub(crate) fn note_of_no_lock(&self) -> Option<String> {
        let State::Part(part) = &self.state else { return None };
        part.journal.is_without_lock().then(|| {
            format!(
                "the file system of {} has no locks: let no other get write that file meanwhile",
                show(self.place.path())
            )
        })
    }

    /// Records that the whole file of this mirror arrived and is not the wanted one. The next transfer of
    /// this content does not ask the mirror, unless the mirror then has another version.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if that cannot be recorded.
    pub(crate) fn refute(&mut self, url: &str) -> Result<()> {
        let clue = self.records().and_then(|records| records.refuted_clue(url));
        match (&mut self.state, clue) {
            (State::Part(part), Some(clue)) => part.note(&self.place, Record::Refuted, clue),
            _ => Ok(()),
        }
    }

    /// Records that this mirror is tried alone and delivers blocks, so that the next transfer resumes with
    /// it.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if that cannot be recorded.
    pub(crate) fn tried_alone(&mut self, url: &str) -> Result<()> {
        match &mut self.state {
            State::Part(part) => part.note(&self.place, Record::TriedAlone, alone_clue(url)),
            State::Whole(_) => Ok(()),
        }
    }
}
