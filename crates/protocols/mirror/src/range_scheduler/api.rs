//! The vocabulary of the range scheduler: its pool, its inputs, commands, events and reports.

use std::ops::Range;

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Span, TcpSample, Time};

use crate::fetch_id::{ConnectionId, FetchId};
use crate::receive_windows::Sharing;

/// A mirror: a URL that has the bytes.
pub type MirrorId = u8;

/// The blocks that are missing, and where blocks that come are delivered.
pub trait Pool {
    /// Takes up to `blocks` contiguous blocks that no mirror has been asked for and that `mirror` may bring.
    /// If possible, a range of a segment or more ends at the end of a segment.
    fn take(&mut self, mirror: MirrorId, blocks: u64) -> Option<Range<u64>>;
    /// The same of the blocks that begin at `first`, for a server that sends all from the first one on. None
    /// if that one is not missing, or has been asked of somebody; and where blocks cannot be taken like this.
    fn take_at(&mut self, mirror: MirrorId, first: u64, blocks: u64) -> Option<Range<u64>> {
        let _ = (mirror, first, blocks);
        None
    }
    /// The first block from `first` on that is missing, that nobody has been asked for, and from which
    /// `mirror` may [`take_at`](Self::take_at).
    fn next_idle(&self, mirror: MirrorId, first: u64) -> Option<u64> {
        let _ = (mirror, first);
        None
    }
    /// Whether [`take`](Self::take) takes the last blocks instead of the first, so that it does not meet who
    /// sends all from the first one on.
    fn take_from_end(&mut self, from_end: bool) {
        let _ = from_end;
    }
    /// A mirror is asked for all of the file, from the first block on. It may bring any block that is wanted
    /// when its turn comes, until [`end_whole`](Self::end_whole).
    fn begin_whole(&mut self, mirror: MirrorId) {
        let _ = mirror;
    }
    /// That answer is over.
    fn end_whole(&mut self, mirror: MirrorId) {
        let _ = mirror;
    }
    /// Gives back blocks that were taken and have not come. The pool ignores those that are no longer
    /// missing.
    fn release(&mut self, blocks: Range<u64>);
    /// The number of missing blocks that no mirror has been asked for.
    fn idle(&self) -> u64;
    /// The same without those that `mirror` may not bring.
    fn idle_for(&self, mirror: MirrorId) -> u64 {
        let _ = mirror;
        self.idle()
    }
    /// Whether `mirror` may bring anything.
    fn may_bring(&self, mirror: MirrorId) -> bool {
        let _ = mirror;
        true
    }
    /// Whether mirrors are compared with each other, because nothing else tells what is right. A slow one
    /// does best to compare then.
    fn compares(&self) -> bool {
        false
    }
    /// Whether the bytes of a block would be used: it is neither verified nor waiting for verification.
    fn is_wanted(&self, block: u64) -> bool;
    /// Whether they would be used if they came from `mirror`: a block that is being compared is wanted from
    /// other mirrors only.
    fn is_wanted_from(&self, mirror: MirrorId, block: u64) -> bool {
        let _ = mirror;
        self.is_wanted(block)
    }
    /// Delivers a whole block that is wanted from `mirror`, whoever took it.
    fn deliver(&mut self, mirror: MirrorId, block: u64, bytes: &[u8]);
}

/// What the world reports to the scheduler.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The answer to a request has begun, and it is the right part of the right file.
    Head {
        /// The request.
        fetch: FetchId,
    },
    /// The same, but the answer brings less than was asked for (RFC 9110 section 15.3.7). It is
    /// [done](Self::Done) when that has come.
    Short {
        /// The request.
        fetch: FetchId,
        /// The byte after the last one that comes.
        end_byte: u64,
    },
    /// The same, but the answer is the whole file from its first byte on.
    Whole {
        /// The request.
        fetch: FetchId,
    },
    /// The next bytes of the answer's body.
    Body {
        /// The request.
        fetch: FetchId,
        /// The bytes; not empty.
        bytes: &'a [u8],
    },
    /// The body has ended.
    Done {
        /// The request.
        fetch: FetchId,
    },
    /// The request has failed, before or after its head.
    Failed {
        /// The request.
        fetch: FetchId,
        /// What kind of failure it is.
        failure: Failure,
    },
    /// What the kernel counted on a connection.
    Sample {
        /// The connection.
        connection: ConnectionId,
        /// The numbers.
        sample: TcpSample,
    },
    /// The connection cannot be used now: no interface, no address.
    Down {
        /// The connection.
        connection: ConnectionId,
    },
    /// It can be used again.
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
    /// It may work another time.
    Broken,
    /// The server wants to be left alone for a while.
    Busy {
        /// How long.
        retry: Span,
    },
    /// The server has no ranges: it can only be asked for everything.
    NoRanges,
    /// This mirror will never bring what is wanted.
    Useless,
}

