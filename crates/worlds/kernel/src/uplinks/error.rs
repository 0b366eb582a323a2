//! The errors of setting up uplinks.

use std::fmt;
use std::io;

use anabranch_net::netlink;

/// The reason why setting up or tearing down uplinks failed, for the person at the terminal.
#[derive(Debug)]
pub enum Error {
    /// The options make no sense.
    Usage(String),
    /// An interface cannot be used, or the kernel lacks support.
    Unusable(String),
    /// The kernel refused a request.
    Refused(netlink::Error),
    /// The journal cannot be read or written.
    Journal(String),
    /// Another program holds a set-up of links in this network namespace.
    InUse,
}

/// The result of this module's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Unusable(text) | Self::Journal(text) => f.write_str(text),
            Self::InUse => f.write_str("another program manages the links of this network namespace"),
            Self::Refused(error) if error.is_denied() => write!(f, "{error}: run it as root"),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<netlink::Error> for Error {
    fn from(error: netlink::Error) -> Self {
        Self::Refused(error)
    }
}

/// Returns the end of an error message that says what helps; empty if nothing is known to help.
pub(super) fn hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied { ": run it as root" } else { "" }
}
