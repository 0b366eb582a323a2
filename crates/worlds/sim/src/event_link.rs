//! Implements the link with faults: a queue, a transmitter and a wire. Each step happens when its time comes.

use crate::aqm::Aqm;
use crate::codel::Queued;
use crate::config::{LinkChange, LinkConfig, Room};
use crate::fate::Fate;
use crate::histogram::Histogram;
use crate::loss::GilbertState;
use crate::packet::{Arrival, DropReason, Event, MAX_OCCUPANCY, Packet};
use crate::radio::{Attempt, Frame, Radio};
use crate::rng::{Rng, RngSeed};
use crate::scripted_loss::ScriptedLoss;
use crate::trace::TraceTransmitter;
use crate::{
    MediumId, Stats,
    transmitter::{Credit, RateTransmitter},
};
use anabranch_algo::{Output, Rate, Span, Time};
use std::collections::VecDeque;

/// Implements a link with faults; see the [module](self). The fields that every packet needs come first.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct EventLink<P> {
    /// Everything until this time has happened.
    clock: Time,
    up: bool,
    /// Whether drops are only counted, not reported.
    quiet: bool,
    /// Whether the link's shared medium, if it has one, is granted to it now.
    granted: bool,
    transmitter: Transmitter,
    /// The packets that have not left. The first one is being sent. With FQ-CoDel the others wait in `aqm`.
    queue: VecDeque<Queued<P>>,
    /// The number of bytes of these packets, including the packets in `aqm`.
    queued_bytes: u64,
    /// The packets that have left, in order. Packets that are held back, so that others overtake them, are in
    /// `held`, in their own order.
    wire: DelayLine<P>,
    held: DelayLine<P>,
    events: VecDeque<Event<P>>,
    stats: Stats,
    /// The number of entries of [`LinkConfig::schedule`], sorted, that have been applied.
    scheduled: usize,
    config: LinkConfig,
    gilbert: Option<GilbertState>,
    fault_rngs: FaultRngs,
    scripted_loss: ScriptedLoss,
    aqm: Aqm<P>,
    /// The times from a packet's offer until its last bit left, kept only if the link follows a trace.
    sojourns: Option<Histogram>,
    /// The attempts and frames of a station of a medium.
    radio: Option<Box<Radio>>,
}

/// Holds a random stream for each fault, so that turning on one fault does not change the others.
#[derive(Clone, Debug)]
struct FaultRngs {
    loss: Rng,
    corrupt: Rng,
    duplicate: Rng,
    reorder: Rng,
    jitter: Rng,
    random: Rng,
}

/// Sends packets: idle, or busy with one packet.
#[derive(Clone, Debug)]
enum Transmitter {
    Rate(RateTransmitter),
    Trace(TraceTransmitter),
}

impl Transmitter {
    const fn done(&self) -> Time {
        match self {
            Self::Rate(transmitter) => transmitter.done(),
            Self::Trace(transmitter) => transmitter.done(),
        }
    }

    /// Starts to send a packet; `follows` says whether it follows immediately after another one.
    #[inline]
    fn start(&mut self, at: Time, bytes: u32, follows: bool) {
        match self {
            Self::Rate(transmitter) => transmitter.start(at, bytes),
            Self::Trace(transmitter) => transmitter.start(at, bytes, follows),
        }
    }

    #[inline]
    fn finish(&mut self) {
        match self {
            Self::Rate(transmitter) => transmitter.finish(),
            Self::Trace(transmitter) => transmitter.finish(),
        }
    }

    const fn abort(&mut self) {
        match self {
            Self::Rate(transmitter) => transmitter.abort(),
            Self::Trace(transmitter) => transmitter.finish(),
        }
    }
}

/// Holds packets on the wire, in the order of their arrival.
#[derive(Clone, Debug)]
struct DelayLine<P>(VecDeque<Arrival<P>>);

impl<P> DelayLine<P> {
    fn due(&self) -> Time {
        self.0.front().map_or(Time::NEVER, |arrival| arrival.at)
    }

