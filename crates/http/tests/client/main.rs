//! The client against servers on loopback, good and hostile.

mod common;
mod plain;
mod tls;
