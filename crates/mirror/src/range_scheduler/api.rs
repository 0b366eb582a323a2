//! What is said to the machine and what it says.

use std::ops::Range;

use algo::control::Algorithm;
use algo::{Span, Time};

use super::Sample;

/// A mirror: a URL that has the bytes.
pub type MirrorId = u8;
/// A mirror seen from one local address, by the order in which it was added.
pub type ConnectionId = usize;
/// One request; never used twice.
pub type FetchId = u64;

/// Who knows which blocks are missing.
pub trait Pool {
    /// Takes up to `blocks` contiguous blocks that nobody has been asked for and that `mirror` may bring.
    /// Where it can, a range of a segment or more ends where a segment does. Of what is to be checked twice
    /// it may be one block more.
    fn take(&mut self, mirror: MirrorId, blocks: u64) -> Option<Range<u64>>;
    /// These have not been brought by whoever took them. Those that are no longer missing, or that nobody
    /// was to bring any more, are to be left out.
    fn release(&mut self, blocks: Range<u64>);
    /// Blocks that nobody has been asked for.
    fn idle(&self) -> u64;
    /// The same without those that `mirror` may not bring.
    fn idle_for(&self, mirror: MirrorId) -> u64 {
        let _ = mirror;
        self.idle()
    }
    /// Whether the bytes of a block would be used: it is neither verified nor here to be.
    fn is_wanted(&self, block: u64) -> bool;
    /// The same, if they came from `mirror`: what is being checked may be wanted from others only.
    fn is_wanted_from(&self, mirror: MirrorId, block: u64) -> bool {
        let _ = mirror;
        self.is_wanted(block)
    }
    /// A whole block, wanted from this mirror, whoever took it.
    fn deliver(&mut self, mirror: MirrorId, block: u64, bytes: &[u8]);
}

/// What the world tells.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The answer to a request has begun, and it is the right part of the right file.
    Head {
        /// Which request.
        fetch: FetchId,
    },
    /// The same, but it is the whole file from its first byte on, whatever was asked for.
    Whole {
        /// Which request.
        fetch: FetchId,
    },
    /// The next bytes of the answer's body.
    Body {
        /// Which request.
        fetch: FetchId,
        /// The bytes; not empty.
        bytes: &'a [u8],
    },
    /// The body has come to its end.
    Done {
        /// Which request.
        fetch: FetchId,
    },
    /// There is no answer, or no more of it.
    Failed {
        /// Which request.
        fetch: FetchId,
        /// What to make of it.
        failure: Failure,
    },
    /// What the kernel counted on a connection.
    Sample {
        /// Which connection.
        connection: ConnectionId,
        /// The numbers.
        sample: Sample,
    },
    /// The connection cannot be used now: no interface, no address.
    Down {
        /// Which connection.
        connection: ConnectionId,
    },
    /// It can be used again.
    Up {
        /// Which connection.
        connection: ConnectionId,
    },
    /// A mirror is proven to have sent wrong bytes.
    Banned {
        /// Which mirror.
        mirror: MirrorId,
    },
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Something that may work another time.
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
        /// Over which connection. It may have one other request, whose answer has begun: then this one is to
        /// go out behind it over the same TCP connection. Nothing is to be told of it before the other is
        /// done.
        connection: ConnectionId,
        /// The name of the request.
        fetch: FetchId,
        /// The first byte.
        first_byte: u64,
        /// The byte after the last one.
        end_byte: u64,
    },
    /// Read no more of this answer. It is over now: nothing is to be told of it any more. If another request
    /// is behind it, that one has been cancelled before; one behind another is never cancelled but where
    /// the other fails or is cancelled too.
    Cancel {
        /// Which request.
        fetch: FetchId,
    },
    /// Let the connection, now and when it is made anew, advertise at most this window.
    Window {
        /// Which connection.
        connection: ConnectionId,
        /// Bytes.
        bytes: u64,
    },
}

/// What is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection stands elsewhere than before.
    StateChanged {
        /// Which.
        connection: ConnectionId,
        /// Where it stands.
        state: State,
    },
}

/// Where a connection stands.
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

/// What a connection is made of.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionConfig {
    /// Whose bytes.
    pub mirror: MirrorId,
    /// Connections of the same group may share a bottleneck and are coupled.
    pub group: u32,
    /// Congestion control.
    pub control: Algorithm,
    /// Whether the server answers ranges. If not it is only used while no other connection can be, for all
    /// bytes from the first one on.
    pub ranges: bool,
}

/// What went over a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of blocks that were wanted.
    pub bytes: u64,
    /// Bytes of blocks that were here already.
    pub duplicate_bytes: u64,
    /// Of those, what a server without ranges sent once more after it had broken off without anything new.
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
    /// Whose bytes.
    pub mirror: MirrorId,
    /// Its group.
    pub group: u32,
    /// Where it stands.
    pub state: State,
    /// Bytes a second while a body flows; none before the first measurement.
    pub rate: Option<u64>,
    /// From a request to its head over a TCP connection that is there and has nothing else to do, smoothed;
    /// zero before the first.
    pub first_byte: Span,
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Span,
    /// The controller's window in packets.
    pub cwnd: u32,
    /// What it may advertise in bytes; none if that was never bounded.
    pub window: Option<u64>,
    /// The bytes that are still to come of its request, as asked; not those of the next one, if that has been
    /// asked ahead.
    pub fetching: Option<Range<u64>>,
    /// It is not asked before this time.
    pub blocked_until: Time,
    /// Whether its server sends parts, as far as is known.
    pub ranges: bool,
    /// Where its last answer broke off, if that was to be the whole file and nothing of it was new.
    pub breaks_at_byte: Option<u64>,
    /// What went over it.
    pub counters: Counters,
}
