//! Where a file arrives: whole and verified under its name, or not at all.
//!
//! Blocks are written to `NAME.part` (in a directory that is fetched whole, to a name that begins with
//! [`PART_PREFIX`]); a [`journal`] beside it records which are there. Both survive a stop, kill -9 and power
//! loss: the next transfer hashes every block that the journal records and keeps those whose bytes are still
//! the recorded ones. At the end the recorded hashes are merged and must give the content's root, or whatever
//! else the content is checked by; then the part is made durable and renamed to `NAME`.
//!
//! One target takes one content at a time: the journal is locked (`flock`) while a transfer runs.

mod dest_path;
mod existing;
pub mod journal;
mod output;
mod part;

pub use dest_path::PART_PREFIX;
pub(crate) use dest_path::{DestPath, Directory, is_reserved};
pub(crate) use existing::{is_there, put};
pub(crate) use output::Output;

use std::fs::{File, Permissions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use mmtp::ContentId;
use mmtp::bitmap::Bitmap;
use mmtp::id::SEGMENT_BLOCKS;
use mmtp::tree::{self, ChainingValue};
use nix::fcntl::{Flock, FlockArg, OFlag};
use sha2::{Digest as _, Sha256};

use crate::filenames::show;
use crate::{Error, Result};
use journal::HEADER_BYTES;
use part::{Part, PendingWrite, read_up_to};

/// Blocks held back for one write: a segment's worth, 1 MiB.
pub(crate) const HELD_BLOCKS_MAX: usize = SEGMENT_BLOCKS as usize;

/// What a file must be before it gets its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinalCheck {
    /// Its blocks together give the root of its id.
    Root,
    /// The same, where nobody could check the blocks as they came.
    Whole,
    /// Its SHA-256 is this. The root of its id only names the journal.
    Sha256([u8; 32]),
    /// All its blocks are there: who brought them has checked what there was to check. Here too the root of
    /// its id only names the journal.
    Blocks,
}

/// A file that has its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// The root of its content.
    pub(crate) root: [u8; 32],
}

/// A file on its way.
#[derive(Debug)]
pub(crate) struct Target {
    place: DestPath,
    id: ContentId,
    proof: FinalCheck,
    force: bool,
    state: State,
    /// What is there, those held back among them.
    there: Bitmap,
    done_bytes: u64,
    /// An earlier transfer has left some of it.
    resumed: bool,
}

#[derive(Debug)]
enum State {
    /// The file has its name already and is what it should be; with its root.
    Whole([u8; 32]),
    /// It is being written.
    Part(Box<Part>),
}

