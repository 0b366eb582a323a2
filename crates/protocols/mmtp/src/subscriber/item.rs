//! What can be asked for, one packet each, and the numbers that name contents, paths and sources.

use crate::id::ChunksPerBlock;

/// A path, by the order in which it was added.
pub type PathId = usize;
/// A content being fetched, by the order in which it was added.
pub type DownloadId = u32;
/// A source, by the order in which it was added.
pub type SourceId = u8;
/// The most paths one subscriber can have.
pub const PATHS_MAX: usize = 256;
/// The most sources one subscriber can have.
pub const SOURCES_MAX: usize = 250;

/// A cache that answers on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheId {
    pub(super) path: PathId,
    /// The number of its node.
    pub(super) node: u16,
}

/// Who sent a packet: a source, or a cache on the way to it.
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

/// One packet's worth of something to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// What the content is.
    Meta,
    /// One packet of chaining values.
    Hash { level: u8, first: u64 },
    /// One chunk.
    Data { cut: ChunksPerBlock, chunk: u64 },
}

/// Whether something is still missing, as seen by one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It is missing, and this source may send it.
    ThisSource,
    /// It is missing, and only another source may send it.
    OtherSource,
    /// It is not missing.
    None,
}

/// Where a packet waits that is missing and not in flight: who asks for it next. A path asks in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Queue {
    /// The path on which it was lost for the first time.
    Retry(PathId),
    /// Any path that may.
    Any,
    /// The path that has begun its block and had no room for all of it yet.
    First(PathId),
}

/// Why a packet is no longer expected on a path, and so who asks for it next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GiveUp {
    /// It was lost: this path asks for it again; if that is lost too, any path.
    Lost(PathId),
    /// The path does not answer, or its source refuses or is busy: any path asks for it.
    Elsewhere,
    /// The source wants another cookie in the request: this path asks for it again at once.
    Again(PathId),
}
