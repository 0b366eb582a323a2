//! Steps in the kernel, to be compared with the host's.

pub use crate::bpf_object::Parity;
