//! Where a file arrives: whole and verified under its name, or not at all.
//!
//! Groups are written to `NAME.part` (in a directory that is fetched whole, to a name that begins with
//! [`PART_PREFIX`]); a [`journal`] beside it says which are there. Both survive Ctrl-C, kill
//! -9 and power loss: the next [`Target::open`] hashes every group that the journal records and keeps those
//! whose bytes are still the recorded ones. At the end the recorded hashes are merged and must give the
//! content's root; then the part is made durable and renamed to `NAME`.
//!
//! One target takes one content at a time: the journal is locked (`flock`) while a transfer runs.

pub mod journal;
mod place;

pub use place::{Directory, PART_PREFIX, Place, destination, directory_destination};

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::PathBuf;

use mmtp::ContentId;
use mmtp::id::{GROUP_BYTES, SEGMENT_GROUPS};
use mmtp::tree::{self, Cv};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};

use crate::exit::{Code, Failure, Outcome};
use crate::names::show;
use journal::{HEADER_BYTES, SLOT_BYTES, Unreadable};

/// Groups held back for one write: a segment's worth, 1 MiB.
pub const HELD_GROUPS_MAX: usize = SEGMENT_GROUPS as usize;

/// Groups that are looked at in one go when a part is checked.
const CHECK_GROUPS: u64 = 4 * SEGMENT_GROUPS;

/// A file on its way.
#[derive(Debug)]
pub struct Target {
    place: Place,
    id: ContentId,
    force: bool,
    state: State,
    done_bytes: u64,
}

#[derive(Debug)]
enum State {
    /// The file has its name already and is what it should be.
    Whole,
    /// It is being written.
    Part(Box<Part>),
}

#[derive(Debug)]
struct Part {
    name: OsString,
    file: File,
    journal_name: OsString,
    journal: Flock<File>,
    /// Nothing was ever written where no group is recorded: zeros need not be.
    virgin: bool,
    held: Vec<Held>,
    /// The bytes of all held groups, one after the other.
    bytes: Vec<u8>,
}

/// What recorded hashes are together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merged {
    /// The root of the content.
    Root,
    /// Some are missing.
    Incomplete,
    /// All are there, and give another root.
    Other,
}

/// A group that waits to be written.
#[derive(Clone, Copy, Debug)]
struct Held {
    group: u64,
    cv: Cv,
    /// Where its bytes begin among those held.
    from: usize,
    len: usize,
}

/// Which groups are there, a bit each: bit `g % 64` of word `g / 64` is group `g`.
pub type Bitmap = Vec<u64>;

impl Target {
    /// Opens the target at `place` for `id`, and finds out what an earlier transfer left there.
    ///
    /// A file that has the name already is taken as the result if it is exactly this content; any other is an
    /// error unless `force` allows to replace it at the end. `progress` is called with the bytes checked so
    /// far and can stop the check by returning false.
    ///
    /// # Errors
    /// Exit status 6 if the target does not take the file, 130 if `progress` stopped the check.
    pub fn open(
        place: Place,
        id: ContentId,
        force: bool,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Outcome<(Self, Bitmap)> {
        let words =
            usize::try_from(id.groups().div_ceil(64)).map_err(|_| Failure::target("too large a file"))?;
        let mut there = vec![0_u64; words];
        if is_there_already(&place, &id, force, progress)? {
            for group in 0..id.groups() {
                set(&mut there, group);
            }
            remove_leftovers(&place, &id);
            let whole = Self { place, id, force, state: State::Whole, done_bytes: id.length };
            return Ok((whole, there));
        }
        let part = Part::open(&place, &id, force)?;
        let mut target = Self { place, id, force, state: State::Whole, done_bytes: 0 };
        if !part.virgin {
            target.done_bytes = part.check(&target.place, &id, &mut there, progress)?;
        }
        part.file
            .set_len(id.length)
            .map_err(|e| target.place.failure("give its length to", &part.name, &e))?;
        target.state = State::Part(Box::new(part));
        Ok((target, there))
    }

    /// Bytes that are in the part, those held back among them.
    #[must_use]
    pub const fn bytes_done(&self) -> u64 {
        self.done_bytes
    }

    /// The file's final path.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.place.path()
    }

