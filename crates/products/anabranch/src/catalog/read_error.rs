//! The reasons why an offer cannot be read.

use std::io;

use nix::errno::Errno;

/// The reason why an offer cannot be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The file is not the one that was hashed any more.
    Changed,
    /// Something about the file has changed, and it is being hashed again.
    InDoubt,
    /// There are no such chunks, or `out` has no room for them.
    Range,
    /// The file cannot be read.
    Io(io::Error),
}

impl ReadError {
    /// Returns whether another attempt is useless: the file is no longer the one that was hashed, is gone, or
    /// may not be read. Otherwise another attempt may help: descriptors were used up, or the disk failed.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Changed | Self::Range => true,
            Self::InDoubt => false,
            Self::Io(e) => {
                let gone = [Errno::ENOENT, Errno::ENOTDIR, Errno::ELOOP, Errno::EACCES, Errno::EPERM];
                e.raw_os_error().is_some_and(|code| gone.contains(&Errno::from_raw(code)))
            }
        }
    }
}
