//! **Purpose.** Uses any web server as a source: decides which bytes to request from which mirror, and
//! verifies the bytes that arrive.
//!
//! **Non-goals.** This crate has no socket and no clock, which the crate `http` adds, and no target file.
//!
//! **Map.**
//! * [`metalink`]: reads and writes files that list mirrors and hashes. [`http_fields`] reads the same from
//!   HTTP header fields.
//! * [`leaf_list`]: the detached list of block hashes, with which the bytes of any mirror can be verified.
//!   [`checksum_lines`]: the output of `b3sum`, `sha256sum` and similar programs. [`digests`]: hashes of the
//!   SHA-2 family.
//! * [`url`]: the URL of a mirror. [`fetch_id`]: the identifiers of connections and requests.
//! * [`range_scheduler`]: decides which range to request from which mirror, and when.
//! * [`receive_windows`]: decides how wide the receive windows of connections that share a queue are.
//! * [`file_scheduler`]: decides which of many small files to request from which server.
//! * [`variants`]: decides which of the different files that mirrors have is the wanted one.
//! * [`verified_pool`]: knows which blocks are missing of a content that only mirrors have, and verifies the
//!   blocks that arrive.
#![forbid(unsafe_code)]

mod backoff;
pub mod checksum_lines;
pub mod digests;
pub mod fetch_id;
pub mod file_scheduler;
pub mod http_fields;
pub mod leaf_list;
pub mod metalink;
pub mod range_scheduler;
pub mod receive_windows;
pub mod url;
pub mod variants;
pub mod verified_pool;
