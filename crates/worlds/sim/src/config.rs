//! What can be said about a link, and what can change while it runs.

use crate::{GilbertElliott, MediumId, Rng, Trace};
use anabranch_algo::{Rate, Span, Time};

/// The drop-tail queue unless told otherwise, packets (what Linux gives an Ethernet device: `txqueuelen`).
pub const QUEUE_PACKETS: u32 = 1_000;

/// A change to a running link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LinkChange {
    /// The link goes up or down. While it is down it drops what is offered; going down it drops what is
    /// queued.
    Up(bool),
    /// The rate from now on, also for the rest of the packet that is being sent; `None`: unlimited.
    Rate(Option<Rate>),
    /// The propagation delay of packets that have not left the queue. A shorter one does not reorder.
    Delay(Span),
    /// The probability of random loss, 0 to 1.
    Loss(f64),
}

/// What a queue does before it is full. That it drops what finds no place is common to all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Discipline {
    /// Nothing.
    #[default]
    DropTail,
    /// Drops what arrives with probability `p` where, once it is in, at most `last_packets - 1` more of its
    /// size would fit. That of htsim (`RandomQueue`), which breaks the phase effects of a drop-tail queue;
    /// see [`Discipline::HTSIM`].
    Random {
        /// How many places at the end of the queue are affected, packets.
        last_packets: u32,
        /// Probability of a drop there.
        p: f64,
    },
    /// CoDel, RFC 8289: drops at the head what has waited too long for too long; see [`Discipline::CODEL`].
    CoDel {
        /// The time that packets may wait.
        target: Span,
        /// For how long they may wait longer before one is dropped.
        interval: Span,
        /// Marks in place of dropping where a packet [can carry a mark](crate::Packet::is_ect).
        ecn: bool,
    },
    /// Congestion events that hit whom the experiment says. An arrival that finds more than `above_packets`
    /// queued causes one, if the last one is at least `hold` ago: each victim loses the first of its
    /// [data packets](crate::Packet::flow) that waits, the one being sent not included. Between that number
    /// and the limit of the queue nothing else is dropped.
    TargetedDrop {
        /// What the queue holds without an event, packets, the one being sent included.
        above_packets: u32,
        /// The time between two events; a round trip lets the flows answer first.
        hold: Span,
        /// Who loses.
        policy: VictimPolicy,
    },
}

/// Whom a congestion event of [`Discipline::TargetedDrop`] hits, of the flows with data that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimPolicy {
    /// Everyone: a global event.
    All,
    /// Each for itself with a probability of its share of the data packets that wait: a partial event. Where
    /// nobody is hit, it is drawn again after `hold`.
    Share,
    /// The one with the most packets; of several the one with the lowest number.
    Largest,
}

impl Discipline {
    /// What htsim's experiments use: one in ten in the last three places.
    pub const HTSIM: Self = Self::Random { last_packets: 3, p: 0.1 };

    /// CoDel with the values of RFC 8289, section 4.3, without ECN.
    pub const CODEL: Self =
        Self::CoDel { target: Span::from_millis(5), interval: Span::from_millis(100), ecn: false };

    /// Whether a queue that has `room` drops a packet of `bytes` all the same.
    #[inline]
    pub(crate) fn drops_early(&self, room: Room, bytes: u32, rng: &mut Rng) -> bool {
        let Self::Random { last_packets, p } = *self else { return false };
        let near = room.packets <= last_packets
            || room.bytes < u64::from(bytes).saturating_mul(u64::from(last_packets) + 1);
        near && rng.chance(p)
    }
}

/// What a queue still takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) packets: u32,
    pub(crate) bytes: u64,
}

