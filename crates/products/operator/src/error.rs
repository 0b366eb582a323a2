//! The errors of this crate: sentences for people, in kinds that a program can act on.

use serde::{Deserialize, Serialize};

/// The reason why a function could not be started, ended or moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", content = "text", rename_all = "snake_case")]
pub enum Error {
    /// The request makes no sense.
    #[error("{0}")]
    Usage(String),
    /// There is no instance, function or host of this name.
    #[error("{0}")]
    NotFound(String),
    /// The other host, or the agent, cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// A limit is reached, a name is taken, or the other host does not want it.
    #[error("{0}")]
    Refused(String),
    /// The kernel cannot do it or does not allow it.
    #[error("{0}")]
    Kernel(String),
    /// Another error; the text describes it.
    #[error("{0}")]
    Failed(String),
}

/// The result of this crate's functions.
pub type Result<T = ()> = std::result::Result<T, Error>;

impl From<anabranch_machines::Error> for Error {
    fn from(error: anabranch_machines::Error) -> Self {
        use anabranch_machines::Error as Theirs;
        let text = error.to_string();
        match error {
            Theirs::Usage(_) => Self::Usage(text),
            Theirs::NotFound(_) => Self::NotFound(text),
            Theirs::Unreachable(_) => Self::Unreachable(text),
            Theirs::Refused(_) => Self::Refused(text),
            Theirs::Kernel(_) => Self::Kernel(text),
            Theirs::Never(_) | Theirs::Interrupted | Theirs::Failed(_) => Self::Failed(text),
        }
    }
}
