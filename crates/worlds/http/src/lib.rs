//! **Purpose.** HTTP's world: ranges fetched over chosen interfaces, and contents offered to browsers.
//!
//! **Non-goals.** It decides nothing: what is asked of whom is the crate `mirror`'s, what is offered is the
//! caller's.
//!
//! **Map.**
//! * [`client`]: [`Client`](client::Client), ranges of files from HTTP servers.
//! * [`happy_eyeballs`]: the first of several connections that is there (RFC 8305).
//! * [`server`]: [`Server`](server::Server), files and ranges of them to whoever asks.
//! * [`tls_error`]: what fails in TLS, in words.

pub mod client;
pub mod happy_eyeballs;
pub mod server;
pub mod tls_error;
