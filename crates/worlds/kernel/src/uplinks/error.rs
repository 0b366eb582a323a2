//! Why it does not work.

use std::fmt;
use std::io;

use anabranch_net::netlink;

/// Why it does not work; for the person at the terminal.
#[derive(Debug)]
pub enum Error {
    /// What was asked for makes no sense.
    Usage(String),
    /// An interface cannot be used, or the kernel cannot do it.
    Unusable(String),
    /// The kernel refused.
    Refused(netlink::Error),
    /// The journal cannot be read or written.
    Journal(String),
    /// Another program has set up links here for its own life.
    InUse,
}

/// What the functions here return.
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

/// What helps against an error.
pub(super) fn hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied { ": run it as root" } else { "" }
}
