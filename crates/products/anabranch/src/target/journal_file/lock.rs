//! The lock of a journal (`flock(2)`), which keeps a second transfer away.
//!
//! Some cluster file systems have these locks only with a mount option. On a file system without locks a
//! transfer goes on without one, and notifies the user.

use std::fs::File;
use std::ops::Deref;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// A file that is locked until this value is dropped, if its file system has locks.
#[derive(Debug)]
pub(in crate::target) enum Locked {
    Flock(Flock<File>),
    /// The file, on a file system without locks.
    Without(File),
}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            Self::Flock(lock) => lock,
            Self::Without(file) => file,
        }
    }
}

impl Locked {
    /// Locks `file`.
    ///
    /// # Errors
    /// `EWOULDBLOCK` if another process has locked the file.
    pub(in crate::target) fn new(file: File) -> Result<Self, Errno> {
        Self::of(Flock::lock(file, FlockArg::LockExclusiveNonblock))
    }

    fn of(locked: Result<Flock<File>, (File, Errno)>) -> Result<Self, Errno> {
        match locked {
            Ok(lock) => Ok(Self::Flock(lock)),
            Err((file, Errno::ENOSYS | Errno::ENOLCK | Errno::EOPNOTSUPP)) => Ok(Self::Without(file)),
            Err((_, e)) => Err(e),
        }
    }

    /// Whether there is no lock, so that nothing keeps a second transfer away.
    pub(in crate::target) const fn is_without(&self) -> bool {
        matches!(self, Self::Without(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_locks_is_no_obstacle() {
        let file = || tempfile::tempfile().expect("a file");
        for errno in [Errno::ENOSYS, Errno::ENOLCK, Errno::EOPNOTSUPP] {
            assert!(Locked::of(Err((file(), errno))).is_ok_and(|locked| locked.is_without()), "{errno}");
        }
        let held = Locked::of(Err((file(), Errno::EWOULDBLOCK)));
        assert_eq!(held.map(|_| ()), Err(Errno::EWOULDBLOCK));
        assert!(Locked::new(file()).is_ok_and(|locked| !locked.is_without()));
    }
}
