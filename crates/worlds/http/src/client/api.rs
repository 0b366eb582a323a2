//! The client's vocabulary: what a caller sets and asks for, and what it is told.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use anabranch_algo::TcpSample;
use anabranch_net::{Clock, Egress, Limits, Resolver};
use bytes::Bytes;

use super::error::FetchError;

/// Fetches under way or waiting for their route, and routes; more are refused.
pub(super) const FETCHES_MAX: usize = 4096;

/// Unanswered requests of one connection at most, including the one that is being answered. Further fetches
/// of the route wait.
pub const PIPELINE_MAX: usize = 64;

/// Bytes that [`RequestKind::Metadata`] asks for: with the fields of the answer they fill the initial window
/// of a TCP sender, ten segments (RFC 6928), so that they take no round trip of their own and it doubles.
pub const METADATA_BYTES: u64 = 13 << 10;

/// Names one fetch. The caller chooses it and does not use it again.
pub type FetchId = u64;
/// Names a route: a mirror seen from one local address.
pub type RouteId = usize;

/// How requests are made. The default is what a bare `curl URL` does.
#[derive(Clone)]
pub struct Options {
    /// Further header fields, name and value; they replace this client's own `Accept` and `User-Agent`. They
    /// go to the origin of a [trusted](FetchRequest::trusted) URL, and to no other that it redirects to.
    pub headers: Vec<(String, String)>,
    /// Name and password for HTTP's Basic scheme (RFC 7617), for the origin of a
    /// [trusted](FetchRequest::trusted) URL. Credentials in the URL itself take precedence.
    pub user: Option<(String, String)>,
    /// A `.netrc` with names and passwords. The entry of a machine is sent where [`user`](Self::user) would
    /// be, and over `https` to that machine, whoever named it, unless every certificate is
    /// [accepted](Self::insecure). The entry `default` is sent only where [`user`](Self::user) would be.
    pub netrc: Option<PathBuf>,
    /// `http://host:port`, `socks5://…` or `socks5h://…`. Empty: none. `None`: what the environment says.
    pub proxy: Option<String>,
    /// Whether the environment is read: `http_proxy`, `https_proxy` and `all_proxy` without a
    /// [`proxy`](Self::proxy), and `no_proxy` in any case.
    pub proxy_from_env: bool,
    /// A PEM file of certificates that are trusted besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Accept every certificate.
    pub insecure: bool,
    /// What looks names up: whoever holds a clone shares what it knows. A name is asked for once, and again
    /// when it has no address, or none that takes a connection.
    pub resolver: Resolver,
    /// How fast bodies are read: their bytes, as they come over HTTP. What the kernel's buffers hold comes on
    /// top of that once.
    pub limits: Limits,
    /// The clock by which the limits are held.
    pub clock: Clock,
    /// The `User-Agent`.
    pub user_agent: String,
    /// How long connecting may take: name, TCP, proxy and TLS together.
    pub connect_timeout: Duration,
    /// How long a fetch whose turn has come may go without an answer or a byte of its body.
    pub idle_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            headers: Vec::new(),
            user: None,
            netrc: None,
            proxy: None,
            proxy_from_env: true,
            ca_file: None,
            insecure: false,
            resolver: Resolver::default(),
            limits: Limits::default(),
            clock: Clock::start(),
            user_agent: concat!("anabranch/", env!("CARGO_PKG_VERSION")).to_owned(),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// Why a client cannot start: an option that cannot be followed, or the system. One clause for people.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub(super) String);

impl From<io::Error> for StartError {
    fn from(e: io::Error) -> Self {
        Self(format!("the HTTP client cannot start: {e}"))
    }
}

/// One fetch.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// The route to use. It answers its fetches one after the other, in the order of the calls.
    pub route: RouteId,
    /// The interface and local address to connect from.
    pub via: Egress,
    /// An absolute `http` or `https` URL.
    pub url: String,
    /// Whether the user named the origin of `url` (RFC 6454). Only then does it get the user's header fields
    /// and credentials; an origin that another server or a list named gets none.
    pub trusted: bool,
    /// What of the file is fetched.
    pub kind: RequestKind,
}

