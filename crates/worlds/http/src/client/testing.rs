//! A scripted server in the place of connections: what the client reports of its answers, and when.
//!
//! The server's [`Reply`] is written as the bytes that a server would send, and read by the client's own
//! code: the parser of HTTP/1.1, redirects, `validate`, the count of a body. Time-outs are the client's own.
//! Names, TCP, TLS, proxies, HTTP/2, limits and pipelining are left out.

mod answer;
mod script;

pub use self::answer::{Answer, Connection, Patience};
pub use self::script::{Reply, Request, Then};

#[cfg(test)]
mod tests;
