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
mod final_check;
pub mod journal;
mod output;
mod part;
#[cfg(any(test, feature = "soak"))]
mod room;

pub use dest_path::PART_PREFIX;
pub(crate) use dest_path::{DestPath, Directory, is_reserved};
pub(crate) use existing::{hashes_of, is_there};
pub(crate) use final_check::FinalCheck;
pub(crate) use output::Output;
#[cfg(any(test, feature = "soak"))]
pub(crate) use room::Room;

use std::cell::RefCell;
use std::fs::{File, Permissions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use mmtp::ContentId;
use mmtp::bitmap::Bitmap;
use mmtp::id::{BLOCK_BYTES, SEGMENT_BLOCKS};
use mmtp::tree::ChainingValue;
use nix::fcntl::OFlag;

use crate::filenames::show;
use crate::openpgp::{Signed, Verdict};
use crate::{Error, Result};
use existing::{exists, is_there_already, remove_leftovers};
use final_check::hashes;
use part::{Part, PendingWrite, cv_of};

/// Blocks held back for one write: a segment's worth, 1 MiB.
pub(crate) const HELD_BLOCKS_MAX: usize = SEGMENT_BLOCKS as usize;

/// A file that has its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// The root of its content.
    pub(crate) root: [u8; 32],
    /// The fingerprint of the key that signed it, if it had to be.
    pub(crate) signer: Option<String>,
}

/// A file on its way.
#[derive(Debug)]
pub(crate) struct Target {
    place: DestPath,
    id: ContentId,
    proof: FinalCheck,
    force: bool,
    /// What is wrong at the end is kept under another name: only a server said what would be right.
    keeps_wrong: bool,
    /// What it has to be signed by, and the fingerprint of the key that did, once that has been seen.
    signed: Option<Signed>,
    signer: RefCell<Option<String>>,
    /// Its bytes were held against its hash, and are right.
    is_checked: bool,
    state: State,
    /// What is there, those held back among them.
    there: Bitmap,
    done_bytes: u64,
    /// An earlier transfer has left some of it.
    resumed: bool,
}

