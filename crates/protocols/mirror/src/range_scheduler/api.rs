//! The vocabulary of the range scheduler: its pool, its inputs, commands, events and reports.

use std::ops::Range;

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Span, TcpSample, Time};

use crate::fetch_id::{ConnectionId, FetchId};
use crate::receive_windows::Sharing;

/// A mirror: a URL of the file.
pub type MirrorId = u8;

/// Knows which blocks are missing, assigns them to requests, and accepts the blocks that arrive.
pub trait Pool {
    /// Takes up to `blocks` contiguous blocks that are not assigned to a mirror and that `mirror` may
    /// deliver. If possible, a range of a segment or more ends at the end of a segment.
    fn take(&mut self, mirror: MirrorId, blocks: u64) -> Option<Range<u64>>;
    /// Takes up to `blocks` contiguous blocks that begin at `first`, for a server that sends everything from
    /// the first byte on. Returns `None` if block `first` is not missing or is assigned already, or if the
    /// pool cannot assign blocks like this.
    fn take_at(&mut self, mirror: MirrorId, first: u64, blocks: u64) -> Option<Range<u64>> {
        let _ = (mirror, first, blocks);
        None
    }
    /// Returns the first block from `first` on that is missing, that is not assigned, and that `mirror` may
    /// [`take_at`](Self::take_at).
    fn next_idle(&self, mirror: MirrorId, first: u64) -> Option<u64> {
        let _ = (mirror, first);
        None
    }
    /// Sets whether [`take`](Self::take) takes the last blocks instead of the first ones. Then it stays clear
    /// of a server that sends everything from the first byte on.
    fn take_from_end(&mut self, from_end: bool) {
        let _ = from_end;
    }
    /// Records that the whole file is requested from `mirror`, from the first block on. Until
    /// [`end_whole`](Self::end_whole), the mirror may deliver any wanted block when its answer gets there.
    fn begin_whole(&mut self, mirror: MirrorId) {
        let _ = mirror;
    }
    /// Records that the answer with the whole file from `mirror` is over.
    fn end_whole(&mut self, mirror: MirrorId) {
        let _ = mirror;
    }
    /// Gives back blocks that were taken and have not arrived. The pool ignores those that are no longer
    /// missing.
    fn release(&mut self, blocks: Range<u64>);
    /// Returns the number of missing blocks that are not assigned to a mirror.
    fn idle(&self) -> u64;
    /// Returns the number of missing blocks that are not assigned to a mirror and that `mirror` may deliver.
    fn idle_for(&self, mirror: MirrorId) -> u64 {
        let _ = mirror;
        self.idle()
    }
    /// Returns how many of these blocks are requested from `mirror` to compare mirrors. They are requested
    /// beyond the share of a connection.
    fn comparisons_for(&self, mirror: MirrorId) -> u64 {
        let _ = mirror;
        0
    }
    /// Whether `mirror` may deliver blocks. A banned mirror may not.
    fn may_bring(&self, mirror: MirrorId) -> bool {
        let _ = mirror;
        true
    }
    /// Whether blocks are verified only by comparing mirrors, because no hash is known. A slow mirror is then
    /// most useful if it delivers blocks for comparison.
    fn compares(&self) -> bool {
        false
    }
    /// Whether the bytes of a block would be used: the block is neither verified nor waiting for
    /// verification.
    fn is_wanted(&self, block: u64) -> bool;
    /// Whether the bytes of a block would be used if they came from `mirror`. A block that is being compared
    /// is wanted from other mirrors only.
    fn is_wanted_from(&self, mirror: MirrorId, block: u64) -> bool {
        let _ = mirror;
        self.is_wanted(block)
    }
    /// Accepts a whole block that is [wanted from](Self::is_wanted_from) `mirror`, even if it was assigned to
    /// another connection.
    fn deliver(&mut self, mirror: MirrorId, block: u64, bytes: &[u8]);
}

/// What the caller reports to the scheduler.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The answer to a request has begun, with the requested part of the right file.
    Head {
        /// The request.
        fetch: FetchId,
    },
    /// The answer to a request has begun, with a shorter part of the right file than requested (RFC 9110
    /// section 15.3.7). The request is [done](Self::Done) when that part has arrived.
    Short {
        /// The request.
        fetch: FetchId,
        /// The end of the part: the offset after its last byte.
        end_byte: u64,
    },
    /// The answer to a request has begun, with the whole file from its first byte on.
    Whole {
        /// The request.
        fetch: FetchId,
    },
    /// The next bytes of the answer's body have arrived.
    Body {
        /// The request.
        fetch: FetchId,
        /// The bytes; not empty.
        bytes: &'a [u8],
    },
    /// The body is complete.
    Done {
        /// The request.
        fetch: FetchId,
    },
    /// The request has failed, before or after its head.
    Failed {
        /// The request.
        fetch: FetchId,
        /// The kind of failure.
        failure: Failure,
    },
    /// The kernel has measured a TCP connection.
    Sample {
        /// The connection.
        connection: ConnectionId,
        /// The kernel's counters.
        sample: TcpSample,
    },
    /// The connection cannot be used now: its interface is gone, or has no address.
    Down {
        /// The connection.
        connection: ConnectionId,
    },
    /// The connection can be used again.
    Up {
        /// The connection.
        connection: ConnectionId,
    },
    /// A mirror is proven to have sent wrong bytes.
    Banned {
        /// The mirror.
        mirror: MirrorId,
    },
}

