//! The controllers as a crate for eBPF: `algo`'s own files, and the interface to C.
//!
//! `build.rs` puts this file beside copies of `algo`'s `control`, `softfloat.rs`, `split_mix.rs` and
//! `units.rs`, so that the crate has those modules as `algo` has, and beside `functions.rs`, which it makes:
//! the functions that the programs call.
#![no_std]
#![allow(missing_docs, unreachable_pub, dead_code, unexpected_cfgs, reason = "parts of a crate")]

extern crate self as anabranch_algo;

mod bpf_abi;
pub mod control;
mod functions;
pub mod softfloat;
pub mod split_mix;
pub mod units;

pub use split_mix::SplitMix64;
pub use units::{Rate, Span, Time};

/// Nothing in here panics: if something could, the verifier would refuse this.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