/// One direction of a link.
///
/// The default is a perfect link: unlimited rate, no delay, no fault, a queue of [`QUEUE_PACKETS`]. A
/// packet's size is what [`Packet::bytes`](crate::Packet::bytes) says: whether headers count is the packet's
/// affair. Probabilities are 0 to 1, each fault drawn from its own stream, so that one does not shift
/// another.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Bytes per second; `None`: unlimited. Rate zero is a link that is up but sends nothing.
    pub rate: Option<Rate>,
    /// When how much may leave, in place of the rate.
    pub trace: Option<Trace>,
    /// The medium that it shares, and the weight with which it contends for it: one packet at a time is sent
    /// of all links that share it. Not together with a trace, and only in a [`Net`](crate::Net) that has this
    /// medium: elsewhere it has no effect.
    pub medium: Option<(MediumId, u32)>,
    /// Propagation delay, from the last bit sent to the packet's arrival.
    pub delay: Span,
    /// Extra delay, uniform in 0 to this, of each packet. It never reorders.
    pub jitter: Span,
    /// What the queue holds at most, packets. The one being sent counts, as in htsim.
    pub queue_packets: u32,
    /// What the queue holds at most, bytes. The packet being sent counts until its last bit.
    pub queue_bytes: u64,
    /// What the queue does before it is full.
    pub discipline: Discipline,
    /// Mark what arrives when more than this is queued, bytes (the K of DCTCP, RFC 8257, section 3.1).
    pub mark_above_bytes: Option<u64>,
    /// The largest packet that passes, bytes.
    pub mtu_bytes: u32,
    /// Probability of random loss on the wire: a lost packet has used its place in the queue and its time.
    pub loss: f64,
    /// Loss in bursts on the wire, beside [`loss`](Self::loss).
    pub bursts: Option<GilbertElliott>,
    /// Probability that one random bit of a packet is flipped ([`Packet::corrupt`](crate::Packet::corrupt)).
    pub corrupt: f64,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that a packet is held back by [`reorder_by`](Self::reorder_by) and overtaken.
    pub reorder: f64,
    /// How long a reordered packet is held back beyond its delay.
    pub reorder_by: Span,
    /// Drop exactly these of the packets offered to the link, counted from 1, before they are queued.
    pub scripted_drops: Vec<u64>,
    /// Drop these too: (flow, nth [data packet](crate::Packet::flow) of that flow offered, from 1).
    pub scripted_flow_drops: Vec<(u32, u64)>,
    /// What changes when. Changes at one time apply in the order given.
    pub schedule: Vec<(Time, LinkChange)>,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            rate: None,
            trace: None,
            medium: None,
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
    /// A faultless link of `rate` and propagation `delay`.
    #[must_use]
    pub fn new(rate: Rate, delay: Span) -> Self {
        Self { rate: Some(rate), delay, ..Self::default() }
    }

    /// The same with a drop-tail queue of `packets` packets.
    #[must_use]
    pub const fn queue_packets(mut self, packets: u32) -> Self {
        self.queue_packets = packets;
        self
    }

    /// The same with a drop-tail queue of `bytes` bytes, and no limit in packets.
    #[must_use]
    pub const fn queue_bytes(mut self, bytes: u64) -> Self {
        self.queue_bytes = bytes;
        self.queue_packets = u32::MAX;
        self
    }

    /// The same with this queue discipline.
    #[must_use]
    pub const fn discipline(mut self, discipline: Discipline) -> Self {
        self.discipline = discipline;
        self
    }

    /// The same with random loss of probability `p`.
    #[must_use]
    pub const fn loss(mut self, p: f64) -> Self {
        self.loss = p;
        self
    }

    /// The same, playing `trace`.
    #[must_use]
    pub fn trace(mut self, trace: Trace) -> Self {
        self.trace = Some(trace);
        self
    }

    /// The same as a station of `medium` that contends with `weight`.
    #[must_use]
    pub const fn medium(mut self, medium: MediumId, weight: u32) -> Self {
        self.medium = Some((medium, weight));
        self
    }

    /// The same, with `change` at `at`.
    #[must_use]
    pub fn at(mut self, at: Time, change: LinkChange) -> Self {
        self.schedule.push((at, change));
        self
    }

    /// The same, down from `from` until `until`.
    #[must_use]
    pub fn down(self, from: Time, until: Time) -> Self {
        self.at(from, LinkChange::Up(false)).at(until, LinkChange::Up(true))
    }
}
