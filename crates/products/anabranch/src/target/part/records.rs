//! What a journal records besides blocks: what the content is called, who brought it, what was found out of
//! mirrors.

use std::io::IoSlice;
use std::ops::Range;

use anabranch_mmtp::tree::ChainingValue;

use super::Part;
use crate::Result;
use crate::target::dest_path::DestPath;
use crate::target::journal::{self, COMPARED, SLOT_BYTES, Slot};
use crate::target::journal_file::read_up_to;

impl Part {
    /// What mirrors brought of these blocks has been compared.
    pub(in crate::target) fn compared(&mut self, place: &DestPath, blocks: Range<u64>) -> Result<()> {
        // What is held back is recorded first.
        self.flush(place)?;
        let mut slots = vec![0; (blocks.end - blocks.start) as usize * SLOT_BYTES];
        let at = journal::slot_offset(blocks.start);
        let read = read_up_to(&self.journal, &mut slots, at)
            .map_err(|e| place.failure("read", &self.journal_name, &e))?;
        for (block, slot) in blocks.zip(slots[..read].chunks_exact_mut(SLOT_BYTES)) {
            if let Some(Slot { cv, mark }) = journal::parse_slot(&self.id, block, slot) {
                slot.copy_from_slice(&journal::slot(&self.id, block, &Slot { cv, mark: mark | COMPARED }));
            }
        }
        place
            .write_all(&self.journal, &mut [IoSlice::new(&slots[..read])], at)
            .map_err(|e| place.failure("write", &self.journal_name, &e))
    }

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
                .map_err(|e| place.failure("write", &self.journal_name, &e))?;
        }
        self.journal.sync_data().map_err(|e| place.failure("make durable", &self.journal_name, &e))?;
        place.rename_from(&self.name).map_err(|e| place.failure("rename", place.name(), &e))
    }

    /// Removes the names that this transfer has recorded: nothing that it brought is here any more.
    pub(in crate::target) fn disown(&mut self, place: &DestPath) -> Result<()> {
        let own = std::mem::take(&mut self.own_aliases);
        own.into_iter().try_for_each(|n| self.write_behind(place, n, &[0; SLOT_BYTES]))
    }

    /// The number in marks of the mirror whose version has this name, or whose URL this clue.
    pub(in crate::target) fn number_of(&self, name: &[u8; 32]) -> Option<u8> {
        journal::number_of(name, &self.id.root, &self.places)
    }

    /// The numbers of all clues that begin like this.
    pub(in crate::target) fn numbers_beginning(&self, start: &[u8]) -> Vec<u8> {
        let all = self.places.iter().flatten().filter(|clue| clue.starts_with(start));
        all.filter_map(|clue| self.number_of(clue)).collect()
    }

    /// Records which mirror is tried alone.
    pub(in crate::target) fn tried_alone(&mut self, place: &DestPath, clue: [u8; 32]) -> Result<()> {
        let n = journal::BEHIND_MAX - 1;
        self.write_behind(place, n, &journal::alias_slot(&self.id, n, &clue))
    }

    /// Records that a mirror has lied, or that all of it was wrong.
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
            .map_err(|e| place.failure("write", &self.journal_name, &e))
    }
}
