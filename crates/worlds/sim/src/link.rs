//! Implements a link: a queue, a transmitter and a wire, in one direction, with faults for tests.
//!
//! A packet passes these steps in this order: counted → scripted losses → down → MTU → the queue's discipline
//! and limit → congestion mark → waits → may be dropped by CoDel → is serialized → random loss → corruption →
//! duplication → delay, jitter, reordering → arrives. So a packet lost on the wire has used its share of the
//! link, and one dropped by a script has not.
//!
//! **Time.** Departures follow from the link's own clock (the last departure plus serialization), never from
//! the moment of a call. Driven late by a real clock, the link still returns the results of an ideal one,
//! with the exact time in [`Arrival::at`]. At the same instant, departures come before changes, and both
//! before new arrivals.
//!
//! **Down.** A link that goes down drops its queue, including the packet being sent, and every packet offered
//! until it is up again. Packets that have left the transmitter are past the break and arrive.

use crate::event_link::EventLink;
use crate::fifo_link::FifoLink;
use crate::histogram::Histogram;
use crate::rng::RngSeed;
use crate::{LinkChange, LinkConfig, Stats};
use anabranch_algo::{Machine, Output, Rate, Time};
use std::collections::VecDeque;

pub use crate::packet::{Arrival, DropReason, Event, MAX_OCCUPANCY, Packet};

/// Lists the inputs of a link.
#[derive(Clone, Debug, PartialEq)]
pub enum Input<P> {
    /// A packet to carry.
    Packet(P),
    /// A change, in addition to those of [`LinkConfig::schedule`].
    Change(LinkChange),
}

/// One direction of a link; see the [module](self).
///
/// Unlike most machines, it accepts several inputs before it is polled.
#[derive(Clone, Debug)]
pub struct Link<P> {
    kind: LinkKind<P>,
    /// Everything until this time has happened.
    clock: Time,
    /// Packets that were dropped when they were offered, not reported yet.
    refused: VecDeque<Event<P>>,
}

/// The implementation of a link: the simplest one that its configuration allows.
#[derive(Clone, Debug)]
pub(crate) enum LinkKind<P> {
    Fifo(FifoLink<P>),
    Event(Box<EventLink<P>>),
}

impl<P: Packet> LinkKind<P> {
    pub(crate) fn new(config: LinkConfig, seed: u64, name: &str) -> Self {
        let rng_seed = RngSeed::new(seed, name);
        if FifoLink::<P>::suits(&config) {
            Self::Fifo(FifoLink::new(&config, rng_seed))
        } else {
            Self::Event(Box::new(EventLink::new(config, rng_seed, Stats::default())))
        }
    }

    /// Converts the link to one that can be changed, if it is not one already.
    pub(crate) fn make_event_link(&mut self, now: Time) -> &mut EventLink<P> {
        if let Self::Fifo(fifo_link) = self {
            let rng_seed = RngSeed::new(0, "");
            let fifo_link = std::mem::replace(fifo_link, FifoLink::new(&LinkConfig::default(), rng_seed));
            *self = Self::Event(Box::new(fifo_link.into_event_link(now)));
        }
        match self {
            Self::Event(event_link) => event_link,
            Self::Fifo(_) => unreachable!("it was just made one"),
        }
    }

    pub(crate) fn stats(&self, now: Time) -> Stats {
        match self {
            Self::Fifo(fifo_link) => fifo_link.stats(now),
            Self::Event(event_link) => event_link.stats(),
        }
    }

    pub(crate) fn sojourns(&self) -> Option<&Histogram> {
        match self {
            Self::Fifo(_) => None,
            Self::Event(event_link) => event_link.sojourns(),
        }
    }

    pub(crate) fn rate(&self) -> Option<Rate> {
        match self {
            Self::Fifo(fifo_link) => fifo_link.config().rate,
            Self::Event(event_link) => event_link.config().rate,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        match self {
            Self::Fifo(_) => true,
            Self::Event(event_link) => event_link.is_up(),
        }
    }

    pub(crate) fn occupancy(&self) -> usize {
        match self {
            Self::Fifo(fifo_link) => fifo_link.occupancy(),
            Self::Event(event_link) => event_link.occupancy(),
        }
    }

    pub(crate) fn queued_bytes(&self, now: Time) -> u64 {
        match self {
            Self::Fifo(fifo_link) => fifo_link.queued_bytes(now),
            Self::Event(event_link) => event_link.queued_bytes(),
        }
    }

    pub(crate) fn due(&self) -> Time {
        match self {
            Self::Fifo(fifo_link) => fifo_link.due(),
            Self::Event(event_link) => event_link.due(),
        }
    }
}

impl<P: Packet> Link<P> {
    /// Makes a link that is up. `name` chooses its random streams of the run `seed`, so give each link its
    /// own name.
    #[must_use]
    pub fn new(mut config: LinkConfig, seed: u64, name: &str) -> Self {
        config.station = None;
        Self { kind: LinkKind::new(config, seed, name), clock: Time::ZERO, refused: VecDeque::new() }
    }

