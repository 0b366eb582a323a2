//! The files and directories that a source offers. They are hashed at the start.
//!
//! A request names content by its root, never by a path. So it can only ask for content that was hashed here,
//! and there is no `..` to guard against. While serving, a file is read through a descriptor whose device,
//! inode, size and times must still be those of the moment when it was hashed (`catalog/watch.rs`). A file
//! that has changed is refused rather than sent wrong.

pub(crate) mod builder;
mod cache;
mod hash;
mod read_error;
mod walk;
mod warnings;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::publisher::ContentStore;
use anabranch_mmtp::tree::Outboard;
use anabranch_mmtp::uri::Uri;
use anabranch_mmtp::wire::NAME_MAX;
use anabranch_mmtp::{ChunksPerBlock, ContentId, publisher};

use crate::file_identity::FileIdentity;
use crate::monitor::lock;
pub(crate) use read_error::ReadError;
pub(crate) use walk::{FoundFile, check, walk};
pub(crate) use warnings::Warnings;
use watch::{HashedFile, Rechecks};

/// The number of files that are held open at once; others are opened when they are requested.
pub(crate) const OPEN_FILES_MAX: usize = 128;

/// The number of chunks that [`Catalog::read_chunks`] reads at once: those of a batch of packets.
pub(crate) const READ_CHUNKS_MAX: usize = 64;

/// All content that a source offers.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    offers: Vec<CatalogEntry>,
    by_root: BTreeMap<[u8; 32], usize>,
    open: Mutex<VecDeque<(usize, Arc<File>)>>,
    rechecks: Arc<Rechecks>,
}

/// One content on offer.
#[derive(Debug)]
pub(crate) struct CatalogEntry {
    /// The content id.
    pub(crate) id: ContentId,
    /// The file's name, cut to the length that a packet takes; empty if it has none.
    pub(crate) name: Vec<u8>,
    /// Whether the content is the manifest of a directory.
    pub(crate) collection: bool,
    /// The path of the file or directory on this machine.
    pub(crate) path: PathBuf,
    /// The index, from 0, of the path that the caller named and to which this content belongs.
    pub(crate) named: usize,
    /// The path below that named path, with `/` between names; empty for the named path itself.
    pub(crate) relative: Vec<u8>,
    index: usize,
    outboard: Arc<Outboard>,
    body: Body,
}

#[derive(Debug)]
enum Body {
    File(FileIdentity),
    Memory(Vec<u8>),
}

impl Catalog {
    /// Adds a content that is at `path`; it belongs to the path of index `named` and lies `relative` below
    /// it.
    fn add(
        &mut self,
        (named, relative): (usize, Vec<u8>),
        path: PathBuf,
        collection: bool,
        outboard: Outboard,
        body: Body,
    ) {
        let name = path.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
        let name = name[..name.len().min(NAME_MAX)].to_vec();
        let index = self.offers.len();
        let id = outboard.id();
        // If the same bytes are offered twice, the first offer answers for both.
        let first = *self.by_root.entry(id.root).or_insert(index);
        let outboard =
            self.offers.get(first).map_or_else(|| Arc::new(outboard), |offer| Arc::clone(&offer.outboard));
        self.offers.push(CatalogEntry { id, name, collection, path, named, relative, index, outboard, body });
    }

    /// Returns everything on offer; a directory comes after its files.
    pub(crate) fn offers(&self) -> &[CatalogEntry] {
        &self.offers
    }

    /// Returns the offer with this root.
    pub(crate) fn find(&self, root: &[u8; 32]) -> Option<&CatalogEntry> {
        self.by_root.get(root).and_then(|index| self.offers.get(*index))
    }

    /// Reads `count` chunks from `first` on into `out`, one after the other. In front of each, `header` bytes
    /// are left for the caller to fill. Chunks of a full block are padded with zeros to one length; only the
    /// very last may be shorter. Returns how many bytes of `out` are in use.
    ///
    /// It reads all bytes at once to the end of the room, and then moves each chunk to its place. That was
    /// measured to be a fifth faster than a read with a buffer for each chunk (`preadv`), for 47 chunks of
    /// 1,366 bytes.
    ///
    /// # Errors
    /// If there are no such chunks, or the file has changed since it was hashed.
    pub(crate) fn read_chunks(
        &self,
        offer: &CatalogEntry,
        cut: ChunksPerBlock,
        first: u64,
        count: usize,
        header: usize,
        out: &mut [u8],
    ) -> Result<usize, ReadError> {
        if count == 0 || count > READ_CHUNKS_MAX {
            return Err(ReadError::Range);
        }
        let (block, offset, _) = offer.id.chunk_extent(first, cut).ok_or(ReadError::Range)?;
        let start = block * BLOCK_BYTES as u64 + offset as u64;
        let mut lens = [(0, 0); READ_CHUNKS_MAX];
        let (mut used, mut wanted) = (0, 0);
        for (n, lens) in (first..).zip(&mut lens[..count]) {
            let (_, _, len) = offer.id.chunk_extent(n, cut).ok_or(ReadError::Range)?;
            let wire_len = offer.id.chunk_wire_len(n, cut).ok_or(ReadError::Range)?;
            *lens = (len, wire_len);
            used += header + wire_len;
            wanted += len;
        }
        let out = out.get_mut(..used).ok_or(ReadError::Range)?;
        let mut from = used - wanted;
        self.read_at(offer, start, &mut out[from..])?;
        let mut to = 0;
        for (len, wire_len) in &lens[..count] {
            to += header;
            // This never overtakes the chunks that are still to be moved: from here on there is room for all
            // of them.
            out.copy_within(from..from + len, to);
            out[to + len..to + wire_len].fill(0);
            from += len;
            to += wire_len;
        }
        Ok(used)
    }

