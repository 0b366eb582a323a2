//! Runs anabranch's congestion control inside Linux (world 3).
//!
//! **Purpose.** Makes the controllers of `algo` TCP congestion controls of the running kernel, for the MPTCP
//! and TCP sockets of unchanged programs. Sets which subflows share a bottleneck. Shows what the controllers
//! do.
//!
//! **Non-goals.** No scheduler and no loss recovery: Linux takes neither from outside. No kernel module.
//!
//! **Map.**
//! * [`bpf_abi`]: one step of one controller as plain memory; compiled for the host and, in the eBPF object
//!   that `build.rs` makes, for the kernel.
//! * [`controllers`]: loads, unloads and lists controllers; pins keep them loaded after the command ends.
//! * [`default_cc`]: sets the congestion control of new sockets, and restores the former one.
//! * [`namespaces`]: finds the machine's network namespaces, whatever keeps them alive.
//! * [`groups`]: says which subflows share a bottleneck, by address, interface or connection.
//! * [`subflow_state`]: reads the numbers that the subflows of each connection publish.
//! * [`uplinks`]: makes a host use all its uplinks by endpoints, limits and policy routes, and undoes it.
//! * [`connection_monitor`]: takes snapshots of connections and subflows.
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
