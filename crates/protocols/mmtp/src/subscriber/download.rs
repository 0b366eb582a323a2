//! One content that is being fetched. It owns the state of all its missing parts.
//!
//! A **block** is in one of five states: unrequested, assigned to a path, reserved for a source that delivers
//! whole blocks, open, or verified. A **chunk** of an open block has arrived, or is in flight, or is in one
//! queue, which says who asks for it next. The same holds for a packet of a page of hashes and for the META.
//! Paths keep the contents of their requests, so that an answer or a loss can be reported here, and which
//! download their blocks belong to. Nothing else is stored twice. [`Download::check`] verifies that these
//! states are consistent.
//!
//! The request that has room for a packet calls [`Download::request`], which marks the packet as in flight.
//!
//! **Attempts.** A block that is begun anew has nothing in flight, although packets of the earlier attempt
//! may still come. So every block and page gets a number when it is opened, and a request carries the last
//! number given. A packet of a request with a lower number than its block's is not counted as in flight. If
//! it arrives, it is used.

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
