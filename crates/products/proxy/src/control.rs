//! Commands to a role that runs: the drain of a server.

use std::io;

use anabranch_house::drain::DrainError;
use serde::{Deserialize, Serialize};

/// A command to a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Tells the clients to go. A drain that goes on begins anew.
    Drain {
        /// The number of clients a second; see [`Drain::new`](anabranch_house::drain::Drain::new).
        rate: Option<f64>,
        /// The seconds until its end.
        within_s: Option<f64>,
        /// The server that clients are told to go to, `HOST:PORT` or `HOST`.
        to: Option<String>,
    },
    /// Tells no more clients until the drain is resumed.
    Pause,
    /// Tells clients again.
    Resume,
    /// Ends the drain: clients may come back.
    Cancel,
    /// Changes nothing.
    Show,
}

/// The reason why a command has no effect.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The role is a client.
    #[error("this is a client of the proxy: only servers drain")]
    NotServer,
    /// There is no drain.
    #[error("the server does not drain")]
    NoDrain,
    /// The drain is impossible.
    #[error("{0}")]
    Drain(#[from] DrainError),
    /// The end is too far away.
    #[error("a drain takes a year at most")]
    TooLong,
    /// The name of the server to go to is none.
    #[error("'{0}' is no server: expected HOST:PORT or HOST")]
    Server(String),
    /// The role did not answer, or said no.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The role refused, for this reason.
    #[error("{0}")]
    Refused(String),
}