/// What is wrong with a whole.
struct Fault {
    text: String,
    /// Its bytes are those of its hash, but nobody whom the user trusts has signed them.
    is_signature: bool,
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
    /// error unless `force` allows to replace it at the end. A part is an earlier transfer's of this content
    /// if they have a name in common: the root of `id`, or one of the `aliases`. `progress` is called with
    /// the bytes checked so far and can stop the check by returning false.
    ///
    /// # Errors
    /// [`Error::Target`] if the target does not take the file, or has no room for what is missing of it;
    /// [`Error::Interrupted`] if `progress` stopped the check.
    pub(crate) fn open(
        place: DestPath,
        id: ContentId,
        aliases: &[[u8; 32]],
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
            let whole = Self::new(place, id, proof, force, state, there.clone(), done_bytes);
            return Ok((Self { resumed: true, ..whole }, there));
        }
        let part = Part::open(&place, &id, aliases, force)?;
        part.check_room(&place, &id)?;
        let done_bytes = if part.virgin { 0 } else { part.check(&place, &mut there, progress)? };
        part.file.set_len(id.length).map_err(|e| place.failure("give its length to", &part.name, &e))?;
        let state = State::Part(Box::new(part));
        Ok((Self::new(place, id, proof, force, state, there.clone(), done_bytes), there))
    }

    const fn new(
        place: DestPath,
        id: ContentId,
        proof: FinalCheck,
        force: bool,
        state: State,
        there: Bitmap,
        done_bytes: u64,
    ) -> Self {
        Self {
            place,
            id,
            proof,
            force,
            keeps_wrong: false,
            signed: None,
            signer: RefCell::new(None),
            is_checked: false,
            state,
            there,
            done_bytes,
            resumed: done_bytes > 0,
        }
    }

    /// From now on what is wrong at the end is not removed, but kept under another name: a server alone says
    /// what it should be, and may be wrong itself.
    pub(crate) const fn keep_wrong(&mut self) {
        self.keeps_wrong = true;
    }

    /// From now on the whole has to be signed too.
    pub(crate) fn must_be_signed(&mut self, signed: Signed) {
        self.signed = Some(signed);
    }

    /// What is wrong with the signatures of these bytes.
    fn signature_fault(&self, file: &File) -> Result<Option<Fault>> {
        let Some(signed) = &self.signed else { return Ok(None) };
        Ok(match signed.verify(file)? {
            Verdict::Good(signer) => {
                *self.signer.borrow_mut() = Some(signer);
                None
            }
            Verdict::Bad(why) => {
                let text = format!("{}: {why}", show(self.place.path()));
                Some(Fault { text, is_signature: true })
            }
        })
    }

    /// Puts a whole content, which is verified, in its place: through a part, as all that comes.
    ///
    /// # Errors
    /// [`Error::Target`] if the target does not take it.
    pub(crate) fn put(place: DestPath, bytes: &[u8], force: bool) -> Result<()> {
        let id = ContentId::of(bytes);
        let (mut target, there) = Self::open(place, id, &[], FinalCheck::Root, force, &mut |_| true)?;
        for (block, bytes) in (0..).zip(bytes.chunks(BLOCK_BYTES)) {
            if !there.contains(block) {
                target.write(block, bytes, cv_of(&id, block, bytes))?;
            }
        }
        target.finish().map(drop)
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
            part.flush(&self.place)?;
        }
        self.is_checked = false;
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
        self.is_checked = false;
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
            State::Part(part) => part.flush(&self.place),
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

    /// Whether all blocks together are the content; whatever they are, they stay.
    ///
    /// # Errors
    /// [`Error::Target`] if a block is missing or cannot be read.
    pub(crate) fn is_right(&mut self) -> Result<bool> {
        self.flush()?;
        let State::Part(part) = &self.state else { return Ok(true) };
        let root = self.root_of(part)?;
        self.is_checked = self.fault(part, root)?.is_none();
        Ok(self.is_checked)
    }

    /// The root of what is recorded.
    fn root_of(&self, part: &Part) -> Result<[u8; 32]> {
        part.root(&self.place)?.ok_or_else(|| {
            let part = show(self.place.path().with_file_name(&part.name));
            Error::target(format!("blocks are missing in {part}: repeat the request"))
        })
    }

    /// What is wrong with the whole of it, whose root is this.
    fn fault(&self, part: &Part, root: [u8; 32]) -> Result<Option<Fault>> {
        let path = || show(self.place.path());
        let fault = match self.proof {
            FinalCheck::Sha2(wanted) => {
                let found = hashes(&self.place, &part.file, &wanted, &mut |_| true)?.digests;
                (found != wanted).then(|| format!("{} has the {found}, expected {wanted}", path()))
            }
            FinalCheck::Root | FinalCheck::Whole if root != self.id.root => {
                let found = ContentId { root, ..self.id };
                Some(format!("{}: the whole of it is not {} but {found}", path(), self.id))
            }
            FinalCheck::Root | FinalCheck::Whole | FinalCheck::Blocks => None,
        };
        match fault {
            Some(text) => Ok(Some(Fault { text, is_signature: false })),
            None => self.signature_fault(&part.file),
        }
    }

    /// Checks that all blocks together are the content, makes the file durable and gives it its name.
    ///
    /// # Errors
    /// [`Error::Target`] if a block is missing, the hashes do not give the root (then part and journal are
    /// removed, so that the next transfer begins afresh), the part's name stands for another file than the
    /// one that was written, or the final name was taken meanwhile. [`Error::Corrupt`] if only the whole
    /// could be checked, and is not what it should be; it is removed too, or has another name then if it is
    /// to be [kept](Self::keep_wrong).
    pub(crate) fn finish(mut self) -> Result<Finished> {
        self.flush()?;
        let path = self.place.path();
        let part = match &self.state {
            State::Part(part) => part,
            State::Whole(root) => {
                if self.signed.is_some() {
                    let there = self.place.open(self.place.name(), OFlag::O_RDONLY);
                    let there = there.map_err(|e| self.place.failure("read", self.place.name(), &e))?;
                    if let Some(fault) = self.signature_fault(&there)? {
                        let text = fault.text;
                        return Err(Error::corrupt(format!("{text}: it was there already and stays")));
                    }
                }
                return Ok(Finished { path, root: *root, signer: self.signer.take() });
            }
        };
        part.check_inode(&self.place)?;
        let root = self.root_of(part)?;
        if !self.is_checked
            && let Some(fault) = self.fault(part, root)?
        {
            return Err(self.wrong(part, fault));
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
        Ok(Finished { path, root, signer: self.signer.take() })
    }

    /// The error for a whole that is wrong. It is removed, for resuming would fail in the same way for ever;
    /// or it gets another name.
    fn wrong(&self, part: &Part, Fault { text: fault, is_signature }: Fault) -> Error {
        let part_path = show(self.place.path().with_file_name(&part.name));
        let kept = if self.keeps_wrong { self.place.rename_aside(&part.name).ok() } else { None };
        // The part goes first: a journal alone is fresh.
        if kept.is_none() {
            let _ = self.place.unlink(&part.name);
        }
        let _ = self.place.unlink(&part.journal_name);
        match (self.proof, kept) {
            (_, Some(name)) => Error::corrupt(format!(
                "{fault}: but only the server itself says what it should be, so it is kept as {}",
                show(self.place.path().with_file_name(name))
            )),
            (FinalCheck::Root, None) if !is_signature => Error::target(format!(
                "what was in {part_path} was not right and is removed: repeat the request"
            )),
            _ => Error::corrupt(format!("{fault}: {part_path} is removed")),
        }
    }
}

#[cfg(test)]
mod tests;
