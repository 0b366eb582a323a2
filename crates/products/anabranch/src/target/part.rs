//! The part file and its journal: opens them together, checks them, and writes blocks to them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;

use anabranch_mmtp::ContentId;
use anabranch_mmtp::bitmap::Bitmap;
use anabranch_mmtp::id::{BLOCK_BYTES, SEGMENT_BLOCKS};
use anabranch_mmtp::tree::{self, ChainingValue};
use nix::fcntl::OFlag;

use super::aliases::{Aliases, Version, has_hash, why_another};
use super::dest_path::DestPath;
use super::journal::{self, Record, SLOT_BYTES, Slot, Unreadable};
use super::journal_file::{JournalFile, Locked, length_of, lock_journal, read_up_to};
use crate::filenames::show;
use crate::{Error, Result};

/// The number of slots that are read or written at once.
const CHECK_BLOCKS: u64 = 4 * SEGMENT_BLOCKS;
/// The number of bytes that are compared with zeros at once.
const ZERO_BLOCK_BYTES: usize = 256;

#[derive(Debug)]
pub(super) struct Part {
    /// The content, as the journal names it.
    id: ContentId,
    pub(super) name: OsString,
    pub(super) file: File,
    pub(super) journal: JournalFile,
    /// The [mark](Slot::mark) of each block that an earlier transfer left.
    pub(super) marks: Vec<u8>,
    /// The [clues](journal::url_clue) of URLs that had another version when the part was begun; filled only
    /// where no hash is known.
    pub(super) changed: Vec<[u8; 32]>,
    /// For each URL's clue, the name of the version that the URL has now.
    pub(super) versions: BTreeMap<[u8; 32], [u8; 32]>,
    /// Whether the file was empty before and each block is written at most once, so that blocks of zeros can
    /// be left as holes.
    pub(super) virgin: bool,
    /// Whether the part holds blocks that do not count in this transfer.
    pub(super) has_others: bool,
    /// Whether journal records were blanked and the journal was not synced since, so that the records may
    /// reappear after a power failure.
    unsynced: bool,
    pub(super) held: Vec<PendingWrite>,
    pub(super) others: OtherParts,
}

/// Part files of other lengths for the same destination, and what this part has to do about them.
#[derive(Debug, Default)]
pub(super) struct OtherParts {
    /// The name and the length in bytes of a part of another length that stays there for now.
    pub(super) stays: Option<(OsString, u64)>,
    /// The lock of the journal with the usual name, held while this part uses names that contain its length.
    pub(super) usual_lock: Option<Locked>,
    /// The clues of this file's URLs. Once this file is complete and right, parts of other files from these
    /// URLs are removed.
    pub(super) outdated_by: Vec<[u8; 32]>,
}

/// A block that is held back until it is written.
#[derive(Debug)]
pub(super) struct PendingWrite {
    pub(super) block: u64,
    pub(super) slot: Slot,
    pub(super) bytes: Vec<u8>,
}

impl Part {
    /// Opens or creates the part and its journal, and takes the lock. `is_judged` says whether a signature,
    /// or a hash that is not only the word of the delivering servers, tells which file is wanted. If so, a
    /// part of another length is not in the way. With `force`, or in a directory that is fetched whole, it is
    /// replaced. Otherwise it stays, and this part gets names that contain its length.
    pub(super) fn open(
        place: &DestPath,
        id: &ContentId,
        aliases: &Aliases,
        is_judged: bool,
        force: bool,
    ) -> Result<Self> {
        let usual = place.part_names(None);
        let other = length_of(place, &usual.1)?.filter(|length| *length != id.length);
        // In a directory that is fetched whole, no other program uses the names of parts, and it is known
        // which file is wanted. So a part of another length is replaced.
        let force = force || is_judged && place.is_among_others() && other.is_some();
        if !is_judged || place.is_among_others() {
            return Self::open_as(place, usual, id, aliases, force);
        }
        let own = place.part_names(Some(id.length));
        let is_begun = length_of(place, &own.1)? == Some(id.length);
        let has_other = other.filter(|_| !force).is_some() && place.stat(&usual.0)?.is_some();
        let (mut stays, mut usual_lock, mut names) = (None, None, usual);
        if is_begun || has_other {
            let usual = std::mem::replace(&mut names, own);
            // The usual journal is locked all the same, so that only one transfer at a time writes this file.
            if place.stat(&usual.1)?.is_some() {
                usual_lock = Some(lock_journal(place, &usual.1)?.0);
            }
            stays = other.filter(|_| has_other).map(|length| (usual.0, length));
        }
        let part = Self::open_as(place, names, id, aliases, force)?;
        Ok(Self { others: OtherParts { stays, usual_lock, outdated_by: aliases.urls.clone() }, ..part })
    }