    /// Fills `out` with the offer's bytes from `offset` on.
    ///
    /// # Errors
    /// If the offer has no such bytes, or the file has changed since it was hashed.
    pub(crate) fn read_at(&self, offer: &CatalogEntry, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > offer.id.length) {
            return Err(ReadError::Range);
        }
        match &offer.body {
            Body::Memory(content) => {
                out.copy_from_slice(&content[offset as usize..][..out.len()]);
                Ok(())
            }
            Body::File(identity) => {
                let hashed = offer.hashed(identity);
                let file = self.file(&hashed)?;
                file.read_exact_at(out, offset).map_err(|e| match e.kind() {
                    io::ErrorKind::UnexpectedEof => ReadError::Changed,
                    _ => ReadError::Io(e),
                })?;
                // The check comes after reading, so that it finds a change before or during the read.
                self.rechecks.check(&hashed, &file)
            }
        }
    }

    /// Checks without reading the file that an offer is still unchanged since it was hashed.
    ///
    /// # Errors
    /// If the file has changed, is being hashed again, or cannot be opened.
    pub(crate) fn check(&self, offer: &CatalogEntry) -> Result<(), ReadError> {
        match &offer.body {
            Body::Memory(_) => Ok(()),
            Body::File(identity) => {
                let hashed = offer.hashed(identity);
                self.rechecks.check(&hashed, &*self.file(&hashed)?)
            }
        }
    }

    /// Takes one sentence for each file that has been found unfit to be offered since the last call.
    pub(crate) fn said(&self) -> Vec<String> {
        self.rechecks.said()
    }

    /// Returns the hash tree of an offer.
    pub(crate) fn outboard<'a>(&self, offer: &'a CatalogEntry) -> &'a Outboard {
        &offer.outboard
    }

    /// Returns an open descriptor of the offer's file, which is the same file that was hashed.
    fn file(&self, hashed: &HashedFile<'_>) -> Result<Arc<File>, ReadError> {
        let mut open = lock(&self.open);
        if let Some(at) = open.iter().position(|(index, _)| *index == hashed.index) {
            // The file that was used last stays open longest.
            if at > 0
                && let Some(found) = open.remove(at)
            {
                open.push_front(found);
            }
            return Ok(Arc::clone(&open[0].1));
        }
        let file = self.rechecks.open(hashed)?;
        self.rechecks.check(hashed, &file)?;
        let file = Arc::new(file);
        open.push_front((hashed.index, Arc::clone(&file)));
        open.truncate(OPEN_FILES_MAX);
        Ok(file)
    }
}

impl ContentStore for Catalog {
    fn info(&self, root: &[u8; 32]) -> Option<publisher::ContentInfo<'_>> {
        let offer = self.find(root)?;
        Some(publisher::ContentInfo { id: offer.id, name: &offer.name, collection: offer.collection })
    }
}

impl CatalogEntry {
    /// Returns the index of this entry among the catalog's offers.
    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    /// Returns this entry as a file that was hashed in the state `identity`.
    fn hashed<'a>(&'a self, identity: &'a FileIdentity) -> HashedFile<'a> {
        HashedFile { index: self.index, path: &self.path, id: self.id, identity }
    }

    /// Returns the URI of this offer, with `from` as its sources.
    pub(crate) fn uri(&self, from: &[String]) -> Uri {
        Uri {
            name: (!self.name.is_empty()).then(|| self.name.clone()),
            collection: self.collection,
            from: from.to_vec(),
            ..Uri::new(self.id)
        }
    }
}

impl Drop for Catalog {
    fn drop(&mut self) {
        self.rechecks.stop();
    }
}

#[cfg(test)]
mod tests;
