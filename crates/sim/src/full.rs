//! The link with faults: a queue, a transmitter and a wire, each step of which happens when its time comes.

use crate::config::{Command, Discipline, LinkConfig};
use crate::link::{Arrival, Event, MAX_INSIDE, Packet, Why};
use crate::rng::{Luck, Rng};
use crate::{Stats, serial::Serializer};
use algo::{Output, Span, Time};
use std::collections::VecDeque;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Full<P> {
    config: LinkConfig,
    streams: Streams,
    up: bool,
    /// Whether nobody wants to hear of drops.
    quiet: bool,
    /// Up to here everything has happened.
    clock: Time,
    serializer: Serializer,
    /// The packets that have not left, the one being sent first.
    queue: VecDeque<Queued<P>>,
    queued_bytes: u64,
    /// The packets that have left: in order, and those held back to be overtaken, in theirs.
    wire: Lane<P>,
    held: Lane<P>,
    events: VecDeque<Event<P>>,
    /// How far [`LinkConfig::script`] and [`LinkConfig::schedule`], both sorted, have been used up.
    scripted: usize,
    scheduled: usize,
    stats: Stats,
}

/// A stream for each fault, so that turning one on does not shift another.
#[derive(Clone, Debug)]
struct Streams {
    loss: Rng,
    corrupt: Rng,
    duplicate: Rng,
    reorder: Rng,
    jitter: Rng,
    random: Rng,
}

#[derive(Clone, Debug)]
struct Queued<P> {
    bytes: u32,
    packet: P,
}

/// Packets in the order of their arrival.
#[derive(Clone, Debug)]
struct Lane<P>(VecDeque<Arrival<P>>);

impl<P> Lane<P> {
    fn due(&self) -> Time {
        self.0.front().map_or(Time::NEVER, |arrival| arrival.at)
    }

    /// Nothing overtakes within a lane: not by less jitter, not by a delay made shorter.
    fn push(&mut self, at: Time, packet: P) {
        let at = self.0.back().map_or(at, |last| at.max(last.at));
        self.0.push_back(Arrival { at, packet });
    }
}

/// Adds up what has been queued since the last change.
fn watch<P>(stats: &mut Stats, queue: &VecDeque<Queued<P>>, queued_bytes: u64, at: Time) {
    if !queue.is_empty() {
        let span = at.since(stats.until);
        stats.queue_byte_ns += u128::from(queued_bytes) * u128::from(span.as_nanos());
        stats.busy = stats.busy + span;
        stats.until = stats.until.max(at);
    }
}

impl<P: Packet> Full<P> {
    /// A link that is up and has seen `stats`.
    pub(crate) fn new(mut config: LinkConfig, luck: Luck, stats: Stats) -> Self {
        config.script.sort_unstable();
        config.script.dedup();
        config.schedule.sort_by_key(|(at, _)| *at);
        Self {
            streams: Streams {
                loss: luck.of("loss"),
                corrupt: luck.of("corrupt"),
                duplicate: luck.of("duplicate"),
                reorder: luck.of("reorder"),
                jitter: luck.of("jitter"),
                random: luck.of("random"),
            },
            up: true,
            quiet: false,
            clock: Time::ZERO,
            serializer: Serializer::new(config.rate),
            queue: VecDeque::new(),
            queued_bytes: 0,
            wire: Lane(VecDeque::new()),
            held: Lane(VecDeque::new()),
            events: VecDeque::new(),
            scripted: config.script.partition_point(|&nth| nth == 0),
            scheduled: 0,
            stats,
            config,
        }
    }

    /// Goes on with these streams.
    pub(crate) fn inherit(&mut self, jitter: Option<Rng>, random: Option<Rng>) {
        let streams = &mut self.streams;
        [(&mut streams.jitter, jitter), (&mut streams.random, random)]
            .into_iter()
            .for_each(|(mine, theirs)| *mine = theirs.unwrap_or_else(|| mine.clone()));
    }

