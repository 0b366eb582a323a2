//! Whether a file is still the one that was hashed.
//!
//! Another inode, length or time of modification says that it is not. Where only the time of the last change
//! of its inode is new, its bytes are most likely the same, for `chmod` and `ln` do just that; but whoever
//! sets the time of modification back does it, too. So it is hashed again, by one thread for all files, and
//! meanwhile whoever asks is told to come again.

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
    /// Its number among the offers.
    pub(super) index: usize,
    pub(super) path: &'a Path,
    pub(super) id: ContentId,
    /// The state in which it was hashed.
    pub(super) identity: &'a FileIdentity,
}

/// The files that are in another state than the one in which they were hashed: hashes them again, and says
/// what has become of them.
#[derive(Debug, Default)]
pub(super) struct Rechecks {
    state: Mutex<State>,
    /// Ends the hashing.
    job: HashJob,
}

#[derive(Debug, Default)]
struct State {
    /// By their numbers among the offers.
    doubts: BTreeMap<usize, Doubt>,
    /// Those that are to be hashed again.
    waiting: VecDeque<(usize, PathBuf, ContentId)>,
    /// There is a thread for them.
    is_served: bool,
    said: Vec<String>,
}

#[derive(Debug, Default)]
struct Doubt {
    /// In this state, too, it has the bytes that were hashed.
    same: Option<FileIdentity>,
    /// It has been found in this state, and is being hashed again, or will be.
    doubted: Option<FileIdentity>,
    /// In this state it has other bytes.
    other: Option<FileIdentity>,
    /// It has been said that it is another.
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
    /// Opens a file.
    ///
    /// # Errors
    /// What that fails with.
    pub(super) fn open(&self, file: &HashedFile<'_>) -> Result<File, ReadError> {
        open_file(file.path).map_err(|e| {
            let error = ReadError::Io(e);
            if error.is_final() {
                lock(&self.state).tell(file);
            }
            error
        })
    }

    /// Looks whether a file, which is `open`, is what was hashed.
    ///
    /// # Errors
    /// [`ReadError::Changed`] if it is another, [`ReadError::InDoubt`] while that is not known.
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
            // Without one, the next file that is in doubt tries to start it.
            state.is_served = thread.is_ok();
        }
        Err(ReadError::InDoubt)
    }

    /// What has been found out since this was asked last: one sentence for each file.
    pub(super) fn said(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.state).said)
    }

    /// Ends hashing; what is in doubt stays so.
    pub(super) fn stop(&self) {
        self.job.stop();
    }

    /// Hashes what waits until nothing does.
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
                // It is looked at again when somebody asks, and told then.
                Ok(None) | Err(_) => doubt.other = doubted,
            }
        }
    }
}

/// Whether a path leads to this file.
fn is_there(path: &Path, identity: &FileIdentity) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == identity.inode)
}

/// The state of a file, if it has the bytes of this content.
fn hash_again(job: &HashJob, path: &Path, id: &ContentId) -> io::Result<Option<FileIdentity>> {
    let file = open_file(path)?;
    let identity = FileIdentity::to_hash(&file)?;
    if identity.length != id.length {
        return Ok(None);
    }
    let outboard = hash::hash(job, &file, identity.length, 1)?;
    Ok((outboard.id() == *id && FileIdentity::of(&file)? == identity).then_some(identity))
}
