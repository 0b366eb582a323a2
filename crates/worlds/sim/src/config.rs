//! The configuration of a link, and the changes that a running link takes.

use crate::{GilbertElliott, MediumId, Rng, Station, Trace};
use anabranch_algo::{Rate, Span, Time};

/// The default length of a drop-tail queue in packets, that of Linux for an Ethernet device (`txqueuelen`).
pub const QUEUE_PACKETS: u32 = 1_000;

/// A change to a running link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LinkChange {
    /// The link goes up or down. Going down, it drops its queue. While it is down, it drops every offered
    /// packet.
    Up(bool),
    /// The rate from now on, including for the rest of the packet that is being sent; `None` means unlimited.
    Rate(Option<Rate>),
    /// The propagation delay of packets that have not left the queue. A shorter delay does not reorder
    /// packets.
    Delay(Span),
    /// The probability of random loss, 0 to 1.
    Loss(f64),
    /// The link keeps its packets, or sends again. A station of a medium that keeps them does not contend;
    /// the packet that it is sending still leaves. It has no effect on a link without a medium.
    Held(bool),
}

/// Selects how a queue treats packets before it is full. With every discipline, a full queue drops new
/// packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Discipline {
    /// Drops nothing before the queue is full.
    #[default]
    DropTail,
    /// Drops an arriving packet with probability `p` if, after it, at most `last_packets - 1` more of its
    /// size would fit. This is htsim's `RandomQueue`, which breaks the phase effects of a drop-tail queue;
    /// see [`Discipline::HTSIM`].
    Random {
        /// The number of packets at the end of the queue for which this applies.
        last_packets: u32,
        /// The probability of a drop there.
        p: f64,
    },
    /// CoDel, RFC 8289: drops from the head after packets have waited too long for an interval; see
    /// [`Discipline::CODEL`].
    CoDel {
        /// The time that packets may wait.
        target: Span,
        /// The time for which waiting times may stay above `target` before a packet is dropped.
        interval: Span,
        /// Whether a packet is marked instead of dropped if it [can carry a mark](crate::Packet::is_ect).
        ecn: bool,
    },
    /// FQ-CoDel, RFC 8290: flows are hashed into queues that take turns, with a CoDel for each. Above the
    /// limit of the queue, the longest queue loses its head, not the packet that arrives; see
    /// [`Discipline::FQ_CODEL`].
    FqCodel {
        /// The time that packets may wait in a queue.
        target: Span,
        /// The time for which waiting times may stay above `target` before a packet is dropped.
        interval: Span,
        /// Whether a packet is marked instead of dropped if it [can carry a mark](crate::Packet::is_ect).
        ecn: bool,
        /// The number of queues.
        flows: u32,
        /// The number of bytes that a queue may send before the next queue's turn.
        quantum_bytes: u32,
    },
    /// PIE, RFC 8033: drops arriving packets with a probability that keeps the delay at `target`; see
    /// [`Discipline::PIE`].
    Pie {
        /// The delay that the discipline aims for.
        target: Span,
        /// The time for which no packet is dropped after a time without congestion.
        burst: Span,
        /// Whether a packet is marked instead of dropped if it [can carry a mark](crate::Packet::is_ect),
        /// while the probability is at most 0.1.
        ecn: bool,
    },
    /// RED (Floyd, Jacobson 1993), gentle: drops arriving packets with a probability that grows with the
    /// average length of the queue.
    Red {
        /// The average length, in bytes, up to which no packet is dropped.
        min_bytes: u64,
        /// The average length, in bytes, at which the probability is `drop`. It is 1 at twice this length.
        max_bytes: u64,
        /// The probability of a drop at `max_bytes`; from there to the next drop it grows, so that the
        /// distances between drops are uniform.
        drop: f64,
        /// The weight of the queue's length at an arrival in the average.
        weight: f64,
        /// Whether a packet is marked instead of dropped if it [can carry a mark](crate::Packet::is_ect),
        /// while the average is below `max_bytes`.
        ecn: bool,
    },
    /// Congestion events whose victims the experiment chooses. A packet that arrives when more than
    /// `above_packets` are queued causes an event, if the last event is at least `hold` ago. Each victim then
    /// loses its first waiting [data packet](crate::Packet::flow), not counting the packet being sent.
    /// Without an event, nothing is dropped until the queue is full.
    TargetedDrop {
        /// The number of packets above which an arrival causes an event, counting the packet being sent.
        above_packets: u32,
        /// The time between two events. A round trip lets the flows react first.
        hold: Span,
        /// The rule that chooses the victims.
        policy: VictimPolicy,
    },
}

