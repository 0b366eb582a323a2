//! **Purpose.** Any web server as a source: which bytes are asked of which mirror, and whether what it sends
//! is right.
//!
//! **Non-goals.** No socket and no clock (the crate `http` is the world around this machine), no target file.
//!
//! **Map.**
//! * [`metalink`]: files that name mirrors and hashes; [`field`]: the same in HTTP header fields.
//! * [`leaves`]: the detached list of hashes that makes any mirror verifiable, and `b3sum`'s lines.
//! * [`url`]: where a mirror is.
//! * [`plan`]: which range is asked of which mirror over which way, when; the coupled windows.
//! * [`files`]: which of many small files is asked of which server.
//! * [`plain`]: what is missing of a content that only mirrors have, and whether what comes is right.
#![forbid(unsafe_code)]

pub mod field;
pub mod files;
pub mod leaves;
pub mod metalink;
pub mod plain;
pub mod plan;
pub mod url;
