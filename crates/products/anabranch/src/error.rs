//! Why a transfer, a source or a mirror list did not come about, and what to do about it.

/// What the functions of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why it failed. Each holds one or two sentences that say what happened and what to do next, without a final
/// newline; they are what [`Display`](std::fmt::Display) writes. A setting that would help is named as the
/// method that sets it, in backquotes: `overwrite`. A program whose users set it in another way puts its own
/// name there, as the `anabranch` command puts its options. What servers and lists say stands in it as it
/// came: [`text::printable`](crate::text::printable) makes it fit for a terminal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request makes no sense: an address, a URI, a file or a combination of options. Change the request.
    #[error("{0}")]
    Usage(String),
    /// Every source that answered said that it does not have this content. Name other sources.
    #[error("{0}")]
    NotFound(String),
    /// No source answered in time. What arrived is kept: repeat the request later, or with other sources.
    #[error("{0}")]
    Unreachable(String),
    /// The bytes are not those of the content id, hash or checksum. Name other sources, or check the hash.
    #[error("{0}")]
    Corrupt(String),
    /// The destination does not take it: disk full, not writable, exists already, or in use by another
    /// transfer. Make room, or choose another destination.
    #[error("{0}")]
    Target(String),
    /// HTTP servers refuse it (401, 403, 407): give a name and a password, or others.
    #[error("{0}")]
    Refused(String),
    /// It was stopped by the caller. What arrived is kept, and the same request resumes.
    #[error("{0}")]
    Interrupted(String),
    /// A system error that none of the others describes.
    #[error("{0}")]
    System(String),
}

/// The variants of [`Error`] without their words: for what has several reasons to weigh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    Usage,
    NotFound,
    Unreachable,
    Corrupt,
    Target,
    Refused,
    Interrupted,
    System,
}

impl ErrorKind {
    /// Whether nothing else is tried after such an error.
    pub(crate) const fn ends_all(self) -> bool {
        matches!(self, Self::Usage | Self::Interrupted | Self::System)
    }

    /// An error of this kind.
    pub(crate) fn error(self, message: impl Into<String>) -> Error {
        let message = message.into();
        match self {
            Self::Usage => Error::Usage(message),
            Self::NotFound => Error::NotFound(message),
            Self::Unreachable => Error::Unreachable(message),
            Self::Corrupt => Error::Corrupt(message),
            Self::Target => Error::Target(message),
            Self::Refused => Error::Refused(message),
            Self::Interrupted => Error::Interrupted(message),
            Self::System => Error::System(message),
        }
    }
}

impl Error {
    /// A request that makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// A destination that does not take it.
    pub fn target(message: impl Into<String>) -> Self {
        Self::Target(message.into())
    }

    /// A system error that has no variant of its own.
    pub fn system(message: impl Into<String>) -> Self {
        Self::System(message.into())
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::NotFound(message.into())
    }

    /// Nothing answers in time.
    pub fn unreachable(message: impl Into<String>) -> Self {
        Self::Unreachable(message.into())
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self::Corrupt(message.into())
    }

    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Self::Interrupted(message.into())
    }

    /// The exit status of a command that fails with it: 2 to 6 for the first five variants in their order,
    /// 9 if servers refuse, 130 if it was stopped, as shells have it for Ctrl-C, and 1 for all else.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::NotFound(_) => 3,
            Self::Unreachable(_) => 4,
            Self::Corrupt(_) => 5,
            Self::Target(_) => 6,
            Self::Refused(_) => 9,
            Self::Interrupted(_) => 130,
            Self::System(_) => 1,
        }
    }

    /// Its variant.
    pub(crate) const fn kind(&self) -> ErrorKind {
        match self {
            Self::Usage(_) => ErrorKind::Usage,
            Self::NotFound(_) => ErrorKind::NotFound,
            Self::Unreachable(_) => ErrorKind::Unreachable,
            Self::Corrupt(_) => ErrorKind::Corrupt,
            Self::Target(_) => ErrorKind::Target,
            Self::Refused(_) => ErrorKind::Refused,
            Self::Interrupted(_) => ErrorKind::Interrupted,
            Self::System(_) => ErrorKind::System,
        }
    }

    /// The same error with other words.
    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Self {
        self.kind().error(message)
    }
}
