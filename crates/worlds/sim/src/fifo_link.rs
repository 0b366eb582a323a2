//! Implements the link without faults. The fate of a packet is known when the packet is offered.
//!
//! On this link, a packet only waits for its turn. It leaves at once, or a serialization time after the
//! packet before it, and arrives a propagation delay later. So one queue holds both the waiting and the
//! propagating packets, each with the time of its arrival, from which the time of its departure follows.
//! `departed` is the boundary between the two, and is moved only when it is needed. A packet costs one push
//! and one pop, and the link needs one wake-up at a time, for its head.
//!
//! Any change turns the link permanently into an [`EventLink`].

use crate::config::Room;
use crate::event_link::EventLink;
use crate::packet::{Arrival, DropReason, MAX_OCCUPANCY, Packet};
use crate::rng::RngSeed;
use crate::transmitter::Credit;
use crate::{Discipline, Drops, LinkConfig, Rng, Stats};
use anabranch_algo::{Rate, Span, Time};
use std::collections::VecDeque;

/// A buffer with room for more packets than this is freed when it is empty.
const KEEP_PACKETS: usize = 64;

/// A delay from which on sums of times may not fit a [`Time`].
const ENDLESS: Span = Span::from_nanos(1 << 62);

/// A packet on the link, waiting or propagating.
#[derive(Clone, Debug)]
struct InTransit<P> {
    arrive: Time,
    packet: P,
}

/// Implements a link without faults; see the [module](self). The fields that every packet needs come first,
/// in the order of use.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct FifoLink<P> {
    /// The packets on the link. The first `departed` of them have left the queue.
    ring: VecDeque<InTransit<P>>,
    departed: u32,
    queue_packets: u32,
    queue_bytes: u64,
    /// The bytes behind `departed`.
    queued_bytes: u64,
    mtu_bytes: u32,
    /// Whether `optional` has settings that decide about packets.
    has_policy: bool,
    /// Whether packets may arrive other than `delay` after they leave. Then `optional` keeps the times of
    /// departure.
    variable_delay: bool,
    /// The rate in bytes per second; 0 means unlimited.
    rate: u64,
    delay: Span,
    /// The time when the last bit of the last packet leaves, and the transmitter's credit then.
    free_at: Time,
    credit: Credit,
    offered: u64,
    offered_bytes: u64,
    queue_max_bytes: u64,
    queue_max_packets: u32,
    /// Parts of `Stats`, which already include the future of the packets that have not left.
    busy: Span,
    queue_byte_ns: u128,
    since: Time,
    /// The time when the last packet was offered.
    last_offered: Time,
    rng_seed: RngSeed,
    optional: Option<Box<OptionalState>>,
}

/// The state that most links and most packets do not need.
#[derive(Clone, Debug)]
struct OptionalState {
    mark_above_bytes: u64,
    jitter: Span,
    jitters: Option<Rng>,
    /// The departure of each packet in `ring`, if the delay varies.
    departs: VecDeque<Time>,
    discipline: Discipline,
    random: Option<Rng>,
    marked: u64,
    dropped: Drops,
    dropped_bytes: u64,
}

/// Says how an admitted packet enters the link: its jitter, and whether it gets a congestion mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    late: Span,
    marked: bool,
}

impl<P: Packet> FifoLink<P> {
    /// Returns whether a link of this configuration can be a [`FifoLink`].
    pub(crate) fn suits(config: &LinkConfig) -> bool {
        let faults = [config.loss, config.corrupt, config.duplicate, config.reorder];
        faults.iter().all(|p| *p <= 0.0)
            && config.rate != Some(Rate::from_bytes(0))
            && config.trace.is_none()
            && config.station.is_none()
            && config.bursts.is_none()
            && config.scripted_drops.is_empty()
            && config.scripted_flow_drops.is_empty()
            && config.schedule.is_empty()
            && matches!(config.discipline, Discipline::DropTail | Discipline::Random { .. })
    }

