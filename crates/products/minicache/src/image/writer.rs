//! Writes an object while it arrives.

use std::io;
use std::sync::Arc;

use anabranch_cache::digest::{HashKind, Hasher};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::tree::{self, ChainingValue, Outboard, block_cv};

use super::opened::{Image, ImageError};
use super::space::Extent;
use crate::disk::Disk;
use crate::layout::{Entry, Text, hashes_at};
use crate::name::Name;

/// The bytes that are written at once: a few blocks.
const WRITE_BYTES: usize = 16 * BLOCK_BYTES;

/// What is kept of an object besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// The value of `Content-Type`.
    pub media_type: Text,
    /// A name for people.
    pub label: Text,
}

/// An object that arrives. Its room is free again when it is dropped, unless it was
/// [finished](Self::finish).
#[derive(Debug)]
pub struct Writer<D: Disk = std::fs::File> {
    image: Arc<Image<D>>,
    extent: Extent,
    length: u64,
    written: u64,
    buffer: Vec<u8>,
    leaves: Vec<ChainingValue>,
    hasher: Hasher,
}

impl<D: Disk> Writer<D> {
    /// Begins an object of `length` bytes, of which the hash of `kind` is kept as a name. Where there is no
    /// room, objects that no answer uses are removed, the one that was used least recently first, if
    /// `evicts`.
    ///
    /// # Errors
    /// If there is no room for it.
    pub fn begin(
        image: &Arc<Image<D>>,
        length: u64,
        kind: HashKind,
        evicts: bool,
    ) -> Result<Self, ImageError> {
        let (extent, image) = (image.claim(length, evicts)?, Arc::clone(image));
        let (buffer, leaves, hasher) = (Vec::new(), Vec::new(), Hasher::new(kind));
        Ok(Self { image, extent, length, written: 0, buffer, leaves, hasher })
    }

    /// Adds the next bytes.
    ///
    /// # Errors
    /// If there are more than were announced, or they cannot be written.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), ImageError> {
        if self.written + (self.buffer.len() + bytes.len()) as u64 > self.length {
            return Err(ImageError::Wrong(format!("it has more than the {} bytes announced", self.length)));
        }
        self.hasher.update(bytes);
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(WRITE_BYTES - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == WRITE_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes the blocks in the buffer.
    fn flush(&mut self) -> io::Result<()> {
        let at = self.image.layout().chunk_at(self.extent.first) + self.written;
        self.image.disk().write_at(at, &self.buffer)?;
        let blocks = self.buffer.chunks(BLOCK_BYTES);
        let first = self.leaves.len() as u64;
        self.leaves.extend((first..).zip(blocks).map(|(index, block)| block_cv(index, block)));
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes the object a part of the image, once its bytes and then its entry are synced. The bytes
    /// must have the name `wanted`, if one is given. Returns the slot of the object, which may be an older
    /// object with both names.
    ///
    /// # Errors
    /// If bytes are missing or have another name, if they cannot be written, or if no entry is free.
    pub fn finish(mut self, wanted: Option<&Name>, described: Described) -> Result<u32, ImageError> {
        // One block is hashed as a whole: it has no leaf.
        let single = (self.length <= BLOCK_BYTES as u64).then(|| ContentId::of(&self.buffer));
        if !self.buffer.is_empty() {
            self.flush()?;
        }
        if self.written != self.length {
            let (is, wanted) = (self.written, self.length);
            return Err(ImageError::Wrong(format!("it has {is} bytes instead of the {wanted} announced")));
        }
        let leaves = std::mem::take(&mut self.leaves);
        let outboard = match single {
            Some(id) => Outboard::bare(id),
            None => Outboard::from_leaves(leaves, self.length),
        };
        let outboard = outboard.ok_or_else(|| ImageError::Wrong("it is too long".to_owned()))?;
        let id = outboard.id();
        let hasher = std::mem::replace(&mut self.hasher, Hasher::new(HashKind::Sha256));
        let digest = hasher.finish();
        let is = [Name::Root(id.root), Name::Digest(digest)];
        if let Some(wanted) = wanted.filter(|wanted| !is.contains(wanted)) {
            return Err(ImageError::Wrong(format!("its name is {} or {} and not {wanted}", is[0], is[1])));
        }
        let found = is.map(|name| self.image.table().find(&name));
        if let [Some(found), Some(again)] = found
            && found == again
        {
            return Ok(found.slot);
        }
        let mut at = self.image.layout().chunk_at(self.extent.first) + hashes_at(self.length);
        for level in 0..tree::levels(&id) {
            let list = outboard.cvs(level, 0, usize::MAX).unwrap_or_default().as_flattened();
            self.image.disk().write_at(at, list)?;
            at += list.len() as u64;
        }
        self.image.disk().sync()?;
        let Described { media_type, label } = described;
        let first_chunk = self.extent.first;
        let entry = Entry { generation: 0, id, digest, first_chunk, media_type, label };
        self.image.publish(&self.extent, entry)
    }
}

impl<D: Disk> Drop for Writer<D> {
    fn drop(&mut self) {
        // Does nothing for an extent that an entry names.
        self.image.space().release(&self.extent);
    }
}
