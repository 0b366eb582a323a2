//! Whether a file is still the one that was hashed.
//!
//! Another inode, length or time of modification says that it is not. Where only the time of the last change
//! of its inode is new, its bytes are most likely the same, for `chmod` and `ln` do just that; but whoever
//! sets the time of modification back does it, too. So it is hashed again, by one thread for all files, and
//! meanwhile whoever asks is told to come again.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use mmtp::ContentId;

use super::hash;
use super::read_error::ReadError;
use crate::file_identity::{FileIdentity, open_file};
use crate::filenames::show;
use crate::hashing::HashJob;
use crate::monitor::lock;

/// A file on offer.
#[derive(Debug)]
pub(super) struct WatchedFile {
    path: PathBuf,
    id: ContentId,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// In this state it has the bytes that were hashed.
    known: FileIdentity,
    /// It has been found in this state, and is being hashed again, or will be.
    doubted: Option<FileIdentity>,
    /// In this state it has other bytes.
    other: Option<FileIdentity>,
    /// It has been said that it is another.
    is_told: bool,
}

/// Hashes files again, and says what has become of them.
#[derive(Debug, Default)]
pub(super) struct Rechecks {
    waiting: Mutex<Waiting>,
    said: Mutex<Vec<String>>,
    /// Ends the hashing.
    job: HashJob,
}

#[derive(Debug, Default)]
struct Waiting {
    files: VecDeque<Arc<WatchedFile>>,
    /// There is a thread for them.
    is_served: bool,
}

impl WatchedFile {
    pub(super) fn new(path: PathBuf, id: ContentId, known: FileIdentity) -> Arc<Self> {
        let state = State { known, doubted: None, other: None, is_told: false };
        Arc::new(Self { path, id, state: Mutex::new(state) })
    }

    /// Looks whether an open file is what was hashed.
    ///
    /// # Errors
    /// [`ReadError::Changed`] if it is another, [`ReadError::InDoubt`] while that is not known.
    pub(super) fn check(self: &Arc<Self>, file: &File, rechecks: &Arc<Rechecks>) -> Result<(), ReadError> {
        let now = FileIdentity::of(file).map_err(ReadError::Io)?;
        let mut state = lock(&self.state);
        if state.doubted.is_some() {
            return Err(ReadError::InDoubt);
        }
        if now == state.known {
            return Ok(());
        }
        let is_alike = FileIdentity { changed: state.known.changed, ..now } == state.known;
        if is_alike && state.other != Some(now) && self.is_there(&now) {
            state.doubted = Some(now);
            drop(state);
            rechecks.add(self);
            return Err(ReadError::InDoubt);
        }
        if !std::mem::replace(&mut state.is_told, true) {
            rechecks.say_changed(self);
        }
        Err(ReadError::Changed)
    }

    /// Opens it.
    ///
    /// # Errors
    /// What that fails with.
    pub(super) fn open(&self, rechecks: &Rechecks) -> Result<File, ReadError> {
        open_file(&self.path).map_err(|e| {
            let error = ReadError::Io(e);
            if error.is_final() && !std::mem::replace(&mut lock(&self.state).is_told, true) {
                rechecks.say_changed(self);
            }
            error
        })
    }

    /// Whether its path leads to this file.
    fn is_there(&self, identity: &FileIdentity) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == identity.inode)
    }

    /// Its state, if it has the bytes that were hashed.
    fn hash_again(&self, job: &HashJob) -> io::Result<Option<FileIdentity>> {
        let file = open_file(&self.path)?;
        let identity = FileIdentity::to_hash(&file)?;
        if identity.length != self.id.length {
            return Ok(None);
        }
        let outboard = hash::hash(job, &file, identity.length, 1)?;
        Ok((outboard.id() == self.id && FileIdentity::of(&file)? == identity).then_some(identity))
    }
}

impl Rechecks {
    /// What has been found out since this was asked last: one sentence for each file.
    pub(super) fn said(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.said))
    }

    /// Ends hashing; what is in doubt stays so.
    pub(super) fn stop(&self) {
        self.job.stop();
    }

    fn add(self: &Arc<Self>, file: &Arc<WatchedFile>) {
        let mut waiting = lock(&self.waiting);
        waiting.files.push_back(Arc::clone(file));
        if !waiting.is_served {
            let this = Arc::clone(self);
            let thread = thread::Builder::new().name("recheck".into()).spawn(move || this.run());
            // Without one, the next file that is in doubt tries to start it.
            waiting.is_served = thread.is_ok();
        }
    }

    /// Hashes what waits until nothing does.
    fn run(&self) {
        loop {
            let mut waiting = lock(&self.waiting);
            let Some(file) = waiting.files.pop_front() else {
                waiting.is_served = false;
                return;
            };
            drop(waiting);
            let found = file.hash_again(&self.job);
            if self.job.is_stopped() {
                return;
            }
            let mut state = lock(&file.state);
            let doubted = state.doubted.take();
            match found {
                Ok(Some(identity)) => state.known = identity,
                // It is looked at again when somebody asks, and told then.
                Ok(None) | Err(_) => state.other = doubted,
            }
        }
    }

    fn say_changed(&self, file: &WatchedFile) {
        lock(&self.said).push(format!(
            "{} is gone or not what was hashed any more, and is refused: serve it anew to offer what is \
             there",
            show(&file.path)
        ));
    }
}
