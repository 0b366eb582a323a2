//! The journal beside a part: locked, and what it records besides blocks, read at once.

mod lock;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use anabranch_mmtp::ContentId;
use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::dest_path::DestPath;
use super::journal::{self, HEADER_BYTES, SLOT_BYTES};
use crate::filenames::show;
use crate::{Error, Result};
pub(super) use lock::Locked;

/// What is at a place of a content of a length, in the order in which variants are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum There {
    /// A file of that length.
    File,
    /// A part with that length in its name: another one was there before it.
    OwnPart,
    /// The usual part, and it is of that length.
    Part,
    Nothing,
}

/// What is there of a content of this length.
///
/// # Errors
/// [`ErrorKind::Target`](crate::ErrorKind::Target) if the directory cannot be looked at.
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

/// The length of the content that this journal is of; `None` if it is not there or not readable.
pub(super) fn length_of(place: &DestPath, journal: &OsStr) -> Result<Option<u64>> {
    if !place.stat(journal)?.is_some_and(|entry| entry.file) {
        return Ok(None);
    }
    let mut head = [0; HEADER_BYTES];
    let read = place.open(journal, OFlag::O_RDONLY).and_then(|file| read_up_to(&file, &mut head, 0));
    Ok(journal::parse_header(&head[..read.unwrap_or(0)]).ok().map(|id| id.length))
}

/// The aliases of a journal, each at its place.
pub(super) type Places = Vec<Option<[u8; 32]>>;

/// What a journal records behind its blocks.
pub(super) struct Behind {
    pub(super) places: Places,
    pub(super) banned: Vec<[u8; 32]>,
    /// The [clue](journal::alone_clue) of the mirror that was tried alone last.
    pub(super) alone: Option<[u8; 32]>,
}

impl Default for Behind {
    fn default() -> Self {
        Self { places: vec![None; journal::ALIASES_MAX], banned: Vec::new(), alone: None }
    }
}

impl Behind {
    pub(super) fn read(journal: &File, id: &ContentId) -> io::Result<Self> {
        let mut slots = [0; journal::BEHIND_MAX * SLOT_BYTES];
        let read = read_up_to(journal, &mut slots, journal::slot_offset(id.blocks()))?;
        let slots = &slots[..read];
        let mut places: Vec<_> = journal::parse_aliases(id, slots).collect();
        places.resize(journal::ALIASES_MAX, None);
        let (banned, alone) = (journal::parse_banned(id, slots).collect(), journal::parse_alone(id, slots));
        Ok(Self { places, banned, alone })
    }

    /// Whether one of these clues is recorded.
    pub(super) fn has_one_of(&self, clues: &[[u8; 32]]) -> bool {
        clues.iter().any(|clue| self.places.contains(&Some(*clue)))
    }
}

/// Opens and locks the journal; also says whether it was there before.
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

/// Reads until `bytes` is full or the file ends.
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