    /// The transmitter has been idle since `at`, with `credit` nanobytes to spare in that nanosecond.
    pub(crate) const fn idle(&mut self, at: Time, credit: u64) {
        self.serializer.idle(at, credit);
    }

    /// Has `packet` on the wire.
    pub(crate) fn flying(&mut self, arrive: Time, packet: P) {
        self.wire.push(arrive, packet);
    }

    /// Has `packet` queued at `now`; if it is the first, it leaves at `depart`.
    pub(crate) fn queued(&mut self, now: Time, depart: Time, packet: P) {
        if self.queue.is_empty() {
            self.serializer.resume(now, depart);
        }
        let bytes = packet.bytes();
        self.queued_bytes += u64::from(bytes);
        self.queue.push_back(Queued { bytes, packet });
    }

    /// Whether drops are to be counted only.
    pub(crate) const fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// What it has seen until the last call.
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.stats;
        watch(&mut stats, &self.queue, self.queued_bytes, self.clock);
        stats
    }

    pub(crate) const fn config(&self) -> &LinkConfig {
        &self.config
    }

    pub(crate) const fn is_up(&self) -> bool {
        self.up
    }

    pub(crate) fn inside(&self) -> usize {
        self.queue.len() + self.wire.0.len() + self.held.0.len()
    }

    pub(crate) const fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// When to poll next, or a time already past if something is ready.
    pub(crate) fn due(&self) -> Time {
        let event = self.events.front().map_or(Time::NEVER, Event::at);
        let leaving = self.serializer.done() + self.config.delay;
        event.min(self.wire.due()).min(self.held.due()).min(leaving).min(self.next_change())
    }

    fn next_change(&self) -> Time {
        self.config.schedule.get(self.scheduled).map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Lets everything happen that happens until `now`, in order.
    fn advance(&mut self, now: Time) {
        loop {
            let (done, change) = (self.serializer.done(), self.next_change());
            if done.min(change) > now || done.min(change) == Time::NEVER {
                break;
            }
            if done <= change {
                self.depart(done);
            } else {
                let (at, command) = self.config.schedule[self.scheduled];
                self.scheduled += 1;
                self.change(at.max(self.clock), command);
            }
        }
        self.clock = self.clock.max(now);
    }

    /// Adds up the queue until `at`, before it changes.
    fn watch(&mut self, at: Time) {
        watch(&mut self.stats, &self.queue, self.queued_bytes, at);
        self.stats.until = self.stats.until.max(at);
    }

    /// Takes `packet` on, or not.
    pub(crate) fn offer(&mut self, now: Time, mut packet: P) {
        self.advance(now);
        let at = self.clock;
        if self.stats.offered == 0 {
            (self.stats.since, self.stats.until) = (at, at);
        }
        let bytes = packet.bytes();
        self.stats.offered += 1;
        self.stats.offered_bytes += u64::from(bytes);
        if let Some(why) = self.refuses(bytes) {
            return self.drop(at, why, packet);
        }
        self.watch(at);
        if self.config.mark_above_bytes.is_some_and(|threshold| self.queued_bytes > threshold) {
            packet.mark();
            self.stats.marked += 1;
        }
        if self.queue.is_empty() {
            self.serializer.start(at, bytes);
        }
        self.queue.push_back(Queued { bytes, packet });
        self.queued_bytes += u64::from(bytes);
        self.stats.queue_max_bytes = self.stats.queue_max_bytes.max(self.queued_bytes);
        self.stats.queue_max_packets = self.stats.queue_max_packets.max(self.queue.len() as u64);
    }

    fn refuses(&mut self, bytes: u32) -> Option<Why> {
        if self.config.script.get(self.scripted) == Some(&self.stats.offered) {
            self.scripted += 1;
            return Some(Why::Script);
        }
        if !self.up {
            return Some(Why::Down);
        }
        if bytes > self.config.mtu_bytes {
            return Some(Why::Mtu);
        }
        let full = self.queue.len() >= self.config.queue_packets as usize
            || self.queued_bytes + u64::from(bytes) > self.config.queue_bytes
            || self.inside() >= MAX_INSIDE;
        (full || self.unlucky(bytes)).then_some(Why::Queue)
    }

    /// Whether the queue drops although it is not full.
    fn unlucky(&mut self, bytes: u32) -> bool {
        let Discipline::Random { last_packets, p } = self.config.discipline else { return false };
        let queued = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        let near = self.config.queue_packets - queued <= last_packets
            || self.config.queue_bytes - self.queued_bytes
                < u64::from(bytes).saturating_mul(u64::from(last_packets) + 1);
        near && self.streams.random.chance(p)
    }

    fn depart(&mut self, at: Time) {
        self.watch(at);
        self.serializer.finish();
        let Queued { bytes, mut packet } = self.queue.pop_front().expect("a packet was being sent");
        self.queued_bytes -= u64::from(bytes);
        if let Some(next) = self.queue.front() {
            self.serializer.start(at, next.bytes);
        }
        if self.streams.loss.chance(self.config.loss) {
            return self.drop(at, Why::Loss, packet);
        }
        if bytes > 0 && self.streams.corrupt.chance(self.config.corrupt) {
            packet.corrupt(self.streams.corrupt.below(u64::from(bytes) * 8));
            self.stats.corrupted += 1;
        }
        if self.streams.duplicate.chance(self.config.duplicate) {
            self.stats.duplicated += 1;
            self.fly(at, packet.clone());
        }
        self.fly(at, packet);
    }

    fn fly(&mut self, at: Time, packet: P) {
        let mut at = at + self.config.delay;
        if self.config.jitter > Span::ZERO {
            let most = self.config.jitter.as_nanos();
            at += Span::from_nanos(self.streams.jitter.below(most.saturating_add(1)));
        }
        if self.streams.reorder.chance(self.config.reorder) {
            self.stats.reordered += 1;
            self.held.push(at + self.config.reorder_by, packet);
        } else {
            self.wire.push(at, packet);
        }
    }

    fn drop(&mut self, at: Time, why: Why, packet: P) {
        self.stats.dropped.count(why);
        if !self.quiet {
            self.events.push_back(Event::Dropped { at, why, packet });
        }
    }

    fn change(&mut self, at: Time, command: Command) {
        match command {
            Command::Up(up) if up == self.up => {}
            Command::Up(up) => {
                self.up = up;
                self.events.push_back(Event::State { at, up });
                if !up {
                    self.watch(at);
                    self.serializer.abort();
                    self.queued_bytes = 0;
                    while let Some(Queued { packet, .. }) = self.queue.pop_front() {
                        self.drop(at, Why::Down, packet);
                    }
                }
            }
            Command::Rate(rate) => {
                self.serializer.set_rate(at, rate, !self.queue.is_empty());
                self.config.rate = rate;
            }
            Command::Delay(delay) => self.config.delay = delay,
            Command::Loss(loss) => self.config.loss = loss,
        }
    }

    /// Changes it at `now`.
    pub(crate) fn command(&mut self, now: Time, command: Command) {
        self.advance(now);
        self.change(self.clock, command);
    }

    /// Everything due until `now`, in the order of its time; at one time events first.
    pub(crate) fn poll(&mut self, now: Time) -> Output<Arrival<P>, Event<P>> {
        self.advance(now);
        let arrival = self.wire.due().min(self.held.due());
        if self.events.front().is_some_and(|event| event.at() <= arrival)
            && let Some(event) = self.events.pop_front()
        {
            return Output::Event(event);
        }
        if arrival <= now {
            let lane = if self.wire.due() <= arrival { &mut self.wire } else { &mut self.held };
            if let Some(arrival) = lane.0.pop_front() {
                self.stats.delivered += 1;
                self.stats.delivered_bytes += u64::from(arrival.packet.bytes());
                return Output::Send(arrival);
            }
        }
        Output::Wait(self.due())
    }
}
