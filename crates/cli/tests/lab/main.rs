//! Tests of the laboratory and of the kernel part as processes.

#[path = "../common/mod.rs"]
mod common;

mod cdn;
mod command;
mod drive;
mod kernel;
mod kernel_load;
mod kernel_share;
mod kernel_world;
mod minicache;
mod op;
mod tables;
mod tcp;
mod uplinks;
mod vm;
