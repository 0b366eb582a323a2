//! A set-up for the life of a program.

use std::fs::File;
use std::io;
use std::path::Path;

use anabranch_net::Namespace;
use anabranch_net::private_file::{Access, PrivateDir};
use nix::fcntl::Flock;

use super::apply::{setup, teardown};
use super::error::hint;
use super::{Error, Options, Plan, Program, Result};

/// A set-up that is there until this is dropped: see [`Program`]. One at a time in a network namespace; what
/// one left behind that was killed is taken up by the next.
///
/// Everything is done in the network namespace of the calling thread, also as it is dropped.
#[derive(Debug)]
pub struct Session {
    options: Options,
    /// The kernel lets it go when the process ends, however it ends.
    _held: Flock<File>,
}

impl Session {
    /// Sets up, and tells what was done.
    ///
    /// # Errors
    /// As [`setup`]; [`Error::InUse`] if another program has done so.
    pub fn begin(options: Options) -> Result<(Self, Plan)> {
        let held = hold(&options.state_dir)?;
        // From here on whatever was done is put back.
        let session = Self { options, _held: held };
        let plan = setup(&session.options)?;
        Ok((session, plan))
    }

    /// Sets up again, after addresses or routes have changed, for other servers, other backups, or without
    /// other interfaces: only the difference is done. Endpoints that were taken away meanwhile are there
    /// again afterwards.
    ///
    /// # Errors
    /// As [`setup`].
    pub fn update(&mut self, backup: Vec<String>, program: Program) -> Result<Plan> {
        (self.options.backup, self.options.program) = (backup, Some(program));
        setup(&self.options)
    }

    /// Puts back what a program left behind that was killed.
    ///
    /// # Errors
    /// As [`teardown`]; [`Error::InUse`] if it lives.
    pub fn clean_up(state_dir: &Path) -> Result<Option<Plan>> {
        if !state_dir.is_dir() {
            return Ok(None);
        }
        let _held = hold(state_dir)?;
        teardown(state_dir)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // What cannot be put back now is in the journal: the next one does it.
        let _ = teardown(&self.options.state_dir);
    }
}

fn hold(state_dir: &Path) -> Result<Flock<File>> {
    let failed = |e: io::Error| Error::Journal(format!("{}: {e}{}", state_dir.display(), hint(&e)));
    let inode = Namespace::current_inode().map_err(failed)?;
    let held = PrivateDir::make(state_dir, Access::Public)
        .and_then(|dir| dir.try_lock(format!("{inode}.lock")))
        .map_err(failed)?;
    held.ok_or(Error::InUse)
}
