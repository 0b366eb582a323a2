//! Describes the error of a request in words.

use std::fmt;
use std::io;

use super::socket::Failure;

/// A request that failed: its attempt in words, and the cause of the failure.
///
/// `?` turns it into an [`io::Error`] of the same kind and text.
#[derive(Debug)]
pub struct Error {
    attempt: String,
    cause: io::Error,
    detail: Option<String>,
}

/// The result of a request.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(attempt: impl Into<String>, failure: Failure) -> Self {
        Self { attempt: attempt.into(), cause: failure.cause, detail: failure.detail }
    }

    /// Returns the system's error number, such as `EEXIST`; `None` if the kernel did not refuse but its
    /// answer is malformed.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.cause.raw_os_error()
    }

    /// Returns whether the object to add exists already.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.errno() == Some(nix::libc::EEXIST)
    }

    /// Returns whether the object to change or remove does not exist: a device, an address, a route, a rule.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        use nix::libc::{EADDRNOTAVAIL, ENODEV, ENOENT, ENXIO, ESRCH};
        self.errno().is_some_and(|errno| [EADDRNOTAVAIL, ENODEV, ENOENT, ENXIO, ESRCH].contains(&errno))
    }

    /// Returns whether the privilege `CAP_NET_ADMIN` in the namespace is missing.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.cause.kind() == io::ErrorKind::PermissionDenied
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.attempt, self.cause)?;
        match &self.detail {
            Some(detail) => write!(f, " ({detail})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.cause.kind(), error)
    }
}
