//! World 3: congestion control inside Linux.
//!
//! **Purpose.** The controllers of `algo` as TCP congestion controls of the running kernel, for MPTCP and TCP
//! sockets of programs that know nothing of it; which subflows share a bottleneck; what they are doing.
//!
//! **Non-goals.** No scheduler and no loss recovery: Linux takes neither from outside. No kernel module.
//!
//! **Map.**
//! * [`bpf_abi`]: one step of one controller as plain memory; compiled for the host and, in the eBPF object
//!   that `build.rs` makes, for the kernel.
//! * [`controllers`]: loading, unloading, what is loaded. Pins, so that it outlives the command.
//! * [`default_cc`]: the congestion control of new sockets, and what it was before.
//! * [`namespaces`]: the network namespaces that there are, whoever holds them.
//! * [`groups`]: which subflows share a bottleneck, by address, interface or connection.
//! * [`subflow_state`]: what the subflows of each connection have published.
//! * [`uplinks`]: a host with several uplinks uses them all: endpoints, limits, policy routes, and back.
//! * [`connection_monitor`]: connections and subflows, live.
#![deny(unsafe_code)]

#[path = "../ebpf/bpf_abi.rs"]
#[expect(unsafe_code, reason = "a controller's state is bytes to C")]
pub mod bpf_abi;
#[cfg(feature = "ebpf")]
mod bpf_object;
pub mod connection_monitor;
mod controller_table;
pub mod controllers;
pub mod default_cc;
mod error;
pub mod groups;
pub mod namespaces;
#[cfg(feature = "ebpf")]
pub mod parity;
mod state_dir;
pub mod subflow_state;
pub mod uplinks;

pub use error::{Error, Result};
