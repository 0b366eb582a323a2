//! Defines the types that a caller of the client sees: options, requests, events and heads.

use std::path::PathBuf;
use std::time::Duration;

use anabranch_algo::TcpSample;
use anabranch_net::{Clock, Egress, Limits, Resolver};
use bytes::Bytes;

use super::engine::Engine;
use super::error::FetchError;

/// The largest number of fetches that may run or wait at once, and of routes. Further ones are refused.
pub(super) const FETCHES_MAX: usize = 4096;

/// The largest number of unanswered requests on one connection, including the request that is being
/// answered. Further fetches of the route wait.
pub const PIPELINE_MAX: usize = 256;

/// The number of bytes of the file that [`RequestKind::Metadata`] asks for. Together with the answer's
/// header fields they fill the initial window of a TCP sender, ten segments (RFC 6928). So they cost no
/// extra round trip, and the sender's window doubles.
pub const METADATA_BYTES: u64 = 13 << 10;

/// Identifies one fetch. The caller chooses the number and does not use it again.
pub type FetchId = u64;
/// Identifies a route: one mirror, reached from one local address.
pub type RouteId = usize;

/// Says how the client makes requests. The default behaves as a bare `curl URL` does.
#[derive(Clone)]
pub struct Options {
    /// Further header fields, each a name and a value; they replace the client's own `Accept` and
    /// `User-Agent`. They are sent to the origin of a [trusted](FetchRequest::trusted) URL, and to no
    /// other origin that it redirects to.
    pub headers: Vec<(String, String)>,
    /// Name and password for HTTP's Basic scheme (RFC 7617). They are sent to the origin of a
    /// [trusted](FetchRequest::trusted) URL. Credentials in the URL itself take precedence.
    pub user: Option<(String, String)>,
    /// A `.netrc` file with names and passwords. The entry of a machine is sent where [`user`](Self::user)
    /// would be. Over `https` it is also sent to that machine if a server or a list named the URL, unless
    /// every certificate is [accepted](Self::insecure). The entry `default` is sent only where
    /// [`user`](Self::user) would be.
    pub netrc: Option<PathBuf>,
    /// The proxy: `http://host:port`, `socks5://…` or `socks5h://…`. An empty string means no proxy. With
    /// `None`, the environment decides.
    pub proxy: Option<String>,
    /// Whether the client reads environment variables: `http_proxy`, `https_proxy` and `all_proxy` if
    /// there is no [`proxy`](Self::proxy), and `no_proxy` in any case.
    pub proxy_from_env: bool,
    /// A PEM file of certificates that the client trusts besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether the client accepts every certificate.
    pub insecure: bool,
    /// The resolver that looks up host names. All clones of a resolver share its cache. A name is looked
    /// up once, and again if it had no address or if none of its addresses took a connection.
    pub resolver: Resolver,
    /// The largest number of bytes of bodies that may be read per second. The bytes that fit in the
    /// kernel's buffers may arrive once in addition.
    pub limits: Limits,
    /// The clock that the limits use.
    pub clock: Clock,
    /// The thread on which the client runs; `None` for a separate thread.
    pub engine: Option<Engine>,
    /// The value of `User-Agent`.
    pub user_agent: String,
    /// The names of further header fields that [`Caching::kept`] is to have.
    pub keep_fields: &'static [&'static str],
    /// The longest time that connecting may take: name, TCP, proxy and TLS together.
    pub connect_timeout: Duration,
    /// The longest time that a fetch whose turn has come may wait for an answer or for the next bytes of
    /// its body.
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
            engine: None,
            keep_fields: &[],
            user_agent: concat!("anabranch/", env!("CARGO_PKG_VERSION")).to_owned(),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// Describes one fetch.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// The route to use. It answers its fetches one after the other, in the order of the calls of `fetch`.
    pub route: RouteId,
    /// The interface and local address to connect from.
    pub via: Egress,
    /// An absolute `http` or `https` URL.
    pub url: String,
    /// Whether the user named the origin of `url` (RFC 6454). Only such an origin gets the user's header
    /// fields and credentials; an origin that another server or a list named gets none.
    pub trusted: bool,
    /// The part of the file that is fetched.
    pub kind: RequestKind,
}

