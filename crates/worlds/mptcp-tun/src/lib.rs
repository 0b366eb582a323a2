//! TCP and Multipath TCP of this process, on TUN devices.
//!
//! **Purpose.** The world of [`anabranch_mptcp`]: a [`TunHost`] is a host of its own behind the kernel, with
//! an address on each of its [`TunLink`]s. The kernel routes to it as to any neighbour. [`relay()`] connects
//! one connection of the host with a file for each direction, as `anabranch tcp` does with its standard
//! streams.
//!
//! **Non-goals.** The crate makes no routes, forwards nothing and translates no addresses: the kernel's
//! configuration decides whether packets leave this machine. The crate runs on Linux only and needs
//! `CAP_NET_ADMIN`.
//!
//! **Map.**
//! * [`link`]: [`TunLink`], a TUN device with an address at either end.
//! * [`host`]: [`TunHost`], the loop that moves packets.
//! * [`relay`](mod@relay): one connection between two files.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

pub mod host;
pub mod link;
pub mod relay;

pub use host::{HostCounts, TunHost};
pub use link::TunLink;
pub use relay::{Peer, RelayEvent, RelayTotals, relay};
