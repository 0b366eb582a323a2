//! The destination of a file: the file appears under its name whole and verified, or not at all.
//!
//! Blocks are written to the part file `NAME.part`. In a directory that is fetched whole, the name of the
//! part begins with [`PART_PREFIX`]; beside a part of another length, it is `NAME.LENGTH.part`. A [`journal`]
//! beside the part records which blocks it holds. Both survive a stop, kill -9 and power loss: the next
//! transfer hashes every block that the journal records and keeps those whose hash still matches. At the end
//! the whole file must have the content's root hash, or the other hashes that are known; then the part is
//! renamed to `NAME`.
//!
//! A target takes one content at a time: the journal is locked (`flock`) while a transfer runs.

mod aliases;
mod begun;
mod claims;
mod dest_path;
mod existing;
mod final_check;
pub mod journal;
mod journal_file;
mod output;
mod part;
mod pieces;
mod provenance;
mod records;
#[cfg(any(test, feature = "soak"))]
mod room;

pub(crate) use aliases::{Aliases, Version};
pub(crate) use begun::{Begun, Blocks};
pub(crate) use claims::{Claim, Dissent, hold};
pub use dest_path::PART_PREFIX;
pub(crate) use dest_path::{DestPath, Directory, is_reserved};
pub(crate) use existing::{
    block_of_file, exists, is_there, make_way, opening_of, promote, remove_leftovers, what_has_the_name,
};
pub(crate) use final_check::{Demands, FinalCheck, IfWrong, Mismatch, RootCheck};
pub(crate) use journal_file::what_is_there;
pub(crate) use output::Output;
use part::cv_of;
pub(crate) use pieces::{is_there_in_pieces, wrong_piece};
pub(crate) use records::Records;
#[cfg(any(test, feature = "soak"))]
pub(crate) use room::Room;

use std::fs::{File, Permissions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anabranch_mmtp::ContentId;
use anabranch_mmtp::bitmap::Bitmap;
use anabranch_mmtp::id::{BLOCK_BYTES, SEGMENT_BLOCKS};
use anabranch_mmtp::tree::ChainingValue;
use nix::fcntl::OFlag;

use crate::filenames::show;
use crate::openpgp::Verdict;
use crate::{Error, Result};
use existing::{is_there_already, remove_outdated};
use final_check::digests;
use journal::Slot;
use part::{Part, PendingWrite};

/// The greatest number of blocks that are held back for one write: one segment, 1 MiB.
pub(crate) const HELD_BLOCKS_MAX: usize = SEGMENT_BLOCKS as usize;

/// The result of a finished transfer, whether the file now has its name or was read in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Finished {
    /// The root hash of the content.
    pub(crate) root: [u8; 32],
    /// The fingerprint of the key that signed the file, if a signature was required.
    pub(crate) signer: Option<String>,
    /// Notices about servers that state other hashes for the file than it has, one sentence each.
    pub(crate) dissent: Vec<String>,
}

/// A file that is being transferred to its destination.
#[derive(Debug)]
pub(crate) struct Target {
    place: DestPath,
    id: ContentId,
    demands: Demands,
    force: bool,
    /// The result of checking the complete file against its known hashes; `None` if no check was made since a
    /// block was last written or removed, or a claim was dropped.
    checked: Option<Checked>,
    /// Notices from that check about servers that state other hashes for the file.
    dissent: Vec<String>,
    state: State,
    /// The blocks that have arrived, including those held back.
    there: Bitmap,
    done_bytes: u64,
}

/// Gives the result of checking a complete file.
#[derive(Clone, Debug)]
enum Checked {
    /// The file is right; with the fingerprint of the key that signed it, if a signature was required.
    Right(Option<String>),
    Wrong(Fault),
}

