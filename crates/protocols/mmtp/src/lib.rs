//! Multisource content transport: names that certify themselves, requests that carry their whole context.
//!
//! **Purpose.** The protocol `mmTP` as machines and formats without a socket, a clock or a thread.
//!
//! **Non-goals.** No I/O, no confidentiality; no congestion control of its own (that is `algo`).
//!
//! **Map.**
//! * [`id`]: [`ContentId`], blocks, segments and chunks.
//! * [`range_set`]: block numbers as disjoint ranges; [`bitmap`]: those that are here.
//! * [`wire`]: the packets; documented field by field in `docs/wire-mmtp.md`.
//! * [`tree`]: the hash tree: what a source serves of it, what a receiver checks with it.
//! * [`collection`]: the manifest of a directory.
//! * [`subscriber`]: the receiver: where a chunk is chosen, where a byte is verified.
//! * [`publisher`]: the source; [`peer`]: who asks it; [`cookie`]: its proof of address.
//! * [`uri`]: the text that names a content and where to get it.
#![forbid(unsafe_code)]

pub mod bitmap;
pub mod collection;
pub mod cookie;
pub mod id;
pub mod peer;
pub mod publisher;
pub mod range_set;
pub mod subscriber;
pub mod tree;
pub mod uri;
pub mod wire;

pub use id::{ChunksPerBlock, ContentId};