/// What the world is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Ask for these bytes.
    Fetch {
        /// The connection. It may have one other request, whose answer has begun. Then this one goes out
        /// behind it on the same TCP connection, and nothing of it is reported before the other is done.
        connection: ConnectionId,
        /// The name of the request.
        fetch: FetchId,
        /// The first byte.
        first_byte: u64,
        /// The byte after the last one.
        end_byte: u64,
    },
    /// Stop reading this answer, and report nothing of it any more. A request that was sent behind it has
    /// been cancelled before it. A request behind another one is only cancelled if the other one fails or is
    /// cancelled too.
    Cancel {
        /// The request.
        fetch: FetchId,
    },
    /// Let the connection, and those that replace it, advertise at most this window.
    Window {
        /// The connection.
        connection: ConnectionId,
        /// Bytes.
        bytes: u64,
    },
}

/// What the scheduler reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The state of a connection has changed.
    StateChanged {
        /// Which.
        connection: ConnectionId,
        /// Its new state.
        state: State,
    },
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing has come from it yet.
    Opening,
    /// It answers.
    Open,
    /// It has stopped answering; others do its work, and it is tried now and then.
    Stalled,
    /// Its last request failed; it is tried again later.
    Failing,
    /// It asked to be left alone for a while.
    Busy,
    /// The world says that it cannot be used now.
    Down,
    /// It is not used any more.
    Closed,
}

/// The properties of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionConfig {
    /// Its mirror.
    pub mirror: MirrorId,
    /// With which others it may share a bottleneck.
    pub sharing: Sharing,
    /// Congestion control of its receive window, if it yields to all others.
    pub control: Algorithm,
    /// Whether the server answers ranges. If not it is asked for all bytes from the first one on: while no
    /// other connection can be used, or of a long content, of which others bring the end.
    pub ranges: bool,
    /// How long the server took to answer before, zero if that is not known: it may take so long again.
    pub delay: Span,
}

/// What went over a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of blocks that were wanted.
    pub bytes: u64,
    /// Bytes of blocks that were here already.
    pub duplicate_bytes: u64,
    /// Bytes of bodies, whatever they were good for: of blocks that are not whole yet, too.
    pub received_bytes: u64,
    /// Of those, bytes that a server without ranges sent again after it had broken off before anything new.
    pub vain_bytes: u64,
    /// Requests.
    pub fetches: u64,
    /// Requests given up before their end.
    pub cancelled: u64,
    /// Requests that failed.
    pub failures: u64,
    /// How often it stopped answering.
    pub stalls: u64,
}

/// A connection, as numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionReport {
    /// Its mirror.
    pub mirror: MirrorId,
    /// Its group: those of the same number may share a bottleneck.
    pub group: u32,
    /// Its state.
    pub state: State,
    /// Bytes a second while a body flows; none before the first measurement.
    pub rate: Option<u64>,
    /// From a request to its head over a TCP connection that is there and has nothing else to do, smoothed;
    /// zero before the first.
    pub first_byte: Span,
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Span,
    /// Packets on their way: what arrives in a round trip, or the window of a scavenger.
    pub cwnd: u32,
    /// What it may advertise in bytes; none if that was never bounded.
    pub window: Option<u64>,
    /// The bytes that are still to come of its request, as asked; not those of the next one, if that has been
    /// asked ahead.
    pub fetching: Option<Range<u64>>,
    /// It gets no request before this time.
    pub blocked_until: Time,
    /// When something last came of it; [`Time::ZERO`] before the first.
    pub heard_at: Time,
    /// Whether its server sends parts, as far as is known.
    pub ranges: bool,
    /// Where its last answer broke off, if it was the whole file and brought nothing new.
    pub breaks_at_byte: Option<u64>,
    /// What went over it.
    pub counters: Counters,
}