    /// Opens or creates the part and the journal under these names.
    fn open_as(
        place: &DestPath,
        (name, journal_name): (OsString, OsString),
        id: &ContentId,
        aliases: &Aliases,
        force: bool,
    ) -> Result<Self> {
        let (mut journal, header, mut known) = JournalFile::open(place, journal_name, id.length)?;
        let there = place.stat(&name)?;
        if there.is_some_and(|entry| !entry.file) {
            let path = place.path().with_file_name(&name);
            let why = "is in the way and is not a regular file: remove it";
            return Err(Error::target(format!("{} {why}", show(&path))).at(path));
        }
        let mut names: Vec<[u8; 32]> = [&[id.root], &aliases.recorded[..]].concat();
        let recorded: Vec<[u8; 32]> = journal.behind.all(Record::Alias).collect();
        let is_ours = |found: &ContentId| {
            found.length == id.length && aliases.continue_part(&names, &found.root, &recorded)
        };
        let ours = header.as_ref().ok().copied().filter(is_ours);
        let replaces = aliases.replaces(&recorded);
        let why_another = || why_another(&names, &recorded);
        let foreign = match ours {
            Some(_) => None,
            None => why_foreign(&header, id.length, (known, there.is_some()), replaces, why_another),
        };
        if let Some(why) = foreign.filter(|_| !force) {
            if !known {
                let _ = place.unlink(&journal.name);
            }
            let path = place.path().with_file_name(if there.is_some() { &name } else { &journal.name });
            let advice = "remove it, or let `overwrite` replace it";
            return Err(Error::target(format!("{} is there and {why}{advice}", show(&path))).at(path));
        }
        known = ours.is_some() && there.is_some();
        // Without a hash, no bytes of a URL whose version has changed go into this part.
        let changed: Vec<Version> = match ours.filter(|_| known && !has_hash(&names)) {
            Some(part) => aliases.changed(&part.root, &recorded).copied().collect(),
            None => Vec::new(),
        };
        names.retain(|name| !changed.iter().any(|version| version.name == *name));
        let changed = changed.iter().map(|version| version.url).collect();
        let id = ours.filter(|_| known).unwrap_or(*id);
        let fresh = if known { OFlag::empty() } else { OFlag::O_TRUNC };
        if !known {
            journal.begin(place, &id)?;
        }
        for name in names.into_iter().filter(|name| *name != id.root) {
            journal.record(place, &id, Record::Alias, name)?;
        }
        let file = place
            .open(&name, OFlag::O_RDWR | OFlag::O_CREAT | fresh)
            .map_err(|e| place.failure("write", &name, e))?;
        let blocks = if known { usize::try_from(id.blocks()).unwrap_or(usize::MAX) } else { 0 };
        Ok(Self {
            id,
            name,
            file,
            journal,
            marks: vec![0; blocks],
            changed,
            versions: aliases.versions.iter().map(|version| (version.url, version.name)).collect(),
            virgin: !known,
            has_others: false,
            unsynced: false,
            held: Vec::new(),
            others: OtherParts::default(),
        })
    }

    /// Checks that there is room for the missing bytes. If there is not, and the part is empty, part and
    /// journal are removed.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if there is no room.
    pub(super) fn check_room(&self, place: &DestPath, id: &ContentId) -> Result<()> {
        // Linux counts in blocks of 512 bytes on every file system.
        let there = self.file.metadata().map_or(0, |meta| meta.blocks().saturating_mul(512));
        place.check_room(id.length.saturating_sub(there)).inspect_err(|_| {
            if self.virgin {
                let _ = place.unlink(&self.name);
                let _ = place.unlink(&self.journal.name);
            }
        })
    }

