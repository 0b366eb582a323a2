//! The interface between the server and the contents that it serves.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::path::Path;

/// The most threads that wait for disks, unless the provider says another number.
const READERS_MAX: usize = 16;

/// The contents of a server. [`find`](Self::find), [`check`](Self::check) and [`read`](Self::read) may
/// wait for a disk. The server calls them on threads other than that of its connections, several at once.
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

    /// Returns the most threads on which the server calls the provider at once. If reads wait for others
    /// than a disk, as many as there may be connections keep each of them from delaying the rest.
    fn threads_max(&self) -> usize {
        READERS_MAX
    }

    /// Returns the most bytes that the rate limit lets go at once. `None` means that there is no limit;
    /// then nothing is reserved.
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
    /// The values of `Accept`, as one list; empty if there is none.
    pub accept: &'a str,
    /// The address of the server's end of the connection.
    pub local: SocketAddr,
}

impl ResourceRequest<'_> {
    /// Refuses a request that does not name an address of this end, or `localhost` there. Pages with
    /// private data need this: otherwise a web site could read them by giving its own name this server's
    /// address (DNS rebinding).
    ///
    /// # Errors
    /// The answer to a request that names another host.
    pub fn must_be_own<C>(&self) -> Result<(), PathLookup<C>> {
        if is_own(self.host, self.local.ip()) {
            return Ok(());
        }
        let why = format!("this is not {}: ask for {}", self.host, self.local);
        Err(PathLookup::Refused(Refusal::Misdirected, why))
    }
}

/// Whether a name of the server in a request can only mean this server.
fn is_own(host: &str, local: IpAddr) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        // All colons are those of an address.
        Some(_) if host.ends_with(']') => (host, ""),
        Some((name, port)) => (name, port),
        None => (host, ""),
    };
    let local = local.to_canonical();
    let ip = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    let is_here = match ip.map(|ip| ip.to_canonical()) {
        Some(ip) => ip == local || ip.is_loopback() && local.is_loopback(),
        None => name.eq_ignore_ascii_case("localhost") && local.is_loopback(),
    };
    is_here && port.bytes().all(|c| c.is_ascii_digit())
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
    /// The server stands in front of others, which have failed or have sent wrong bytes: 502.
    BadGateway,
    /// The server has too much to do, and the same request may succeed later: 503.
    Busy,
    /// The server has no room to store what it needs for the answer (RFC 4918 §11.5): 507.
    InsufficientStorage,
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
    pub media_type: Cow<'static, str>,
    /// The values of `Link` (RFC 8288).
    pub links: Vec<String>,
    /// Further header fields of the answer, each a name and a value.
    pub fields: Vec<(&'static str, Cow<'static, str>)>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_nobody_else_can_have_are_its_own() {
        let own = |host, local: &str| is_own(host, local.parse().unwrap());
        for host in ["127.0.0.1:9000", "127.0.0.1", "localhost:9000", "LOCALHOST", "[::1]:9", "127.0.0.2:1"] {
            assert!(own(host, "127.0.0.1"), "{host}");
        }
        assert!(own("[::1]", "::1") && own("[::1]:8", "::1") && own("localhost:1", "::ffff:127.0.0.1"));
        assert!(own("192.0.2.1:9000", "192.0.2.1") && own("192.0.2.1:9000", "::ffff:192.0.2.1"));
        for host in [
            "evil.example:9000",
            "127.0.0.1.evil.example",
            "localhost.evil.example:1",
            "192.0.2.1:9000",
            "",
            ":9000",
            "localhost:9x",
            "127.0.0.1:9000:1",
            "[::1",
        ] {
            assert!(!own(host, "127.0.0.1"), "{host}");
        }
        for host in ["127.0.0.1:9000", "localhost:9000", "192.0.2.2:9000"] {
            assert!(!own(host, "192.0.2.1"), "{host}");
        }
    }
}
