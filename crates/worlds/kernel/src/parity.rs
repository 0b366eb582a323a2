//! Runs steps of a controller in the kernel, to compare them with the host's.

pub use crate::bpf_object::Parity;
