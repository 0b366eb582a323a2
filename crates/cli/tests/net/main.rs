//! Tests of `anabranch net` and `anabranch rendezvous` as processes.

#[path = "../common/mod.rs"]
mod common;
#[cfg(target_os = "linux")]
mod redis;
#[cfg(target_os = "linux")]
mod rendezvous_bed;

mod command;
mod metrics;
mod publish;
mod rendezvous;
mod rendezvous_shared;
mod up;
