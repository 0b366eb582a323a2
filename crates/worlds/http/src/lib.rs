//! **Purpose.** Connects Anabranch to HTTP: fetches ranges of files over chosen interfaces, and serves
//! contents to browsers.
//!
//! **Non-goals.** The crate decides nothing. The crate `mirror` chooses which server is asked for which
//! range; the caller chooses which contents are served.
//!
//! **Map.**
//! * [`client`]: [`Client`](client::Client) fetches ranges of files from HTTP servers.
//! * [`happy_eyeballs`]: makes several connection attempts and keeps the first that succeeds (RFC 8305).
//! * [`server`]: [`Server`](server::Server) serves files and ranges of them.
//! * [`tls_error`]: describes errors of TLS in words.

pub mod client;
pub mod happy_eyeballs;
pub mod server;
pub mod tls_error;