    pub(crate) fn new(config: &LinkConfig, rng_seed: RngSeed) -> Self {
        let mut new = Self {
            ring: VecDeque::new(),
            departed: 0,
            queue_packets: config.queue_packets,
            queue_bytes: config.queue_bytes,
            queued_bytes: 0,
            mtu_bytes: config.mtu_bytes,
            has_policy: false,
            // With such a delay the arrival may be cut off at the largest time, and no longer tells the
            // departure.
            variable_delay: config.jitter > Span::ZERO || config.delay >= ENDLESS,
            rate: config.rate.map_or(0, Rate::as_bytes),
            delay: config.delay,
            free_at: Time::ZERO,
            credit: Credit::default(),
            offered: 0,
            offered_bytes: 0,
            queue_max_bytes: 0,
            queue_max_packets: 0,
            busy: Span::ZERO,
            queue_byte_ns: 0,
            since: Time::ZERO,
            last_offered: Time::ZERO,
            rng_seed,
            optional: None,
        };
        let tail = config.discipline == Discipline::DropTail;
        if !tail || config.mark_above_bytes.is_some() || config.jitter > Span::ZERO {
            new.has_policy = true;
            let optional = new.optional();
            optional.mark_above_bytes = config.mark_above_bytes.unwrap_or(u64::MAX);
            optional.jitter = config.jitter;
            optional.jitters = (config.jitter > Span::ZERO).then(|| rng_seed.stream("jitter"));
            optional.discipline = config.discipline;
            optional.random = (!tail).then(|| rng_seed.stream("random"));
        }
        new
    }

    fn optional(&mut self) -> &mut OptionalState {
        self.optional.get_or_insert_with(|| {
            Box::new(OptionalState {
                mark_above_bytes: u64::MAX,
                jitter: Span::ZERO,
                jitters: None,
                departs: VecDeque::new(),
                discipline: Discipline::DropTail,
                random: None,
                marked: 0,
                dropped: Drops::default(),
                dropped_bytes: 0,
            })
        })
    }

    /// Returns the arrival time of the head; [`Time::NEVER`] if there is none.
    #[inline]
    pub(crate) fn due(&self) -> Time {
        self.ring.front().map_or(Time::NEVER, |in_transit| in_transit.arrive)
    }

    /// Returns the packet that arrives next.
    #[inline]
    pub(crate) fn head(&self) -> Option<&P> {
        self.ring.front().map(|in_transit| &in_transit.packet)
    }

    /// Reads the memory that accepting a packet will need, so that it is in the cache. The result has no
    /// meaning.
    #[inline]
    pub(crate) fn touch(&self) -> u64 {
        let last = self.ring.back().map_or(0, |last| last.arrive.as_nanos());
        last ^ self.free_at.as_nanos() ^ self.queue_byte_ns as u64 ^ self.last_offered.as_nanos()
    }

    pub(crate) fn occupancy(&self) -> usize {
        self.ring.len()
    }

    /// Returns the bytes queued at `now`, including the packet being sent.
    pub(crate) fn queued_bytes(&self, now: Time) -> u64 {
        let gone = self.queued().take_while(|(depart, _)| *depart <= now);
        self.queued_bytes - gone.map(|(_, packet)| u64::from(packet.bytes())).sum::<u64>()
    }

    /// Returns the packets behind `departed`, with the times when they leave.
    fn queued(&self) -> impl Iterator<Item = (Time, &P)> {
        let queued = self.ring.range(self.departed as usize..).enumerate();
        queued
            .map(|(i, in_transit)| (self.depart(self.departed as usize + i, in_transit), &in_transit.packet))
    }

    /// Returns the time when the last bit of the packet at index `i` of `ring` leaves.
    fn depart(&self, i: usize, in_transit: &InTransit<P>) -> Time {
        let even = Time::from_nanos(in_transit.arrive.as_nanos().saturating_sub(self.delay.as_nanos()));
        let noted = self
            .optional
            .as_ref()
            .filter(|_| self.variable_delay)
            .and_then(|optional| optional.departs.get(i));
        noted.copied().unwrap_or(even)
    }

    /// Moves `departed` behind the packets that leave until `now`.
    #[inline]
    fn settle(&mut self, now: Time) {
        if self.variable_delay {
            return self.settle_variable(now);
        }
        let arrives = now + self.delay;
        while let Some(in_transit) = self.ring.get(self.departed as usize)
            && in_transit.arrive <= arrives
        {
            self.queued_bytes -= u64::from(in_transit.packet.bytes());
            self.departed += 1;
        }
    }