    /// Returns the counters as of the last call.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.kind.stats(self.clock)
    }

    /// Returns the configuration, with the changes made so far.
    #[must_use]
    pub fn config(&self) -> LinkConfig {
        match &self.kind {
            LinkKind::Fifo(fifo_link) => fifo_link.config(),
            LinkKind::Event(event_link) => event_link.config().clone(),
        }
    }

    /// Returns whether the link is up, as of the last call.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.kind.is_up()
    }

    /// Returns the number of packets queued or propagating.
    #[must_use]
    pub fn occupancy(&self) -> usize {
        self.kind.occupancy()
    }

    /// Returns the bytes queued as of the last call, including the packet being sent.
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        self.kind.queued_bytes(self.clock)
    }

    /// Returns how long packets stayed on the link until their last bit left, as of the last call. Returns
    /// `None` if the link does not play a [trace](LinkConfig::trace).
    #[must_use]
    pub fn sojourns(&self) -> Option<&Histogram> {
        self.kind.sojourns()
    }

    /// Returns the time of the next poll, which [`Output::Wait`] also reports, or a time in the past if an
    /// output is ready.
    ///
    /// Departures need no poll of their own, so a packet costs one wake-up, not two.
    #[must_use]
    pub fn due(&self) -> Time {
        self.kind.due().min(self.refused.front().map_or(Time::NEVER, Event::at))
    }
}

impl<P: Packet> Machine for Link<P> {
    type Input<'a> = Input<P>;
    type Transmit = Arrival<P>;
    type Event = Event<P>;

    /// Handles an input. A time before the last call counts as the time of the last call.
    fn handle(&mut self, now: Time, input: Input<P>) {
        self.clock = self.clock.max(now);
        match (input, &mut self.kind) {
            (Input::Change(change), kind) => kind.make_event_link(self.clock).change(self.clock, change),
            (Input::Packet(packet), LinkKind::Event(event_link)) => event_link.offer(self.clock, packet),
            (Input::Packet(packet), LinkKind::Fifo(fifo_link)) => {
                let bytes = packet.bytes();
                match fifo_link.admit(self.clock, bytes) {
                    Ok(admission) => {
                        fifo_link.take(self.clock, bytes, admission, packet);
                    }
                    Err(reason) => self.refused.push_back(Event::Dropped { at: self.clock, reason, packet }),
                }
            }
        }
    }