    /// Takes a verified group. It is held back until [`HELD_GROUPS_MAX`] are held or [`flush`](Self::flush)
    /// is called; call that whenever there is a pause, because held groups do not survive a crash.
    ///
    /// # Errors
    /// Exit status 6 if they cannot be written.
    ///
    /// # Panics
    /// If the bytes are not as many as the group has: the caller has verified something else.
    pub fn write(&mut self, group: u64, bytes: &[u8], cv: Cv) -> Outcome {
        assert!(
            !bytes.is_empty() && bytes.len() == self.id.group_len(group),
            "group {group} has another length"
        );
        let State::Part(part) = &mut self.state else { return Ok(()) };
        if part.held.len() >= HELD_GROUPS_MAX {
            part.flush(&self.place, &self.id)?;
        }
        part.held.push(Held { group, cv, from: part.bytes.len(), len: bytes.len() });
        part.bytes.extend_from_slice(bytes);
        self.done_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Writes what is held back: the data first, then the journal.
    ///
    /// # Errors
    /// Exit status 6 if it cannot be written.
    pub fn flush(&mut self) -> Outcome {
        match &mut self.state {
            State::Part(part) => part.flush(&self.place, &self.id),
            State::Whole => Ok(()),
        }
    }

    /// Lets the file be executed by whoever may read it, as the manifest of a directory says of some files.
    ///
    /// # Errors
    /// Exit status 6 if that cannot be set.
    pub fn make_executable(&self) -> Outcome {
        let State::Part(part) = &self.state else { return Ok(()) };
        let set = || {
            let mode = part.file.metadata()?.permissions().mode();
            part.file.set_permissions(Permissions::from_mode(mode | (mode & 0o444) >> 2))
        };
        set().map_err(|e: io::Error| self.place.failure("make executable", &part.name, &e))
    }

    /// Removes part and journal if they hold nothing: what failed before it began leaves no trace.
    pub fn discard_if_empty(self) {
        if let State::Part(part) = &self.state
            && self.done_bytes == 0
        {
            // Should one of them stay, it is as good as new for the next transfer.
            let _ = self.place.unlink(&part.name);
            let _ = self.place.unlink(&part.journal_name);
        }
    }

    /// Checks that all groups together are the content, makes the file durable and gives it its name.
    ///
    /// # Errors
    /// Exit status 6 if a group is missing, the hashes do not give the root (then part and journal are removed,
    /// so that the next transfer begins afresh), the part's name stands for another file than the one that was
    /// written, or the final name was taken meanwhile.
    pub fn finish(mut self) -> Outcome<PathBuf> {
        self.flush()?;
        let path = self.place.path();
        let State::Part(part) = self.state else {
            return Ok(path);
        };
        part.check_inode(&self.place)?;
        let part_path = || show(path.with_file_name(&part.name));
        match part.merged(&self.place, &self.id)? {
            Merged::Root => {}
            Merged::Incomplete => {
                return Err(Failure::target(format!(
                    "groups are missing in {}: run the same command again",
                    part_path()
                )));
            }
            Merged::Other => {
                // Resuming would fail in the same way for ever. The part goes first: a journal alone is fresh.
                let _ = self.place.unlink(&part.name);
                let _ = self.place.unlink(&part.journal_name);
                return Err(Failure::target(format!(
                    "what was in {} was not right and is removed: run the same command again",
                    part_path()
                )));
            }
        }
        part.file.sync_all().map_err(|e| self.place.failure("make durable", &part.name, &e))?;
        // Making it durable may have taken long, and the name is what is renamed.
        part.check_inode(&self.place)?;
        self.place.rename(&part.name, self.force).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => exists(&path),
            _ => self.place.failure("give its name to", self.place.name(), &e),
        })?;
        // From here on the file is there; a journal left behind by a crash is removed by the next transfer.
        let _ = self.place.unlink(&part.journal_name);
        self.place.sync().map_err(|e| self.place.failure("make durable", self.place.name(), &e))?;
        Ok(path)
    }
}

