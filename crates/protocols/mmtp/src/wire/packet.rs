//! The packet types as views of checked bytes, their limits, and the errors of bytes that are not a packet.

use core::fmt;

use crate::id::{ChunksPerBlock, ContentId};

/// The version of this wire format.
pub const VERSION: u8 = 1;
/// The bytes of the prefix that every packet begins with.
pub const PREFIX: usize = 12;
/// The bytes in front of the payload of a DATA packet without extensions.
pub const DATA_HEADER: usize = 20;
/// The bytes of a COOKIE packet without extensions.
pub const COOKIE_PACKET: usize = PREFIX + 16;
/// The longest packet in bytes: the largest UDP payload over IPv4.
pub const PACKET_MAX: usize = 65_507;
/// The shortest PADDED packet in bytes: its header.
pub const PADDED_MIN: usize = PREFIX + 2;
/// The most ranges in one REQUEST.
pub const RANGES_MAX: usize = 64;
/// The most chaining values in one HASHES.
pub const HASHES_MAX: usize = crate::tree::PACKET_CVS;
/// The most bytes of a name in META.
pub const NAME_MAX: usize = 255;
/// The bound of the numbers of chunks and chaining values on the wire, which have 56 bits.
pub const NUMBER_END: u64 = 1 << 56;
/// The bound of the numbers of chunks and chaining values in answers of caches, which have 40 bits. No
/// content has more than 2^38 chunks.
pub const CACHED_NUMBER_END: u64 = 1 << 40;
const _: () = assert!(crate::id::LENGTH_MAX / 256 < CACHED_NUMBER_END);

/// A received packet as a view of its checked bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Receiver to source: asks for parts of a content.
    Request(Request<'a>),
    /// Source to receiver: brings one chunk.
    Data(Data<'a>),
    /// Source to receiver: brings chaining values of the hash tree.
    Hashes(Hashes<'a>),
    /// Source to receiver: describes the content.
    Meta(Meta<'a>),
    /// Source to receiver: brings the cookie with which the receiver has to prove its address from now on.
    Cookie {
        /// The tag of the request that this answers.
        tag: u64,
        /// The cookie.
        cookie: Cookie,
    },
    /// Source to receiver: refuses a request.
    Refuse {
        /// The tag of the request that this answers.
        tag: u64,
        /// The reason.
        reason: Reason,
        /// The version that the source speaks.
        version: u8,
        /// The time in milliseconds after which asking again may help; 0 if the source does not say.
        retry_ms: u16,
    },
    /// Receiver to source: asks for a PADDED packet of this size (path MTU search, RFC 8899).
    Probe {
        /// A fresh random tag.
        tag: u64,
        /// The proof of address.
        cookie: Option<Cookie>,
        /// The bytes of UDP payload of the answer, [`PADDED_MIN`] to [`PACKET_MAX`].
        size: u16,
    },
    /// Source to receiver: answers a PROBE. The packet is `size` bytes long.
    Padded {
        /// The tag of the probe that this answers.
        tag: u64,
        /// The bytes of UDP payload.
        size: u16,
    },
}

impl Packet<'_> {
    /// Returns the tag. It is fresh and random in REQUEST and PROBE; answers echo it.
    #[must_use]
    pub const fn tag(&self) -> u64 {
        match self {
            Self::Request(p) => p.tag,
            Self::Data(p) => p.tag,
            Self::Hashes(p) => p.tag,
            Self::Meta(p) => p.tag,
            Self::Cookie { tag, .. }
            | Self::Refuse { tag, .. }
            | Self::Probe { tag, .. }
            | Self::Padded { tag, .. } => *tag,
        }
    }
}

/// A REQUEST packet. It carries everything that the reply needs, so that a source keeps no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// A fresh random number that the answers echo.
    pub tag: u64,
    /// The proof of address.
    pub cookie: Option<Cookie>,
    /// Whether to send DATA with ECT(0) (RFC 3168).
    pub ect: bool,
    /// Whether caches on the way must not answer.
    pub no_caches: bool,
    /// The content that is asked for.
    pub content: ContentId,
    /// The parts of the content that are asked for.
    pub ranges: Ranges<'a>,
}

/// A DATA packet: one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// The tag of the request that this answers.
    pub tag: u64,
    /// The node whose cache answers; `None` if the source does.
    pub responder: Option<u16>,
    /// The cut at which the chunk is numbered.
    pub cut: ChunksPerBlock,
    /// The chunk's number, below [`NUMBER_END`]; from a cache, below [`CACHED_NUMBER_END`].
    pub chunk: u64,
    /// The chunk's bytes: at least one, and at most the cut's chunk length. In a full block the last chunk
    /// ends with zeros.
    pub payload: &'a [u8],
}

