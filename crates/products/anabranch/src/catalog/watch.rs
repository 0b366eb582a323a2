//! Checks whether a file on offer still has the bytes that were hashed.
//!
//! Another inode, length or time of modification means that it has not. If only the time of the last change
//! of its inode is new, its bytes are most likely unchanged, because `chmod` and `ln` change that time. But
//! so does a program that sets the time of modification back. Such a file is hashed again, by one thread for
//! all files. Meanwhile, requests for it are answered with "try again later".

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use anabranch_mmtp::ContentId;

use super::hash;
use super::read_error::ReadError;
use crate::file_identity::{FileIdentity, open_file};
use crate::filenames::show;
use crate::hashing::HashJob;
use crate::monitor::lock;

/// A file on offer.
pub(super) struct HashedFile<'a> {
    /// The index of the file among the offers.
    pub(super) index: usize,
    pub(super) path: &'a Path,
    pub(super) id: ContentId,
    /// The state in which the file was hashed.
    pub(super) identity: &'a FileIdentity,
}

/// Hashes the files again that were changed since they were hashed, and reports those whose bytes differ.
#[derive(Debug, Default)]
pub(super) struct Rechecks {
    state: Mutex<State>,
    /// Stops the hashing.
    job: HashJob,
}

#[derive(Debug, Default)]
struct State {
    /// The doubtful files, by their indices among the offers.
    doubts: BTreeMap<usize, Doubt>,
    /// The files that are to be hashed again.
    waiting: VecDeque<(usize, PathBuf, ContentId)>,
    /// Whether a thread is hashing the waiting files.
    is_served: bool,
    said: Vec<String>,
}

#[derive(Debug, Default)]
struct Doubt {
    /// The state in which the file was hashed again and found unchanged.
    same: Option<FileIdentity>,
    /// The state in which the file was found, and for which it is or will be hashed again.
    doubted: Option<FileIdentity>,
    /// The state in which the file was found to have other bytes.
    other: Option<FileIdentity>,
    /// Whether the change of the file has been reported.
    is_told: bool,
}

impl State {
    fn tell(&mut self, file: &HashedFile<'_>) {
        if !std::mem::replace(&mut self.doubts.entry(file.index).or_default().is_told, true) {
            self.said.push(format!(
                "{} is gone or not what was hashed any more, and is refused: serve it anew to offer what is \
                 there",
                show(file.path)
            ));
        }
    }
}

impl Rechecks {
    /// Opens a file, and reports it if it cannot be offered any more.
    ///
    /// # Errors
    /// [`ReadError::Io`] with the error of the system.
    pub(super) fn open(&self, file: &HashedFile<'_>) -> Result<File, ReadError> {
        open_file(file.path).map_err(|e| {
            let error = ReadError::Io(e);
            if error.is_final() {
                lock(&self.state).tell(file);
            }
            error
        })
    }

    /// Checks that the file `open` is still the file that was hashed.
    ///
    /// # Errors
    /// [`ReadError::Changed`] if it has changed, [`ReadError::InDoubt`] while it is not known whether it has.
    pub(super) fn check(self: &Arc<Self>, file: &HashedFile<'_>, open: &File) -> Result<(), ReadError> {
        let now = FileIdentity::of(open).map_err(ReadError::Io)?;
        if now == *file.identity {
            return Ok(());
        }
        let mut state = lock(&self.state);
        let doubt = state.doubts.entry(file.index).or_default();
        if doubt.doubted.is_some() {
            return Err(ReadError::InDoubt);
        }
        if doubt.same == Some(now) {
            return Ok(());
        }
        let is_alike = FileIdentity { changed: file.identity.changed, ..now } == *file.identity;
        if !(is_alike && doubt.other != Some(now) && is_there(file.path, &now)) {
            state.tell(file);
            return Err(ReadError::Changed);
        }
        doubt.doubted = Some(now);
        state.waiting.push_back((file.index, file.path.to_owned(), file.id));
        if !state.is_served {
            let this = Arc::clone(self);
            let thread = thread::Builder::new().name("recheck".into()).spawn(move || this.run());
            // If no thread can be started, the next doubtful file tries again.
            state.is_served = thread.is_ok();
        }
        Err(ReadError::InDoubt)
    }

    /// Takes the reports since the last call: one sentence for each changed file.
    pub(super) fn said(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.state).said)
    }

    /// Stops hashing; doubtful files stay in doubt.
    pub(super) fn stop(&self) {
        self.job.stop();
    }

    /// Hashes the waiting files until none is left.
    fn run(&self) {
        loop {
            let mut state = lock(&self.state);
            let Some((index, path, id)) = state.waiting.pop_front() else {
                state.is_served = false;
                return;
            };
            drop(state);
            let found = hash_again(&self.job, &path, &id);
            if self.job.is_stopped() {
                return;
            }
            let mut state = lock(&self.state);
            let doubt = state.doubts.entry(index).or_default();
            let doubted = doubt.doubted.take();
            match found {
                Ok(Some(identity)) => doubt.same = Some(identity),
                // The next request checks the file again, and the change is reported then.
                Ok(None) | Err(_) => doubt.other = doubted,
            }
        }
    }
}

/// Returns whether a path leads to this file.
fn is_there(path: &Path, identity: &FileIdentity) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == identity.inode)
}

/// Hashes a file again. Returns its state if it has the bytes of the content `id`.
fn hash_again(job: &HashJob, path: &Path, id: &ContentId) -> io::Result<Option<FileIdentity>> {
    let file = open_file(path)?;
    let identity = FileIdentity::to_hash(&file)?;
    if identity.length != id.length {
        return Ok(None);
    }
    let outboard = hash::hash(job, &file, identity.length, 1)?;
    Ok((outboard.id() == *id && FileIdentity::of(&file)? == identity).then_some(identity))
}