impl Part {
    /// Opens or makes part and journal, and takes the lock.
    fn open(place: &Place, id: &ContentId, force: bool) -> Outcome<Self> {
        let (name, journal_name) = place.part_names();
        let (journal, mut known) = lock_journal(place, &journal_name)?;
        let mut head = [0; HEADER_BYTES];
        let read = read_up_to(&journal, &mut head, 0);
        let read = read.map_err(|e| place.failure("read", &journal_name, &e))?;
        let there = place.stat(&name)?;
        if there.is_some_and(|entry| !entry.file) {
            return Err(Failure::target(format!(
                "{} is in the way and is not a regular file: remove it",
                show(place.path().with_file_name(&name))
            )));
        }
        let same = match journal::parse_header(&head[..read]) {
            Ok(found) => Some(found == *id),
            Err(Unreadable::Blank) if known => None,
            // A part without a journal is somebody's file.
            Err(Unreadable::Blank) => there.map(|_| false),
            Err(Unreadable::Foreign | Unreadable::Version(_)) => Some(false),
        };
        if same == Some(false) && !force {
            if !known {
                let _ = place.unlink(&journal_name);
            }
            return Err(Failure::target(format!(
                "{} is there and belongs to something else: remove it, or let --force overwrite it",
                show(place.path().with_file_name(&name))
            )));
        }
        known = same == Some(true) && there.is_some();
        let fresh = if known { OFlag::empty() } else { OFlag::O_TRUNC };
        if !known {
            // Old slots must be gone before the header says that they are this content's.
            journal
                .set_len(0)
                .and_then(|()| journal.write_all_at(&journal::header(id), 0))
                .map_err(|e| place.failure("write", &journal_name, &e))?;
        }
        let file = place
            .open(&name, OFlag::O_RDWR | OFlag::O_CREAT | fresh)
            .map_err(|e| place.failure("write", &name, &e))?;
        Ok(Self { name, file, journal_name, journal, virgin: !known, held: Vec::new(), bytes: Vec::new() })
    }

