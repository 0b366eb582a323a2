//! Our stack and the kernel's, over TUN devices in a namespace. Without root, the tests say so and pass.
#![cfg(target_os = "linux")]

mod bed;
mod decode;
mod kernel;
mod relay;
mod rows;
mod transfer;
