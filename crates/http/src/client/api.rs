//! The client's vocabulary: what a caller sets and asks for, and what it is told.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use net::Egress;

use super::error::FetchError;

/// Names one fetch. The caller chooses it and does not use it again.
pub type FetchId = u64;
/// Names a route: a mirror seen from one local address.
pub type RouteId = usize;

/// How requests are made. The default is what a bare `curl URL` does.
#[derive(Clone)]
pub struct Options {
    /// Further header fields, name and value; they replace this client's own `Accept` and `User-Agent`.
    /// `Host`, `Authorization` and `Cookie` go to the origin of a [trusted](FetchRequest::trusted) URL, and
    /// to none that it redirects to.
    pub headers: Vec<(String, String)>,
    /// Name and password for HTTP's Basic scheme (RFC 7617), for the origin of a
    /// [trusted](FetchRequest::trusted) URL. What stands in the URL itself goes before it.
    pub user: Option<(String, String)>,
    /// A `.netrc` to take names and passwords from: those of a machine for that machine, whoever named it,
    /// those of `default` as [`user`](Self::user).
    pub netrc: Option<PathBuf>,
    /// `http://host:port`, `socks5://…` or `socks5h://…`. Empty: none. `None`: what the environment says
    /// (`http_proxy`, `https_proxy`, `all_proxy`). `no_proxy` counts in any case.
    pub proxy: Option<String>,
    /// A PEM file of certificates that are believed besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Believe every certificate.
    pub insecure: bool,
    /// The `User-Agent`.
    pub user_agent: String,
    /// How long connecting may take: name, TCP, proxy and TLS together.
    pub connect_timeout: Duration,
    /// How long nothing may come, neither an answer nor a byte of a body; counted from when it is its turn.
    pub idle_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            headers: Vec::new(),
            user: None,
            netrc: None,
            proxy: None,
            ca_file: None,
            insecure: false,
            user_agent: concat!("anabranch/", env!("CARGO_PKG_VERSION")).to_owned(),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// Why a client cannot start: an option that cannot be followed, or the system. One clause for people.
#[derive(Debug)]
pub struct StartError(pub(super) String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

impl From<io::Error> for StartError {
    fn from(e: io::Error) -> Self {
        Self(format!("the HTTP client cannot start: {e}"))
    }
}

/// One fetch.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// Whose it is: a route answers its fetches one after the other, in the order in which was asked.
    pub route: RouteId,
    /// The interface and address the route promises.
    pub via: Egress,
    /// An absolute `http` or `https` URL.
    pub url: String,
    /// Whether the user named its origin (RFC 6454): only then are the user's secrets for it, not where
    /// another server or a list named it.
    pub trusted: bool,
    /// What of it.
    pub kind: RequestKind,
}

/// What of a file is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Only what its header fields say: HEAD; where that is refused (403, 405, 501) or says too little, a GET
    /// for the first byte. No [`Event::Body`] comes.
    Metadata,
    /// Some of its bytes, and only if the file is `length` bytes long.
    Range {
        /// The first byte.
        first: u64,
        /// One after the last byte.
        end: u64,
        /// Of the whole file, bytes.
        length: u64,
        /// The strong `ETag` it must still have (`If-Range`); a weak one proves nothing and is ignored.
        validator: Option<String>,
        /// The `Last-Modified` it must still have if it has one; not looked at where there is a strong
        /// `validator`.
        modified: Option<String>,
        /// The URL, after redirects, that has `validator`: one server's `ETag` says nothing about another's,
        /// so where the answer comes from elsewhere, the query aside, it is not looked at. `None`: anywhere.
        seen_at: Option<String>,
    },
    /// The whole of a document whose length need not be known.
    Document {
        /// The most bytes it may have.
        max: usize,
    },
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// An answer was accepted; comes before its first byte.
    Head {
        /// Which fetch.
        id: FetchId,
        /// What its fields say.
        head: Box<Head>,
    },
    /// The next bytes of a body.
    Body {
        /// Which fetch.
        id: FetchId,
        /// Never empty.
        bytes: Bytes,
    },
    /// All has come: of a range exactly its bytes. The last event of a fetch.
    Done {
        /// Which fetch.
        id: FetchId,
    },
    /// It will not come. The last event of a fetch.
    Failed {
        /// Which fetch.
        id: FetchId,
        /// Why.
        error: FetchError,
    },
    /// What the kernel says of a route's connection while a body flows: each 10 ms at most, the newest only.
    Sample {
        /// Which route.
        route: RouteId,
        /// What it says.
        sample: Sample,
    },
}

impl Event {
    pub(super) const fn fetch(&self) -> Option<FetchId> {
        match self {
            Self::Head { id, .. } | Self::Body { id, .. } | Self::Done { id } | Self::Failed { id, .. } => {
                Some(*id)
            }
            Self::Sample { .. } => None,
        }
    }

    pub(super) const fn body_bytes(&self) -> usize {
        if let Self::Body { bytes, .. } = self { bytes.len() } else { 0 }
    }
}

/// What an accepted answer says of the file. Texts are the fields' values as they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Where it came from, after redirects; without name and password.
    pub url: String,
    /// The status: 200, 206, or 416 for a file without bytes.
    pub status: u16,
    /// The whole file's length, bytes.
    pub length: Option<u64>,
    /// Whether ranges of it can be had.
    pub ranges: bool,
    /// `ETag`, with its quotes, and `W/` if it is weak.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub last_modified: Option<String>,
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// `Repr-Digest` (RFC 9530); several are joined by commas.
    pub repr_digest: Option<String>,
    /// The values of `Link` (RFC 8288), one an occurrence of the field.
    pub links: Vec<String>,
    /// The server has no ranges: to a range from 0 it sends the whole file, `length` bytes and not `end`.
    pub whole: bool,
    /// Which answer of its connection it is, from 1; 0 of a look, which may have had several.
    pub nth: u64,
    /// The server ends the connection after it, and has said so: nothing that was asked behind it on that
    /// connection is answered there.
    pub last: bool,
}

/// What the kernel knows of a connection (TCP_INFO, linux/tcp.h); counts are since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Round trip time: as the receiver of the body sees it, else as the sender of the request.
    pub rtt: Duration,
    /// The size of the segments that arrive, bytes.
    pub mss: u32,
    /// Bytes that arrived in order, with headers, proxies' answers and TLS.
    pub received_bytes: u64,
    /// Segments that arrived out of order: what a receiver sees of losses.
    pub out_of_order: u32,
    /// Segments with data that arrived, in whatever order; 0 where the kernel does not tell.
    pub segments: u32,
}
