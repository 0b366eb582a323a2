//! A set-up of uplinks for the life of a program.

use std::fs::File;
use std::io;
use std::path::Path;

use anabranch_net::Namespace;
use anabranch_net::private_file::{Access, PrivateDir};
use nix::fcntl::Flock;

use super::apply::{setup, teardown};
use super::error::hint;
use super::{Error, Options, Plan, Program, Result};

/// A set-up that lasts until this value is dropped; see [`Program`]. There is one at a time in a network
/// namespace. If a process is killed, the next session takes over what it left behind.
///
/// Every method, and the drop, works in the network namespace of the calling thread.
#[derive(Debug)]
pub struct Session {
    options: Options,
    /// Whether the drop leaves everything in place.
    leaves: bool,
    /// The lock of this namespace. The kernel releases it when the process ends, however it ends.
    _held: Flock<File>,
}

impl Session {
    /// Sets up the uplinks, and returns the plan that was carried out.
    ///
    /// # Errors
    /// As [`setup`]; [`Error::InUse`] if another program has a session here.
    pub fn begin(options: Options) -> Result<(Self, Plan)> {
        let held = hold(&options.state_dir)?;
        // From here on, dropping `session` undoes whatever was done.
        let session = Self { options, leaves: false, _held: held };
        let plan = setup(&session.options)?;
        Ok((session, plan))
    }

    /// Sets up again after addresses or routes have changed, or with other servers, backups or excluded
    /// interfaces. Makes only the changes that are needed. Endpoints that another program removed meanwhile
    /// are added again.
    ///
    /// # Errors
    /// As [`setup`].
    pub fn update(&mut self, backup: Vec<String>, program: Program) -> Result<Plan> {
        (self.options.backup, self.options.program) = (backup, Some(program));
        setup(&self.options)
    }

    /// Sets up again as [`update`](Self::update) does, also with other interfaces. The position of an
    /// interface in the list chooses its routing table.
    ///
    /// # Errors
    /// As [`setup`].
    pub fn set(&mut self, interfaces: Vec<String>, backup: Vec<String>, program: Program) -> Result<Plan> {
        self.options.interfaces = interfaces;
        self.update(backup, program)
    }

    /// Ends the session and puts everything back, as the drop does, and tells what was done.
    ///
    /// # Errors
    /// As [`teardown`]. What is left is in the journal, and the next session undoes it.
    pub fn end(self) -> Result<Option<Plan>> {
        let mut session = self;
        let done = teardown(&session.options.state_dir);
        session.leaves = true;
        done
    }

    /// Ends the session and leaves everything in place. The next session takes it over.
    pub fn leave(self) {
        let mut session = self;
        session.leaves = true;
    }

    /// Undoes what the session of a killed program left behind.
    ///
    /// # Errors
    /// As [`teardown`]; [`Error::InUse`] if that program is still running.
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
        if !self.leaves {
            // What cannot be undone now is in the journal, and the next session undoes it.
            let _ = teardown(&self.options.state_dir);
        }
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
