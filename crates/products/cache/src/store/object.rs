//! The file of an object, and verified reads of it.
//!
//! ```text
//! data         LENGTH bytes
//! hashes       32 bytes for each block of 16 KiB: its chaining value in the BLAKE3 of the whole, or of a
//!              single block its BLAKE3; the last block may be shorter
//! description  JSON: `Meta`
//! trailer      56 bytes: the magic, LENGTH, the description's length (8 bytes each, little-endian), and the
//!              BLAKE3 of hashes, description and both lengths
//! ```
//!
//! The hashes stand behind the data, so that data are written as they arrive, before their length is
//! known. They are the lowest list of the tree of hashes that mmTP uses, so that an object can be served by
//! mmTP without being read first.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::OnceLock;

use anabranch_mmtp::ContentId;
use anabranch_mmtp::tree::{Outboard, block_cv};
use serde::{Deserialize, Serialize};

use super::key::Key;
use crate::freshness::CacheFields;

/// The bytes that have one hash.
pub const BLOCK_BYTES: usize = anabranch_mmtp::id::BLOCK_BYTES;
const HASH_BYTES: usize = 32;
/// The error of a disk that cannot read a sector.
const EIO: i32 = 5;
const MAGIC: [u8; 8] = *b"anbcach2";
const TRAILER_BYTES: usize = 8 + 8 + 8 + HASH_BYTES;
/// The most bytes of a description.
const META_BYTES_MAX: u64 = 64 << 10;

/// What is kept of an object besides its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// The URL that the object came from, or the first of several.
    pub url: String,
    /// The value of `Content-Type`, if a server said it.
    pub media_type: Option<String>,
    /// The hash that the bytes were compared with when they came, as text; `None` if there was none.
    pub verified: Option<String>,
    /// The header fields for HTTP's rules of caching; `None` if the object never changes.
    pub fields: Option<CacheFields>,
    /// The values of `Link` of a document, which may lead to its next part.
    #[serde(default)]
    pub links: Vec<String>,
    /// Whether only those may have it who have the credentials by which it came.
    #[serde(default)]
    pub is_private: bool,
}

impl Meta {
    /// Returns whether everybody may have the object: its bytes are those that a hash names.
    #[must_use]
    pub const fn is_for_all(&self) -> bool {
        self.verified.is_some() && !self.is_private
    }
}

/// The reason why bytes of an object cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Bytes have changed since they were written: in the block with this number, or, for `None`, in the
    /// hashes.
    #[error("{}", damage(*.0))]
    Damaged(Option<u64>),
    /// The system cannot read the file.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn damage(block: Option<u64>) -> String {
    match block {
        Some(block) => format!("block {block} is not what was written"),
        None => "its hashes are not what was written".to_owned(),
    }
}

/// An object of a store, whose file is open.
#[derive(Debug)]
pub struct Object {
    file: File,
    key: Key,
    tree: Outboard,
    meta: Meta,
    tag: OnceLock<String>,
}

/// Returns the number of blocks of `length` bytes.
const fn blocks(length: u64) -> u64 {
    length.div_ceil(BLOCK_BYTES as u64)
}

/// Returns the bytes that follow the data of an object.
pub(super) fn footer(length: u64, hashes: &[[u8; HASH_BYTES]], meta: &Meta) -> io::Result<Vec<u8>> {
    let meta = serde_json::to_vec(meta)?;
    if meta.len() as u64 > META_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its header fields are too long"));
    }
    let mut bytes = hashes.concat();
    bytes.extend_from_slice(&meta);
    let lengths = [length.to_le_bytes(), (meta.len() as u64).to_le_bytes()].concat();
    let sum = blake3::Hasher::new().update(&bytes).update(&lengths).finalize();
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&lengths);
    bytes.extend_from_slice(sum.as_bytes());
    Ok(bytes)
}

/// Returns the tree over the hashes of all blocks; `None` if there cannot be such an object.
fn tree(length: u64, hashes: &[[u8; HASH_BYTES]]) -> Option<Outboard> {
    match hashes {
        [] => Outboard::bare(ContentId::of(&[])),
        [root] => Outboard::bare(ContentId { root: *root, length }),
        _ => Outboard::from_leaves(hashes.to_vec(), length),
    }
}

impl Object {
    pub(super) fn open(path: &Path, key: &Key) -> Result<Self, ReadError> {
        let file = File::options().read(true).write(true).open(path)?;
        let damaged = ReadError::Damaged(None);
        let file_bytes = file.metadata()?.len();
        let Some(trailer_at) = file_bytes.checked_sub(TRAILER_BYTES as u64) else { return Err(damaged) };
        let mut trailer = [0; TRAILER_BYTES];
        file.read_exact_at(&mut trailer, trailer_at)?;
        let (magic, rest) = trailer.split_at(8);
        let (lengths, sum) = rest.split_at(16);
        let number =
            |at: usize| lengths[at..at + 8].iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
        let (length, meta_bytes) = (number(0), number(8));
        // A length beyond the file's would not fit into memory.
        if magic != MAGIC || length > file_bytes || meta_bytes > META_BYTES_MAX {
            return Err(damaged);
        }
        let hash_bytes = blocks(length) * HASH_BYTES as u64;
        if length + hash_bytes + meta_bytes != trailer_at {
            return Err(damaged);
        }
        let mut bytes = vec![0; (hash_bytes + meta_bytes) as usize];
        file.read_exact_at(&mut bytes, length)?;
        if blake3::Hasher::new().update(&bytes).update(lengths).finalize().as_bytes() != sum {
            return Err(damaged);
        }
        let (hashes, meta) = bytes.split_at(hash_bytes as usize);
        let Ok(meta) = serde_json::from_slice(meta) else { return Err(damaged) };
        let Some(tree) = tree(length, hashes.as_chunks().0) else { return Err(damaged) };
        Ok(Self { file, key: key.clone(), tree, meta, tag: OnceLock::new() })
    }

