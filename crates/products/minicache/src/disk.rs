//! What an image is written to: a file, or in tests a disk that forgets.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Bytes that survive a crash once they are synced.
pub trait Disk: Send + Sync {
    /// Fills `out` with the bytes from `offset` on.
    ///
    /// # Errors
    /// If they are not there, or cannot be read.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes bytes from `offset` on. Another reader sees them at once; a crash may lose any part of them.
    ///
    /// # Errors
    /// If they cannot be written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns once all that was written survives a crash.
    ///
    /// # Errors
    /// If the system cannot promise that.
    fn sync(&self) -> io::Result<()>;

    /// Gives up the lock of the image, if there is one.
    fn unlock(&self) {}
}

impl Disk for File {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(out, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn unlock(&self) {
        // Closing the file is not enough: a child of this process has it too until its exec(3).
        let _ = Self::unlock(self);
    }
}