    /// Hashes what the journal records and marks in `there` what is still right; returns the bytes of it.
    fn check(
        &self,
        place: &Place,
        id: &ContentId,
        there: &mut Bitmap,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Outcome<u64> {
        let mut slots = vec![0; CHECK_GROUPS as usize * SLOT_BYTES];
        let mut bytes = vec![0; GROUP_BYTES];
        let (mut kept, mut checked) = (0, 0);
        for first in (0..id.groups()).step_by(CHECK_GROUPS as usize) {
            let read = read_up_to(&self.journal, &mut slots, journal::slot_offset(first))
                .map_err(|e| place.failure("read", &self.journal_name, &e))?;
            for (group, slot) in (first..id.groups()).zip(slots[..read].chunks_exact(SLOT_BYTES)) {
                let Some(cv) = journal::parse_slot(id, group, slot) else { continue };
                let bytes = &mut bytes[..id.group_len(group)];
                let read = read_up_to(&self.file, bytes, group * GROUP_BYTES as u64)
                    .map_err(|e| place.failure("read", &self.name, &e))?;
                checked += read as u64;
                if read == bytes.len() && cv_of(id, group, bytes) == cv {
                    set(there, group);
                    kept += read as u64;
                }
            }
            if !progress(checked) {
                return Err(interrupted());
            }
        }
        Ok(kept)
    }

    fn flush(&mut self, place: &Place, id: &ContentId) -> Outcome {
        let mut held = std::mem::take(&mut self.held);
        held.sort_unstable_by_key(|h| h.group);
        for run in held.chunk_by(|a, b| a.group + 1 == b.group) {
            self.write_run(run).map_err(|e| place.failure("write", &self.name, &e))?;
            let mut slots = Vec::with_capacity(run.len() * SLOT_BYTES);
            for one in run {
                slots.extend(journal::slot(id, one.group, &one.cv));
            }
            self.journal
                .write_all_at(&slots, journal::slot_offset(run[0].group))
                .map_err(|e| place.failure("write", &self.journal_name, &e))?;
        }
        held.clear();
        self.held = held;
        self.bytes.clear();
        Ok(())
    }

    /// Writes consecutive groups, except those that are zeros where there are zeros: a hole in the file stays
    /// one.
    fn write_run(&self, run: &[Held]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(run.len());
        let mut at = 0;
        for one in run {
            let bytes = &self.bytes[one.from..][..one.len];
            let offset = one.group * GROUP_BYTES as u64;
            if is_zero(bytes) && (self.virgin || self.is_hole(offset, one.len)?) {
                write_all_vectored(&self.file, &mut slices, at)?;
                slices.clear();
            } else {
                if slices.is_empty() {
                    at = offset;
                }
                slices.push(IoSlice::new(bytes));
            }
        }
        write_all_vectored(&self.file, &mut slices, at)
    }

    /// Whether there is nothing but zeros already. A torn write of an earlier run may have left something
    /// else.
    fn is_hole(&self, offset: u64, len: usize) -> io::Result<bool> {
        let mut bytes = vec![0; len];
        Ok(read_up_to(&self.file, &mut bytes, offset)? == len && is_zero(&bytes))
    }

    /// Fails unless the part's name still stands for the file that was written: the final name is given to
    /// whatever has that name.
    fn check_inode(&self, place: &Place) -> Outcome {
        let written = nix::sys::stat::fstat(&self.file)
            .map_err(|e| place.failure("look at", &self.name, &e.into()))?;
        if place.stat(&self.name)?.is_some_and(|entry| entry.inode == (written.st_dev, written.st_ino)) {
            return Ok(());
        }
        // Nor is it this journal's: with it, the next transfer would take that file for its part.
        let _ = place.unlink(&self.journal_name);
        Err(Failure::target(format!(
            "{} was removed or replaced while it was written: see what is there, and run the same command again",
            show(place.path().with_file_name(&self.name))
        )))
    }

    /// What the recorded hashes are together.
    fn merged(&self, place: &Place, id: &ContentId) -> Outcome<Merged> {
        let mut slots = vec![0; CHECK_GROUPS as usize * SLOT_BYTES];
        let mut failed = None;
        let mut recorded = 0;
        let mut leaves = (0..id.groups()).step_by(CHECK_GROUPS as usize).flat_map(|first| {
            let mut some = Vec::new();
            match read_up_to(&self.journal, &mut slots, journal::slot_offset(first)) {
                Ok(read) => {
                    let slots = slots[..read].chunks_exact(SLOT_BYTES);
                    some.extend(
                        (first..id.groups()).zip(slots).filter_map(|(g, s)| journal::parse_slot(id, g, s)),
                    );
                }
                Err(e) => failed = Some(e),
            }
            recorded += some.len() as u64;
            some
        });
        let root = match id.groups() {
            0 => id.is_empty_content().then_some(id.root),
            1 => leaves.next(),
            _ => tree::root_of_leaves(leaves),
        };
        match failed {
            Some(e) => Err(place.failure("read", &self.journal_name, &e)),
            None if recorded != id.groups() => Ok(Merged::Incomplete),
            None if root == Some(id.root) => Ok(Merged::Root),
            None => Ok(Merged::Other),
        }
    }
}

/// Opens and locks the journal; also says whether it was there before.
fn lock_journal(place: &Place, name: &OsStr) -> Outcome<(Flock<File>, bool)> {
    // The one who held the lock may have finished and removed the file that was opened here: then try again.
    for _ in 0..100 {
        let known = place.stat(name)?.is_some();
        let file =
            place.open(name, OFlag::O_RDWR | OFlag::O_CREAT).map_err(|e| place.failure("write", name, &e))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| match e {
            Errno::EWOULDBLOCK => Failure::target(format!(
                "another get is writing {}: wait for it, or choose another --output",
                show(place.path())
            )),
            e => place.failure("lock", name, &e.into()),
        })?;
        let stat = nix::sys::stat::fstat(&*lock).map_err(|e| place.failure("look at", name, &e.into()))?;
        if place.stat(name)?.is_some_and(|entry| entry.inode == (stat.st_dev, stat.st_ino)) {
            return Ok((lock, known));
        }
    }
    Err(Failure::target(format!(
        "the journal of {} comes and goes: is another get at work?",
        show(place.path())
    )))
}