/// Selects the part of a file that is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// The file's metadata. The file's first bytes are handed over too, as [`Event::Opening`], if they
    /// come within a few seconds; it is no error if they do not. No [`Event::Body`] follows.
    ///
    /// The request is a GET and not a HEAD, for three reasons. The bytes that the server sends open its
    /// TCP window, so that the ranges behind them come as fast as if they had been asked for at once. The
    /// answer shows whether the server really supports ranges. And a URL that is signed for GET accepts
    /// it.
    Metadata,
    /// A range of the file's bytes, which is accepted only if the file is `length` bytes long.
    Range {
        /// The offset of the first byte.
        first: u64,
        /// The offset after the last byte.
        end: u64,
        /// The length of the whole file in bytes.
        length: u64,
        /// The strong `ETag` that the file must still have (sent as `If-Range`). A weak `ETag` proves
        /// nothing and is ignored.
        validator: Option<String>,
        /// The `Last-Modified` that the file must still have, if the answer has this field. It is ignored
        /// if there is a strong `validator`.
        modified: Option<String>,
        /// The URL, after redirects, that `validator` comes from. The `ETag` of one server cannot be
        /// compared with the `ETag` of another. So the tag of an answer from another URL (not counting the
        /// query) is not compared with `validator`. With `None`, the tag of every answer is compared.
        seen_at: Option<String>,
    },
    /// A whole document, whose length need not be known.
    Document {
        /// The most bytes that the document may have.
        max: usize,
    },
    /// A whole document, unless the server still has the one that the caller has: then the head has the
    /// status 304, and no body follows (RFC 9110 §13).
    ChangedDocument {
        /// The most bytes that the document may have.
        max: usize,
        /// The `ETag` of the caller's document, as the server wrote it (sent as `If-None-Match`).
        etag: Option<String>,
        /// The `Last-Modified` of the caller's document (sent as `If-Modified-Since`).
        modified: Option<String>,
    },
}

/// Reports an event of the client. The enum is exhaustive on purpose: a fetch stalls if its caller does
/// not handle all its events, so a new variant must break every `match` on them.
#[derive(Debug)]
pub enum Event {
    /// An answer was accepted, and this is its head. The answer's body follows.
    Head {
        /// The fetch.
        id: FetchId,
        /// The contents of the head's fields.
        head: Box<Head>,
    },
    /// The next bytes of a body have come.
    Body {
        /// The fetch.
        id: FetchId,
        /// The bytes; never empty.
        bytes: Bytes,
    },
    /// The file's beginning, in answer to a fetch of its [metadata](RequestKind::Metadata): its first
    /// [`METADATA_BYTES`], or the whole file if it is shorter. The event is missing if the beginning does
    /// not arrive within a few seconds.
    Opening {
        /// The fetch.
        id: FetchId,
        /// The bytes; empty if the file is.
        bytes: Bytes,
    },
    /// The whole body has arrived: exactly the bytes of the requested range, or the bytes up to
    /// [`Head::ends_early_at`]. This is the last event of a fetch.
    Done {
        /// The fetch.
        id: FetchId,
    },
    /// The fetch failed. This is the last event of a fetch.
    Failed {
        /// The fetch.
        id: FetchId,
        /// The reason.
        error: FetchError,
    },
    /// The kernel's counters of a route's connection while a body flows. They are read at most every 10
    /// ms, and only the newest sample is kept.
    Sample {
        /// The route.
        route: RouteId,
        /// The counters.
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

    /// Returns a reference to the event's fetch id, so that a caller can renumber fetches. Returns `None`
    /// for a sample, which belongs to a route.
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

/// Holds the fields of an answer that concern caches (RFC 9111 §5). Strings are the values of header
/// fields, unchanged; several values of one field are joined by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caching {
    /// The value of `Cache-Control`.
    pub cache_control: Option<String>,
    /// The value of `Age`.
    pub age: Option<String>,
    /// The value of `Date`.
    pub date: Option<String>,
    /// The value of `Expires`.
    pub expires: Option<String>,
    /// The value of `Vary`.
    pub vary: Option<String>,
    /// The fields that the caller wants [kept](Options::keep_fields), each with its first value in the
    /// answers of the origin that was asked: its redirects count too, and other origins say nothing.
    pub kept: Vec<(&'static str, String)>,
}

/// Holds the data about a file from an accepted answer. Strings are the values of header fields,
/// unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// The URL that the answer came from, after redirects, without name and password.
    pub url: String,
    /// The HTTP status: 200, 206, 304 for a [document](RequestKind::ChangedDocument) that is unchanged, or
    /// 416 for a file without bytes.
    pub status: u16,
    /// The length of the whole file in bytes, if it is known.
    pub length: Option<u64>,
    /// Whether the server supports ranges of the file.
    pub ranges: bool,
    /// The value of `ETag`, with its quotes, and with `W/` if it is weak.
    pub etag: Option<String>,
    /// The value of `Last-Modified`.
    pub last_modified: Option<String>,
    /// The fields that say for how long the answer may be kept.
    pub caching: Caching,
    /// The value of `Content-Type`.
    pub content_type: Option<String>,
    /// The value of `Content-Disposition`.
    pub content_disposition: Option<String>,
    /// The value of `Repr-Digest` (RFC 9530); several values are joined by commas.
    pub repr_digest: Option<String>,
    /// The values of `Link` (RFC 8288), one for each occurrence of the field.
    pub links: Vec<String>,
    /// Whether the server answers a range from byte 0 with the whole file, because it does not support
    /// ranges. Then the body has as many bytes as the file, even if the range ends earlier.
    pub whole: bool,
    /// The offset after the last byte that comes, if the server sends less of a range than was requested
    /// (RFC 9110 section 15.3.7). The bytes after it must be requested again.
    pub ends_early_at: Option<u64>,
    /// The number of this answer on its connection, counted from 1.
    pub nth: u64,
    /// Whether the server has announced that it closes the connection after this answer. It then answers
    /// no request that was sent behind this one.
    pub last: bool,
}
