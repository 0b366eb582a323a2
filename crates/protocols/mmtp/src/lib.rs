//! The protocol mmTP, multisource content transport. Names of contents certify themselves, and requests carry
//! their whole context.
//!
//! **Purpose.** Implements mmTP as state machines and formats without a socket, a clock or a thread.
//!
//! **Non-goals.** No I/O, no confidentiality, and no congestion control of its own (that is in the crate
//! `algo`).
//!
//! **Map.**
//! * [`id`]: [`ContentId`], the name of a content, and its blocks, segments and chunks.
//! * [`range_set`]: a set of block numbers as disjoint ranges. [`bitmap`]: a set of blocks as bits.
//! * [`wire`]: the packets, which `docs/wire-mmtp.md` documents field by field.
//! * [`tree`]: the hash tree: the part that a source serves, and the checks of a receiver.
//! * [`collection`]: the manifest of a directory.
//! * [`subscriber`]: the receiver, which chooses the chunks to ask for and verifies the bytes.
//! * [`publisher`]: the source. [`peer`]: the receiver as a source sees it. [`cookie`]: the proof of a
//!   receiver's address.
//! * [`uri`]: a text that names a content and its sources.
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
