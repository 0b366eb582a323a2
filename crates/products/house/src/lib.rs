//! What the products share, each thing once.
//!
//! **Purpose.** A user who says `--via wwan0:backup,cost=5,cap=20GB/month` means one thing in every command.
//! This crate has the decisions that follow from these words, and the file that counts what a link has
//! carried.
//!
//! **Non-goals.** Nothing here opens a connection or takes a link away: each product does that with its own
//! means. How a link is written is in [`anabranch_net::via`].
//!
//! **Map.** [`links`]: which links carry data now.

pub mod links;