    /// Adds a packet. Nothing overtakes within a delay line, even with less jitter or after the delay was
    /// shortened.
    fn push(&mut self, at: Time, packet: P) {
        let at = self.0.back().map_or(at, |last| at.max(last.at));
        self.0.push_back(Arrival { at, packet });
    }
}

/// Adds the time since `stats.until` to the statistics of a queue that has not changed since then.
fn account_queue(stats: &mut Stats, packets: usize, queued_bytes: u64, at: Time) {
    if packets > 0 {
        let span = at.since(stats.until);
        stats.queue_byte_ns += u128::from(queued_bytes) * u128::from(span.as_nanos());
        stats.busy = stats.busy + span;
        stats.until = stats.until.max(at);
    }
}

impl<P: Packet> EventLink<P> {
    /// Makes a link that is up and begins with the counters `stats`.
    pub(crate) fn new(mut config: LinkConfig, rng_seed: RngSeed, stats: Stats) -> Self {
        config.schedule.sort_by_key(|(at, _)| *at);
        Self {
            fault_rngs: FaultRngs {
                loss: rng_seed.stream("loss"),
                corrupt: rng_seed.stream("corrupt"),
                duplicate: rng_seed.stream("duplicate"),
                reorder: rng_seed.stream("reorder"),
                jitter: rng_seed.stream("jitter"),
                random: rng_seed.stream("random"),
            },
            up: true,
            quiet: false,
            clock: Time::ZERO,
            transmitter: match &config.trace {
                None => Transmitter::Rate(RateTransmitter::new(config.rate)),
                Some(trace) => Transmitter::Trace(TraceTransmitter::new(trace.clone())),
            },
            granted: false,
            aqm: Aqm::new(&config, rng_seed),
            gilbert: config.bursts.map(|model| GilbertState::new(model, rng_seed.stream("bursts"))),
            scripted_loss: ScriptedLoss::new(&config.scripted_drops, &config.scripted_flow_drops),
            sojourns: config.trace.is_some().then(Histogram::new),
            radio: config.station.is_some().then(|| Box::new(Radio::new(rng_seed))),
            queue: VecDeque::new(),
            queued_bytes: 0,
            wire: DelayLine(VecDeque::new()),
            held: DelayLine(VecDeque::new()),
            events: VecDeque::new(),
            scheduled: 0,
            stats,
            config,
        }
    }

    /// Replaces the random streams for jitter and for random drops with the given ones, if there are any.
    pub(crate) fn inherit(&mut self, jitter: Option<Rng>, random: Option<Rng>) {
        let fault_rngs = &mut self.fault_rngs;
        [(&mut fault_rngs.jitter, jitter), (&mut fault_rngs.random, random)]
            .into_iter()
            .for_each(|(mine, theirs)| *mine = theirs.unwrap_or_else(|| mine.clone()));
    }

    /// Records that the transmitter has been idle since `at`, with `credit` to spare.
    pub(crate) const fn idle(&mut self, at: Time, credit: Credit) {
        if let Transmitter::Rate(transmitter) = &mut self.transmitter {
            transmitter.idle(at, credit);
        }
    }

    /// Adds a packet that is on the wire already and arrives at `arrive`.
    pub(crate) fn push_in_transit(&mut self, arrive: Time, packet: P) {
        self.wire.push(arrive, packet);
    }

    /// Adds a packet that is in the queue already at `now`. If it is the first, it leaves at `depart`.
    pub(crate) fn queued(&mut self, now: Time, depart: Time, packet: P) {
        if let (true, Transmitter::Rate(transmitter)) = (self.queue.is_empty(), &mut self.transmitter) {
            transmitter.resume(now, depart);
        }
        let bytes = packet.bytes();
        self.queued_bytes += u64::from(bytes);
        self.queue.push_back(Queued { bytes, since: now, packet });
    }

