//! The identity and the state of a file, by its metadata.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use anabranch_mmtp::id::LENGTH_MAX;
use nix::fcntl::OFlag;

/// The metadata by which one state of a file is told from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    /// Device and inode.
    pub(crate) inode: (u64, u64),
    /// Length in bytes.
    pub(crate) length: u64,
    /// Last modification, in seconds and nanoseconds since 1970.
    pub(crate) modified: (i64, i64),
    /// The time of the last change of the inode, in seconds and nanoseconds since 1970; `touch` cannot set it
    /// back.
    pub(crate) changed: (i64, i64),
}

impl FileIdentity {
    /// Returns the identity of a file that is to be hashed.
    ///
    /// # Errors
    /// If it is not a regular file or is too long; the error of `fstat`.
    pub(crate) fn to_hash(file: &File) -> io::Result<Self> {
        let identity = Self::of(file)?;
        match identity.length {
            _ if !file.metadata()?.is_file() => Err(io::Error::other("not a regular file")),
            0..=LENGTH_MAX => Ok(identity),
            _ => Err(io::Error::other("longer than 64 TiB")),
        }
    }

    /// Checks that the file, after it has been hashed, is still in this state.
    ///
    /// # Errors
    /// If it is not; the error of `fstat`.
    pub(crate) fn check_hashed(&self, file: &File) -> io::Result<()> {
        match Self::of(file)? == *self {
            true => Ok(()),
            false => {
                Err(io::Error::other("it changed while it was being hashed; try again when it is at rest"))
            }
        }
    }

    /// Returns the identity of an open file.
    ///
    /// # Errors
    /// The error of `fstat`.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self {
            inode: (meta.dev(), meta.ino()),
            length: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

/// Opens a file for reading. It follows no symbolic link, and a pipe or a device does not block it.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    std::fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)
}
