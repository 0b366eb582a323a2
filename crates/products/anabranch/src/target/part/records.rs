//! The records of a journal besides blocks: names of the content, and what was found out of mirrors.

use std::io::IoSlice;

use anabranch_mmtp::tree::ChainingValue;

use super::Part;
use crate::Result;
use crate::target::dest_path::DestPath;
use crate::target::journal::{self, SLOT_BYTES, Slot};

impl Part {
    /// The file of the final name takes the place of this part, which is empty, and these blocks of it are
    /// recorded. They count once their bytes are there.
    pub(in crate::target) fn take_over(
        self,
        place: &DestPath,
        blocks: &[(u64, ChainingValue)],
    ) -> Result<()> {
        for (block, cv) in blocks {
            let slot = journal::slot(&self.id, *block, &Slot { cv: *cv, mark: 0 });
            place
                .write_all(&self.journal, &mut [IoSlice::new(&slot)], journal::slot_offset(*block))
                .map_err(|e| place.failure("write", &self.journal_name, e))?;
        }
        self.journal.sync_data().map_err(|e| place.failure("make durable", &self.journal_name, e))?;
        place.rename_from(&self.name).map_err(|e| place.failure("rename", place.name(), e))
    }

    /// The number in marks of the mirror whose version has this name.
    pub(in crate::target) fn number_of(&self, name: &[u8; 32]) -> Option<u8> {
        journal::number_of(name, &self.id.root, &self.places)
    }

    /// Records which mirror is tried alone.
    pub(in crate::target) fn tried_alone(&mut self, place: &DestPath, clue: [u8; 32]) -> Result<()> {
        let n = journal::BEHIND_MAX - 1;
        self.write_behind(place, n, &journal::alias_slot(&self.id, n, &clue))
    }

    /// Records that all of a mirror was wrong.
    pub(in crate::target) fn ban(&mut self, place: &DestPath, clue: [u8; 32]) -> Result<()> {
        if self.banned.contains(&clue) || self.banned.len() >= journal::BANNED_MAX {
            return Ok(());
        }
        let n = journal::ALIASES_MAX + self.banned.len();
        self.banned.push(clue);
        self.write_behind(place, n, &journal::alias_slot(&self.id, n, &clue))
    }

    /// Writes the slot number `n`, from 0 on, behind that of the last block.
    fn write_behind(&self, place: &DestPath, n: usize, slot: &[u8; SLOT_BYTES]) -> Result<()> {
        let at = journal::slot_offset(self.id.blocks() + n as u64);
        place
            .write_all(&self.journal, &mut [IoSlice::new(slot)], at)
            .map_err(|e| place.failure("write", &self.journal_name, e))
    }
}
