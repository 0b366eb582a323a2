//! Answers fetches from a scripted server instead of real connections, and tells which events the client
//! would report, and when.
//!
//! A [`Reply`] of the server is written as the bytes that a server would send. The client's own code reads
//! it: the parser of HTTP/1.1, redirects, `validate`, and the count of a body. Time-outs are the client's own
//! too. Names, TCP, TLS, proxies, HTTP/2, limits and pipelining are left out.

mod answer;
mod script;

pub use self::answer::{Answer, Connection, Patience};
pub use self::script::{Reply, Request, Then};

#[cfg(test)]
mod tests;
