//! Keeps objects in files: each under the hash of its bytes or of its URL, with the hashes of its blocks.
//!
//! ```text
//! DIRECTORY/lock                 held by the process that uses the store
//! DIRECTORY/incoming/N           an object that arrives; removed at the next start
//! DIRECTORY/objects/XY/KEY       a whole object: see `object`; XY are the key's last two characters
//! ```
//!
//! An object is written into `incoming`, synced, and renamed. So a crash or `kill -9` at any moment leaves
//! whole objects and files in `incoming`, which are removed. Every read compares the blocks that it
//! returns with their hashes, so a bit that the disk changed is found when it is read, and is never sent.
//!
//! The files of whole objects take at most `capacity` bytes; [`Eviction`](crate::eviction::Eviction) says
//! which objects go. A reader of an object that goes keeps its file until it is done. What arrives comes
//! on top.
//!
//! `key` has the names, `object` the format of a file and verified reads, `opened` the files that are open,
//! `shelves` the directory and its index, `writer` what arrives.

mod key;
mod object;
mod opened;
mod shelves;
#[cfg(test)]
mod tests;
mod writer;

pub use key::Key;
pub use object::{BLOCK_BYTES, Meta, Object, ReadError};
pub use shelves::{Store, StoreCounters};
pub use writer::Writer;
