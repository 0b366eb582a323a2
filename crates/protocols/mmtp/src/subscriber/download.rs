//! One content on its way in, and the owner of the state of all that is missing of it.
//!
//! A **block** is unrequested, assigned to a path, reserved for a source that delivers whole blocks, open, or
//! verified. A **chunk** of an open block is here, in flight, or in one queue, which says who asks for it
//! next. So is a packet of a page of hashes, and the META. Paths keep what their requests asked for, by which
//! an answer or a loss is told here, and which download their blocks are of; nothing else is kept twice.
//! [`Download::check`] says whether these states hold.
//!
//! A packet is marked as in flight by the request that has room for it, which calls [`Download::request`].
//!
//! **Attempts.** A block that is begun anew has nothing in flight, though packets of the earlier attempt may
//! still come. So every block and page gets a number when it is opened, requests carry the last one given,
//! and a packet of a request with a lower number than its block's is not counted. If it comes, it is taken.

mod block;
mod blocks;
mod check;
mod ingest;
mod packets;
mod page;
mod pages;
mod state;

pub(super) use block::bits;
pub use state::BLOCKS_OPEN_MAX;
pub(super) use state::{Download, IngestResult};
