//! The errors of the daemon.

use std::io;
use std::path::PathBuf;

use anabranch_kernel::uplinks;

/// The reason why uplinks cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel part refuses: no privilege, no MPTCP, another program at work, a table in use.
    #[error(transparent)]
    Uplinks(#[from] uplinks::Error),
    /// The settings cannot be read or make no sense.
    #[error("{0}: {1}")]
    Settings(PathBuf, String),
    /// The links that the user names do not fit together.
    #[error("{0}")]
    Links(String),
    /// The system refuses something that every daemon needs.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;
