//! Tests of `anabranch proxy` as processes, with programs on one side and servers on the other.

#[cfg(target_os = "linux")]
mod bed;
#[path = "../common/mod.rs"]
mod common;
mod roles;

mod address;
mod bounds;
mod caps;
mod command;
mod connect_udp;
mod datagrams;
mod descriptors;
mod links;
mod price;
mod resets;
mod sessions;
mod settings;
mod silence;
mod status;
mod transparent;
mod udp;
mod units;