impl Target {
    /// Opens the target at `place` for `id`, and finds out which blocks an earlier transfer left there.
    ///
    /// A file that has the name already is taken as the result if it is exactly this content; any other is an
    /// error unless `force` allows to replace it at the end. `progress` is called with the bytes checked so
    /// far and can stop the check by returning false.
    ///
    /// # Errors
    /// [`Error::Target`] if the target does not take the file, [`Error::Interrupted`] if `progress` stopped
    /// the check.
    pub(crate) fn open(
        place: DestPath,
        id: ContentId,
        proof: FinalCheck,
        force: bool,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(Self, Bitmap)> {
        let mut there = Bitmap::new(id.blocks());
        if let Some(root) = is_there_already(&place, &id, proof, force, progress)? {
            for block in 0..id.blocks() {
                there.insert(block);
            }
            remove_leftovers(&place, &id);
            let (state, done_bytes) = (State::Whole(root), id.length);
            let whole =
                Self { place, id, proof, force, state, there: there.clone(), done_bytes, resumed: true };
            return Ok((whole, there));
        }
        let part = Part::open(&place, &id, force)?;
        let done_bytes = if part.virgin { 0 } else { part.check(&place, &id, &mut there, progress)? };
        part.file.set_len(id.length).map_err(|e| place.failure("give its length to", &part.name, &e))?;
        let state = State::Part(Box::new(part));
        let resumed = done_bytes > 0;
        Ok((Self { place, id, proof, force, state, there: there.clone(), done_bytes, resumed }, there))
    }

    /// Bytes that are in the part, those held back among them.
    #[must_use]
    pub(crate) const fn bytes_done(&self) -> u64 {
        self.done_bytes
    }

    /// Whether some of it is an earlier transfer's, and nothing but whoever brings the rest tells that it is
    /// right.
    #[must_use]
    pub(crate) fn trusts_earlier(&self) -> bool {
        self.resumed && self.proof == FinalCheck::Blocks
    }

    /// Takes a verified block. It is held back until [`HELD_BLOCKS_MAX`] are held or [`flush`](Self::flush)
    /// is called; call that whenever there is a pause, because held blocks do not survive a crash. Of a block
    /// that is taken twice, the last bytes count.
    ///
    /// # Errors
    /// [`Error::Target`] if they cannot be written.
    ///
    /// # Panics
    /// If the bytes are not as many as the block has: the caller has verified something else.
    pub(crate) fn write(&mut self, block: u64, bytes: impl Into<Vec<u8>>, cv: ChainingValue) -> Result<()> {
        let bytes = bytes.into();
        assert!(
            !bytes.is_empty() && bytes.len() == self.id.block_len(block),
            "block {block} has another length"
        );
        let State::Part(part) = &mut self.state else { return Ok(()) };
        if part.held.len() >= HELD_BLOCKS_MAX {
            part.flush(&self.place, &self.id)?;
        }
        if self.there.insert(block) {
            self.done_bytes += bytes.len() as u64;
        } else {
            part.virgin = false;
        }
        part.held.push(PendingWrite { block, cv, bytes });
        Ok(())
    }

    /// Takes blocks back: they are as missing as if they had never been written, even after a crash. (A power
    /// failure before the next [`flush`](Self::flush) may bring them back.)
    ///
    /// # Errors
    /// [`Error::Target`] if the journal cannot be written.
    pub(crate) fn forget(&mut self, blocks: Range<u64>) -> Result<()> {
        let State::Part(part) = &mut self.state else { return Ok(()) };
        let blocks = blocks.start..blocks.end.min(self.id.blocks());
        part.forget(&self.place, blocks.clone())?;
        for block in blocks {
            if self.there.remove(block) {
                self.done_bytes -= self.id.block_len(block) as u64;
            }
        }
        Ok(())
    }

    /// Writes what is held back: the data first, then the journal.
    ///
    /// # Errors
    /// [`Error::Target`] if it cannot be written.
    pub(crate) fn flush(&mut self) -> Result<()> {
        match &mut self.state {
            State::Part(part) => part.flush(&self.place, &self.id),
            State::Whole(_) => Ok(()),
        }
    }

    /// Lets the file be executed by whoever may read it, as the manifest of a directory says of some files.
    ///
    /// # Errors
    /// [`Error::Target`] if that cannot be set.
    pub(crate) fn make_executable(&self) -> Result<()> {
        let State::Part(part) = &self.state else { return Ok(()) };
        let set = || {
            let mode = part.file.metadata()?.permissions().mode();
            part.file.set_permissions(Permissions::from_mode(mode | (mode & 0o444) >> 2))
        };
        set().map_err(|e: io::Error| self.place.failure("make executable", &part.name, &e))
    }

    /// Removes part and journal if they hold nothing: what failed before it began leaves no trace.
    pub(crate) fn discard_if_empty(self) {
        if let State::Part(part) = &self.state
            && self.done_bytes == 0
        {
            // Should one of them stay, it is as good as new for the next transfer.
            let _ = self.place.unlink(&part.name);
            let _ = self.place.unlink(&part.journal_name);
        }
    }

    /// Removes part and journal, whatever they hold: it may be wrong, and no later transfer may take it up. A
    /// file that has its name already stays.
    ///
    /// # Errors
    /// [`Error::Target`] if they could be taken up all the same.
    pub(crate) fn discard(self) -> Result<()> {
        match &self.state {
            State::Part(part) => part.discard(&self.place),
            State::Whole(_) => Ok(()),
        }
    }

    /// Checks that all blocks together are the content, makes the file durable and gives it its name.
    ///
    /// # Errors
    /// [`Error::Target`] if a block is missing, the hashes do not give the root (then part and journal are
    /// removed, so that the next transfer begins afresh), the part's name stands for another file than the
    /// one that was written, or the final name was taken meanwhile. [`Error::Corrupt`] if only the whole
    /// could be checked, and is not what it should be; it is removed too.
    pub(crate) fn finish(mut self) -> Result<Finished> {
        self.flush()?;
        let path = self.place.path();
        let part = match self.state {
            State::Part(part) => part,
            State::Whole(root) => return Ok(Finished { path, root }),
        };
        part.check_inode(&self.place)?;
        let part_path = || show(path.with_file_name(&part.name));
        let Some(root) = part.root(&self.place, &self.id)? else {
            return Err(Error::target(format!(
                "blocks are missing in {}: run the same command again",
                part_path()
            )));
        };
        // Resuming would fail in the same way for ever. The part goes first: a journal alone is fresh.
        let remove = || {
            let _ = self.place.unlink(&part.name);
            let _ = self.place.unlink(&part.journal_name);
        };
        match self.proof {
            FinalCheck::Root if root != self.id.root => {
                remove();
                return Err(Error::target(format!(
                    "what was in {} was not right and is removed: run the same command again",
                    part_path()
                )));
            }
            FinalCheck::Sha256(wanted) => {
                let found = hashes(&self.place, &part.file, &mut |_| true)?.sha256;
                if found != wanted {
                    remove();
                    return Err(Error::corrupt(format!(
                        "the whole of it has the SHA-256 {}, not the one that it should have: it is \
                             removed. Without hashes of its parts nobody can tell who sent the wrong ones: \
                             try each mirror alone, or ask for a Metalink",
                        hex(&found)
                    )));
                }
            }
            FinalCheck::Whole if root != self.id.root => {
                remove();
                return Err(Error::corrupt(format!(
                    "the whole of it is not {} but {}: it is removed. Without hashes of its parts nobody \
                         can tell who sent the wrong ones: try each mirror alone, or ask for a Metalink",
                    self.id,
                    ContentId { root, ..self.id }
                )));
            }
            FinalCheck::Root | FinalCheck::Whole | FinalCheck::Blocks => {}
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
        Ok(Finished { path, root })
    }
}

/// The root of what the place holds if that is exactly this content; an error if it holds anything else that
/// must not be replaced.
fn is_there_already(
    place: &DestPath,
    id: &ContentId,
    proof: FinalCheck,
    force: bool,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<[u8; 32]>> {
    let Some(entry) = place.stat(place.name())? else { return Ok(None) };
    let path = place.path();
    if entry.directory {
        return Err(Error::target(format!("{} is a directory: choose a name with --output", show(path))));
    }
    if !entry.file && !entry.link {
        return Err(Error::target(format!("{} is not a regular file: choose another --output", show(path))));
    }
    if entry.file && entry.length == id.length && proof != FinalCheck::Blocks && !place.is_anew() {
        let file =
            place.open(place.name(), OFlag::O_RDONLY).map_err(|e| place.failure("read", place.name(), &e))?;
        let (root, right) = match proof {
            FinalCheck::Sha256(wanted) => {
                let found = hashes(place, &file, progress)?;
                (found.root, found.sha256 == wanted)
            }
            FinalCheck::Root | FinalCheck::Whole | FinalCheck::Blocks => {
                let root = hash(place, &file, progress)?;
                (root, root == id.root)
            }
        };
        if right {
            return Ok(Some(root));
        }
    }
    match (force, proof) {
        (true, _) => Ok(None),
        (false, FinalCheck::Blocks) => Err(Error::target(format!(
            "{} is there already, and nothing tells whether it is what would come: choose another --output, \
             or let --force replace it",
            show(path)
        ))),
        (false, _) => Err(exists(&path)),
    }
}

/// Removes what a crash after the last step of an earlier transfer left beside the whole file: a journal of
/// this content, and the part that goes with it. Without such a journal a part is somebody's file.
fn remove_leftovers(place: &DestPath, id: &ContentId) {
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
        // The file is whole whether or not this succeeds. The part goes first, for it is known by its
        // journal.
        if place.unlink(&name).is_ok() || matches!(place.stat(&name), Ok(None)) {
            let _ = place.unlink(&journal_name);
        }
    }
}

fn hash(place: &DestPath, file: &File, progress: &mut dyn FnMut(u64) -> bool) -> Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    read_all(place, file, progress, |bytes| {
        hasher.update(bytes);
    })?;
    Ok(*hasher.finalize().as_bytes())
}

struct Hashes {
    root: [u8; 32],
    sha256: [u8; 32],
}

fn hashes(place: &DestPath, file: &File, progress: &mut dyn FnMut(u64) -> bool) -> Result<Hashes> {
    let (mut blake3, mut sha256) = (blake3::Hasher::new(), Sha256::new());
    read_all(place, file, progress, |bytes| {
        blake3.update(bytes);
        sha256.update(bytes);
    })?;
    Ok(Hashes { root: *blake3.finalize().as_bytes(), sha256: sha256.finalize().into() })
}

fn read_all(
    place: &DestPath,
    file: &File,
    progress: &mut dyn FnMut(u64) -> bool,
    mut each: impl FnMut(&[u8]),
) -> Result<()> {
    let (mut bytes, mut at) = (vec![0; 1 << 20], 0);
    loop {
        let read = read_up_to(file, &mut bytes, at);
        let read = read.map_err(|e| place.failure("read", place.name(), &e))?;
        each(&bytes[..read]);
        at += read as u64;
        if read == 0 {
            return Ok(());
        }
        if !progress(at) {
            return Err(interrupted());
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

/// The hash that proves a block: of a content of one block, the root itself.
fn cv_of(id: &ContentId, block: u64, bytes: &[u8]) -> ChainingValue {
    if id.blocks() == 1 { *blake3::hash(bytes).as_bytes() } else { tree::block_cv(block, bytes) }
}

fn exists(path: &std::path::Path) -> Error {
    Error::target(format!(
        "{} is there already, with other content: choose another --output, or let --force replace it",
        show(path)
    ))
}

fn interrupted() -> Error {
    Error::interrupted("interrupted; run the same command again to go on")
}

#[cfg(test)]
mod tests;