    /// Hashes the blocks that the journal records and marks in `there` those that are still right. Returns
    /// the number of bytes in them.
    pub(super) fn check(
        &mut self,
        place: &DestPath,
        there: &mut Bitmap,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64> {
        let id = self.id;
        let id = &id;
        let mut slots = vec![0; CHECK_BLOCKS as usize * SLOT_BYTES];
        let mut bytes = vec![0; BLOCK_BYTES];
        let (mut kept, mut checked) = (0, 0);
        for first in (0..id.blocks()).step_by(CHECK_BLOCKS as usize) {
            let read = self.journal.read(place, first, &mut slots)?;
            for (block, slot) in (first..id.blocks()).zip(slots[..read].chunks_exact(SLOT_BYTES)) {
                let Some(slot) = journal::parse_slot(id, block, slot) else { continue };
                let bytes = &mut bytes[..id.block_len(block)];
                let read = read_up_to(&self.file, bytes, block * BLOCK_BYTES as u64)
                    .map_err(|e| place.failure("read", &self.name, e))?;
                checked += read as u64;
                if read == bytes.len() && cv_of(id, block, bytes) == slot.cv {
                    there.insert(block);
                    if let Some(mark) = self.marks.get_mut(block as usize) {
                        *mark = slot.mark;
                    }
                    kept += read as u64;
                }
            }
            if !progress(checked) {
                return Err(interrupted());
            }
        }
        Ok(kept)
    }

    /// Removes these blocks from the held blocks and from the journal.
    pub(super) fn forget(&mut self, place: &DestPath, blocks: Range<u64>) -> Result<()> {
        self.held.retain(|held| !blocks.contains(&held.block));
        // Their bytes stay in the file, so zeros that arrive later must be written.
        self.virgin = false;
        self.unsynced = true;
        let blank = [0; CHECK_BLOCKS as usize * SLOT_BYTES];
        for first in blocks.clone().step_by(CHECK_BLOCKS as usize) {
            let slots = (blocks.end - first).min(CHECK_BLOCKS) as usize;
            self.journal.write(place, first, &blank[..slots * SLOT_BYTES])?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self, place: &DestPath) -> Result<()> {
        if self.unsynced {
            // One sync serves all forgotten blocks. An old record would still fit the bytes in the file.
            self.journal.sync(place)?;
            self.unsynced = false;
        }
        let mut held = std::mem::take(&mut self.held);
        // The sort is stable, so the last copy of a block is written last.
        held.sort_by_key(|h| h.block);
        for run in held.chunk_by(|a, b| a.block + 1 == b.block) {
            self.write_run(place, run).map_err(|e| place.failure("write", &self.name, e))?;
            let mut slots = Vec::with_capacity(run.len() * SLOT_BYTES);
            for one in run {
                slots.extend(journal::slot(&self.id, one.block, &one.slot));
            }
            self.journal.write(place, run[0].block, &slots)?;
        }
        held.clear();
        self.held = held;
        Ok(())
    }

    /// Writes consecutive blocks. Zeros are not written where the file already has zeros, so that holes stay
    /// holes.
    pub(super) fn write_run(&self, place: &DestPath, run: &[PendingWrite]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(run.len());
        let mut at = 0;
        for one in run {
            let bytes = one.bytes.as_slice();
            let offset = one.block * BLOCK_BYTES as u64;
            if is_zero(bytes) && (self.virgin || self.is_hole(offset, bytes.len())?) {
                place.write_all(&self.file, &mut slices, at)?;
                slices.clear();
            } else {
                if slices.is_empty() {
                    at = offset;
                }
                slices.push(IoSlice::new(bytes));
            }
        }
        place.write_all(&self.file, &mut slices, at)
    }

    /// Whether the file has only zeros in this range. A torn write of an earlier run may have left other
    /// bytes.
    pub(super) fn is_hole(&self, offset: u64, len: usize) -> io::Result<bool> {
        let mut bytes = vec![0; len];
        Ok(read_up_to(&self.file, &mut bytes, offset)? == len && is_zero(&bytes))
    }

    /// Fails unless the part's name still belongs to the file that was written: a rename gives the final name
    /// to whatever file has the part's name.
    pub(super) fn check_inode(&self, place: &DestPath) -> Result<()> {
        let written =
            nix::sys::stat::fstat(&self.file).map_err(|e| place.failure("look at", &self.name, e.into()))?;
        if place.stat(&self.name)?.is_some_and(|entry| entry.inode == (written.st_dev, written.st_ino)) {
            return Ok(());
        }
        // The journal does not belong to the other file, which the next transfer would take for its part.
        let _ = place.unlink(&self.journal.name);
        let path = place.path().with_file_name(&self.name);
        let why = "was removed or replaced while it was written: look at it, and run the same `Get` again";
        Err(Error::target(format!("{} {why}", show(&path))).at(path))
    }

    /// Returns the record of a block; `None` if there is none.
    pub(super) fn record(&self, place: &DestPath, block: u64) -> Option<Slot> {
        let mut slot = [0; SLOT_BYTES];
        let read = self.journal.read(place, block, &mut slot).ok()?;
        journal::parse_slot(&self.id, block, &slot[..read])
    }

    /// Returns the root hash that the recorded chaining values give together; `None` if some are missing.
    pub(super) fn root(&self, place: &DestPath) -> Result<Option<[u8; 32]>> {
        let id = &self.id;
        let mut slots = vec![0; CHECK_BLOCKS as usize * SLOT_BYTES];
        let mut failed = None;
        let mut recorded = 0;
        let mut leaves = (0..id.blocks()).step_by(CHECK_BLOCKS as usize).flat_map(|first| {
            let read = self.journal.read(place, first, &mut slots).unwrap_or_else(|error| {
                failed = Some(error);
                0
            });
            let slots = (first..id.blocks()).zip(slots[..read].chunks_exact(SLOT_BYTES));
            let some: Vec<_> = slots.filter_map(|(g, s)| Some(journal::parse_slot(id, g, s)?.cv)).collect();
            recorded += some.len() as u64;
            some
        });
        let root = match id.blocks() {
            0 => Some(*blake3::hash(&[]).as_bytes()),
            1 => leaves.next(),
            _ => tree::root_of_leaves(leaves),
        };
        match failed {
            Some(error) => Err(error),
            None => Ok(root.filter(|_| recorded == id.blocks())),
        }
    }

    /// Records these blocks, and renames the file under the final name to the name of this empty part. The
    /// records count once the bytes of the blocks are in the part.
    pub(super) fn take_over(self, place: &DestPath, blocks: &[(u64, ChainingValue)]) -> Result<()> {
        for (block, cv) in blocks {
            let slot = journal::slot(&self.id, *block, &Slot { cv: *cv, mark: 0 });
            self.journal.write(place, *block, &slot)?;
        }
        self.journal.sync(place)?;
        place.rename_from(&self.name).map_err(|e| place.failure("rename", place.name(), e))
    }

    /// Returns the number by which marks denote the mirror whose version has this name.
    pub(super) fn number_of(&self, name: &[u8; 32]) -> Option<u8> {
        self.journal.behind.number_of(name, &self.id.root)
    }

    /// Adds a record about a mirror to the journal.
    pub(super) fn note(&mut self, place: &DestPath, kind: Record, clue: [u8; 32]) -> Result<()> {
        self.journal.record(place, &self.id, kind, clue)
    }
}

/// Returns why the part must not be used, as a part of a sentence; `None` if it is not in the way. `known`
/// says whether its journal existed before, and `is_there` whether the part itself exists.
fn why_foreign(
    header: &std::result::Result<ContentId, Unreadable>,
    length: u64,
    (known, is_there): (bool, bool),
    replaces: bool,
    why_another: impl Fn() -> &'static str,
) -> Option<String> {
    match header {
        // The part was removed, so its journal is useless.
        Ok(_) if !is_there => None,
        Ok(found) if found.length != length => Some(format!(
            "is of a content of {} bytes, not of {length}: name a server that still has that to go on, ",
            found.length
        )),
        Ok(_) if replaces => None,
        Ok(_) => Some(why_another().to_owned()),
        Err(Unreadable::Blank) if known || !is_there => None,
        Err(Unreadable::Blank) => Some("has no journal: no transfer has left it: ".to_owned()),
        Err(e) if !is_there => Some(format!("is {e}: ")),
        Err(e) => Some(format!("its journal cannot be used ({e}): ")),
    }
}

pub(super) fn is_zero(bytes: &[u8]) -> bool {
    // The search stops at the first chunk that is not all zeros. For almost all data that is the first chunk.
    bytes.chunks(ZERO_BLOCK_BYTES).all(|block| block.iter().fold(0, |any, byte| any | byte) == 0)
}

/// Returns the hash that proves a block: its chaining value or, in a content of one block, the root hash.
pub(crate) fn cv_of(id: &ContentId, block: u64, bytes: &[u8]) -> ChainingValue {
    if id.blocks() == 1 { *blake3::hash(bytes).as_bytes() } else { tree::block_cv(block, bytes) }
}

pub(super) fn interrupted() -> Error {
    Error::interrupted("interrupted; run the same `Get` again to go on")
}
