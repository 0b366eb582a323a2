//! The interface between the server and the contents that it serves.

use std::net::SocketAddr;
use std::time::Duration;

use super::path::Path;

/// The contents of a server. [`find`](Self::find), [`check`](Self::check) and [`read`](Self::read) may wait
/// for a disk. The server calls them on threads other than that of its connections, several at once.
pub trait ContentProvider: Send + Sync + 'static {
    /// The handle of a content that [`find`](Self::find) returns and [`read`](Self::read) reads from.
    type Content: Send + Sync + 'static;

    /// Looks up the resource at a path.
    fn find(&self, request: &ResourceRequest<'_>) -> PathLookup<Self::Content>;

    /// Checks that the content can be read, before the server sends a head.
    ///
    /// # Errors
    /// If the content cannot be read.
    fn check(&self, content: &Self::Content) -> Result<(), Unavailable>;

    /// Fills `out` with the content's bytes from `offset` on. They lie within the length that `find` gave.
    ///
    /// # Errors
    /// If the bytes cannot be read or have changed since `find`.
    fn read(&self, content: &Self::Content, offset: u64, out: &mut [u8]) -> Result<(), Unavailable>;

    /// Returns the most bytes that the rate limit lets go at once. `None` means that there is no limit; then
    /// nothing is reserved.
    fn burst_bytes(&self) -> Option<usize> {
        None
    }

    /// Reserves `bytes` of the rate limit and returns how long to wait before sending them.
    fn reserve(&self, bytes: usize) -> Duration {
        let _ = bytes;
        Duration::ZERO
    }
}

/// The parts of a request that a provider needs.
#[derive(Clone, Copy, Debug)]
pub struct ResourceRequest<'a> {
    /// The path, decoded.
    pub path: &'a Path,
    /// The query after `?`, still encoded.
    pub query: Option<&'a str>,
    /// The server's name as the client wrote it: `HOST` or `HOST:PORT`.
    pub host: &'a str,
    /// The value of `Authorization`, if there is exactly one and it is text.
    pub authorization: Option<&'a str>,
    /// The address of the server's end of the connection.
    pub local: SocketAddr,
}

/// The result of looking a path up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathLookup<C> {
    /// The path names this resource.
    Found(Resource<C>),
    /// The resource is at this other path (encoded, from `/` on).
    Moved(String),
    /// The path names nothing. The text is the body of the answer.
    NotFound(String),
    /// The client may not have the resource. The text is the body of the answer.
    Refused(Refusal, String),
}

/// The reason why a client may not have a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request lacks the token that the resource needs (RFC 6750 §2.1): 401.
    Unauthorized,
    /// The token is wrong: 403.
    Forbidden,
    /// This server is not the host that the request names (RFC 9110 §15.5.20): 421.
    Misdirected,
}

/// A resource that can be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource<C> {
    /// The provider's handle for reading the bytes.
    pub content: C,
    /// The length in bytes.
    pub length: u64,
    /// A strong validator, in its quotes (RFC 9110 §8.8.3).
    pub etag: Option<String>,
    /// The media type.
    pub media_type: &'static str,
    /// The values of `Link` (RFC 8288).
    pub links: Vec<String>,
    /// Further header fields of the answer, each a name and a value.
    pub fields: &'static [(&'static str, &'static str)],
}

/// The reason why bytes cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The bytes have changed or are gone for good: 410.
    #[error("the file is not the one any more that was offered")]
    Gone,
    /// The bytes may be readable later: 503.
    #[error("the file cannot be read at the moment")]
    Busy,
}