/// The victims of an event of [`Discipline::TargetedDrop`], among the flows with waiting data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimPolicy {
    /// All flows: a global event.
    All,
    /// Each flow independently, with its share of the waiting data packets as the probability: a partial
    /// event. If this hits no flow, the next draw is after `hold`.
    Share,
    /// The flow with the most packets; of several such flows, the one with the lowest number.
    Largest,
}

impl Discipline {
    /// The setting of htsim's experiments: one packet in ten is dropped in the last three places.
    pub const HTSIM: Self = Self::Random { last_packets: 3, p: 0.1 };

    /// CoDel with the values of RFC 8289, section 4.3, without ECN.
    pub const CODEL: Self =
        Self::CoDel { target: Span::from_millis(5), interval: Span::from_millis(100), ecn: false };

    /// FQ-CoDel with the values of RFC 8290, section 5.2, without ECN.
    pub const FQ_CODEL: Self = Self::FqCodel {
        target: Span::from_millis(5),
        interval: Span::from_millis(100),
        ecn: false,
        flows: 1_024,
        quantum_bytes: 1_514,
    };

    /// PIE with the values of RFC 8033, section 4, without ECN.
    pub const PIE: Self =
        Self::Pie { target: Span::from_millis(15), burst: Span::from_millis(150), ecn: false };

    /// Returns whether a queue with this much `room` drops a packet of `bytes` bytes although it would fit.
    #[inline]
    pub(crate) fn drops_early(&self, room: Room, bytes: u32, rng: &mut Rng) -> bool {
        let Self::Random { last_packets, p } = *self else { return false };
        let near = room.packets <= last_packets
            || room.bytes < u64::from(bytes).saturating_mul(u64::from(last_packets) + 1);
        near && rng.chance(p)
    }
}

/// Holds the number of packets and bytes that still fit into a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) packets: u32,
    pub(crate) bytes: u64,
}

