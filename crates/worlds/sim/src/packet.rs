//! What travels over links, and what becomes of it: it arrives, or is dropped for a reason.

use anabranch_algo::Time;

/// What a link holds at most, queued and propagating, whatever its configuration; beyond it drops as a full
/// queue does. 10 Gbit/s for 4 s of packets of 1,250 bytes.
pub const MAX_OCCUPANCY: usize = 4_000_000;

/// What travels. Opaque to the link: moved, never looked into, copied only where the wire duplicates.
pub trait Packet: Clone {
    /// Its size on the wire, bytes; the same as long as it is under way.
    fn bytes(&self) -> u32;
    /// Sets the congestion mark (ECN CE, RFC 3168), if it can carry one.
    fn mark(&mut self);
    /// Whether [`mark`](Self::mark) has an effect: it carries an ECN-capable codepoint (ECT). Asked where a
    /// queue would drop what it cannot mark. Yes unless implemented.
    fn is_ect(&self) -> bool {
        true
    }
    /// The flow of which it is data. `None`, unless implemented: an acknowledgement, a request, cross
    /// traffic.
    fn flow(&self) -> Option<u32> {
        None
    }
    /// Flips the bit `bit`, 0 to 8 · [`bytes`](Self::bytes) − 1. Does nothing unless implemented.
    fn corrupt(&mut self, _bit: u64) {}
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The queue was full.
    Queue,
    /// The queue was not full, but its discipline said so.
    Early,
    /// Random loss on the wire.
    Loss,
    /// It was on the script.
    Scripted,
    /// The link was, or went, down.
    Down,
    /// It was larger than the MTU.
    Mtu,
}

/// A packet at the far end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival<P> {
    /// When exactly it arrived; not after the time of the call that hands it out.
    pub at: Time,
    /// The packet.
    pub packet: P,
}

/// What a link reports. An event may be handed out later than it happened, by the propagation delay at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<P> {
    /// A packet is gone.
    Dropped {
        /// When.
        at: Time,
        /// Why.
        reason: DropReason,
        /// The packet.
        packet: P,
    },
    /// The link went up or down.
    State {
        /// When.
        at: Time,
        /// What it is now.
        up: bool,
    },
}

impl<P> Event<P> {
    /// When it happened.
    pub const fn at(&self) -> Time {
        match self {
            Self::Dropped { at, .. } | Self::State { at, .. } => *at,
        }
    }
}
