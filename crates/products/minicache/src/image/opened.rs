//! An image that is open.

use std::fs::{File, TryLockError};
use std::io::{self, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::space::{Extent, Room, Space};
use crate::disk::Disk;
use crate::layout::{ENTRY_BYTES, Entry, Layout, LayoutError, SUPERBLOCK_BYTES};
use crate::table::Table;

/// What a process does with an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Its objects are read. Any number of processes may do this, while none writes.
    Read,
    /// Objects come and go. No other process may use the image.
    Write,
}

/// The reason why an image cannot be used as wanted.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The system fails.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The bytes are no image.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The file is shorter than its superblock says.
    #[error("it has {0} bytes instead of {1}: a part of it is missing")]
    Short(u64, u64),
    /// Another process uses the image.
    #[error("another process uses it: objects are added while no other process has it open")]
    Busy,
    /// There is no run of free chunks that is long enough.
    #[error("there is no room for {0} bytes in one piece")]
    NoRoom(u64),
    /// Objects share chunks: one of their entries is wrong.
    #[error("two of its objects share chunks, so nothing can be added: `check` names them")]
    Shared,
    /// All entries are in use.
    #[error("all entries of its table are in use")]
    NoEntry,
    /// The bytes do not have the wanted name, or not the announced length.
    #[error("{0}")]
    Wrong(String),
}

/// An image that is open.
#[derive(Debug)]
pub struct Image<D: Disk = File> {
    disk: D,
    table: Table,
    space: OnceLock<Mutex<Space>>,
}

impl<D: Disk> Drop for Image<D> {
    fn drop(&mut self) {
        self.disk.unlock();
    }
}

impl Image {
    /// Makes an image, which must not be there yet, and opens it for writing. Its file is sparse.
    ///
    /// # Errors
    /// If the file is there or cannot be written.
    pub fn create(path: &Path, layout: Layout) -> Result<Self, ImageError> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        lock(&file, Use::Write)?;
        file.set_len(layout.image_bytes())?;
        file.sync_all()?;
        // Without this the file is no image, so it comes last.
        file.write_at(0, &layout.superblock())?;
        file.sync_all()?;
        Self::of(file)
    }

    /// Opens an image.
    ///
    /// # Errors
    /// If the file cannot be read, is no image, or another process uses it.
    pub fn open(path: &Path, purpose: Use) -> Result<Self, ImageError> {
        Self::of(open(path, purpose)?)
    }

    /// Returns whether [`open`](Self::open) would work now, without reading the table.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn probe(path: &Path, purpose: Use) -> Result<(), ImageError> {
        open(path, purpose).map(|file| Disk::unlock(&file))
    }
}

fn open(path: &Path, purpose: Use) -> Result<File, ImageError> {
    let mut file = File::options().read(true).write(purpose == Use::Write).open(path)?;
    lock(&file, purpose)?;
    // The length of a disk is not in its metadata.
    let length = file.seek(SeekFrom::End(0))?;
    let layout = read_layout(&file)?;
    if length < layout.image_bytes() {
        return Err(ImageError::Short(length, layout.image_bytes()));
    }
    Ok(file)
}

fn lock(file: &File, purpose: Use) -> Result<(), ImageError> {
    let locked = match purpose {
        Use::Read => file.try_lock_shared(),
        Use::Write => file.try_lock(),
    };
    locked.map_err(|error| match error {
        TryLockError::WouldBlock => ImageError::Busy,
        TryLockError::Error(error) => error.into(),
    })
}

fn read_layout(disk: &dyn Disk) -> Result<Layout, ImageError> {
    let mut superblock = [0; SUPERBLOCK_BYTES];
    match disk.read_at(0, &mut superblock) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(LayoutError::Magic.into()),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(Layout::parse(&superblock)?),
    }
}

impl<D: Disk> Image<D> {
    /// Reads the table of an image on any disk.
    ///
    /// # Errors
    /// If it cannot be read, or is no image.
    pub fn of(disk: D) -> Result<Self, ImageError> {
        let layout = read_layout(&disk)?;
        let table = Table::read(&disk, layout)?;
        Ok(Self { disk, table, space: OnceLock::new() })
    }

    /// Returns the disk.
    #[must_use]
    pub const fn disk(&self) -> &D {
        &self.disk
    }

    /// Returns the table.
    #[must_use]
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the shape of the image.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        self.table.layout()
    }

    /// Returns how much room is left. As long as nothing has been written, each call reads all entries.
    #[must_use]
    pub fn room(&self) -> Room {
        match self.space.get() {
            Some(_) => self.space().room(),
            None => Space::of(&self.table).room(),
        }
    }

    /// Returns the room in use. It is worked out when it is first needed, since a cache that serves does not.
    pub(super) fn space(&self) -> MutexGuard<'_, Space> {
        let space = self.space.get_or_init(|| Mutex::new(Space::of(&self.table)));
        space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims room for an object of `length` bytes. Where there is none, objects that no answer uses are
    /// removed, the one that was used least recently first, if `evicts`.
    pub(super) fn claim(&self, length: u64, evicts: bool) -> Result<Extent, ImageError> {
        let chunks = self.layout().chunks_of(length);
        if self.space().shares {
            return Err(ImageError::Shared);
        }
        loop {
            if let Some(extent) = self.space().claim(chunks) {
                return Ok(extent);
            }
            // What cannot ever fit pushes nothing out.
            if !evicts || chunks > self.layout().chunks() || !self.evict()? {
                return Err(ImageError::NoRoom(length));
            }
        }
    }

    /// Removes the object that was used least recently among those that no answer uses. Returns whether there
    /// was one.
    fn evict(&self) -> Result<bool, ImageError> {
        let mut slots = self.space().slots();
        slots.sort_by_cached_key(|slot| self.table.uses(*slot).last_s);
        for slot in slots {
            if self.remove(slot)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the object of a slot. Returns whether it is gone: not if an answer uses it.
    ///
    /// # Errors
    /// If the entry cannot be written. It is then not found by this process any more, and its room not used.
    pub fn remove(&self, slot: u32) -> Result<bool, ImageError> {
        let mut space = self.space();
        if !self.table.close(slot) {
            return Ok(false);
        }
        let written = self.disk.write_at(self.layout().entry_at(slot), &[0; ENTRY_BYTES]);
        written.and_then(|()| self.disk.sync())?;
        self.table.clear(slot);
        space.free(slot);
        Ok(true)
    }

    /// Writes the entry of an object whose bytes are synced, and makes it be found.
    pub(super) fn publish(&self, extent: &Extent, mut entry: Entry) -> Result<u32, ImageError> {
        let mut space = self.space();
        let slot = space.take_slot(&self.table).ok_or(ImageError::NoEntry)?;
        entry.generation = space.next_generation();
        let written = self.disk.write_at(self.layout().entry_at(slot), &entry.encode());
        // If this fails the entry may be there or not: the slot and the extent are left alone until the
        // next start.
        space.settle(extent, slot);
        written.and_then(|()| self.disk.sync())?;
        self.table.insert(slot, &entry).map_err(|_| ImageError::NoEntry)?;
        Ok(slot)
    }
}
