//! Defines the packets that travel over links and their ends: they arrive, or are dropped for a reason.

use anabranch_algo::Time;

/// The most packets on a link, queued and propagating, whatever its configuration: 4 s of packets of 1,250
/// bytes at 10 Gbit/s. A link with this many drops new packets as a full queue does.
pub const MAX_OCCUPANCY: usize = 4_000_000;

/// A packet. To a link it is an opaque value that is moved, and copied only where the wire duplicates it.
pub trait Packet: Clone {
    /// Returns the size on the wire in bytes, which must not change while the packet is under way.
    fn bytes(&self) -> u32;
    /// Sets the congestion mark (ECN CE, RFC 3168), if the packet can carry one.
    fn mark(&mut self);
    /// Returns whether [`mark`](Self::mark) has an effect, because the packet has an ECN-capable codepoint
    /// (ECT). A queue asks this before it drops a packet that it would rather mark. By default true.
    fn is_ect(&self) -> bool {
        true
    }
    /// Returns the flow whose data the packet carries. By default `None`, as for acknowledgements, requests
    /// and cross traffic.
    fn flow(&self) -> Option<u32> {
        None
    }
    /// Returns the key by which fair queueing tells flows apart: equal for the packets of a flow in one
    /// direction. By default the key of data is its [flow](Self::flow), and all other packets form one flow.
    fn flow_key(&self) -> u64 {
        self.flow().map_or(0, |flow| 1 + u64::from(flow))
    }
    /// Flips the bit `bit`, 0 to 8 · [`bytes`](Self::bytes) − 1. By default does nothing.
    fn corrupt(&mut self, _bit: u64) {}
}

/// The reason why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The queue was full.
    Queue,
    /// The queue was not full, but its discipline dropped the packet.
    Early,
    /// Random loss on the wire.
    Loss,
    /// A script lists the packet.
    Scripted,
    /// The link was down, or went down.
    Down,
    /// The packet was larger than the MTU.
    Mtu,
}

/// A packet at the end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival<P> {
    /// The exact time of arrival, not after the time of the call that returns the packet.
    pub at: Time,
    /// The packet.
    pub packet: P,
}

/// The events that a link reports. An event may be returned later than it happened, by the propagation delay
/// at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<P> {
    /// A packet was dropped.
    Dropped {
        /// The time of the drop.
        at: Time,
        /// The reason for the drop.
        reason: DropReason,
        /// The packet.
        packet: P,
    },
    /// The link went up or down.
    State {
        /// The time of the change.
        at: Time,
        /// Whether the link is up now.
        up: bool,
    },
}

impl<P> Event<P> {
    /// Returns the time when the event happened.
    pub const fn at(&self) -> Time {
        match self {
            Self::Dropped { at, .. } | Self::State { at, .. } => *at,
        }
    }
}
