//! The client against servers on loopback, good and hostile.

mod ahead;
mod common;
mod nginx;
mod plain;
mod tls;
