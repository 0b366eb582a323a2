//! What the packets are: views of checked bytes, limits, and why bytes are no packet.

use core::fmt;

use crate::id::{ChunksPerBlock, ContentId};

/// The version of the wire format spoken here.
pub const VERSION: u8 = 1;
/// Bytes of the prefix that every packet begins with.
pub const PREFIX: usize = 12;
/// Bytes in front of the payload of a DATA packet without extensions.
pub const DATA_HEADER: usize = 20;
/// Bytes of a COOKIE without extensions.
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
/// Bound of the numbers of chunks and chaining values on the wire, which have 56 bits.
pub const NUMBER_END: u64 = 1 << 56;
/// The same in answers of caches, which have 40 bits: no content has more than 2^38 chunks.
pub const CACHED_NUMBER_END: u64 = 1 << 40;
const _: () = assert!(crate::id::LENGTH_MAX / 256 < CACHED_NUMBER_END);

/// A received packet, checked, as a view of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Receiver to source: send me these.
    Request(Request<'a>),
    /// Source to receiver: one chunk.
    Data(Data<'a>),
    /// Source to receiver: chaining values of the hash tree.
    Hashes(Hashes<'a>),
    /// Source to receiver: what the content is.
    Meta(Meta<'a>),
    /// Source to receiver: prove your address with this from now on.
    Cookie {
        /// Tag of the request it answers.
        tag: u64,
        /// The proof.
        cookie: Cookie,
    },
    /// Source to receiver: no.
    Refuse {
        /// Tag of the request it answers.
        tag: u64,
        /// Why.
        reason: Reason,
        /// The version the source speaks.
        version: u8,
        /// When asking again may help, in milliseconds; 0 if not said.
        retry_ms: u16,
    },
    /// Receiver to source: send me a PADDED of this size (path MTU search, RFC 8899).
    Probe {
        /// Fresh random tag.
        tag: u64,
        /// Proof of address.
        cookie: Option<Cookie>,
        /// UDP payload bytes wanted, [`PADDED_MIN`] to [`PACKET_MAX`].
        size: u16,
    },
    /// Source to receiver: the answer to a PROBE; it is `size` bytes long.
    Padded {
        /// Tag of the probe it answers.
        tag: u64,
        /// UDP payload bytes.
        size: u16,
    },
}

impl Packet<'_> {
    /// The tag: fresh and random in REQUEST and PROBE, echoed in the answers.
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

/// REQUEST: carries all that the reply needs, so that a source keeps no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Fresh random number that the answers echo.
    pub tag: u64,
    /// Proof of address.
    pub cookie: Option<Cookie>,
    /// Send DATA with ECT(0), RFC 3168.
    pub ect: bool,
    /// No cache on the way is to answer.
    pub no_caches: bool,
    /// The content that is asked for.
    pub content: ContentId,
    /// The parts of it that are asked for.
    pub ranges: Ranges<'a>,
}

/// DATA: one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Tag of the request it answers.
    pub tag: u64,
    /// The node whose cache answers; `None` if the source does.
    pub responder: Option<u16>,
    /// The cut its number counts in.
    pub cut: ChunksPerBlock,
    /// Its number, below [`NUMBER_END`]; from a cache, below [`CACHED_NUMBER_END`].
    pub chunk: u64,
    /// Its bytes, at least one and at most the cut's; in a full block the last chunk ends with zeros.
    pub payload: &'a [u8],
}

/// HASHES: consecutive chaining values of one level of the hash tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashes<'a> {
    /// Tag of the request it answers.
    pub tag: u64,
    /// The node whose cache answers; `None` if the source does.
    pub responder: Option<u16>,
    /// The level, below [`LEVELS_MAX`](crate::tree::LEVELS_MAX).
    pub level: u8,
    /// Index of the first value, below [`NUMBER_END`]; from a cache, below [`CACHED_NUMBER_END`].
    pub first: u64,
    /// The values, 1 to [`HASHES_MAX`].
    pub cvs: &'a [[u8; 32]],
}

/// META: what the content is. Root and length are the name again; kind and name are the source's word only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// Tag of the request it answers.
    pub tag: u64,
    /// Which content.
    pub content: ContentId,
    /// Whether it is the manifest of a directory.
    pub collection: bool,
    /// What the source calls it: any bytes, not certified, at most [`NAME_MAX`]. Never a path to be trusted.
    pub name: &'a [u8],
}

/// Sixteen bytes that only the source can make and only the holder of an address receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie(pub [u8; 16]);

/// What a range of a REQUEST asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RangeKind {
    /// Chunks, numbered at this cut.
    Data(ChunksPerBlock),
    /// The META; number and count mean nothing.
    Meta,
    /// Chaining values of this level of the hash tree; numbers count values. The answer is HASHES packets of
    /// [`HASHES_MAX`] values from the first on, the last with the rest.
    Hashes {
        /// The level, below [`LEVELS_MAX`](crate::tree::LEVELS_MAX).
        level: u8,
    },
}

/// One range of a REQUEST.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// What is counted: chunks, chaining values, the META.
    pub kind: RangeKind,
    /// The first one; with the count at most [`NUMBER_END`].
    pub first: u64,
    /// How many, at least 1.
    pub count: u16,
}

/// The ranges of a REQUEST, checked; iterate a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges<'a> {
    pub(super) raw: &'a [[u8; 12]],
}

/// Why a source refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It does not have the content.
    Unknown,
    /// The request makes no sense to it.
    BadRequest,
    /// It had the content, but the file has changed.
    Changed,
    /// Too much to do.
    Busy,
    /// It does not speak the version of the request.
    Version,
    /// A reason of a later version: refused all the same.
    Other(u8),
}

impl Reason {
    /// The number on the wire.
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

    /// The reason of this number.
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

/// Why bytes are not a packet. A malformed packet is dropped and counted by its [`name`](Self::name).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParseError {
    /// Shorter than its fields say.
    Truncated,
    /// Longer than a packet, a payload or a list may be.
    Oversized,
    /// Of this other version.
    Version(u8),
    /// Of this unknown type.
    Type(u8),
    /// With an extension area that is not a sequence of extensions.
    Extension,
    /// With this critical extension, which is not known here.
    Critical(u8),
    /// A cut outside 1 to 64.
    Cut,
    /// A length over [`LENGTH_MAX`](crate::id::LENGTH_MAX), or a META whose numbers contradict each other.
    Length,
    /// A range of unknown kind, of none, of too many, or beyond all numbers; or no range at all.
    Range,
    /// A level of the hash tree that no content has.
    Level,
    /// A META of an unknown kind of content.
    Kind,
}

impl ParseError {
    /// A stable name for counters.
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
