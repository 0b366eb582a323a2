//! What a subscriber is told, what it wants sent and what it reports.

use anabranch_algo::Span;

use super::item::{DownloadId, PathId, SourceId};
use super::path::{PathCounters, PathState};
use crate::tree::ChainingValue;
use crate::wire::Reason;

/// What the world tells a subscriber.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// One or more UDP payloads arrived on a path from its source: `bytes` cut every `stride` bytes.
    Datagrams {
        /// On which path.
        path: PathId,
        /// The payloads, one after the other.
        bytes: &'a [u8],
        /// Length of each but the last.
        stride: usize,
        /// Whether the network marked them (ECN CE).
        marked: bool,
    },
    /// The network said that the source cannot be reached (ICMP). A hint: it is tried again.
    Unreachable {
        /// On which path.
        path: PathId,
    },
    /// The path's interface or address is gone.
    Down {
        /// Which path.
        path: PathId,
    },
    /// The path's interface and address are there (again).
    Up {
        /// Which path.
        path: PathId,
    },
}

/// What a subscriber wants sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// On which path.
    pub path: PathId,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

/// What a subscriber reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block arrived and is verified: write it down.
    Block {
        /// Of which content.
        download: DownloadId,
        /// Which block.
        block: u64,
        /// Its bytes.
        bytes: Vec<u8>,
        /// Its chaining value; for a content of one block, the root.
        cv: ChainingValue,
    },
    /// Every block of the content has been reported.
    Complete {
        /// Which content.
        download: DownloadId,
    },
    /// A source says what a content is. Its word only.
    Meta {
        /// Which content.
        download: DownloadId,
        /// Which source.
        source: SourceId,
        /// Its name there; any bytes.
        name: Vec<u8>,
        /// Whether it is a collection's manifest.
        collection: bool,
    },
    /// A source sent wrong bytes and is banned: nothing more is asked of it.
    Banned {
        /// Which source.
        source: SourceId,
        /// In which content.
        download: DownloadId,
        /// In which block (or the first block under the page of hashes).
        block: u64,
    },
    /// A block or page of hashes was wrong of which this cache sent a part. It is asked for again, and no
    /// cache is to answer on this path any more. Whether the cache is to blame or its source shows then; for
    /// now no source is.
    CacheDistrusted {
        /// On which path.
        path: PathId,
        /// The number of the cache's node.
        node: u16,
    },
    /// A source will not send a content.
    Refused {
        /// Which source.
        source: SourceId,
        /// Which content.
        download: DownloadId,
        /// Why.
        reason: Reason,
    },
    /// A path changed its state.
    Path {
        /// Which path.
        path: PathId,
        /// The state it is in now.
        state: PathState,
    },
    /// Paths were put into other groups ([`Grouping::Auto`](super::Grouping::Auto)).
    Groups {
        /// The group of each path: those of the same number are coupled.
        groups: Vec<u32>,
    },
}

/// The numbers of one path, to show.
#[derive(Clone, Copy, Debug)]
pub struct PathReport {
    /// Its source.
    pub source: SourceId,
    /// Its friendliness group: as given, or as detected.
    pub group: u32,
    /// Its state.
    pub state: PathState,
    /// Smoothed RTT to the source; zero before the first sample.
    pub srtt: Span,
    /// Congestion window in packets.
    pub cwnd: u32,
    /// Packets that were asked for and have not arrived.
    pub in_flight: u32,
    /// Payload bytes of a packet.
    pub chunk_bytes: usize,
    /// What went over it.
    pub counters: PathCounters,
}
