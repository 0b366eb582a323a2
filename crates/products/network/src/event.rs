//! The events of the members that serve others.

use std::net::SocketAddr;

/// An event of a member that serves others; `S` are its statistics.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ServiceEvent<S> {
    /// The member works and listens at these addresses.
    Listening(Vec<SocketAddr>),
    /// A message for people.
    Notice(String),
    /// The statistics so far, once a second.
    Stats(Box<S>),
}