    /// Sets whether drops are only counted, not reported.
    pub(crate) const fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// Returns the counters as of the last call.
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.stats;
        account_queue(&mut stats, self.packets(), self.queued_bytes, self.clock);
        stats.scripted_left = self.scripted_loss.remaining();
        stats
    }

    /// Returns how long packets stayed on the link, if it plays a trace.
    pub(crate) const fn sojourns(&self) -> Option<&Histogram> {
        self.sojourns.as_ref()
    }

    pub(crate) const fn config(&self) -> &LinkConfig {
        &self.config
    }

    pub(crate) const fn is_up(&self) -> bool {
        self.up
    }

    /// Returns the number of packets that have not left.
    fn packets(&self) -> usize {
        self.queue.len() + self.aqm.packets()
    }

    pub(crate) fn occupancy(&self) -> usize {
        self.packets() + self.wire.0.len() + self.held.0.len()
    }

    pub(crate) const fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Returns the time of the next poll, or a time in the past if something is ready now.
    #[inline]
    pub(crate) fn due(&self) -> Time {
        let event = self.events.front().map_or(Time::NEVER, Event::at);
        // With a shared medium, other links wait for the departure, so the delay is not added.
        let delay = if self.config.station.is_some() { Span::ZERO } else { self.config.delay };
        let leaving = self.transmitter.done() + delay;
        event.min(self.wire.due()).min(self.held.due()).min(leaving).min(self.next_change())
    }

    #[inline(never)]
    fn update(&mut self, at: Time) {
        let delay = self.queue_delay(at);
        if let Aqm::Pie(pie) = &mut self.aqm {
            pie.update(delay);
        }
    }

    /// Returns the time that a packet arriving at `at` would wait. It follows from the rate. Without a rate
    /// of its own (a trace, a shared medium) it is the time that the first packet has been here.
    fn queue_delay(&self, at: Time) -> Span {
        let is_own = self.config.trace.is_none() && self.config.station.is_none();
        match self.config.rate.map(Rate::as_bytes) {
            None if is_own => Span::ZERO,
            Some(rate @ 1..) if is_own => {
                let nanos = u128::from(self.queued_bytes) * 1_000_000_000 / u128::from(rate);
                Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
            _ => self.queue.front().map_or(Span::ZERO, |head| at.since(head.since)),
        }
    }

    fn next_change(&self) -> Time {
        self.config.schedule.get(self.scheduled).map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Makes everything happen that is due until `now`, in order.
    fn advance(&mut self, now: Time) {
        loop {
            let (done, change) = (self.transmitter.done(), self.next_change());
            let update = self.aqm.next_update();
            let next = done.min(change).min(update);
            if next > now || next == Time::NEVER {
                break;
            }
            if done <= next {
                self.depart(done);
            } else if update < change {
                self.update(update);
            } else {
                let (at, change) = self.config.schedule[self.scheduled];
                self.scheduled += 1;
                self.apply(at.max(self.clock), change);
            }
        }
        self.clock = self.clock.max(now);
    }

    /// Accounts for the queue until `at`, before the queue changes.
    fn account_queue(&mut self, at: Time) {
        let packets = self.packets();
        account_queue(&mut self.stats, packets, self.queued_bytes, at);
        self.stats.until = self.stats.until.max(at);
    }

    /// Puts `packet` into the queue, or drops it.
    pub(crate) fn offer(&mut self, now: Time, mut packet: P) {
        self.advance(now);
        let at = self.clock;
        if self.stats.offered == 0 {
            (self.stats.since, self.stats.until) = (at, at);
        }
        let bytes = packet.bytes();
        self.stats.offered += 1;
        self.stats.offered_bytes += u64::from(bytes);
        if let Some(reason) = self.pre_queue_drop(bytes, packet.flow()) {
            return self.drop(at, reason, packet);
        }
        self.targeted_drop(at);
        if let Some(reason) = self.queue_drop(bytes) {
            return self.drop(at, reason, packet);
        }
        match self.early_fate(at, &packet) {
            Fate::Queued => {}
            Fate::Marked => {
                packet.mark();
                self.stats.marked += 1;
            }
            Fate::Dropped => return self.drop(at, DropReason::Early, packet),
        }
        self.account_queue(at);
        let above = self.config.mark_above_bytes.is_some_and(|threshold| self.queued_bytes > threshold);
        if above && packet.is_ect() {
            packet.mark();
            self.stats.marked += 1;
        }
        let (is_idle, queued) = (self.queue.is_empty(), Queued { bytes, since: at, packet });
        self.queued_bytes += u64::from(bytes);
        match &mut self.aqm {
            Aqm::FqCodel(queues) => {
                queues.push(queued);
                self.drop_from_longest(at);
            }
            _ => self.queue.push_back(queued),
        }
        if is_idle {
            self.start_next(at, false);
        }
        self.stats.queue_max_bytes = self.stats.queue_max_bytes.max(self.queued_bytes);
        self.stats.queue_max_packets = self.stats.queue_max_packets.max(self.packets() as u64);
    }

    /// Lets PIE or RED, if the queue has one of them, decide about an arriving packet.
    fn early_fate(&mut self, at: Time, packet: &P) -> Fate {
        let delay = if matches!(self.aqm, Aqm::Pie(_)) { self.queue_delay(at) } else { Span::ZERO };
        let (queued_bytes, bytes, is_ect) = (self.queued_bytes, packet.bytes(), packet.is_ect());
        match &mut self.aqm {
            Aqm::Pie(pie) => pie.arrival(at, delay, queued_bytes, bytes, is_ect),
            Aqm::Red(red) => red.arrival(at, queued_bytes, bytes, self.config.rate, is_ect),
            _ => Fate::Queued,
        }
    }

    /// Tells RED, if the queue has it, that the queue has become empty.
    fn note_idle(&mut self, at: Time) {
        if let Aqm::Red(red) = &mut self.aqm
            && self.queue.is_empty()
        {
            red.idle(at);
        }
    }

    /// Drops packets from the longest queue of FQ-CoDel while there are more than the limits allow.
    fn drop_from_longest(&mut self, at: Time) {
        while self.packets() > self.config.queue_packets as usize
            || self.queued_bytes > self.config.queue_bytes
        {
            let Aqm::FqCodel(queues) = &mut self.aqm else { return };
            let Some(packet) = queues.pop_fattest() else { return };
            self.queued_bytes -= u64::from(packet.bytes());
            self.drop(at, DropReason::Queue, packet);
        }
    }

    /// Returns the reason why a packet is dropped before it reaches the queue; `None` if it is not dropped.
    fn pre_queue_drop(&mut self, bytes: u32, flow: Option<u32>) -> Option<DropReason> {
        if self.scripted_loss.drops(self.stats.offered, flow) {
            return Some(DropReason::Scripted);
        }
        if !self.up {
            return Some(DropReason::Down);
        }
        (bytes > self.config.mtu_bytes).then_some(DropReason::Mtu)
    }

    /// Returns the reason why the queue drops an arriving packet; `None` if it accepts the packet.
    fn queue_drop(&mut self, bytes: u32) -> Option<DropReason> {
        // FQ-CoDel accepts the arriving packet and drops another one.
        let is_fair = matches!(self.aqm, Aqm::FqCodel(_));
        let full = self.queue.len() >= self.config.queue_packets as usize
            || self.queued_bytes + u64::from(bytes) > self.config.queue_bytes;
        if full && !is_fair || self.occupancy() >= MAX_OCCUPANCY {
            return Some(DropReason::Queue);
        }
        self.random_drop(bytes).then_some(DropReason::Early)
    }

    /// Carries out the congestion event that an arrival at `at` causes, if one is due.
    fn targeted_drop(&mut self, at: Time) {
        let Aqm::TargetedDrop(targeted) = &mut self.aqm else { return };
        let hit = targeted.congestion_event(at, &mut self.queue);
        if !hit.is_empty() {
            self.account_queue(at);
            self.stats.congestions += 1;
            for packet in hit {
                self.queued_bytes -= u64::from(packet.bytes());
                self.drop(at, DropReason::Early, packet);
            }
        }
    }

    /// Starts to send the next packet, if there is one and the shared medium, if there is one, is granted.
    #[inline]
    fn start_next(&mut self, at: Time, follows: bool) {
        if self.config.station.is_some() && !self.granted {
            return;
        }
        // A packet that is sent again stays at the head.
        let is_retry = self.radio.as_ref().is_some_and(|radio| radio.failed() > 0);
        if !is_retry && matches!(self.aqm, Aqm::Codel(_) | Aqm::FqCodel(_)) {
            self.select_head(at);
        }
        if let Some(head) = self.queue.front() {
            let bytes = match &self.config.station {
                Some(station) => Radio::airtime_bytes(station, &head.packet, self.config.rate),
                None => head.bytes,
            };
            self.transmitter.start(at, bytes, follows);
        }
    }

    /// Lets CoDel or FQ-CoDel choose the packet at the head.
    #[inline(never)]
    fn select_head(&mut self, at: Time) {
        self.account_queue(at);
        let mut dropped = Vec::new();
        let marked = match &mut self.aqm {
            Aqm::Codel(codel) => {
                codel.select_head(at, &mut self.queue, &mut self.queued_bytes, |p| dropped.push(p))
            }
            Aqm::FqCodel(queues) if self.queue.is_empty() => {
                let next = queues.pop(at, |p| dropped.push(p));
                let bytes = dropped.iter().map(|packet| u64::from(packet.bytes())).sum::<u64>();
                self.queued_bytes -= bytes;
                next.is_some_and(|(head, marked)| {
                    self.queue.push_back(head);
                    marked
                })
            }
            _ => false,
        };
        self.stats.marked += u64::from(marked);
        dropped.into_iter().for_each(|packet| self.drop(at, DropReason::Early, packet));
    }

    /// Returns the medium that the link shares, its weight, and the failed attempts of its next packet.
    pub(crate) fn medium(&self) -> Option<(MediumId, u32, u32)> {
        let failed = self.radio.as_ref().map_or(0, |radio| radio.failed());
        self.config.station.as_ref().map(|station| (station.medium, station.weight, failed))
    }

    /// Takes the frames that have arrived, if the link is a station of a medium.
    pub(crate) fn take_frames(&mut self) -> impl Iterator<Item = Frame> {
        self.radio.as_mut().into_iter().flat_map(|radio| radio.take_frames())
    }

    /// Returns whether the link waits for the medium, and whether it has it.
    pub(crate) fn contends(&self) -> (bool, bool) {
        let stalled = self.config.rate.is_some_and(|rate| rate.as_bytes() == 0);
        let held = self.radio.as_ref().is_some_and(|radio| radio.held);
        (self.packets() > 0 && !self.granted && !stalled && !held, self.granted)
    }

    /// Grants the medium to the link at `now`, for one packet.
    pub(crate) fn grant(&mut self, now: Time) {
        self.advance(now);
        // The link may have just gone down, which empties the queue.
        self.granted = self.packets() > 0;
        self.start_next(self.clock, false);
    }

    /// Returns whether the queue drops a packet at random although it is not full.
    fn random_drop(&mut self, bytes: u32) -> bool {
        let room = Room {
            packets: self.config.queue_packets - u32::try_from(self.queue.len()).unwrap_or(u32::MAX),
            bytes: self.config.queue_bytes - self.queued_bytes,
        };
        self.config.discipline.drops_early(room, bytes, &mut self.fault_rngs.random)
    }

    #[inline]
    fn depart(&mut self, at: Time) {
        self.account_queue(at);
        self.transmitter.finish();
        self.granted = false;
        let attempt = self.attempted(at);
        if attempt == Attempt::Again {
            return;
        }
        let Queued { bytes, since, mut packet } = self.queue.pop_front().expect("a packet was being sent");
        if let Some(sojourns) = &mut self.sojourns {
            sojourns.record(at.since(since));
        }
        self.queued_bytes -= u64::from(bytes);
        self.note_idle(at);
        self.start_next(at, true);
        let bursts = self.gilbert.as_mut().is_some_and(GilbertState::next_is_lost);
        if self.fault_rngs.loss.chance(self.config.loss) || bursts || attempt == Attempt::Lost {
            return self.drop(at, DropReason::Loss, packet);
        }
        if bytes > 0 && self.fault_rngs.corrupt.chance(self.config.corrupt) {
            packet.corrupt(self.fault_rngs.corrupt.below(u64::from(bytes) * 8));
            self.stats.corrupted += 1;
        }
        if self.fault_rngs.duplicate.chance(self.config.duplicate) {
            self.stats.duplicated += 1;
            self.propagate(at, packet.clone());
        }
        self.propagate(at, packet);
    }

    /// Decides how the attempt to send the head went; without a medium each attempt is the only one.
    #[inline]
    fn attempted(&mut self, at: Time) -> Attempt {
        match (&mut self.radio, &self.config.station, self.queue.front()) {
            (Some(radio), Some(station), Some(head)) => {
                radio.attempted(at, station, &head.packet, self.config.rate)
            }
            _ => Attempt::Arrived,
        }
    }

    #[inline]
    fn propagate(&mut self, at: Time, packet: P) {
        let mut at = at + self.config.delay;
        if self.config.jitter > Span::ZERO {
            let most = self.config.jitter.as_nanos();
            at += Span::from_nanos(self.fault_rngs.jitter.below(most.saturating_add(1)));
        }
        if self.fault_rngs.reorder.chance(self.config.reorder) {
            self.stats.reordered += 1;
            self.held.push(at + self.config.reorder_by, packet);
        } else {
            self.wire.push(at, packet);
        }
    }

    fn drop(&mut self, at: Time, reason: DropReason, packet: P) {
        self.stats.dropped.count(reason);
        if !self.quiet {
            self.events.push_back(Event::Dropped { at, reason, packet });
        }
    }

    fn apply(&mut self, at: Time, change: LinkChange) {
        match change {
            LinkChange::Up(up) if up == self.up => {}
            LinkChange::Up(up) => {
                self.up = up;
                self.events.push_back(Event::State { at, up });
                if !up {
                    self.account_queue(at);
                    self.transmitter.abort();
                    if let Some(radio) = &mut self.radio {
                        radio.abort();
                    }
                    self.granted = false;
                    self.queued_bytes = 0;
                    while let Some(Queued { packet, .. }) = self.queue.pop_front() {
                        self.drop(at, DropReason::Down, packet);
                    }
                    self.note_idle(at);
                    if let Aqm::FqCodel(queues) = &mut self.aqm {
                        let waiting: Vec<P> = queues.drain().collect();
                        waiting.into_iter().for_each(|packet| self.drop(at, DropReason::Down, packet));
                    }
                }
            }
            LinkChange::Rate(rate) => {
                let busy = !self.queue.is_empty() && (self.granted || self.config.station.is_none());
                if let Transmitter::Rate(transmitter) = &mut self.transmitter {
                    transmitter.set_rate(at, rate, busy);
                }
                self.config.rate = rate;
            }
            LinkChange::Delay(delay) => self.config.delay = delay,
            LinkChange::Loss(loss) => self.config.loss = loss,
            LinkChange::Held(held) => {
                if let Some(radio) = &mut self.radio {
                    radio.held = held;
                }
            }
        }
    }

    /// Applies `change` at `now`.
    pub(crate) fn change(&mut self, now: Time, change: LinkChange) {
        self.advance(now);
        self.apply(self.clock, change);
    }

    /// Returns everything due until `now`, one at a time in the order of time; at the same time, events come
    /// first.
    #[inline]
    pub(crate) fn poll(&mut self, now: Time) -> Output<Arrival<P>, Event<P>> {
        self.advance(now);
        let arrival = self.wire.due().min(self.held.due());
        if self.events.front().is_some_and(|event| event.at() <= arrival)
            && let Some(event) = self.events.pop_front()
        {
            return Output::Event(event);
        }
        if arrival <= now {
            let line = if self.wire.due() <= arrival { &mut self.wire } else { &mut self.held };
            if let Some(arrival) = line.0.pop_front() {
                self.stats.delivered += 1;
                self.stats.delivered_bytes += u64::from(arrival.packet.bytes());
                return Output::Send(arrival);
            }
        }
        Output::Wait(self.due())
    }
}
