//! The journal file beside a part: opens, locks, reads and writes it.

mod lock;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt as _;

use anabranch_mmtp::ContentId;
use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::dest_path::DestPath;
use super::journal::{self, Behind, HEADER_BYTES, Record, SLOT_BYTES, Unreadable};
use crate::filenames::show;
use crate::{Error, Result};
pub(super) use lock::Locked;

/// What a destination holds of a content of some length, in the order in which variants are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum There {
    /// A file of that length.
    File,
    /// A part with that length in its name: when it was begun, another part had the usual name.
    OwnPart,
    /// A part of that length with the usual name.
    Part,
    Nothing,
}

/// Returns what `place` holds of a content of this length.
///
/// # Errors
/// [`ErrorKind::Target`](crate::ErrorKind::Target) if the directory cannot be examined.
pub(crate) fn what_is_there(place: &DestPath, length: u64) -> Result<There> {
    if place.stat(place.name())?.is_some_and(|entry| entry.file && entry.length == length) {
        return Ok(There::File);
    }
    for (of_length, there) in [(Some(length), There::OwnPart), (None, There::Part)] {
        if length_of(place, &place.part_names(of_length).1)? == Some(length) {
            return Ok(there);
        }
    }
    Ok(There::Nothing)
}

/// Returns the length of the content that this journal is about; `None` if the journal does not exist or is
/// not readable.
pub(super) fn length_of(place: &DestPath, journal: &OsStr) -> Result<Option<u64>> {
    if !place.stat(journal)?.is_some_and(|entry| entry.file) {
        return Ok(None);
    }
    let mut head = [0; HEADER_BYTES];
    let read = place.open(journal, OFlag::O_RDONLY).and_then(|file| read_up_to(&file, &mut head, 0));
    Ok(journal::parse_header(&head[..read.unwrap_or(0)]).ok().map(|id| id.length))
}

/// Reads the records behind the slots of the blocks in a journal about `id`.
pub(super) fn read_behind(journal: &File, id: &ContentId) -> io::Result<Behind> {
    let mut slots = [0; journal::BEHIND_MAX * SLOT_BYTES];
    let read = read_up_to(journal, &mut slots, journal::slot_offset(id.blocks()))?;
    Ok(Behind::parse(id, &slots[..read]))
}

/// The locked journal of a part.
#[derive(Debug)]
pub(super) struct JournalFile {
    file: Locked,
    pub(super) name: OsString,
    /// The records besides those of blocks.
    pub(super) behind: Behind,
}

impl JournalFile {
    /// Opens or creates the journal for a content of this length, and locks it. Also returns its header, and
    /// whether the journal existed before.
    pub(super) fn open(
        place: &DestPath,
        name: OsString,
        length: u64,
    ) -> Result<(Self, std::result::Result<ContentId, Unreadable>, bool)> {
        let (file, known) = lock_journal(place, &name)?;
        let failure = |e| place.failure("read", &name, e);
        let mut head = [0; HEADER_BYTES];
        let read = read_up_to(&file, &mut head, 0).map_err(failure)?;
        let header = journal::parse_header(&head[..read]);
        let behind = match &header {
            Ok(found) if found.length == length => read_behind(&file, found).map_err(failure)?,
            _ => Behind::default(),
        };
        Ok((Self { file, name, behind }, header, known))
    }

    /// Whether the journal has no lock, so that nothing keeps a second transfer away from it.
    pub(super) const fn is_without_lock(&self) -> bool {
        self.file.is_without()
    }

    /// Begins the journal anew, for `id`. Old slots are removed before the header says that they belong to
    /// `id`.
    pub(super) fn begin(&mut self, place: &DestPath, id: &ContentId) -> Result<()> {
        self.file.set_len(0).map_err(|e| place.failure("write", &self.name, e))?;
        self.behind = Behind::default();
        self.write_at(place, &journal::header(id), 0)
    }

    /// Adds a record behind the slots of the blocks of `id`, if there is room and it is not recorded already.
    pub(super) fn record(
        &mut self,
        place: &DestPath,
        id: &ContentId,
        kind: Record,
        record: [u8; 32],
    ) -> Result<()> {
        match self.behind.add(kind, record) {
            Some(n) => self.write(place, id.blocks() + n as u64, &journal::slot_behind(id, n, &record)),
            None => Ok(()),
        }
    }

    /// Reads slots, beginning with the slot of `block`, and returns the number of bytes read.
    pub(super) fn read(&self, place: &DestPath, block: u64, slots: &mut [u8]) -> Result<usize> {
        let read = read_up_to(&self.file, slots, journal::slot_offset(block));
        read.map_err(|e| place.failure("read", &self.name, e))
    }

    /// Writes slots, beginning with the slot of `block`.
    pub(super) fn write(&self, place: &DestPath, block: u64, slots: &[u8]) -> Result<()> {
        self.write_at(place, slots, journal::slot_offset(block))
    }

    fn write_at(&self, place: &DestPath, bytes: &[u8], at: u64) -> Result<()> {
        let written = place.write_all(&self.file, &mut [IoSlice::new(bytes)], at);
        written.map_err(|e| place.failure("write", &self.name, e))
    }

    pub(super) fn sync(&self, place: &DestPath) -> Result<()> {
        self.file.sync_data().map_err(|e| place.failure("make durable", &self.name, e))
    }
}

/// Opens and locks the journal. Also returns whether it existed before.
pub(super) fn lock_journal(place: &DestPath, name: &OsStr) -> Result<(Locked, bool)> {
    // The transfer that held the lock may have removed the file that was opened here: then try again.
    for _ in 0..100 {
        let known = place.stat(name)?.is_some();
        let file =
            place.open(name, OFlag::O_RDWR | OFlag::O_CREAT).map_err(|e| place.failure("write", name, e))?;
        let lock = Locked::new(file).map_err(|e| match e {
            Errno::EWOULDBLOCK => Error::target(format!(
                "another get is writing {}: wait for it, or choose another `to_file`",
                show(place.path())
            ))
            .at(place.path()),
            e => place.failure("lock", name, e.into()),
        })?;
        let stat = nix::sys::stat::fstat(&*lock).map_err(|e| place.failure("look at", name, e.into()))?;
        if place.stat(name)?.is_some_and(|entry| entry.inode == (stat.st_dev, stat.st_ino)) {
            return Ok((lock, known));
        }
    }
    Err(Error::target(format!(
        "the journal of {} comes and goes: is another get at work?",
        show(place.path())
    ))
    .at(place.path()))
}

/// Reads until `bytes` is full or the file ends, and returns the number of bytes read.
pub(super) fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(read)
}
