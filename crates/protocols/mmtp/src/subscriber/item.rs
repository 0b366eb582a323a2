//! The items that can be asked for, one packet each, and the numbers of contents, paths and sources.

use crate::id::ChunksPerBlock;

/// The number of a path, in the order in which paths were added.
pub type PathId = usize;
/// The number of a content being fetched, in the order in which contents were added.
pub type DownloadId = u32;
/// The number of a source, in the order in which sources were added.
pub type SourceId = u8;
/// The most paths one subscriber can have.
pub const PATHS_MAX: usize = 256;
/// The most sources one subscriber can have.
pub const SOURCES_MAX: usize = 250;

/// A cache that answers on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheId {
    pub(super) path: PathId,
    /// The number of the cache's node.
    pub(super) node: u16,
}

/// The sender of a packet: a source, or a cache on the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sender {
    pub(super) source: SourceId,
    pub(super) cache: Option<CacheId>,
}

impl From<SourceId> for Sender {
    fn from(source: SourceId) -> Self {
        Self { source, cache: None }
    }
}

/// An item to ask for, whose answer is one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// The description of the content.
    Meta,
    /// One packet of chaining values.
    Hash { level: u8, first: u64 },
    /// One chunk.
    Data { cut: ChunksPerBlock, chunk: u64 },
}

/// Whether an item is still missing, and who may send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// The item is missing, and this source may send it.
    ThisSource,
    /// The item is missing, and only another source may send it.
    OtherSource,
    /// The item is not missing.
    None,
}

/// The queue of a packet that is missing and not in flight. It says which path asks for the packet next. A
/// path serves its queues in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Queue {
    /// The path on which the packet was lost for the first time.
    Retry(PathId),
    /// Any path that may ask for the packet.
    Any,
    /// The path that has begun the packet's block and has not had room for all of it yet.
    First(PathId),
}

/// The reason why a packet is no longer expected on a path. It decides which path asks for the packet next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GiveUp {
    /// The packet was lost. This path asks for it again; if it is lost again, any path may ask.
    Lost(PathId),
    /// The path does not answer, or its source refuses or is busy. Any path may ask for the packet.
    Elsewhere,
    /// The source wants another cookie in the request. This path asks for the packet again at once.
    Again(PathId),
}
