//! The directory of what must be put back later: one lock for all that changes it.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

/// Where it is kept. The next boot empties it, as it does what it is about.
pub const STATE_DIR: &str = "/run/anabranch";
/// The same for what is set up for the life of a program.
pub const PROGRAM_STATE_DIR: &str = "/run/anabranch/program";

/// Makes the directory, and keeps everybody else from changing anything until the result is dropped.
///
/// # Errors
/// If it cannot be made or opened.
pub(crate) fn lock(dir: &Path) -> io::Result<Flock<File>> {
    fs::create_dir_all(dir)?;
    // The directory itself is locked: no file stays behind.
    Flock::lock(File::open(dir)?, FlockArg::LockExclusive).map_err(|(_, e)| e.into())
}
