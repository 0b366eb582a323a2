//! What the products share, each thing once.
//!
//! **Purpose.** Two programs of one user on two hosts know each other by keys that one line of text pairs,
//! and speak TLS 1.3 with these keys.
//!
//! **Non-goals.** No protocol inside TLS: each product names its own, and speaks it. No sockets.
//!
//! **Map.**
//! * [`keys`]: key pairs, the line that pairs a client, the list of clients.
//! * [`random`]: bytes that nobody can guess.
//! * [`tls`]: TLS 1.3 with these keys, for tasks and for threads.
#![deny(unsafe_code)]

pub mod keys;
pub mod random;
pub mod tls;
