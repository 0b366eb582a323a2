//! What the kernel part does on this Linux, from outside.

mod mptcp_network;

mod connection_monitor;
mod parity;
mod uplinks;
