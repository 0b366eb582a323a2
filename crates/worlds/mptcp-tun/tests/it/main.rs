//! Our stack and the kernel's, over TUN devices in a namespace. Needs root; says so and passes without.
#![cfg(target_os = "linux")]

mod bed;
mod kernel;
mod relay;
mod rows;
mod transfer;