/// What of a file is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Its metadata, and what it begins with, if that comes in a moment: that it does not is no error. No
    /// [`Event::Body`] follows.
    ///
    /// It is a GET and not a HEAD: what the server sends opens the window of its TCP, so that the ranges
    /// behind it come as fast as if they had been asked for at once. It shows whether the server has ranges
    /// instead of what it says of itself, and a URL that is signed for GET takes it.
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
        /// The `Last-Modified` it must still have if it has one; ignored where there is a strong
        /// `validator`.
        modified: Option<String>,
        /// The URL, after redirects, that `validator` comes from. One server's `ETag` says nothing about
        /// another's, so an answer from another URL (not counting the query) is not compared with it.
        /// `None`: every answer is.
        seen_at: Option<String>,
    },
    /// The whole of a document whose length need not be known.
    Document {
        /// The most bytes it may have.
        max: usize,
    },
}

/// What the client reports. A fetch stands still whose events are not all handled, so that a new one is to
/// break what matches them.
#[derive(Debug)]
pub enum Event {
    /// The head of an answer that was accepted; its body follows.
    Head {
        /// The fetch.
        id: FetchId,
        /// What its fields say.
        head: Box<Head>,
    },
    /// The next bytes of a body.
    Body {
        /// The fetch.
        id: FetchId,
        /// Never empty.
        bytes: Bytes,
    },
    /// What the file begins with, of a fetch of its [metadata](RequestKind::Metadata): its first
    /// [`METADATA_BYTES`], or all of it if it has no more. Missing where it does not come in a moment.
    Opening {
        /// The fetch.
        id: FetchId,
        /// May be empty, as the file.
        bytes: Bytes,
    },
    /// The whole body has come; of a range, exactly the bytes asked for, or those up to
    /// [`Head::ends_early_at`]. The last event of a fetch.
    Done {
        /// The fetch.
        id: FetchId,
    },
    /// The fetch failed. The last event of a fetch.
    Failed {
        /// The fetch.
        id: FetchId,
        /// The reason.
        error: FetchError,
    },
    /// What the kernel counts on a route's connection while a body flows: at most every 10 ms, and only the
    /// newest.
    Sample {
        /// The route.
        route: RouteId,
        /// What the kernel counted.
        sample: TcpSample,
    },
}

impl Event {
    pub(super) const fn fetch(&self) -> Option<FetchId> {
        match self {
            Self::Head { id, .. }
            | Self::Body { id, .. }
            | Self::Opening { id, .. }
            | Self::Done { id }
            | Self::Failed { id, .. } => Some(*id),
            Self::Sample { .. } => None,
        }
    }

    /// The fetch that it is of, for whoever numbers fetches otherwise; none for what is of a route.
    pub const fn fetch_mut(&mut self) -> Option<&mut FetchId> {
        match self {
            Self::Head { id, .. }
            | Self::Body { id, .. }
            | Self::Opening { id, .. }
            | Self::Done { id }
            | Self::Failed { id, .. } => Some(id),
            Self::Sample { .. } => None,
        }
    }

    pub(super) const fn body_bytes(&self) -> usize {
        if let Self::Body { bytes, .. } = self { bytes.len() } else { 0 }
    }
}

/// What an accepted answer tells of the file. Texts are the fields' values, unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// Where it came from, after redirects; without name and password.
    pub url: String,
    /// The status: 200, 206, or 416 for a file without bytes.
    pub status: u16,
    /// The whole file's length, bytes.
    pub length: Option<u64>,
    /// Whether the server has ranges of it.
    pub ranges: bool,
    /// `ETag`, with its quotes, and `W/` if it is weak.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub last_modified: Option<String>,
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// `Content-Disposition`.
    pub content_disposition: Option<String>,
    /// `Repr-Digest` (RFC 9530); several are joined by commas.
    pub repr_digest: Option<String>,
    /// The values of `Link` (RFC 8288), one an occurrence of the field.
    pub links: Vec<String>,
    /// The server has no ranges: it answers a range from 0 with the whole file, `length` bytes instead of
    /// `end`.
    pub whole: bool,
    /// One after the last byte that comes, where the server sends less of a range than was asked for (RFC
    /// 9110 section 15.3.7). What is behind it has to be asked for again.
    pub ends_early_at: Option<u64>,
    /// The number of this answer on its connection, from 1.
    pub nth: u64,
    /// The server has announced that it closes the connection after this answer. It answers no request that
    /// was sent behind this one.
    pub last: bool,
}
