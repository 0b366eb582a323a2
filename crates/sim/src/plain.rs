//! The link without faults, of which everything is known when a packet is offered.
//!
//! Nothing can happen to a packet on it but to wait its turn: it leaves at once or a serialization time after
//! the one before it, and arrives a propagation delay later. So one queue holds the packets that wait and
//! those that propagate, each with the time of its arrival, from which that of its departure follows; the
//! boundary between them, `left`, is moved when somebody asks. A packet costs one push and one pop, and the
//! link one wake-up, that of its head.
//!
//! What a command can change turns the link into a [`Full`](crate::full::Full) one, for good.

use crate::full::Full;
use crate::link::{Arrival, MAX_INSIDE, Packet, Why};
use crate::rng::Luck;
use crate::serial::NANOBYTES;
use crate::{Discipline, Drops, LinkConfig, Rng, Stats};
use algo::{Rate, Span, Time};
use std::collections::VecDeque;

/// A buffer that has grown larger than this is given back once it is empty, packets.
const KEEP_PACKETS: usize = 64;

/// A delay that may not fit a [`Time`] with what is added to it.
const ENDLESS: Span = Span::from_nanos(1 << 62);

/// A packet on the link.
#[derive(Clone, Debug)]
struct Flying<P> {
    arrive: Time,
    packet: P,
}

/// See the [module](self). What a packet touches comes first, in the order of use.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Plain<P> {
    /// The packets that have left, `left` of them, and those that have not.
    ring: VecDeque<Flying<P>>,
    left: u32,
    queue_packets: u32,
    queue_bytes: u64,
    /// As of `left`.
    queued_bytes: u64,
    mtu_bytes: u32,
    /// Whether `extras` decides about packets.
    judged: bool,
    /// Whether packets do not arrive just `delay` after they leave: then `extras` knows when each leaves.
    uneven: bool,
    /// Bytes per second; 0: unlimited.
    rate: u64,
    delay: Span,
    /// When the last bit of the last packet leaves, and what the transmitter has to spare in that nanosecond,
    /// nanobytes.
    free_at: Time,
    credit: u64,
    offered: u64,
    offered_bytes: u64,
    queue_max_bytes: u64,
    queue_max_packets: u32,
    /// What `Stats` says, with the future of the packets that have not left.
    busy: Span,
    queue_byte_ns: u128,
    since: Time,
    /// When the last packet was offered.
    seen: Time,
    luck: Luck,
    extras: Option<Box<Extras>>,
}

/// What most links and most packets do without.
#[derive(Clone, Debug)]
struct Extras {
    mark_above_bytes: u64,
    jitter: Span,
    jitters: Option<Rng>,
    /// As many as the ring has packets, if the link is uneven.
    departs: VecDeque<Time>,
    discipline: Discipline,
    random: Option<Rng>,
    marked: u64,
    dropped: Drops,
    dropped_bytes: u64,
}

/// How a packet comes in: with so much jitter, and with a congestion mark or without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    late: Span,
    marked: bool,
}

impl<P: Packet> Plain<P> {
    /// Whether a link of this configuration is plain.
    pub(crate) fn suits(config: &LinkConfig) -> bool {
        let faults = [config.loss, config.corrupt, config.duplicate, config.reorder];
        faults.iter().all(|p| *p <= 0.0)
            && config.rate != Some(Rate::from_bytes(0))
            && config.trace.is_none()
            && config.medium.is_none()
            && config.bursts.is_none()
            && config.script.is_empty()
            && config.script_flows.is_empty()
            && config.schedule.is_empty()
            && matches!(config.discipline, Discipline::DropTail | Discipline::Random { .. })
    }

    pub(crate) fn new(config: &LinkConfig, luck: Luck) -> Self {
        let mut new = Self {
            ring: VecDeque::new(),
            left: 0,
            queue_packets: config.queue_packets,
            queue_bytes: config.queue_bytes,
            queued_bytes: 0,
            mtu_bytes: config.mtu_bytes,
            judged: false,
            // A sum that has been cut off says nothing about what went into it.
            uneven: config.jitter > Span::ZERO || config.delay >= ENDLESS,
            rate: config.rate.map_or(0, Rate::as_bytes),
            delay: config.delay,
            free_at: Time::ZERO,
            credit: 0,
            offered: 0,
            offered_bytes: 0,
            queue_max_bytes: 0,
            queue_max_packets: 0,
            busy: Span::ZERO,
            queue_byte_ns: 0,
            since: Time::ZERO,
            seen: Time::ZERO,
            luck,
            extras: None,
        };
        let tail = config.discipline == Discipline::DropTail;
        if !tail || config.mark_above_bytes.is_some() || config.jitter > Span::ZERO {
            new.judged = true;
            let extras = new.extras();
            extras.mark_above_bytes = config.mark_above_bytes.unwrap_or(u64::MAX);
            extras.jitter = config.jitter;
            extras.jitters = (config.jitter > Span::ZERO).then(|| luck.of("jitter"));
            extras.discipline = config.discipline;
            extras.random = (!tail).then(|| luck.of("random"));
        }
        new
    }