    #[inline(never)]
    fn settle_variable(&mut self, now: Time) {
        let gone = self.queued().take_while(|(depart, _)| *depart <= now).map(|(_, packet)| packet.bytes());
        let (packets, bytes) = gone.fold((0, 0), |(n, sum), bytes| (n + 1, sum + u64::from(bytes)));
        self.departed += packets;
        self.queued_bytes -= bytes;
    }

    /// Decides whether a packet of `bytes` bytes may enter at `now`, and how. If it may, call
    /// [`take`](Self::take) next.
    #[inline]
    pub(crate) fn admit(&mut self, now: Time, bytes: u32) -> Result<Admission, DropReason> {
        if self.offered == 0 {
            self.since = now;
        }
        self.last_offered = now.max(self.last_offered);
        self.offered += 1;
        self.offered_bytes += u64::from(bytes);
        let mut queued = self.ring.len() as u32 - self.departed;
        // Packets that have left since the last `settle` are still counted, so these are upper bounds. They
        // matter only if they would drop the packet or set a new maximum. Settling reads packets that nothing
        // else needs now.
        if self.has_policy
            || queued >= self.queue_packets.min(self.queue_max_packets)
            || self.queued_bytes + u64::from(bytes) > self.queue_bytes.min(self.queue_max_bytes)
        {
            self.settle(now);
            queued = self.ring.len() as u32 - self.departed;
        }
        let full = queued >= self.queue_packets
            || self.queued_bytes + u64::from(bytes) > self.queue_bytes
            || self.ring.len() >= MAX_OCCUPANCY;
        if full || bytes > self.mtu_bytes {
            return Err(self.count_drop(
                if bytes > self.mtu_bytes { DropReason::Mtu } else { DropReason::Queue },
                bytes,
            ));
        }
        if self.has_policy {
            self.apply_policy(bytes)
        } else {
            Ok(Admission { late: Span::ZERO, marked: false })
        }
    }

    /// Applies every rule but the length of the queue: random drops, marks and jitter.
    #[inline(never)]
    fn apply_policy(&mut self, bytes: u32) -> Result<Admission, DropReason> {
        let queued = self.ring.len() as u32 - self.departed;
        let queued_bytes = self.queued_bytes;
        let room = Room { packets: self.queue_packets - queued, bytes: self.queue_bytes - queued_bytes };
        let optional = self.optional();
        if let Some(rng) = &mut optional.random
            && optional.discipline.drops_early(room, bytes, rng)
        {
            return Err(self.count_drop(DropReason::Early, bytes));
        }
        let marked = queued_bytes > optional.mark_above_bytes;
        let most = optional.jitter.as_nanos().saturating_add(1);
        let late = optional.jitters.as_mut().map_or(0, |rng| rng.below(most));
        Ok(Admission { late: Span::from_nanos(late), marked })
    }

    #[cold]
    fn count_drop(&mut self, reason: DropReason, bytes: u32) -> DropReason {
        let optional = self.optional();
        optional.dropped.count(reason);
        optional.dropped_bytes += u64::from(bytes);
        reason
    }

    /// Accepts the packet that was admitted at `now`. If it is the only one, returns its time of arrival.
    #[inline]
    pub(crate) fn take(
        &mut self,
        now: Time,
        bytes: u32,
        admission: Admission,
        mut packet: P,
    ) -> Option<Time> {
        if admission.marked && packet.is_ect() {
            packet.mark();
            self.optional().marked += 1;
        }
        let depart = if self.rate == 0 {
            now.max(self.free_at)
        } else {
            if now > self.free_at {
                self.free_at = now;
                self.credit = Credit::default();
            }
            let work = self.credit.spend(bytes);
            let nanos = self.credit.earn(work, self.rate);
            self.busy = self.busy + Span::from_nanos(nanos);
            self.free_at + Span::from_nanos(nanos)
        };
        self.free_at = depart;
        let bytes = u64::from(bytes);
        self.queue_byte_ns += u128::from(bytes) * u128::from(depart.since(now).as_nanos());
        self.queued_bytes += bytes;
        self.queue_max_bytes = self.queue_max_bytes.max(self.queued_bytes);
        let mut arrive = depart + self.delay;
        if self.variable_delay {
            arrive = (arrive + admission.late).max(self.ring.back().map_or(Time::ZERO, |last| last.arrive));
            self.optional().departs.push_back(depart);
        }
        let first = self.ring.is_empty().then_some(arrive);
        self.ring.push_back(InTransit { arrive, packet });
        self.queue_max_packets = self.queue_max_packets.max(self.ring.len() as u32 - self.departed);
        first
    }

