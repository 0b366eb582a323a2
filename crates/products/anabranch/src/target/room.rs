//! Simulates a file system that fills up, for tests and the soak.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of bytes that the file system allocates to a file at once.
const PAGE_BYTES: u64 = 4_096;

/// Holds the room that is left. Files are allocated pages, as on most file systems: a page that a file has
/// may be written again, and if there is too little room for a write, only the bytes that fit are written.
#[derive(Debug, Default)]
pub(crate) struct Room(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The number of pages that are left; `None` if there is no limit.
    left: Option<u64>,
    /// Whether a write found too few pages.
    ran_out: bool,
    /// The pages of memory that files occupy already, as pairs of inode number and page number.
    given: BTreeSet<(u64, u64)>,
}

impl Room {
    /// Sets the number of bytes that are left; `None` means no limit.
    pub(crate) fn set(&self, bytes: Option<u64>) {
        let mut state = self.state();
        let left = bytes.map(|bytes| bytes / PAGE_BYTES);
        // The owners of pages are forgotten: a new file may get the inode number of a removed one.
        *state = State { left, ..State::default() };
    }

    /// Returns whether a write has found too little room since the last [`set`](Self::set).
    pub(crate) fn ran_out(&self) -> bool {
        self.state().ran_out
    }

    /// Writes the bytes that fit into the room, and fails if these are not all.
    pub(super) fn write_all(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let fits = self.take(file.metadata()?.ino(), offset, bytes.len());
        file.write_all_at(&bytes[..fits], offset)?;
        if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// Returns the number of these bytes that fit into the room, and allocates the pages for them.
    fn take(&self, file: u64, offset: u64, bytes: usize) -> usize {
        let mut state = self.state();
        let end = offset + bytes as u64;
        for page in offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES) {
            if !state.given.insert((file, page)) {
                continue;
            }
            match &mut state.left {
                None => {}
                Some(0) => {
                    state.given.remove(&(file, page));
                    state.ran_out = true;
                    return (page * PAGE_BYTES).saturating_sub(offset) as usize;
                }
                Some(left) => *left -= 1,
            }
        }
        bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_a_file_has_is_written_again_and_the_next_one_is_refused() {
        let room = Room::default();
        room.set(Some(2 * PAGE_BYTES));
        let file = tempfile::tempfile().expect("a file");
        room.write_all(&file, &[1; 5_000], 100).expect("two pages");
        room.write_all(&file, &[2; 5_000], 0).expect("the same two");
        assert!(!room.ran_out());
        let error = room.write_all(&file, &[3; 5_000], 4_096).expect_err("one of two");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(room.ran_out());
        assert_eq!(file.metadata().expect("a file").len(), 2 * PAGE_BYTES, "what there is room for is there");
        room.set(None);
        room.write_all(&file, &[3; 5_000], 4_096).expect("there is room again");
    }
}