    fn extras(&mut self) -> &mut Extras {
        self.extras.get_or_insert_with(|| {
            Box::new(Extras {
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

    /// When the head arrives; [`Time::NEVER`] if there is none.
    #[inline]
    pub(crate) fn due(&self) -> Time {
        self.ring.front().map_or(Time::NEVER, |flying| flying.arrive)
    }

    pub(crate) fn inside(&self) -> usize {
        self.ring.len()
    }

    /// Bytes queued at `now`, the packet being sent included.
    pub(crate) fn queued_bytes(&self, now: Time) -> u64 {
        let gone = self.queued().take_while(|(depart, _)| *depart <= now);
        self.queued_bytes - gone.map(|(_, packet)| u64::from(packet.bytes())).sum::<u64>()
    }

    /// What had not left as of `left`, and when it does.
    fn queued(&self) -> impl Iterator<Item = (Time, &P)> {
        let queued = self.ring.range(self.left as usize..).enumerate();
        queued.map(|(i, flying)| (self.depart(self.left as usize + i, flying), &flying.packet))
    }

    /// When the last bit of the packet at `i` of the ring leaves.
    fn depart(&self, i: usize, flying: &Flying<P>) -> Time {
        let even = Time::from_nanos(flying.arrive.as_nanos().saturating_sub(self.delay.as_nanos()));
        let noted = self.extras.as_ref().filter(|_| self.uneven).and_then(|extras| extras.departs.get(i));
        noted.copied().unwrap_or(even)
    }

    /// Lets leave what leaves until `now`.
    #[inline]
    fn settle(&mut self, now: Time) {
        if self.uneven {
            return self.settle_uneven(now);
        }
        let arrives = now + self.delay;
        while let Some(flying) = self.ring.get(self.left as usize)
            && flying.arrive <= arrives
        {
            self.queued_bytes -= u64::from(flying.packet.bytes());
            self.left += 1;
        }
    }

    #[inline(never)]
    fn settle_uneven(&mut self, now: Time) {
        let gone = self.queued().take_while(|(depart, _)| *depart <= now).map(|(_, packet)| packet.bytes());
        let (packets, bytes) = gone.fold((0, 0), |(n, sum), bytes| (n + 1, sum + u64::from(bytes)));
        self.left += packets;
        self.queued_bytes -= bytes;
    }

    /// Whether a packet of `bytes` bytes, may come in at `now`, and how. If so,
    /// [`take`](Self::take) it.
    #[inline]
    pub(crate) fn admit(&mut self, now: Time, bytes: u32) -> Result<How, Why> {
        if self.offered == 0 {
            self.since = now;
        }
        self.seen = now.max(self.seen);
        self.offered += 1;
        self.offered_bytes += u64::from(bytes);
        self.settle(now);
        let queued = self.ring.len() as u32 - self.left;
        let full = queued >= self.queue_packets
            || self.queued_bytes + u64::from(bytes) > self.queue_bytes
            || self.ring.len() >= MAX_INSIDE;
        if full || bytes > self.mtu_bytes {
            return Err(self.refuse(if bytes > self.mtu_bytes { Why::Mtu } else { Why::Queue }, bytes));
        }
        if self.judged { self.judge(bytes) } else { Ok(How { late: Span::ZERO, marked: false }) }
    }

    /// What decides where it is not the queue's length.
    #[inline(never)]
    fn judge(&mut self, bytes: u32) -> Result<How, Why> {
        let queued = self.ring.len() as u32 - self.left;
        let queued_bytes = self.queued_bytes;
        let (queue_packets, queue_bytes) = (self.queue_packets, self.queue_bytes);
        let extras = self.extras();
        if let (Discipline::Random { last_packets, p }, Some(rng)) = (extras.discipline, &mut extras.random) {
            let near = queue_packets - queued <= last_packets
                || queue_bytes - queued_bytes < u64::from(bytes).saturating_mul(u64::from(last_packets) + 1);
            if near && rng.chance(p) {
                return Err(self.refuse(Why::Early, bytes));
            }
        }
        let marked = queued_bytes > extras.mark_above_bytes;
        extras.marked += u64::from(marked);
        let most = extras.jitter.as_nanos().saturating_add(1);
        let late = extras.jitters.as_mut().map_or(0, |rng| rng.below(most));
        Ok(How { late: Span::from_nanos(late), marked })
    }

    #[cold]
    fn refuse(&mut self, why: Why, bytes: u32) -> Why {
        let extras = self.extras();
        extras.dropped.count(why);
        extras.dropped_bytes += u64::from(bytes);
        why
    }

    /// Takes on what was admitted at `now`. If it is the only one, says when it arrives.
    #[inline]
    pub(crate) fn take(&mut self, now: Time, bytes: u32, how: How, mut packet: P) -> Option<Time> {
        let bytes = u64::from(bytes);
        if how.marked {
            packet.mark();
        }
        // As `Serializer` does, on a transmitter that is never interrupted.
        let depart = if self.rate == 0 {
            now.max(self.free_at)
        } else {
            if now > self.free_at {
                self.free_at = now;
                self.credit = 0;
            }
            let whole = bytes * NANOBYTES;
            let work = whole.saturating_sub(self.credit);
            self.credit -= whole - work;
            let nanos = work.div_ceil(self.rate);
            self.credit += nanos * self.rate - work;
            self.busy = self.busy + Span::from_nanos(nanos);
            self.free_at + Span::from_nanos(nanos)
        };
        self.free_at = depart;
        self.queue_byte_ns += u128::from(bytes) * u128::from(depart.since(now).as_nanos());
        self.queued_bytes += bytes;
        self.queue_max_bytes = self.queue_max_bytes.max(self.queued_bytes);
        let mut arrive = depart + self.delay;
        if self.uneven {
            arrive = (arrive + how.late).max(self.ring.back().map_or(Time::ZERO, |last| last.arrive));
            self.extras().departs.push_back(depart);
        }
        let first = self.ring.is_empty().then_some(arrive);
        self.ring.push_back(Flying { arrive, packet });
        self.queue_max_packets = self.queue_max_packets.max(self.ring.len() as u32 - self.left);
        first
    }

    /// Takes out the head, at its time, and says when the next one arrives ([`Time::NEVER`] if none does).
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Arrival<P>, Time)> {
        let Flying { arrive: at, packet, .. } = self.ring.pop_front()?;
        if self.left > 0 {
            self.left -= 1;
        } else {
            self.queued_bytes -= u64::from(packet.bytes());
        }
        if self.uneven {
            self.extras().departs.pop_front();
        }
        let due = self.due();
        if self.ring.is_empty() && self.ring.capacity() > KEEP_PACKETS {
            self.ring = VecDeque::new();
        }
        Some((Arrival { at, packet }, due))
    }

    /// What it has seen until `now`.
    pub(crate) fn stats(&self, now: Time) -> Stats {
        let now = now.max(self.seen);
        let mut queue_byte_ns = self.queue_byte_ns;
        for (depart, packet) in self.queued() {
            queue_byte_ns -= u128::from(packet.bytes()) * u128::from(depart.since(now).as_nanos());
        }
        let extras = self.extras.as_deref();
        let dropped = extras.map_or(Drops::default(), |extras| extras.dropped);
        let dropped_bytes = extras.map_or(0, |extras| extras.dropped_bytes);
        let inside_bytes: u64 = self.ring.iter().map(|flying| u64::from(flying.packet.bytes())).sum();
        Stats {
            offered: self.offered,
            offered_bytes: self.offered_bytes,
            delivered: self.offered - dropped.total() - self.ring.len() as u64,
            delivered_bytes: self.offered_bytes - dropped_bytes - inside_bytes,
            dropped,
            marked: extras.map_or(0, |extras| extras.marked),
            queue_max_bytes: self.queue_max_bytes,
            queue_max_packets: u64::from(self.queue_max_packets),
            queue_byte_ns,
            since: self.since,
            until: self.since.max(self.free_at.min(now)),
            busy: self.busy - self.free_at.since(now),
            ..Stats::default()
        }
    }

    /// The configuration that says the same.
    pub(crate) fn config(&self) -> LinkConfig {
        let mut config = LinkConfig {
            rate: (self.rate > 0).then(|| Rate::from_bytes(self.rate)),
            delay: self.delay,
            queue_packets: self.queue_packets,
            queue_bytes: self.queue_bytes,
            mtu_bytes: self.mtu_bytes,
            ..LinkConfig::default()
        };
        if let Some(extras) = &self.extras {
            config.jitter = extras.jitter;
            config.mark_above_bytes = Some(extras.mark_above_bytes).filter(|bytes| *bytes < u64::MAX);
            config.discipline = extras.discipline;
        }
        config
    }

    /// The same link at `now` as one that can be changed. What follows at once on the packet being sent may
    /// leave a nanosecond later than it would have: the transmitter's credit is known for the last one only.
    pub(crate) fn into_full(mut self, now: Time) -> Full<P> {
        self.settle(now);
        let departs: Vec<Time> = self.queued().map(|(depart, _)| depart).collect();
        let mut full = Full::new(self.config(), self.luck, self.stats(now));
        if let Some(extras) = self.extras {
            full.inherit(extras.jitters, extras.random);
        }
        full.idle(self.free_at, self.credit);
        let queued = self.ring.split_off(self.left as usize);
        for Flying { arrive, packet } in self.ring {
            full.flying(arrive, packet);
        }
        for (depart, Flying { packet, .. }) in departs.into_iter().zip(queued) {
            full.queued(now, depart, packet);
        }
        full
    }
}
