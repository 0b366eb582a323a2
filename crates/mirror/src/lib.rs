//! **Purpose.** Any web server as a source: which bytes are asked of which mirror, and whether what it sends is right.
//!
//! **Non-goals.** No socket and no clock (the crate `http` is the world around this machine), no target file.
//!
//! **Map.**
