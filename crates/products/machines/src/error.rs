//! The errors of this crate: sentences for people, in kinds that a program can act on.

use std::io;
use std::path::Path;

use anabranch_house::tls::{TlsError, explain};

/// The reason why a machine could not be started, measured or moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request makes no sense.
    #[error("{0}")]
    Usage(String),
    /// There is no machine, host or program of this name.
    #[error("{0}")]
    NotFound(String),
    /// The other host, or a named link, cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// The other host, or QEMU, does not want it.
    #[error("{0}")]
    Refused(String),
    /// The kernel cannot do it or does not allow it.
    #[error("{0}")]
    Kernel(String),
    /// The move would not end, or did not.
    #[error("{0}")]
    Never(String),
    /// The user ended it.
    #[error("interrupted")]
    Interrupted,
    /// Another error; the text describes it.
    #[error("{0}")]
    Failed(String),
}

/// The result of this crate's functions.
pub type Result<T = ()> = std::result::Result<T, Error>;

impl Error {
    /// Makes an error of a file or directory.
    pub(crate) fn of_path(path: &Path, error: &io::Error) -> Self {
        Self::Failed(format!("{}: {error}", path.display()))
    }
}

impl From<TlsError> for Error {
    fn from(error: TlsError) -> Self {
        match error {
            TlsError::WrongKey(_) | TlsError::UnknownClient | TlsError::NoClientKey | TlsError::Alpn => {
                Self::Refused(error.to_string())
            }
            other => Self::Unreachable(other.to_string()),
        }
    }
}

/// Describes the end of a connection to the other host.
pub(crate) fn lost(error: &io::Error) -> Error {
    let text = explain(error);
    match anabranch_house::tls::is_key_unknown(error) {
        true => Error::Refused(text),
        false => Error::Unreachable(format!("the connection to the other host ended: {text}")),
    }
}
