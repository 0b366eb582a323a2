//! What members that serve others tell.

use std::net::SocketAddr;

/// What a member that serves others tells; `S` is what it counts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ServiceEvent<S> {
    /// It listens at these addresses, and works.
    Listening(Vec<SocketAddr>),
    /// Something that a person should know.
    Notice(String),
    /// What it has done so far; once a second.
    Stats(Box<S>),
}