/// Describes the fault of a complete file.
#[derive(Clone, Debug)]
struct Fault {
    text: String,
    kind: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultKind {
    /// The bytes are wrong; other bytes may be right.
    Bytes,
    /// No key that the user trusts has signed the bytes, and no hash of them is known. Other bytes may be
    /// signed.
    Signature,
    /// No bytes could make a signature good, for example because the user does not trust its key. So other
    /// bytes would not be signed either.
    NoSignature,
    /// The bytes match a known hash, but no key that the user trusts has signed them, or another known hash
    /// does not match. The bytes stay.
    Contradiction,
    /// Servers that the user named state different hashes, and the file has no voucher.
    Contested,
}

#[derive(Debug)]
enum State {
    /// The file already has its name and is right; the value is its root hash.
    Whole([u8; 32]),
    /// The part is being written.
    Part(Box<Part>),
}

impl Target {
    /// Opens the target at `place` for `id`, and finds out which blocks an earlier transfer left there.
    ///
    /// A file that already has the name is taken as the result if it is exactly this content; any other file
    /// is an error unless `force` allows replacing it at the end. A part that an earlier transfer left is
    /// resumed if it is known by the root hash of `id` or by one of the `aliases`. `progress` is called with
    /// the number of bytes checked so far and stops the check by returning false.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if the file cannot be written there, or there is no
    /// room for its missing bytes; [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if `progress`
    /// stopped the check.
    pub(crate) fn open(
        place: DestPath,
        id: ContentId,
        aliases: &Aliases,
        demands: impl Into<Demands>,
        force: bool,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(Self, Bitmap)> {
        let demands = demands.into();
        let mut there = Bitmap::new(id.blocks());
        if let Some(root) = is_there_already(&place, &id, &demands, force, progress)? {
            for block in 0..id.blocks() {
                there.insert(block);
            }
            remove_leftovers(&place, &id);
            let (state, done_bytes) = (State::Whole(root), id.length);
            return Ok((Self::new(place, id, demands, force, state, there.clone(), done_bytes), there));
        }
        let mut part = Part::open(&place, &id, aliases, demands.can_judge(aliases), force)?;
        part.check_room(&place, &id)?;
        let done_bytes = if part.virgin { 0 } else { part.check(&place, &mut there, progress)? };
        part.file.set_len(id.length).map_err(|e| place.failure("give its length to", &part.name, e))?;
        let state = State::Part(Box::new(part));
        Ok((Self::new(place, id, demands, force, state, there.clone(), done_bytes), there))
    }

    const fn new(
        place: DestPath,
        id: ContentId,
        demands: Demands,
        force: bool,
        state: State,
        there: Bitmap,
        done_bytes: u64,
    ) -> Self {
        let dissent = Vec::new();
        Self { place, id, demands, force, checked: None, dissent, state, there, done_bytes }
    }

    /// Checks the signatures of the bytes in `file`, if a signature is required.
    fn check_signature(&self, file: &File) -> Result<Checked> {
        let Some(signed) = &self.demands.signed else { return Ok(Checked::Right(None)) };
        let is_of_hash = self.demands.proof.is_something();
        let (why, kind) = match signed.verify(file)? {
            Verdict::Good(signer) => return Ok(Checked::Right(Some(signer))),
            Verdict::OtherBytes(why) | Verdict::Useless(why) if is_of_hash => (why, FaultKind::Contradiction),
            Verdict::OtherBytes(why) => (why, FaultKind::Signature),
            Verdict::Useless(why) => (why, FaultKind::NoSignature),
        };
        Ok(Checked::Wrong(Fault { text: format!("{}: {why}", show(self.place.path())), kind }))
    }

    /// Writes a whole content to `place` through a part, as a transfer does. `read` fills a slice with the
    /// bytes from an offset on. [`open`](Self::open) describes the other parameters.
    ///
    /// # Errors
    /// Those of [`open`](Self::open) and [`finish`](Self::finish), and every error of `read`.
    pub(crate) fn put(
        place: DestPath,
        id: ContentId,
        aliases: &Aliases,
        demands: impl Into<Demands>,
        force: bool,
        read: &mut dyn FnMut(&mut [u8], u64) -> Result<()>,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Finished> {
        let (mut target, there) = Self::open(place, id, aliases, demands, force, progress)?;
        for block in (0..id.blocks()).filter(|block| !there.contains(*block)) {
            let mut bytes = vec![0; id.block_len(block)];
            read(&mut bytes, block * BLOCK_BYTES as u64)?;
            let cv = cv_of(&id, block, &bytes);
            target.write(block, bytes, cv, 0)?;
        }
        target.finish(progress)
    }

    /// Returns the length of the complete file in bytes.
    pub(crate) const fn length(&self) -> u64 {
        self.id.length
    }

    /// Returns the number of bytes that have arrived, including blocks held back.
    #[must_use]
    pub(crate) const fn bytes_done(&self) -> u64 {
        self.done_bytes
    }

    /// Drops the hashes that this server states for the content, because the server has sent other bytes than
    /// other servers.
    pub(crate) fn distrust(&mut self, origin: &str) {
        self.demands.claims.retain(|claim| claim.origin != origin);
        self.checked = None;
    }

    /// Takes a verified block. It is held back until [`HELD_BLOCKS_MAX`] blocks are held or
    /// [`flush`](Self::flush) is called; call that whenever there is a pause, because held blocks do not
    /// survive a crash. If a block is taken twice, its last bytes count. `mark` is the number of the mirror
    /// that delivered the block: see [`Slot::mark`].
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if held blocks cannot be written.
    ///
    /// # Panics
    /// If the length of `bytes` is not the length of the block, because the caller has verified another
    /// block.
    pub(crate) fn write(
        &mut self,
        block: u64,
        bytes: impl Into<Vec<u8>>,
        cv: ChainingValue,
        mark: u8,
    ) -> Result<()> {
        let bytes = bytes.into();
        assert!(
            !bytes.is_empty() && bytes.len() == self.id.block_len(block),
            "block {block} has another length"
        );
        let State::Part(part) = &mut self.state else { return Ok(()) };
        if part.held.len() >= HELD_BLOCKS_MAX {
            part.flush(&self.place)?;
        }
        self.checked = None;
        if self.there.insert(block) {
            self.done_bytes += bytes.len() as u64;
        } else {
            part.virgin = false;
        }
        part.held.push(PendingWrite { block, slot: Slot { cv, mark }, bytes });
        Ok(())
    }

    /// Removes blocks: they are as missing as if they had never been written, even after a crash. (A power
    /// failure before the next [`flush`](Self::flush) may bring them back.)
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if the journal cannot be written.
    pub(crate) fn forget(&mut self, blocks: Range<u64>) -> Result<()> {
        self.checked = None;
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

    /// Writes the blocks that are held back: first their data, then their journal slots.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if they cannot be written.
    pub(crate) fn flush(&mut self) -> Result<()> {
        match &mut self.state {
            State::Part(part) => part.flush(&self.place),
            State::Whole(_) => Ok(()),
        }
    }

    /// Makes the file executable for every user who may read it, because the manifest of a directory says so.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if the permissions cannot be set.
    pub(crate) fn make_executable(&self) -> Result<()> {
        let State::Part(part) = &self.state else { return Ok(()) };
        let set = || {
            let mode = part.file.metadata()?.permissions().mode();
            part.file.set_permissions(Permissions::from_mode(mode | (mode & 0o444) >> 2))
        };
        set().map_err(|e: io::Error| self.place.failure("make executable", &part.name, e))
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> PathBuf {
        self.place.path()
    }

    /// Removes part and journal if they hold no blocks: a transfer that failed before its first block leaves
    /// no trace.
    pub(crate) fn discard_if_empty(self) {
        if let State::Part(part) = &self.state
            && self.done_bytes == 0
            && !part.has_others
        {
            // A journal that stays does no harm: the next transfer finds no blocks in it.
            let _ = self.place.unlink(&part.name);
            let _ = self.place.unlink(&part.journal.name);
        }
    }

    /// Returns whether the complete file is wrong and other bytes may be right. The blocks stay in either
    /// case. `progress` is called with the number of bytes read so far and stops the check by returning
    /// false.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if a block is missing or cannot be read,
    /// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if `progress` stopped the check.
    pub(crate) fn needs_others(&mut self, progress: &mut dyn FnMut(u64) -> bool) -> Result<bool> {
        let Checked::Wrong(fault) = self.check(progress)? else { return Ok(false) };
        Ok(matches!(fault.kind, FaultKind::Bytes | FaultKind::Signature))
    }

    /// Checks the complete file against its known hashes, unless the last result is still valid.
    fn check(&mut self, progress: &mut dyn FnMut(u64) -> bool) -> Result<&Checked> {
        self.flush()?;
        let checked = match self.checked.take() {
            Some(checked) => checked,
            None => match &self.state {
                State::Part(part) => {
                    let (checked, dissent) = self.check_part(part, progress)?;
                    self.dissent = dissent;
                    checked
                }
                State::Whole(root) if self.demands.signed.is_none() => {
                    self.dissent = hold(&self.demands.claims, root, &self.demands.proof.digests).notices;
                    Checked::Right(None)
                }
                State::Whole(_) => {
                    let there = self.place.open(self.place.name(), OFlag::O_RDONLY);
                    let there = there.map_err(|e| self.place.failure("read", self.place.name(), e))?;
                    self.check_signature(&there)?
                }
            },
        };
        Ok(self.checked.insert(checked))
    }

    fn check_part(
        &self,
        part: &Part,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(Checked, Vec<String>)> {
        let root = self.root_of(part)?;
        let Demands { proof, claims, weighs_claims, .. } = &self.demands;
        let found = digests(&self.place, &part.file, &self.demands.wanted(), progress)?;
        let Dissent { notices, contest } = hold(claims, &root, &found);
        let (text, kind) = match (proof.mismatch(&self.id, root, &found), contest) {
            (None, Some(contest)) if *weighs_claims => {
                (format!(": nobody can tell whether this is the file, for {contest}"), FaultKind::Contested)
            }
            (None, _) => return Ok((self.check_signature(&part.file)?, notices)),
            (Some(Mismatch::Other(text)), _) => (text, FaultKind::Bytes),
            (Some(Mismatch::Contradiction(text)), _) => (text, FaultKind::Contradiction),
        };
        let text = format!("{}{text}", show(self.place.path()));
        Ok((Checked::Wrong(Fault { text, kind }), Vec::new()))
    }

    /// Returns the root hash that the recorded chaining values give.
    fn root_of(&self, part: &Part) -> Result<[u8; 32]> {
        part.root(&self.place)?.ok_or_else(|| {
            let path = self.place.path().with_file_name(&part.name);
            Error::target(format!("blocks are missing in {}: run the same `Get` again", show(&path))).at(path)
        })
    }

    /// Checks that all blocks together are the content, makes the file durable and gives it its name.
    /// `progress` is called with the number of bytes read so far and stops the check by returning false.
    ///
    /// # Errors
    /// - [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if `progress` stopped the check: part and
    ///   journal stay.
    /// - [`ErrorKind::Target`](crate::ErrorKind::Target) if a block is missing, the part's name now belongs
    ///   to another file, the final name was taken meanwhile, or the disk fails: part and journal stay.
    /// - [`ErrorKind::Target`](crate::ErrorKind::Target) if the blocks were verified on arrival and the whole
    ///   is wrong nevertheless: part and journal are removed, so that the next transfer begins afresh.
    /// - [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the file has none of its hashes, or no good
    ///   signature: [`Demands::if_wrong`] says whether the part is removed or renamed. The journal is
    ///   removed.
    /// - [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the file has one of its hashes, but lacks
    ///   another or the signature: part and journal stay. With [`IfWrong::Keep`], the part is renamed and the
    ///   journal is removed.
    /// - [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if servers disagree about its hashes: the part is
    ///   renamed and the journal is removed. If the part cannot be renamed, both stay.
    /// - [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a file that was at the destination before has
    ///   no good signature: it stays.
    pub(crate) fn finish(mut self, progress: &mut dyn FnMut(u64) -> bool) -> Result<Finished> {
        self.flush()?;
        let path = self.place.path();
        if let State::Part(part) = &self.state {
            part.check_inode(&self.place)?;
        }
        let signer = match self.check(progress)?.clone() {
            Checked::Right(signer) => signer,
            Checked::Wrong(fault) => return Err(self.wrong(&fault).at(self.place.path())),
        };
        let dissent = std::mem::take(&mut self.dissent);
        let part = match &self.state {
            State::Part(part) => part,
            State::Whole(root) => return Ok(Finished { root: *root, signer, dissent }),
        };
        let root = self.root_of(part)?;
        part.file.sync_all().map_err(|e| self.place.failure("make durable", &part.name, e))?;
        // The sync may have taken long, and the rename gives the final name to whatever has the part's name.
        part.check_inode(&self.place)?;
        self.place.rename(&part.name, self.force).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => exists(&path),
            _ => self.place.failure("give its name to", self.place.name(), e),
        })?;
        // From here on the file is complete; a journal left behind by a crash is removed by the next
        // transfer.
        let _ = self.place.unlink(&part.journal.name);
        if let State::Part(part) = self.state {
            drop(part.others.usual_lock);
            remove_outdated(&self.place, &part.others.outdated_by);
        }
        self.place.sync().map_err(|e| self.place.failure("make durable", self.place.name(), e))?;
        Ok(Finished { root, signer, dissent })
    }

    /// Removes or renames a complete file that is wrong, because resuming it would fail in the same way for
    /// ever, and returns the error. A file that was at the destination before stays as it is. So does a part
    /// with a [`FaultKind::Contradiction`], unless such files are to be kept under another name.
    fn wrong(&self, Fault { text, kind }: &Fault) -> Error {
        let State::Part(part) = &self.state else {
            return Error::corrupt(format!("{text}: it was there already and stays"));
        };
        let part_path = show(self.place.path().with_file_name(&part.name));
        let Demands { proof, if_wrong, .. } = &self.demands;
        let is_in_doubt = *kind == FaultKind::Contested;
        if *kind == FaultKind::Contradiction && *if_wrong != IfWrong::Keep {
            return Error::corrupt(format!("{text}; what came stays in {part_path}"));
        }
        let if_wrong = match kind {
            FaultKind::Contested => IfWrong::Keep,
            FaultKind::Bytes => *if_wrong,
            // No voucher says that other bytes would be right.
            _ if *if_wrong == IfWrong::KeepOnce => IfWrong::Remove,
            _ => *if_wrong,
        };
        let kept = match if_wrong {
            IfWrong::Remove => None,
            IfWrong::Keep => self.place.rename_aside(&part.name, true).ok(),
            IfWrong::KeepOnce => self.place.rename_aside(&part.name, false).ok(),
        };
        if is_in_doubt && kept.is_none() {
            return Error::corrupt(format!("{text}: what came stays in {part_path}; {ADVICE}"));
        }
        // The part is removed first: a journal without a part counts as new.
        if kept.is_none() {
            let _ = self.place.unlink(&part.name);
        }
        let _ = self.place.unlink(&part.journal.name);
        let kept = kept.map(|name| show(self.place.path().with_file_name(name)));
        match kept {
            Some(kept) if is_in_doubt => Error::corrupt(format!("{text}: it is kept as {kept}; {ADVICE}")),
            Some(kept) if if_wrong == IfWrong::KeepOnce => Error::corrupt(format!(
                "{text}: so it is not the file that is wanted; it is kept as {kept}, in case the hash is \
                 mistyped or of another version: renamed to {}, it is recognised by the right one",
                show(self.place.path())
            )),
            Some(kept) => Error::corrupt(format!(
                "{text}: but only the server itself says what it should be, so it is kept as {kept}"
            )),
            None if proof.root == RootCheck::Blocks && *kind == FaultKind::Bytes => Error::target(format!(
                "what was in {part_path} was not right and is removed: run the same `Get` again"
            )),
            None if if_wrong == IfWrong::KeepOnce => Error::corrupt(format!(
                "{text}: {part_path} is removed, for it cannot be kept as {}.unverified: is that there \
                 already?",
                show(self.place.path())
            )),
            None => Error::corrupt(format!("{text}: {part_path} is removed")),
        }
    }
}

/// The advice to the user where servers disagree.
const ADVICE: &str = "name one of them alone, or give a hash that you trust with `checksum`";

#[cfg(test)]
mod tests;