/// The configuration of one direction of a link.
///
/// The default is a perfect link: unlimited rate, no delay, no fault, a queue of [`QUEUE_PACKETS`]. A
/// packet's size is [`Packet::bytes`](crate::Packet::bytes), which may or may not count headers.
/// Probabilities are 0 to 1. Each fault draws from its own random stream, so that changing one fault does not
/// change the others.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Bytes per second; `None` means unlimited. With rate zero the link is up but sends nothing.
    pub rate: Option<Rate>,
    /// A recording of the times at which bytes may leave. It replaces the rate.
    pub trace: Option<Trace>,
    /// The medium that the link shares, and how it contends for it. Of all links on a medium, one sends one
    /// packet at a time. Not to be combined with a trace. It has an effect only in a [`Net`](crate::Net) that
    /// has this medium.
    pub station: Option<Station>,
    /// The propagation delay, from the last bit sent to the packet's arrival.
    pub delay: Span,
    /// The largest extra delay of a packet, drawn uniformly from 0 to this. It never reorders packets.
    pub jitter: Span,
    /// The most packets in the queue. The packet being sent counts, as in htsim.
    pub queue_packets: u32,
    /// The most bytes in the queue. The packet being sent counts until its last bit has left.
    pub queue_bytes: u64,
    /// The treatment of packets before the queue is full.
    pub discipline: Discipline,
    /// Arriving packets are marked if more bytes than this are queued (K of DCTCP, RFC 8257, section 3.1).
    pub mark_above_bytes: Option<u64>,
    /// The largest packet that passes, in bytes.
    pub mtu_bytes: u32,
    /// The probability of random loss on the wire. A lost packet has used its place in the queue and its
    /// sending time.
    pub loss: f64,
    /// Loss in bursts on the wire, in addition to [`loss`](Self::loss).
    pub bursts: Option<GilbertElliott>,
    /// The probability that one random bit of a packet is flipped
    /// ([`Packet::corrupt`](crate::Packet::corrupt)).
    pub corrupt: f64,
    /// The probability that a packet arrives twice.
    pub duplicate: f64,
    /// The probability that a packet is held back by [`reorder_by`](Self::reorder_by), so that others
    /// overtake it.
    pub reorder: f64,
    /// The time for which a reordered packet is held back, in addition to its delay.
    pub reorder_by: Span,
    /// The numbers of packets to drop, counting packets offered to the link from 1. They are dropped before
    /// the queue.
    pub scripted_drops: Vec<u64>,
    /// More packets to drop: a flow, and the number of its [data packet](crate::Packet::flow), counted from
    /// 1.
    pub scripted_flow_drops: Vec<(u32, u64)>,
    /// Changes and their times. Changes at the same time apply in the given order.
    pub schedule: Vec<(Time, LinkChange)>,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            rate: None,
            trace: None,
            station: None,
            delay: Span::ZERO,
            jitter: Span::ZERO,
            queue_packets: QUEUE_PACKETS,
            queue_bytes: u64::MAX,
            discipline: Discipline::DropTail,
            mark_above_bytes: None,
            mtu_bytes: u32::MAX,
            loss: 0.0,
            bursts: None,
            corrupt: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by: Span::ZERO,
            scripted_drops: Vec::new(),
            scripted_flow_drops: Vec::new(),
            schedule: Vec::new(),
        }
    }
}

impl LinkConfig {
    /// Makes a link without faults, of `rate` and propagation `delay`.
    #[must_use]
    pub fn new(rate: Rate, delay: Span) -> Self {
        Self { rate: Some(rate), delay, ..Self::default() }
    }

    /// Sets a drop-tail queue of `packets` packets.
    #[must_use]
    pub const fn queue_packets(mut self, packets: u32) -> Self {
        self.queue_packets = packets;
        self
    }

    /// Sets a drop-tail queue of `bytes` bytes, without a limit in packets.
    #[must_use]
    pub const fn queue_bytes(mut self, bytes: u64) -> Self {
        self.queue_bytes = bytes;
        self.queue_packets = u32::MAX;
        self
    }

    /// Sets the queue discipline.
    #[must_use]
    pub const fn discipline(mut self, discipline: Discipline) -> Self {
        self.discipline = discipline;
        self
    }

    /// Sets random loss of probability `p`.
    #[must_use]
    pub const fn loss(mut self, p: f64) -> Self {
        self.loss = p;
        self
    }

    /// Makes the link follow `trace`.
    #[must_use]
    pub fn trace(mut self, trace: Trace) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Makes the link a station of `medium` that contends with `weight`.
    #[must_use]
    pub fn medium(mut self, medium: MediumId, weight: u32) -> Self {
        self.station = Some(Station::new(medium, weight));
        self
    }

    /// Adds `change` at the time `at`.
    #[must_use]
    pub fn at(mut self, at: Time, change: LinkChange) -> Self {
        self.schedule.push((at, change));
        self
    }

    /// Makes the link go down at `from` and up again at `until`.
    #[must_use]
    pub fn down(self, from: Time, until: Time) -> Self {
        self.at(from, LinkChange::Up(false)).at(until, LinkChange::Up(true))
    }
}
