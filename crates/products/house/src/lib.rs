//! What the products share, each thing once.
//!
//! **Purpose.** A user who says `--via wwan0:backup,cost=5,cap=20GB/month` means one thing in every command:
//! this crate has the decisions that follow from these words, and the file that counts what a link has
//! carried. Users leave what they use, a server or a function, by one law. And two programs of one user on
//! two hosts know each other by keys that one line of text pairs, and speak TLS 1.3 with these keys.
//!
//! **Non-goals.** No sockets: nothing here opens a connection or takes a link away; each product does that
//! with its own means. No protocol inside TLS: each product names its own, and speaks it. How a link is
//! written is in [`anabranch_net::via`].
//!
//! **Map.**
//! * [`links`]: which links carry data now.
//! * [`drain`]: which users of an instance go where and when, N a second.
//! * `keys` (with the feature `pairing`, as all that follows): key pairs, the line that pairs a client, the
//!   list of clients. `random`: bytes that nobody can guess. `tls`: TLS 1.3 with these keys, for tasks and
//!   for threads.
#![deny(unsafe_code)]

pub mod drain;
#[cfg(feature = "pairing")]
pub mod keys;
pub mod links;
#[cfg(feature = "pairing")]
pub mod random;
#[cfg(feature = "pairing")]
pub mod tls;