/// Why a request has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request may succeed if it is repeated.
    Broken,
    /// The server asks not to get requests for a while.
    Busy {
        /// How long to wait.
        retry: Span,
    },
    /// The server has no ranges, so that it can only be asked for the whole file.
    NoRanges,
    /// The mirror will never deliver the file.
    Useless,
}

/// What the caller has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Request a range of bytes.
    Fetch {
        /// The connection. If it has another request already, that one's answer has begun. Then this request
        /// is sent on the same TCP connection, and nothing is reported about it before the other one is done.
        connection: ConnectionId,
        /// The name of the request.
        fetch: FetchId,
        /// The offset of the first byte.
        first_byte: u64,
        /// The offset after the last byte.
        end_byte: u64,
    },
    /// Stop reading an answer, and report nothing more about the request. Requests that were sent behind it
    /// have been cancelled before. A request that was sent behind another one is cancelled only if the other
    /// one fails or is cancelled, too.
    Cancel {
        /// The request.
        fetch: FetchId,
    },
    /// Limit the receive window that the TCP connection, and those that replace it, may advertise.
    Window {
        /// The connection.
        connection: ConnectionId,
        /// The largest window in bytes.
        bytes: u64,
    },
}

/// What has changed in the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The state of a connection has changed.
    StateChanged {
        /// The connection.
        connection: ConnectionId,
        /// The new state.
        state: State,
    },
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing has arrived from it yet.
    Opening,
    /// It answers.
    Open,
    /// It has stopped answering. Other connections deliver its blocks, and it is tried again later.
    Stalled,
    /// Its last request failed; it is tried again later.
    Failing,
    /// Its server asked not to get requests for a while.
    Busy,
    /// The caller has reported that it cannot be used now.
    Down,
    /// It is not used any more.
    Closed,
}

/// The properties of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionConfig {
    /// The mirror that it requests ranges from.
    pub mirror: MirrorId,
    /// The other connections with which it may share a bottleneck.
    pub sharing: Sharing,
    /// The congestion control of its receive window. It has an effect only if it yields to all other traffic.
    pub control: Algorithm,
    /// Whether the server answers range requests. If not, the connection requests the whole file: while no
    /// other connection can be used, or for a long content whose end the others deliver.
    pub ranges: bool,
    /// How long the server took to answer earlier requests; zero if not known. It may take as long again.
    pub delay: Span,
}

/// What has happened on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of blocks that were wanted.
    pub bytes: u64,
    /// Bytes of complete blocks that were not wanted when they arrived.
    pub duplicate_bytes: u64,
    /// Bytes of all bodies, including those of incomplete blocks.
    pub received_bytes: u64,
    /// Those of `received_bytes` that a server without ranges sent again, after its previous answer had
    /// broken off without new bytes and before the first new block.
    pub vain_bytes: u64,
    /// The number of requests.
    pub fetches: u64,
    /// The number of requests that were cancelled.
    pub cancelled: u64,
    /// The number of requests that failed.
    pub failures: u64,
    /// How often the connection stopped answering.
    pub stalls: u64,
}

/// A report of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionReport {
    /// Its mirror.
    pub mirror: MirrorId,
    /// Its group: those of the same number may share a bottleneck.
    pub group: u32,
    /// Its state.
    pub state: State,
    /// Its rate in bytes per second while a body arrives; `None` before the first measurement.
    pub rate: Option<u64>,
    /// The smoothed time from a request to its head over an idle, established TCP connection. Zero before the
    /// first measurement.
    pub first_byte: Span,
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Span,
    /// The packets in flight: those that arrive in a round trip, or the window of a scavenger.
    pub cwnd: u32,
    /// The receive window that it may advertise, in bytes; `None` if that was never limited.
    pub window: Option<u64>,
    /// The bytes of its current request that have not arrived, as requested. Those of prefetched requests are
    /// not included.
    pub fetching: Option<Range<u64>>,
    /// The connection gets no request before this time.
    pub blocked_until: Time,
    /// When something last arrived on the connection; [`Time::ZERO`] before the first time.
    pub heard_at: Time,
    /// Whether its server answers range requests, as far as is known.
    pub ranges: bool,
    /// The offset at which its last answer broke off, if that was the whole file and had no new bytes.
    pub breaks_at_byte: Option<u64>,
    /// What has happened on the connection.
    pub counters: Counters,
}
