//! World 2: real time and real sockets.
//!
//! **Purpose.** Moves datagrams for machines: UDP with segmentation offload (GSO, GRO), ECN and batched
//! system calls, bound to the interface a subflow was promised; the clock; and the one place where a process
//! waits.
//!
//! **Non-goals.** No protocol: nothing here looks into a datagram. No threads, no async runtime, no logging.
//! Linux first; other Unix systems compile without offloads and without binding to interfaces.
//!
//! **Map.**
//! * [`clock`]: [`Clock`], the only reader of the operating system's clock.
//! * [`udp`]: [`Udp`], one socket of a source ([`Udp::listen`]) or of a subflow ([`Udp::connect`]).
//! * [`iface`]: [`interfaces`], what the host has.
//! * [`via`]: [`Via`], the promise which interface or address a subflow uses; [`usable_for`], the default
//!   set.
//! * `route`: which way the kernel would send, asked over rtnetlink; behind [`via`].
//! * [`poll`]: [`Poller`], waits for sockets until a [`Time`](algo::Time); [`Wake`], ends the wait from
//!   elsewhere.
//! * [`watch`]: [`Watch`], tells that interfaces, addresses or routes changed.
//!
//! **How fast.** `cargo run --release -p anabranch-net --example udp_ceiling` prints what a pair of these
//! sockets carries on this machine: the ceiling of every protocol above.
#![forbid(unsafe_code)]

pub mod clock;
pub mod iface;
pub mod poll;
mod route;
pub mod udp;
pub mod via;
pub mod watch;

pub use clock::Clock;
pub use iface::{Interface, interfaces};
pub use poll::{Interest, Poller, Ready, Wake, Waker};
pub use udp::{Datagrams, Down, Ecn, Received, RecvBuffers, RecvOutcome, SendOutcome, Udp};
pub use via::{Via, usable_for};
pub use watch::Watch;