    /// Removes the head at its time of arrival. Also returns the time at which the next packet arrives
    /// ([`Time::NEVER`] if there is none).
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Arrival<P>, Time)> {
        let InTransit { arrive: at, packet, .. } = self.ring.pop_front()?;
        if self.departed > 0 {
            self.departed -= 1;
        } else {
            self.queued_bytes -= u64::from(packet.bytes());
        }
        if self.variable_delay {
            self.optional().departs.pop_front();
        }
        let due = self.due();
        if self.ring.is_empty() && self.ring.capacity() > KEEP_PACKETS {
            self.ring = VecDeque::new();
        }
        Some((Arrival { at, packet }, due))
    }

    /// Returns the counters as of `now`.
    pub(crate) fn stats(&self, now: Time) -> Stats {
        let now = now.max(self.last_offered);
        let mut queue_byte_ns = self.queue_byte_ns;
        for (depart, packet) in self.queued() {
            queue_byte_ns -= u128::from(packet.bytes()) * u128::from(depart.since(now).as_nanos());
        }
        let optional = self.optional.as_deref();
        let dropped = optional.map_or(Drops::default(), |optional| optional.dropped);
        let dropped_bytes = optional.map_or(0, |optional| optional.dropped_bytes);
        let inside_bytes: u64 = self.ring.iter().map(|in_transit| u64::from(in_transit.packet.bytes())).sum();
        Stats {
            offered: self.offered,
            offered_bytes: self.offered_bytes,
            delivered: self.offered - dropped.total() - self.ring.len() as u64,
            delivered_bytes: self.offered_bytes - dropped_bytes - inside_bytes,
            dropped,
            marked: optional.map_or(0, |optional| optional.marked),
            queue_max_bytes: self.queue_max_bytes,
            queue_max_packets: u64::from(self.queue_max_packets),
            queue_byte_ns,
            since: self.since,
            until: self.since.max(self.free_at.min(now)),
            busy: self.busy - self.free_at.since(now),
            ..Stats::default()
        }
    }

    /// Returns the configuration of the link.
    pub(crate) fn config(&self) -> LinkConfig {
        let mut config = LinkConfig {
            rate: (self.rate > 0).then(|| Rate::from_bytes(self.rate)),
            delay: self.delay,
            queue_packets: self.queue_packets,
            queue_bytes: self.queue_bytes,
            mtu_bytes: self.mtu_bytes,
            ..LinkConfig::default()
        };
        if let Some(optional) = &self.optional {
            config.jitter = optional.jitter;
            config.mark_above_bytes = Some(optional.mark_above_bytes).filter(|bytes| *bytes < u64::MAX);
            config.discipline = optional.discipline;
        }
        config
    }

    /// Converts the link, as of `now`, to one that can be changed. A packet that follows immediately on the
    /// packet being sent may leave a nanosecond later than before, because the transmitter's credit is known
    /// only for the last packet.
    pub(crate) fn into_event_link(mut self, now: Time) -> EventLink<P> {
        self.settle(now);
        let departs: Vec<Time> = self.queued().map(|(depart, _)| depart).collect();
        let mut link = EventLink::new(self.config(), self.rng_seed, self.stats(now));
        if let Some(optional) = self.optional {
            link.inherit(optional.jitters, optional.random);
        }
        link.idle(self.free_at, self.credit);
        let queued = self.ring.split_off(self.departed as usize);
        for InTransit { arrive, packet } in self.ring {
            link.push_in_transit(arrive, packet);
        }
        for (depart, InTransit { packet, .. }) in departs.into_iter().zip(queued) {
            link.queued(now, depart, packet);
        }
        link
    }
}
