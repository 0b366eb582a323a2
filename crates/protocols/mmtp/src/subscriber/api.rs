//! The inputs of a subscriber, the packets that it sends, and the events that it reports.

use anabranch_algo::Span;

use super::item::{DownloadId, PathId, SourceId};
use super::path::{PathCounters, PathState};
use crate::tree::ChainingValue;
use crate::wire::Reason;

/// An input of a subscriber: something happened on a path.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// UDP payloads arrived on a path from its source: `bytes`, cut every `stride` bytes.
    Datagrams {
        /// The path.
        path: PathId,
        /// The payloads, one after the other.
        bytes: &'a [u8],
        /// The length of each payload but the last.
        stride: usize,
        /// Whether the network marked the packets (ECN CE).
        marked: bool,
    },
    /// The network reported that the source cannot be reached (ICMP). This is only a hint: the source is
    /// tried again.
    Unreachable {
        /// The path.
        path: PathId,
    },
    /// The path's interface or address is gone.
    Down {
        /// The path.
        path: PathId,
    },
    /// The path's interface and address exist (again).
    Up {
        /// The path.
        path: PathId,
    },
}

/// A packet that a subscriber wants to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The path to send it on.
    pub path: PathId,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

/// An event that a subscriber reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block has arrived and is verified. The caller stores it.
    Block {
        /// The content.
        download: DownloadId,
        /// The block's number.
        block: u64,
        /// The block's bytes.
        bytes: Vec<u8>,
        /// The block's chaining value; for a content of one block, the root.
        cv: ChainingValue,
    },
    /// Every block of the content has been reported.
    Complete {
        /// The content.
        download: DownloadId,
    },
    /// A source describes a content. The description is not verified.
    Meta {
        /// The content.
        download: DownloadId,
        /// The source.
        source: SourceId,
        /// The content's name at the source; any bytes.
        name: Vec<u8>,
        /// Whether the content is the manifest of a collection.
        collection: bool,
    },
    /// A source sent wrong bytes and is banned: it is asked for nothing more.
    Banned {
        /// The source.
        source: SourceId,
        /// The content.
        download: DownloadId,
        /// The wrong block, or the first block under a wrong page of hashes.
        block: u64,
    },
    /// A block or page of hashes is wrong, and this cache sent a part of it. It is asked for again, and
    /// caches may no longer answer on this path. The new answer shows whether the cache or its source is to
    /// blame; until then no source is blamed.
    CacheDistrusted {
        /// The path.
        path: PathId,
        /// The number of the cache's node.
        node: u16,
    },
    /// A source will not send a content.
    Refused {
        /// The source.
        source: SourceId,
        /// The content.
        download: DownloadId,
        /// The reason that the source gave.
        reason: Reason,
    },
    /// A path changed its state.
    Path {
        /// The path.
        path: PathId,
        /// The new state of the path.
        state: PathState,
    },
    /// Paths were put into other groups ([`Grouping::Auto`](super::Grouping::Auto)).
    Groups {
        /// The group of each path. Paths with the same number are coupled.
        groups: Vec<u32>,
    },
}

/// Figures about one path, for display.
#[derive(Clone, Copy, Debug)]
pub struct PathReport {
    /// The source of the path.
    pub source: SourceId,
    /// The friendliness group of the path, as given or as detected.
    pub group: u32,
    /// The state of the path.
    pub state: PathState,
    /// The smoothed RTT to the source; zero before the first sample.
    pub srtt: Span,
    /// The congestion window in packets.
    pub cwnd: u32,
    /// The packets that were asked for and have not arrived.
    pub in_flight: u32,
    /// The payload bytes of a packet.
    pub chunk_bytes: usize,
    /// The path's counters.
    pub counters: PathCounters,
}
