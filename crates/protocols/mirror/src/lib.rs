//! **Purpose.** Any web server as a source: which bytes are asked of which mirror, and whether what it sends
//! is right.
//!
//! **Non-goals.** No socket and no clock (the crate `http` is the world around this machine), no target file.
//!
//! **Map.**
//! * [`metalink`]: files that name mirrors and hashes; [`http_fields`]: the same in HTTP header fields.
//! * [`leaf_list`]: the detached list of hashes that makes any mirror verifiable. [`checksum_lines`]: what
//!   `b3sum`, `sha256sum` and their like print. [`digests`]: hashes of the SHA-2 family.
//! * [`url`]: where a mirror is. [`fetch_id`]: the names of connections and requests.
//! * [`range_scheduler`]: which range is asked of which mirror, when.
//! * [`receive_windows`]: how wide the windows of connections are that share a queue.
//! * [`file_scheduler`]: which of many small files is asked of which server.
//! * [`variants`]: which of the files that mirrors have is the one that is wanted.
//! * [`verified_pool`]: what is missing of a content that only mirrors have, and whether what comes is right.
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
