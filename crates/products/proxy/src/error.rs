//! Why a role does not begin.

use std::io;
use std::net::SocketAddr;

use crate::keys::ClientsError;
use crate::links::CapsError;

/// Why a role does not begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options make no sense.
    #[error("{0}")]
    Usage(String),
    /// It cannot listen there.
    #[error("cannot listen at {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// Programs' connections cannot be redirected.
    #[error("cannot redirect programs' connections: {0}")]
    Redirect(io::Error),
    /// The list of clients cannot be read.
    #[error(transparent)]
    Clients(#[from] ClientsError),
    /// A link has a cap that cannot be kept.
    #[error(transparent)]
    Caps(#[from] CapsError),
    /// The system has no threads for it.
    #[error("cannot begin: {0}")]
    Runtime(io::Error),
}