/// Whether the place holds exactly this content; an error if it holds anything else that must not be
/// replaced.
fn is_there_already(
    place: &Place,
    id: &ContentId,
    force: bool,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Outcome<bool> {
    let Some(entry) = place.stat(place.name())? else { return Ok(false) };
    let path = place.path();
    if entry.directory {
        return Err(Failure::target(format!("{} is a directory: choose a name with --output", show(path))));
    }
    if !entry.file && !entry.link {
        return Err(Failure::target(format!(
            "{} is not a regular file: choose another --output",
            show(path)
        )));
    }
    if entry.file && entry.length == id.length {
        let file =
            place.open(place.name(), OFlag::O_RDONLY).map_err(|e| place.failure("read", place.name(), &e))?;
        if hash(place, &file, progress)? == id.root {
            return Ok(true);
        }
    }
    if force { Ok(false) } else { Err(exists(&path)) }
}

/// Removes what a crash after the last step of an earlier transfer left beside the whole file: a journal of
/// this content, and the part that goes with it. Without such a journal a part is somebody's file.
fn remove_leftovers(place: &Place, id: &ContentId) {
    let (name, journal_name) = place.part_names();
    let Ok(file) = place.open(&journal_name, OFlag::O_RDONLY) else { return };
    // Another transfer that holds the lock cleans up itself.
    let Ok(journal) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return };
    let mut head = [0; HEADER_BYTES];
    let Ok(read) = read_up_to(&journal, &mut head, 0) else { return };
    let (Ok(stat), Ok(Some(entry))) = (nix::sys::stat::fstat(&*journal), place.stat(&journal_name)) else {
        return;
    };
    if journal::parse_header(&head[..read]) == Ok(*id) && entry.inode == (stat.st_dev, stat.st_ino) {
        // The file is whole whether or not this succeeds. The part goes first, for it is known by its journal.
        if place.unlink(&name).is_ok() || matches!(place.stat(&name), Ok(None)) {
            let _ = place.unlink(&journal_name);
        }
    }
}

fn hash(place: &Place, file: &File, progress: &mut dyn FnMut(u64) -> bool) -> Outcome<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    let mut bytes = vec![0; 1 << 20];
    loop {
        let read = read_up_to(file, &mut bytes, hasher.count());
        let read = read.map_err(|e| place.failure("read", place.name(), &e))?;
        hasher.update(&bytes[..read]);
        if read == 0 {
            return Ok(*hasher.finalize().as_bytes());
        }
        if !progress(hasher.count()) {
            return Err(interrupted());
        }
    }
}

/// The hash that proves a group: of a content of one group, the root itself.
fn cv_of(id: &ContentId, group: u64, bytes: &[u8]) -> Cv {
    if id.groups() == 1 { *blake3::hash(bytes).as_bytes() } else { tree::group_cv(group, bytes) }
}

fn exists(path: &std::path::Path) -> Failure {
    Failure::target(format!(
        "{} is there already, with other content: choose another --output, or let --force replace it",
        show(path)
    ))
}

fn interrupted() -> Failure {
    Failure::new(Code::Interrupted, "interrupted; run the same command again to go on")
}

fn set(bitmap: &mut Bitmap, group: u64) {
    // The bitmap has a bit for every group of the content, and so has memory for the index.
    bitmap[(group / 64) as usize] |= 1 << (group % 64);
}

fn is_zero(bytes: &[u8]) -> bool {
    let (head, words, tail) = (bytes.len() % 8, bytes.chunks_exact(8), bytes.chunks_exact(8).remainder());
    debug_assert_eq!(head, tail.len());
    words.fold(0, |any, word| any | u64::from_ne_bytes(word.try_into().unwrap_or([1; 8]))) == 0
        && tail.iter().all(|b| *b == 0)
}

/// Reads until `bytes` is full or the file ends.
fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
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

fn write_all_vectored(file: &File, mut slices: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
    while !slices.is_empty() {
        let at = i64::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        match nix::sys::uio::pwritev(file, slices, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                IoSlice::advance_slices(&mut slices, n);
                offset += n as u64;
            }
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
