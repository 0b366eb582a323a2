//! Errors at the start of a role.

use std::io;
use std::net::SocketAddr;

use crate::keys::ClientsError;
use crate::links::CapsError;

/// The reason why a role could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options contradict each other or miss something.
    #[error("{0}")]
    Usage(String),
    /// The role cannot listen at this address.
    #[error("cannot listen at {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// Programs' connections cannot be redirected.
    #[error("cannot redirect programs' connections: {0}")]
    Redirect(io::Error),
    /// The list of clients cannot be read.
    #[error(transparent)]
    Clients(#[from] ClientsError),
    /// The cap of a link cannot be counted.
    #[error(transparent)]
    Caps(#[from] CapsError),
    /// The privilege to take a link away is missing.
    #[error("a cap is kept by taking the link away, which needs CAP_NET_ADMIN: run as root, or leave it out")]
    CapNotAllowed,
    /// The system does not give the role its runtime or threads.
    #[error("cannot begin: {0}")]
    Runtime(io::Error),
}
