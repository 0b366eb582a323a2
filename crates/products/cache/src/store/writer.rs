//! Writes an object while it arrives.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use blake3::hazmat::HasherExt as _;

use super::key::Key;
use super::object::{BLOCK_BYTES, Meta, Object, footer};
use super::shelves::Store;

/// An object that arrives. It is removed when it is dropped, unless it was [finished](Self::finish).
#[derive(Debug)]
pub struct Writer {
    store: Store,
    path: PathBuf,
    file: Arc<File>,
    length: u64,
    hashes: Vec<[u8; 32]>,
    /// The BLAKE3 of the first block, which is its hash if no other one follows.
    first: Option<[u8; 32]>,
    /// The hash of the block that is not whole yet, and the number of its bytes.
    block: blake3::Hasher,
    block_bytes: usize,
}

impl Writer {
    /// Begins an object, which has no key yet.
    ///
    /// # Errors
    /// If no file can be made.
    pub fn begin(store: &Store) -> io::Result<Self> {
        let (store, path) = (store.clone(), store.incoming());
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        let (length, hashes, first, block_bytes) = Default::default();
        let block = blake3::Hasher::new();
        Ok(Self { store, path, file: Arc::new(file), length, hashes, first, block, block_bytes })
    }

    /// Returns the file, of which others may read what has been written.
    #[must_use]
    pub fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Returns the number of bytes that have been written.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Adds the next bytes.
    ///
    /// # Errors
    /// If they cannot be written, such as for want of room.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        (&*self.file).write_all(bytes)?;
        self.length += bytes.len() as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(BLOCK_BYTES - self.block_bytes));
            self.block.update(now);
            self.block_bytes += now.len();
            rest = later;
            if self.block_bytes == BLOCK_BYTES {
                self.end_block();
            }
        }
        Ok(())
    }

    /// Returns whether these bytes have been written at `offset`.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn has(&self, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let mut written = vec![0; bytes.len()];
        self.file.read_exact_at(&mut written, offset)?;
        Ok(written == bytes)
    }

    fn end_block(&mut self) {
        self.first.get_or_insert_with(|| *self.block.finalize().as_bytes());
        self.hashes.push(self.block.finalize_non_root());
        self.block = blake3::Hasher::new();
        self.block.set_input_offset(self.hashes.len() as u64 * BLOCK_BYTES as u64);
        self.block_bytes = 0;
    }

    /// Makes the object a part of the store, which replaces one with the same key. The caller has verified
    /// its bytes. Returns the object; the store may have given it up at once if it is too large.
    ///
    /// # Errors
    /// If the file cannot be written, synced or renamed.
    pub fn finish(mut self, key: &Key, meta: &Meta) -> io::Result<Arc<Object>> {
        if self.block_bytes > 0 {
            self.end_block();
        }
        if let ([only], Some(first)) = (&mut self.hashes[..], self.first) {
            *only = first;
        }
        let footer = footer(self.length, &self.hashes, meta)?;
        (&*self.file).write_all(&footer)?;
        self.file.sync_all()?;
        let object = Object::open(&self.path, key).map_err(io::Error::other)?;
        self.store.publish(&self.path, object, self.length + footer.len() as u64)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // After `finish`, no file has the name any more.
        let _ = fs::remove_file(&self.path);
    }
}
