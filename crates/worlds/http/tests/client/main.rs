//! The client against servers on loopback, good and hostile.

mod common;
mod fetch;
mod pipelining;
mod tls;