    /// Returns the outputs due until `now`, one at a time in the order of time; at the same time, events come
    /// first.
    fn poll(&mut self, now: Time) -> Output<Arrival<P>, Event<P>> {
        self.clock = self.clock.max(now);
        if self.refused.front().is_some_and(|event| event.at() <= self.kind.due())
            && let Some(event) = self.refused.pop_front()
        {
            return Output::Event(event);
        }
        match &mut self.kind {
            LinkKind::Event(event_link) => event_link.poll(now),
            LinkKind::Fifo(fifo_link) if fifo_link.due() <= now && fifo_link.due() < Time::NEVER => {
                match fifo_link.pop() {
                    Some((arrival, _)) => Output::Send(arrival),
                    None => Output::Wait(Time::NEVER),
                }
            }
            LinkKind::Fifo(fifo_link) => Output::Wait(fifo_link.due()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_algo::{Rate, Span};

    /// Records what was done to a packet.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Probe {
        id: u64,
        bytes: u32,
        marked: bool,
        flipped: Option<u64>,
    }

    impl Packet for Probe {
        fn bytes(&self) -> u32 {
            self.bytes
        }
        fn mark(&mut self) {
            self.marked = true;
        }
        fn corrupt(&mut self, bit: u64) {
            self.flipped = Some(bit);
        }
    }

    const fn probe(id: u64, bytes: u32) -> Input<Probe> {
        Input::Packet(Probe { id, bytes, marked: false, flipped: None })
    }

    const fn ms(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    /// Makes a link of 1 Mbyte/s, on which a packet of 1,000 bytes takes a millisecond.
    fn config() -> LinkConfig {
        LinkConfig::new(Rate::from_bytes(1_000_000), Span::from_millis(10))
    }

    /// Collects the outputs of a link: arrivals as (at, packet), drops as (at, id, reason), states as (at,
    /// up).
    #[derive(Debug, Default, PartialEq)]
    struct Seen {
        arrived: Vec<(Time, Probe)>,
        dropped: Vec<(Time, u64, DropReason)>,
        states: Vec<(Time, bool)>,
    }

    impl Seen {
        fn ids(&self) -> Vec<u64> {
            self.arrived.iter().map(|(_, probe)| probe.id).collect()
        }

        /// Polls whenever the link asks for it, until `end`.
        fn run(&mut self, link: &mut Link<Probe>, mut now: Time, end: Time) {
            loop {
                match link.poll(now) {
                    Output::Send(Arrival { at, packet }) => {
                        assert!(at <= now);
                        self.arrived.push((at, packet));
                    }
                    Output::Event(Event::Dropped { at, reason, packet }) => {
                        self.dropped.push((at, packet.id, reason));
                    }
                    Output::Event(Event::State { at, up }) => self.states.push((at, up)),
                    Output::Wait(next) if next > end || next == Time::NEVER => break,
                    Output::Wait(next) => {
                        assert!(next > now);
                        now = next;
                    }
                }
                let stats = link.stats();
                let out = stats.delivered + stats.dropped.total() + link.occupancy() as u64;
                assert_eq!(stats.offered + stats.duplicated, out);
            }
        }
    }

    /// Sends `count` packets of `bytes` bytes at time zero, and runs the link until all have arrived or are
    /// dropped.
    fn burst(config: LinkConfig, count: u64, bytes: u32) -> (Seen, Stats) {
        let mut link = Link::new(config, 42, "burst");
        (1..=count).for_each(|id| link.handle(Time::ZERO, probe(id, bytes)));
        let mut seen = Seen::default();
        seen.run(&mut link, Time::ZERO, Time::NEVER);
        assert_eq!(link.occupancy(), 0);
        (seen, link.stats())
    }

    /// Sends a packet of 1,000 bytes each millisecond, which is the rate of the link.
    fn steady(config: LinkConfig, count: u64) -> (Seen, Stats) {
        let mut link = Link::new(config, 42, "steady");
        let mut seen = Seen::default();
        for id in 1..=count {
            link.handle(ms(id), probe(id, 1_000));
            seen.run(&mut link, ms(id), Time::from_nanos(ms(id + 1).as_nanos() - 1));
        }
        seen.run(&mut link, ms(count + 1), Time::NEVER);
        (seen, link.stats())
    }

    #[test]
    fn rate_and_delay_are_exact() {
        let config =
            LinkConfig::new(Rate::from_bits(100_000_000), Span::from_millis(7)).queue_packets(10_000);
        let (seen, stats) = burst(config, 10_000, 1_500);
        assert_eq!(seen.ids(), (1..=10_000).collect::<Vec<_>>());
        for (at, probe) in &seen.arrived {
            assert_eq!(at.as_nanos(), 7_000_000 + probe.id * 120_000);
        }
        assert_eq!(stats.busy, Span::from_nanos(1_200_000_000));
        assert_eq!((stats.queue_max_packets, stats.queue_max_bytes), (10_000, 15_000_000));
        // The queue drains from 15 MB to one packet in equal steps.
        assert_eq!(stats.queue_mean_bytes(), 7_500_750.0);
        assert_eq!(stats.utilisation(), 1.0);
    }

    #[test]
    fn a_late_caller_gets_what_an_early_one_does() {
        let config = config().loss(0.1).down(ms(50), ms(70));
        let feed =
            |link: &mut Link<Probe>| (1..=100).for_each(|id| link.handle(Time::ZERO, probe(id, 1_000)));
        let (mut eager, mut lazy) = (Link::new(config.clone(), 1, "a"), Link::new(config, 1, "a"));
        let (mut early, mut late) = (Seen::default(), Seen::default());
        feed(&mut eager);
        feed(&mut lazy);
        early.run(&mut eager, Time::ZERO, Time::NEVER);
        late.run(&mut lazy, ms(1_000), Time::NEVER);
        assert_eq!(early, late);
        assert_eq!(eager.stats(), lazy.stats());
    }

    #[test]
    fn an_unlimited_link_only_delays() {
        let config = LinkConfig { delay: Span::from_millis(3), queue_packets: 1, ..LinkConfig::default() };
        let (seen, stats) = burst(config, 100, 1_500);
        assert!(seen.arrived.iter().all(|(at, _)| *at == ms(3)));
        assert_eq!(stats.delivered, 100);
    }

    #[test]
    fn the_queue_drops_its_tail() {
        let (seen, stats) = burst(config().queue_packets(30), 100, 1_000);
        assert_eq!(seen.ids(), (1..=30).collect::<Vec<_>>());
        assert_eq!((stats.dropped.queue, stats.dropped.total()), (70, 70));
        // The queue of 4,500 bytes takes four packets but not five; a small one still fits.
        let mut link = Link::new(config().queue_bytes(4_500), 1, "a");
        (1..=5).for_each(|id| link.handle(Time::ZERO, probe(id, 1_000)));
        link.handle(Time::ZERO, probe(6, 500));
        let mut seen = Seen::default();
        seen.run(&mut link, Time::ZERO, Time::NEVER);
        assert_eq!(seen.ids(), [1, 2, 3, 4, 6]);
        // A departure makes room for a packet that arrives in the same nanosecond.
        let (seen, _) = steady(config().queue_packets(1), 50);
        assert_eq!(seen.arrived.len(), 50);
    }

    #[test]
    fn the_script_hits_exactly_the_nth() {
        let scripted_drops = vec![7, 1, 7, 0, 50, 101];
        let (seen, stats) = burst(LinkConfig { scripted_drops, ..config() }, 100, 1_000);
        assert_eq!(seen.dropped, [1, 7, 50].map(|id| (Time::ZERO, id, DropReason::Scripted)));
        assert_eq!((stats.dropped.scripted, stats.delivered), (3, 97));
    }

    #[test]
    fn random_faults_are_within_four_sigma() {
        let n = 100_000;
        let near = |seen: u64, p: f64| {
            let (mean, sigma) = (n as f64 * p, (n as f64 * p * (1.0 - p)).sqrt());
            assert!((seen as f64 - mean).abs() < 4.0 * sigma, "{seen} of {n} at {p}");
        };
        let faults = LinkConfig { queue_packets: u32::MAX, loss: 0.02, ..config() };
        let (lossy, stats) = burst(faults.clone(), n, 1_000);
        near(stats.dropped.loss, 0.02);
        let faults = LinkConfig { corrupt: 0.01, duplicate: 0.03, ..faults };
        let (seen, stats) = burst(faults, n, 1_000);
        near(stats.corrupted, 0.01 * 0.98);
        near(stats.duplicated, 0.03 * 0.98);
        assert_eq!(seen.dropped, lossy.dropped, "one fault does not shift another's numbers");
        assert!(seen.arrived.iter().all(|(_, probe)| probe.flipped.is_none_or(|bit| bit < 8_000)));
        assert_eq!(seen.arrived.len() as u64, n - stats.dropped.loss + stats.duplicated);
        // A lost packet has used its sending time.
        assert_eq!(stats.busy, Span::from_millis(n));
    }

    #[test]
    fn jitter_stays_within_its_bounds_and_in_order() {
        let jitter = Span::from_millis(4);
        let (seen, _) = steady(LinkConfig { jitter, ..config() }, 1_000);
        assert_eq!(seen.ids(), (1..=1_000).collect::<Vec<_>>());
        let extra = seen.arrived.iter().map(|(at, probe)| at.since(ms(probe.id + 11)));
        assert!(extra.clone().all(|extra| extra <= jitter));
        assert!(extra.clone().max() > Some(Span::from_micros(3_900)));
        assert!(extra.min() < Some(Span::from_micros(400)));
    }

    #[test]
    fn a_held_packet_is_overtaken() {
        let reorder_by = Span::from_micros(2_500);
        let (seen, stats) = steady(LinkConfig { reorder: 0.1, reorder_by, ..config() }, 1_000);
        let held = |(at, probe): &&(Time, Probe)| *at == ms(probe.id + 11) + reorder_by;
        assert_eq!(seen.arrived.iter().filter(held).count() as u64, stats.reordered);
        assert!((60..140).contains(&stats.reordered));
        assert!(seen.arrived.is_sorted_by_key(|(at, _)| *at));
        assert!(!seen.ids().is_sorted());
        assert_eq!(stats.delivered, 1_000);
    }

    #[test]
    fn marks_start_above_the_threshold() {
        let (seen, stats) = burst(LinkConfig { mark_above_bytes: Some(5_000), ..config() }, 10, 1_000);
        let marked: Vec<_> =
            seen.arrived.iter().filter(|(_, probe)| probe.marked).map(|(_, p)| p.id).collect();
        assert_eq!(marked, [7, 8, 9, 10]);
        assert_eq!(stats.marked, 4);
    }

    #[test]
    fn what_is_larger_than_the_mtu_is_dropped() {
        let mut link = Link::new(LinkConfig { mtu_bytes: 1_280, ..config() }, 1, "a");
        link.handle(Time::ZERO, probe(1, 1_281));
        link.handle(Time::ZERO, probe(2, 1_280));
        let mut seen = Seen::default();
        seen.run(&mut link, Time::ZERO, Time::NEVER);
        assert_eq!((seen.ids(), link.stats().dropped.mtu), (vec![2], 1));
        assert_eq!(seen.dropped, [(Time::ZERO, 1, DropReason::Mtu)]);
    }

    #[test]
    fn down_drops_the_queue_but_not_the_wire() {
        // Packets 1 and 2 have left at 1 and 2 ms, packet 3 is being sent, and packets 4 and 5 wait.
        let mut link = Link::new(config().down(Time::from_nanos(2_500_000), ms(20)), 1, "a");
        (1..=5).for_each(|id| link.handle(Time::ZERO, probe(id, 1_000)));
        let mut seen = Seen::default();
        seen.run(&mut link, Time::ZERO, ms(15));
        assert!(!link.is_up());
        link.handle(ms(15), probe(6, 1_000));
        seen.run(&mut link, ms(15), ms(30));
        link.handle(ms(30), probe(7, 1_000));
        seen.run(&mut link, ms(30), Time::NEVER);
        let broken = Time::from_nanos(2_500_000);
        assert_eq!(seen.states, [(broken, false), (ms(20), true)]);
        assert_eq!(seen.dropped[..3], [3, 4, 5].map(|id| (broken, id, DropReason::Down)));
        assert_eq!(seen.dropped[3..], [(ms(15), 6, DropReason::Down)]);
        let arrived: Vec<_> = seen.arrived.iter().map(|(at, probe)| (*at, probe.id)).collect();
        assert_eq!(arrived, [(ms(11), 1), (ms(12), 2), (ms(41), 7)]);
    }

    #[test]
    fn rate_and_delay_change_on_time() {
        // Half of packet 1 leaves at 1 MB/s, the other half at 250 kB/s. Then comes a stall, then no limit
        // and less delay.
        let config = config()
            .at(Time::from_nanos(500_000), LinkChange::Rate(Some(Rate::from_bytes(250_000))))
            .at(ms(3), LinkChange::Rate(Some(Rate::from_bytes(0))))
            .at(ms(40), LinkChange::Delay(Span::from_millis(1)))
            .at(ms(40), LinkChange::Rate(None));
        let (seen, _) = burst(config, 3, 1_000);
        let arrived: Vec<_> = seen.arrived.iter().map(|(at, _)| *at).collect();
        assert_eq!(arrived, [Time::from_nanos(12_500_000), ms(41), ms(41)]);
        // With a shorter delay, a packet does not overtake those on the wire.
        let mut link = Link::new(LinkConfig::new(Rate::from_bytes(1_000_000), Span::from_millis(50)), 1, "a");
        link.handle(Time::ZERO, probe(1, 1_000));
        link.handle(ms(2), Input::Change(LinkChange::Delay(Span::ZERO)));
        link.handle(ms(2), probe(2, 1_000));
        let mut seen = Seen::default();
        seen.run(&mut link, ms(2), Time::NEVER);
        assert_eq!(seen.ids(), [1, 2]);
        assert_eq!(seen.arrived[1].0, ms(51));
    }

    #[test]
    fn at_one_time_events_come_first() {
        // At 11 ms packet 1 arrives and the link breaks. Packet 11 has just left, and packet 12 is dropped.
        let mut link = Link::new(config().at(ms(11), LinkChange::Up(false)), 1, "a");
        (1..=12).for_each(|id| link.handle(Time::ZERO, probe(id, 1_000)));
        assert_eq!(link.poll(Time::ZERO), Output::Wait(ms(11)));
        assert_eq!(link.poll(ms(11)), Output::Event(Event::State { at: ms(11), up: false }));
        let Output::Event(Event::Dropped { at, reason: DropReason::Down, packet }) = link.poll(ms(11)) else {
            panic!()
        };
        assert_eq!((at, packet.id), (ms(11), 12));
        let Output::Send(Arrival { at, packet }) = link.poll(ms(11)) else { panic!() };
        assert_eq!((at, packet.id), (ms(11), 1));
        assert_eq!(link.poll(ms(11)), Output::Wait(ms(12)));
    }
}
