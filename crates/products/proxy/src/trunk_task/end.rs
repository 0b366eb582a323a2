//! The ends of a trunk.

use crate::trunk::{GoAwayReason, ProtocolError};

/// How a trunk ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// It ended in order, because one side did not need it any more.
    #[error("the trunk was closed")]
    Closed,
    /// [`TrunkHandle::close`](super::TrunkHandle::close) ended it.
    #[error("the trunk was ended here")]
    Ended,
    /// The other side violated the protocol.
    #[error("the other side breaks a rule of the trunk's protocol: {0}")]
    Protocol(ProtocolError),
    /// The other side ended the trunk with GOAWAY.
    #[error("{0}")]
    GoAway(GoAwayReason),
    /// The other side was silent for too long.
    #[error("the other side does not answer any more")]
    Dead,
    /// The server does not know the key of this client.
    #[error("the server does not know this client's key: pair it again")]
    UnknownKey,
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Connection(String),
}