/// A HASHES packet: consecutive chaining values of one level of the hash tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashes<'a> {
    /// The tag of the request that this answers.
    pub tag: u64,
    /// The node whose cache answers; `None` if the source does.
    pub responder: Option<u16>,
    /// The level, below [`LEVELS_MAX`](crate::tree::LEVELS_MAX).
    pub level: u8,
    /// The index of the first value, below [`NUMBER_END`]; from a cache, below [`CACHED_NUMBER_END`].
    pub first: u64,
    /// The values, 1 to [`HASHES_MAX`].
    pub cvs: &'a [[u8; 32]],
}

/// A META packet: describes the content. Root and length repeat its name. Kind and name are claims of the
/// source and not verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// The tag of the request that this answers.
    pub tag: u64,
    /// The content.
    pub content: ContentId,
    /// Whether the content is the manifest of a directory.
    pub collection: bool,
    /// The name that the source gives the content: any bytes, not certified, at most [`NAME_MAX`]. Never
    /// trust it as a path.
    pub name: &'a [u8],
}

/// A cookie: sixteen bytes that only the source can make, and that only the holder of an address receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie(pub [u8; 16]);

/// The kind of parts that a range of a REQUEST asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RangeKind {
    /// Chunks, numbered at this cut.
    Data(ChunksPerBlock),
    /// The META; the range's number and count mean nothing.
    Meta,
    /// Chaining values of this level of the hash tree, numbered from its first. The answer is HASHES packets
    /// of [`HASHES_MAX`] values each; the last one has the rest.
    Hashes {
        /// The level, below [`LEVELS_MAX`](crate::tree::LEVELS_MAX).
        level: u8,
    },
}

/// One range of a REQUEST.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// The kind of parts that are counted.
    pub kind: RangeKind,
    /// The number of the first part; with the count added, at most [`NUMBER_END`].
    pub first: u64,
    /// The number of parts, at least 1.
    pub count: u16,
}

/// The ranges of a REQUEST, checked. Iterating consumes them, so iterate over a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges<'a> {
    pub(super) raw: &'a [[u8; 12]],
}

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The source does not have the content.
    Unknown,
    /// The source does not understand the request.
    BadRequest,
    /// The source had the content, but the file has changed.
    Changed,
    /// The source is too busy.
    Busy,
    /// The source does not speak the version of the request.
    Version,
    /// A reason of a later version. The request is refused all the same.
    Other(u8),
}

impl Reason {
    /// Returns the number of the reason on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Unknown => 1,
            Self::BadRequest => 2,
            Self::Changed => 3,
            Self::Busy => 4,
            Self::Version => 5,
            Self::Other(code) => code,
        }
    }

    /// Returns the reason with this number.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Unknown,
            2 => Self::BadRequest,
            3 => Self::Changed,
            4 => Self::Busy,
            5 => Self::Version,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown content"),
            Self::BadRequest => f.write_str("bad request"),
            Self::Changed => f.write_str("content changed at the source"),
            Self::Busy => f.write_str("source is busy"),
            Self::Version => f.write_str("protocol version not supported"),
            Self::Other(code) => write!(f, "refused with reason {code}"),
        }
    }
}

/// The reason why bytes are not a packet. A malformed packet is dropped and counted by the
/// [`name`](Self::name) of its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParseError {
    /// The bytes are fewer than the fields say.
    Truncated,
    /// The packet, its payload or a list is longer than allowed.
    Oversized,
    /// The packet has this other version.
    Version(u8),
    /// The packet has this unknown type.
    Type(u8),
    /// The extension area is not a sequence of extensions.
    Extension,
    /// The packet has this critical extension, which is not known here.
    Critical(u8),
    /// The cut is not 1 to 64.
    Cut,
    /// A length is over [`LENGTH_MAX`](crate::id::LENGTH_MAX), or the numbers of a META contradict each
    /// other.
    Length,
    /// A range has an unknown kind, asks for nothing or goes beyond all numbers, or there are no ranges or
    /// too many.
    Range,
    /// No content has a hash tree with this level.
    Level,
    /// A META describes an unknown kind of content.
    Kind,
}

impl ParseError {
    /// Returns a stable name for counters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Oversized => "oversized",
            Self::Version(_) => "unknown-version",
            Self::Type(_) => "unknown-type",
            Self::Extension => "bad-extension",
            Self::Critical(_) => "unknown-critical-extension",
            Self::Cut => "bad-cut",
            Self::Length => "bad-length",
            Self::Range => "bad-range",
            Self::Level => "bad-level",
            Self::Kind => "unknown-kind",
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(n) | Self::Type(n) | Self::Critical(n) => write!(f, "{} {n}", self.name()),
            _ => f.write_str(self.name()),
        }
    }
}

impl core::error::Error for ParseError {}
