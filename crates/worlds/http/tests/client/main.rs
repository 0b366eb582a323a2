//! Tests the client against good and hostile servers on loopback.

mod common;
mod fetch;
mod pipelining;
mod tls;
mod tokens;