    /// Returns the key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the length in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.tree.id().length
    }

    /// Returns the tree of hashes, which has the name of the object in mmTP.
    #[must_use]
    pub const fn tree(&self) -> &Outboard {
        &self.tree
    }

    /// Returns what is kept besides the bytes.
    #[must_use]
    pub const fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Returns a text that differs for objects with other bytes: the key if that is a hash of the bytes,
    /// else the beginning of their BLAKE3.
    #[must_use]
    pub fn tag(&self) -> &str {
        self.tag.get_or_init(|| match self.key.is_opaque() {
            true => blake3::Hash::from_bytes(self.tree.id().root).to_hex()[..32].to_owned(),
            false => self.key.as_str().to_owned(),
        })
    }

    /// Returns the memory that the hashes take.
    pub(super) fn hash_bytes(&self) -> usize {
        self.tree.leaves().len() * HASH_BYTES
    }

    /// Whether the file is still in the store: it may have been removed by hand.
    pub(super) fn is_linked(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() > 0)
    }

    /// Returns the bytes that block `number` has in the object.
    #[must_use]
    pub fn block_range(&self, number: u64) -> std::ops::Range<u64> {
        let start = number.saturating_mul(BLOCK_BYTES as u64).min(self.length());
        start..(start + BLOCK_BYTES as u64).min(self.length())
    }

    /// Returns whether these are the bytes of block `number`.
    fn is_block(&self, number: u64, bytes: &[u8]) -> bool {
        match self.tree.leaves().get(number as usize) {
            Some(hash) => !bytes.is_empty() && block_cv(number, bytes) == *hash,
            None => number == 0 && *blake3::hash(bytes).as_bytes() == self.tree.id().root,
        }
    }

    /// Fills `out` with the object's bytes from `offset` on, which must lie within its length. Each block
    /// that is touched is read whole and compared with its hash.
    ///
    /// # Errors
    /// The number of a damaged block, or the error of the system.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        let end = offset.checked_add(out.len() as u64).filter(|end| *end <= self.length());
        let Some(end) = end else { return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) };
        if out.is_empty() {
            return Ok(());
        }
        let (first, last) = (offset / BLOCK_BYTES as u64, (end - 1) / BLOCK_BYTES as u64);
        let (from, to) = (self.block_range(first).start, self.block_range(last).end);
        if (from, to) == (offset, end) {
            return self.read_blocks(first, out);
        }
        let mut bytes = vec![0; (to - from) as usize];
        self.read_blocks(first, &mut bytes)?;
        let start = (offset - from) as usize;
        out.copy_from_slice(&bytes[start..start + out.len()]);
        Ok(())
    }

    /// Fills `out` with whole blocks from block `first` on, and compares each with its hash.
    fn read_blocks(&self, first: u64, out: &mut [u8]) -> Result<(), ReadError> {
        if let Err(error) = self.file.read_exact_at(out, self.block_range(first).start) {
            return Err(self.unreadable(first, out, error));
        }
        for (number, block) in (first..).zip(out.chunks(BLOCK_BYTES)) {
            if !self.is_block(number, block) {
                return Err(ReadError::Damaged(Some(number)));
            }
        }
        Ok(())
    }

    /// Finds the block from `first` on that cannot be read, if that is what an error means: the file was cut
    /// short, or the disk has lost a sector. Other errors, such as too little memory, damage nothing.
    fn unreadable(&self, first: u64, out: &mut [u8], error: io::Error) -> ReadError {
        let is_damage = |error: &io::Error| {
            error.kind() == io::ErrorKind::UnexpectedEof || error.raw_os_error() == Some(EIO)
        };
        if !is_damage(&error) {
            return error.into();
        }
        let mut blocks = (first..).zip(out.chunks_mut(BLOCK_BYTES));
        let lost = blocks.find_map(|(number, block)| {
            let read = self.file.read_exact_at(block, self.block_range(number).start);
            read.is_err_and(|e| is_damage(&e)).then_some(number)
        });
        ReadError::Damaged(Some(lost.unwrap_or(first)))
    }

    /// Writes a damaged block anew. Returns whether `bytes` are the block's, by its hash; others are not
    /// written.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn repair(&self, number: u64, bytes: &[u8]) -> io::Result<bool> {
        let range = self.block_range(number);
        if range.end - range.start != bytes.len() as u64 || !self.is_block(number, bytes) {
            return Ok(false);
        }
        self.file.write_all_at(bytes, range.start)?;
        self.file.sync_data()?;
        Ok(true)
    }
}
