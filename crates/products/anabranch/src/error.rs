//! The error of this crate: why an operation failed, and what the user can do about it.

mod hint;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anabranch_mirror::url::Url;

use crate::filenames::show;

pub use hint::Hint;

/// The result of functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with a [kind](Self::kind) and a message. If it is about one file, URL or address, it has that
/// [place](Self::place). If an error of the system or of a server led to it, that one is its
/// [source](std::error::Error::source).
///
/// The message is one or two sentences that say what happened and what to do next, without a final newline.
/// It is complete: it includes the place and the words of the source, which need not be printed too. Texts of
/// servers and lists are included unchanged; [`text::printable`](crate::text::printable) makes the message
/// safe for a terminal. A setting that would help is named in back-quotes, as a [`Hint`].
///
/// ```
/// use anabranch::{Error, ErrorKind, ErrorPlace, Get, Hint};
///
/// let error = Get::new(["missing.meta4"]).err().expect("no such file");
/// assert_eq!(error.kind(), ErrorKind::Usage);
/// assert_eq!(error.place(), Some(&ErrorPlace::Path("missing.meta4".into())));
/// assert_eq!(error.to_string(), "missing.meta4: No such file");
///
/// let error = Error::target("f is there already: choose another `to_file`");
/// assert_eq!(error.hints().next(), Some(Hint::ToFile));
/// ```
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    place: Option<ErrorPlace>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// The kind of an [`Error`], which says what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request makes no sense: an address, a URI, a file or a combination of options. Change the request.
    Usage,
    /// Every source that answered said that it does not have this content. Name other sources.
    NotFound,
    /// No source answered in time. What arrived is kept: repeat the request later, or with other sources.
    Unreachable,
    /// The bytes do not match the content id, hash or checksum. Name other sources, or check the hash.
    Corrupt,
    /// The destination cannot be written: the disk is full, or it is not writable, exists already, or is in
    /// use by another transfer. Make room, or choose another destination.
    Target,
    /// Servers refuse the request (HTTP's 401, 403 and 407). Give a name and a password, or other ones.
    Refused,
    /// The caller stopped the operation. What arrived is kept, and the same request resumes.
    Interrupted,
    /// A system error that no other kind describes.
    System,
}

impl ErrorKind {
    /// Returns whether no other attempt is made after an error of this kind.
    pub(crate) const fn ends_all(self) -> bool {
        matches!(self, Self::Usage | Self::Interrupted | Self::System)
    }

    /// Makes an error of this kind that says why a file or a directory cannot be used.
    pub(crate) fn cannot(
        self,
        doing: &str,
        path: &Path,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Error {
        Error::new(self, format!("cannot {doing} {}: {source}", show(path))).at(path).because(source)
    }

    /// Returns whether sources are to blame, so that others may have the content.
    pub(crate) const fn is_of_sources(self) -> bool {
        matches!(self, Self::NotFound | Self::Unreachable | Self::Corrupt | Self::Refused)
    }

    /// Makes an error of this kind.
    pub(crate) fn error(self, message: impl Into<String>) -> Error {
        Error::new(self, message)
    }

    /// Returns the exit status of a command that fails with this kind. It is 2 to 6 for the first five kinds
    /// in their order, 9 if servers refuse, and 1 for a system error. If the caller stopped the command, it
    /// is 130, as shells have it for Ctrl-C.
    #[must_use]
    pub const fn exit_status(self) -> u8 {
        match self {
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Unreachable => 4,
            Self::Corrupt => 5,
            Self::Target => 6,
            Self::Refused => 9,
            Self::Interrupted => 130,
            Self::System => 1,
        }
    }
}

/// The file, URL or address that an [`Error`] is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorPlace {
    /// A URL, without the name and the password that it may hold.
    Url(String),
    /// A file or a directory of this machine, by the path in the request or the one where it was found.
    Path(PathBuf),
    /// A source, a service or a socket: the host or address, and the port.
    Address(String),
}

impl fmt::Display for ErrorPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(text) | Self::Address(text) => f.write_str(text),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

impl From<&Path> for ErrorPlace {
    fn from(path: &Path) -> Self {
        Self::Path(path.to_owned())
    }
}

impl From<&PathBuf> for ErrorPlace {
    fn from(path: &PathBuf) -> Self {
        Self::Path(path.clone())
    }
}

impl From<PathBuf> for ErrorPlace {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl From<&Url> for ErrorPlace {
    fn from(url: &Url) -> Self {
        // A URL displays without its secrets.
        Self::Url(url.to_string())
    }
}

impl From<SocketAddr> for ErrorPlace {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address.to_string())
    }
}

impl From<&crate::HostPort> for ErrorPlace {
    fn from(source: &crate::HostPort) -> Self {
        Self::Address(source.to_string())
    }
}

impl Error {
    /// Makes an error of this kind. [`Error`] describes what the message should say.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), place: None, source: None }
    }

    /// Makes an error about a request that makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// Makes an error that says that no source has the content.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// Makes an error that says that no source answers in time.
    pub fn unreachable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unreachable, message)
    }

    /// Makes an error about wrong bytes.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// Makes an error about a destination that cannot be written.
    pub fn target(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Target, message)
    }

    /// Makes an error that says that servers refuse the request.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message)
    }

    /// Makes an error that says that the caller stopped the operation.
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Interrupted, message)
    }

    /// Makes an error about a system error that has no kind of its own.
    pub fn system(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::System, message)
    }

    /// Adds the place that the error is about, unless it has one: that one is nearer to the failure.
    #[must_use]
    pub fn at(mut self, place: impl Into<ErrorPlace>) -> Self {
        self.place.get_or_insert_with(|| place.into());
        self
    }

    /// Adds the error that led to this one, unless it has a source.
    #[must_use]
    pub fn because(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source.get_or_insert_with(|| Arc::new(source));
        self
    }

    /// Replaces the message.
    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self }
    }

    /// Returns the kind, which says what to do about the error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the message, which is also the displayed text.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the one URL, file or address that the error is about, if there is one.
    #[must_use]
    pub const fn place(&self) -> Option<&ErrorPlace> {
        self.place.as_ref()
    }

    /// Returns the settings that the message names, in their order.
    pub fn hints(&self) -> impl Iterator<Item = Hint> {
        Hint::named_in(&self.message)
    }

    /// Returns [`ErrorKind::exit_status`] of its kind.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        self.kind.exit_status()
    }
}

/// Two errors are equal if their kinds, messages and places are equal: their sources cannot be compared.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, &self.message, &self.place) == (other.kind, &other.message, &other.place)
    }
}

impl Eq for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.source.as_deref()?)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::io;

    use super::*;

    #[test]
    fn the_nearest_place_and_source_stay() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let error = Error::target("no room for a with `to_file`").at(Path::new("a")).because(full());
        let error = error.with_message("b: no `room`, `overwrite`").at(Path::new("b")).because(fmt::Error);
        assert_eq!((error.kind(), error.exit_status()), (ErrorKind::Target, 6));
        assert_eq!(error.place(), Some(&ErrorPlace::Path("a".into())));
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::StorageFull));
        assert_eq!(error.hints().collect::<Vec<_>>(), [Hint::Overwrite]);
    }

    #[test]
    fn a_place_keeps_no_secret() {
        let url = Url::parse("https://name:secret@a.example/f").expect("a URL");
        assert_eq!(ErrorPlace::from(&url), ErrorPlace::Url("https://a.example/f".into()));
    }
}
