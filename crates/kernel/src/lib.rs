//! World 3: congestion control inside Linux.
//!
//! **Purpose.** The controllers of `algo` as TCP congestion controls of the running kernel, for MPTCP and TCP
//! sockets of programs that know nothing of it; which subflows share a bottleneck; what they are doing.
//!
//! **Non-goals.** No scheduler and no loss recovery: Linux takes neither from outside. No kernel module.
//!
//! **Map.**
//! * [`entry`]: one step of one controller as plain memory; compiled for the host and, in the eBPF object
//!   that `build.rs` makes, for the kernel.
//! * [`controllers`]: loading, unloading, what is loaded. Pins, so that it outlives the command.
//! * [`default`]: the congestion control of new sockets, and what it was before.
//! * [`namespaces`]: the network namespaces that there are, whoever holds them.
//! * [`groups`]: which subflows share a bottleneck, by address, interface or connection.
//! * [`siblings`]: what the subflows of each connection have published.
//! * [`uplinks`]: a host with several uplinks uses them all: endpoints, limits, policy routes, and back.
//! * [`mod@watch`]: connections and subflows, live.
#![deny(unsafe_code)]

pub mod controllers;
pub mod default;
#[path = "../ebpf/entry.rs"]
#[expect(unsafe_code, reason = "a controller's state is bytes to C")]
pub mod entry;
mod error;
pub mod groups;
pub mod namespaces;
#[cfg(feature = "ebpf")]
mod object;
#[cfg(feature = "ebpf")]
pub mod parity;
pub mod siblings;
pub mod uplinks;
pub mod watch;

pub use error::{Error, Result};
