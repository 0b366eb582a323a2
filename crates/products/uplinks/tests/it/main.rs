//! The daemon on real kernels, in network namespaces without a name. Needs root; says so and passes without.
#![cfg(target_os = "linux")]

#[path = "../../../../worlds/kernel/tests/it/mptcp_network.rs"]
mod mptcp_network;

mod fading;
mod plugs;
mod running;
