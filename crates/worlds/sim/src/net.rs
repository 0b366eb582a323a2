//! Implements a network of links and routes, with one queue of wake-ups.
//!
//! Each link is a FIFO. Only its head is in the queue of wake-ups, by its time of arrival. So the cost of a
//! packet depends on the number of busy links, not on the number of packets under way. A packet enters the
//! next link at the exact time at which it left the link before, however late the network is polled.
//!
//! **Sending on the way.** [`Net::poll`] returns deliveries one at a time, in the order of time. After a
//! delivery at `t` (not after the limit of the call), the caller may send with `now = t` and go on polling.
//! Nothing later than `t` has happened yet.

use crate::link::{self, Arrival, DropReason, LinkKind, Packet};
use crate::medium::Medium;
use crate::{EventQueue, Frame, Histogram, LinkChange, LinkConfig, MediumId, Stats};
use anabranch_algo::{Machine, Output, Rate, Span, Time};
use std::collections::{BTreeMap, VecDeque};

/// The number of a link of a [`Net`], in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// The number of a route of a [`Net`], in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub u32);

/// Lists the inputs of a network.
#[derive(Clone, Debug, PartialEq)]
pub enum Input<P> {
    /// Sends a packet.
    Send {
        /// The route that the packet takes.
        route: RouteId,
        /// The packet.
        packet: P,
    },
    /// Changes a link.
    Change {
        /// The link.
        link: LinkId,
        /// The change.
        change: LinkChange,
    },
}

/// Reports a packet at the end of its route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// The exact time of arrival, not after the time of the call that returns the delivery.
    pub at: Time,
    /// The route that it took.
    pub route: RouteId,
    /// The packet.
    pub packet: P,
}

/// The events that a network reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<P> {
    /// A packet was dropped.
    Dropped {
        /// The time of the drop.
        at: Time,
        /// The link that dropped it.
        link: LinkId,
        /// The route that the packet was on.
        route: RouteId,
        /// The reason for the drop.
        reason: DropReason,
        /// The packet.
        packet: P,
    },
    /// A link went up or down.
    State {
        /// The time of the change.
        at: Time,
        /// The link.
        link: LinkId,
        /// Whether it is up now.
        up: bool,
    },
}

/// Simulates links and routes; see the [module](self).
#[derive(Clone, Debug)]
pub struct Net<P> {
    seed: u64,
    links: Vec<LinkSlot<P>>,
    /// The routes one after another: the links of each, then [`ROUTE_END`] plus the number of the route.
    hops: Vec<u32>,
    /// The index in `hops` at which each route begins.
    routes: Vec<u32>,
    mediums: Vec<Medium>,
    /// Links that only delay, by their delay.
    pipes: BTreeMap<Span, LinkId>,
    wakes: EventQueue<u32>,
    /// The time of the last wake-up.
    clock: Time,
    /// Packets that were dropped at their first link, not reported yet.
    refused: VecDeque<Event<P>>,
    /// Whether drops are only counted, not reported.
    quiet: bool,
    /// The number of coming wake-ups whose memory has been read ahead.
    read_ahead: u32,
}

/// The number of wake-ups whose memory is read together, so that their cache misses are waited for only once.
const READ_AHEAD: usize = 16;
/// A tick with at least this many wake-ups belongs to a network that is too large for the cache.
const CROWD: usize = 32;

/// Marks the end of a route in `hops`. No link has a number this large.
const ROUTE_END: u32 = 1 << 31;

#[derive(Clone, Debug)]
struct LinkSlot<P> {
    /// The time of the valid wake-up. Other wake-ups of this link in the queue are out of date.
    wake: Time,
    kind: LinkKind<RoutedPacket<P>>,
}

/// A packet under way, on the link at index `hop` of `hops`.
#[derive(Clone, Debug)]
struct RoutedPacket<P> {
    hop: u32,
    packet: P,
}

impl<P: Packet> Packet for RoutedPacket<P> {
    fn bytes(&self) -> u32 {
        self.packet.bytes()
    }
    fn is_ect(&self) -> bool {
        self.packet.is_ect()
    }
    fn flow(&self) -> Option<u32> {
        self.packet.flow()
    }
    fn flow_key(&self) -> u64 {
        self.packet.flow_key()
    }
    fn mark(&mut self) {
        self.packet.mark();
    }
    fn corrupt(&mut self, bit: u64) {
        self.packet.corrupt(bit);
    }
}

impl<P: Packet> Net<P> {
    /// Makes a network without links. All randomness follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            links: Vec::new(),
            hops: Vec::new(),
            routes: Vec::new(),
            mediums: Vec::new(),
            pipes: BTreeMap::new(),
            wakes: EventQueue::new(),
            clock: Time::ZERO,
            refused: VecDeque::new(),
            quiet: false,
            read_ahead: 0,
        }
    }

    /// Sets whether drops are reported as events, which is the default. [`Stats`] count drops in any case. If
    /// they are not reported, a drop costs nothing but its counter.
    pub fn report_drops(&mut self, report: bool) {
        self.quiet = !report;
        for slot in &mut self.links {
            if let LinkKind::Event(event_link) = &mut slot.kind {
                event_link.set_quiet(self.quiet);
            }
        }
    }

    /// Adds a link. Its randomness depends on the seed and `name` alone, so give each link its own name.
    ///
    /// # Panics
    /// If there are 2^31 links, or the link's medium is not one of this network.
    pub fn link(&mut self, name: &str, config: LinkConfig) -> LinkId {
        let of_this = |medium: MediumId| (medium.0 as usize) < self.mediums.len();
        assert!(
            config.station.as_ref().is_none_or(|station| of_this(station.medium)),
            "a medium of another network"
        );
        let id =
            u32::try_from(self.links.len()).ok().filter(|id| *id < ROUTE_END).expect("fewer than 2^31 links");
        let mut kind = LinkKind::new(config, self.seed, name);
        if let LinkKind::Event(event_link) = &mut kind {
            event_link.set_quiet(self.quiet);
        }
        self.links.push(LinkSlot { wake: Time::NEVER, kind });
        self.reschedule(id);
        LinkId(id)
    }

    /// Returns a link that only delays packets, by `delay`. Calls with equal delays return the same link.
    pub fn pipe(&mut self, delay: Span) -> LinkId {
        if let Some(id) = self.pipes.get(&delay) {
            return *id;
        }
        let config = LinkConfig { queue_packets: u32::MAX, delay, ..LinkConfig::default() };
        let id = self.link(&format!("pipe of {delay}"), config);
        self.pipes.insert(delay, id);
        id
    }

    /// Adds a medium that links share ([`LinkConfig::station`]). Its randomness depends on the seed and its
    /// `name` alone.
    ///
    /// # Panics
    /// If there are 2^32 media.
    pub fn medium(&mut self, name: &str) -> MediumId {
        let id = MediumId(u32::try_from(self.mediums.len()).expect("fewer than 2^32 media"));
        self.mediums.push(Medium::new(self.seed, name));
        id
    }

    /// Adds a route over `links`, in this order.
    ///
    /// # Panics
    /// If `links` is empty, or one of them is not of this network.
    pub fn route(&mut self, links: &[LinkId]) -> RouteId {
        assert!(!links.is_empty(), "a route has at least one link");
        assert!(links.iter().all(|link| (link.0 as usize) < self.links.len()), "a link of another network");
        let id = u32::try_from(self.routes.len())
            .ok()
            .filter(|id| *id < ROUTE_END)
            .expect("fewer than 2^31 routes");
        self.routes.push(u32::try_from(self.hops.len()).expect("fewer than 2^32 hops of all routes"));
        self.hops.extend(links.iter().map(|link| link.0));
        self.hops.push(ROUTE_END | id);
        RouteId(id)
    }

    /// Sends `packet` over `route`, as [`Input::Send`] does.
    ///
    /// # Panics
    /// If the route is not of this network.
    pub fn send(&mut self, now: Time, route: RouteId, packet: P) {
        let hop = self.routes[route.0 as usize];
        let event = self.enter(now.max(self.clock), self.hops[hop as usize], hop, packet);
        if let Some(event) = event {
            self.refused.push_back(event);
        }
    }

    /// Changes a link, as [`Input::Change`] does.
    ///
    /// # Panics
    /// If the link is not of this network.
    pub fn change(&mut self, now: Time, link: LinkId, change: LinkChange) {
        let now = now.max(self.clock);
        let event_link = self.links[link.0 as usize].kind.make_event_link(now);
        event_link.set_quiet(self.quiet);
        event_link.change(now, change);
        self.contend(now, link.0);
        self.reschedule(link.0);
    }

    /// Returns the counters of a link, as of the last event of the network or of the link.
    ///
    /// # Panics
    /// If the link is not of this network.
    #[must_use]
    pub fn stats(&self, link: LinkId) -> Stats {
        self.links[link.0 as usize].kind.stats(self.clock)
    }

    /// Returns how long packets stayed on a link until their last bit left, if the link plays a
    /// [trace](LinkConfig::trace). For a link with a rate, the length of its queue gives this time.
    ///
    /// # Panics
    /// If the link is not of this network.
    #[must_use]
    pub fn sojourns(&self, link: LinkId) -> Option<&Histogram> {
        self.links[link.0 as usize].kind.sojourns()
    }

    /// Returns the rate of a link now; `None` if it is unlimited.
    ///
    /// # Panics
    /// If the link is not of this network.
    #[must_use]
    pub fn rate(&self, link: LinkId) -> Option<Rate> {
        self.links[link.0 as usize].kind.rate()
    }

    /// Takes the frames that have arrived over a link since the last call, if it is a station of a medium; at
    /// most the last few thousand are kept.
    ///
    /// # Panics
    /// If the link is not of this network.
    pub fn take_frames(&mut self, link: LinkId) -> impl Iterator<Item = Frame> {
        let event_link = match &mut self.links[link.0 as usize].kind {
            LinkKind::Event(event_link) => Some(event_link),
            LinkKind::Fifo(_) => None,
        };
        event_link.into_iter().flat_map(|event_link| event_link.take_frames())
    }

    /// Returns whether a link is up.
    ///
    /// # Panics
    /// If the link is not of this network.
    #[must_use]
    pub fn is_up(&self, link: LinkId) -> bool {
        self.links[link.0 as usize].kind.is_up()
    }

    /// Returns the bytes queued at a link, including the packet being sent, as of the last event of the
    /// network or of the link.
    ///
    /// # Panics
    /// If the link is not of this network.
    #[must_use]
    pub fn queued_bytes(&self, link: LinkId) -> u64 {
        self.links[link.0 as usize].kind.queued_bytes(self.clock)
    }

    /// Returns the number of packets queued or propagating on a link.
    ///
    /// # Panics
    /// If the link is not of this network.
    #[must_use]
    pub fn occupancy(&self, link: LinkId) -> usize {
        self.links[link.0 as usize].kind.occupancy()
    }

    /// Puts a packet on link `id`, which is at index `hop` of `hops`. Returns the event to report if it is
    /// dropped.
    #[inline]
    fn enter(&mut self, at: Time, id: u32, hop: u32, packet: P) -> Option<Event<P>> {
        let slot = &mut self.links[id as usize];
        match &mut slot.kind {
            LinkKind::Fifo(fifo_link) => {
                let bytes = packet.bytes();
                match fifo_link.admit(at, bytes) {
                    Ok(admission) => {
                        let arrives = fifo_link.take(at, bytes, admission, RoutedPacket { hop, packet });
                        if let Some(arrives) = arrives.filter(|arrives| *arrives < Time::NEVER) {
                            slot.wake = arrives;
                            self.wakes.push(arrives, id);
                        }
                        None
                    }
                    Err(_) if self.quiet => None,
                    Err(reason) => Some(self.dropped(at, id, reason, RoutedPacket { hop, packet })),
                }
            }
            LinkKind::Event(_) => {
                self.enter_event_link(at, id, RoutedPacket { hop, packet });
                None
            }
        }
    }

    #[inline(never)]
    fn enter_event_link(&mut self, at: Time, id: u32, routed: RoutedPacket<P>) {
        let LinkKind::Event(event_link) = &mut self.links[id as usize].kind else { return };
        event_link.offer(at, routed);
        self.contend(at, id);
        self.reschedule(id);
    }

    #[cold]
    fn dropped(&self, at: Time, id: u32, reason: DropReason, routed: RoutedPacket<P>) -> Event<P> {
        let rest = &self.hops[routed.hop as usize..];
        let end = rest.iter().find(|hop| **hop & ROUTE_END != 0).expect("a route has an end");
        Event::Dropped {
            at,
            link: LinkId(id),
            route: RouteId(end & !ROUTE_END),
            reason,
            packet: routed.packet,
        }
    }

    /// Decides which link of a shared medium may send, after link `id` has changed.
    fn contend(&mut self, at: Time, id: u32) {
        let LinkKind::Event(event_link) = &self.links[id as usize].kind else { return };
        let Some((medium, weight, failed)) = event_link.medium() else { return };
        let (waits, sends) = event_link.contends();
        self.mediums[medium.0 as usize].update(id, (weight, failed), waits, sends);
        while let Some(winner) = self.mediums[medium.0 as usize].next_holder() {
            let event_link = self.links[winner as usize].kind.make_event_link(at);
            event_link.grant(at);
            let (waits, sends) = event_link.contends();
            if !sends {
                self.mediums[medium.0 as usize].update(winner, (0, 0), waits, sends);
            }
            self.reschedule(winner);
        }
    }

    /// Makes sure that a link is woken no later than it is due.
    fn reschedule(&mut self, id: u32) {
        let slot = &mut self.links[id as usize];
        let at = slot.kind.due().max(self.clock);
        if at < slot.wake {
            slot.wake = at;
            self.wakes.push(at, id);
        }
    }
}

impl<P: Packet> Machine for Net<P> {
    type Input<'a> = Input<P>;
    type Transmit = Delivery<P>;
    type Event = Event<P>;

    /// Handles an input.
    ///
    /// # Panics
    /// If the route or the link is not of this network.
    fn handle(&mut self, now: Time, input: Input<P>) {
        match input {
            Input::Send { route, packet } => self.send(now, route, packet),
            Input::Change { link, change } => self.change(now, link, change),
        }
    }

    /// Returns everything that happens until `now`; deliveries come in the order of time.
    #[inline]
    fn poll(&mut self, now: Time) -> Output<Delivery<P>, Event<P>> {
        if !self.refused.is_empty()
            && let Some(event) = self.refused.pop_front()
        {
            return Output::Event(event);
        }
        loop {
            let Some((at, id)) = self.wakes.pop_due(now) else { return Output::Wait(self.wakes.next_at()) };
            self.clock = at;
            if self.read_ahead > 0 {
                self.read_ahead -= 1;
            } else if !self.wakes.upcoming(CROWD).is_empty() {
                self.read_ahead();
            }
            let slot = &mut self.links[id as usize];
            if slot.wake != at {
                continue;
            }
            let LinkKind::Fifo(fifo_link) = &mut slot.kind else {
                if let Some(output) = self.poll_event_link(at, id) {
                    return output;
                }
                continue;
            };
            let Some((arrival, due)) = fifo_link.pop() else { continue };
            slot.wake = due;
            if due < Time::NEVER {
                self.wakes.push(due, id);
            }
            if let Some(output) = self.forward(arrival) {
                return output;
            }
        }
    }
}

impl<P: Packet> Net<P> {
    /// Reads the memory that the next wake-ups will need: their links, the packets that come out of them, and
    /// the links that these enter next. These reads do not depend on each other, so the processor fetches
    /// them at once. Changes no state.
    #[inline(never)]
    fn read_ahead(&mut self) {
        let mut next = [u32::MAX; READ_AHEAD];
        let upcoming = self.wakes.upcoming(CROWD);
        self.read_ahead = upcoming.len().min(READ_AHEAD) as u32;
        for (next, (_, id)) in next.iter_mut().zip(upcoming) {
            if let LinkKind::Fifo(fifo_link) = &self.links[*id as usize].kind
                && let Some(head) = fifo_link.head()
            {
                *next = self.hops[head.hop as usize + 1];
            }
        }
        let mut read = 0;
        for id in next {
            // The number at the end of a route is no link.
            if let Some(LinkSlot { kind: LinkKind::Fifo(fifo_link), .. }) = self.links.get(id as usize) {
                read ^= fifo_link.touch();
            }
        }
        std::hint::black_box(read);
    }

    /// Returns the output of the event link `id`, woken at `at`.
    #[inline(never)]
    fn poll_event_link(&mut self, at: Time, id: u32) -> Option<Output<Delivery<P>, Event<P>>> {
        let slot = &mut self.links[id as usize];
        let LinkKind::Event(event_link) = &mut slot.kind else { return None };
        let output = event_link.poll(at);
        self.contend(at, id);
        let slot = &mut self.links[id as usize];
        slot.wake = slot.kind.due().max(at);
        if slot.wake < Time::NEVER {
            self.wakes.push(slot.wake, id);
        }
        match output {
            Output::Wait(_) => None,
            Output::Send(arrival) => self.forward(arrival),
            Output::Event(link::Event::State { at, up }) => {
                Some(Output::Event(Event::State { at, link: LinkId(id), up }))
            }
            Output::Event(link::Event::Dropped { at, reason, packet }) => {
                Some(Output::Event(self.dropped(at, id, reason, packet)))
            }
        }
    }

    /// Puts a packet that has passed a link on the next one, or returns it as a delivery at the end of its
    /// route.
    #[inline]
    fn forward(&mut self, arrival: Arrival<RoutedPacket<P>>) -> Option<Output<Delivery<P>, Event<P>>> {
        let Arrival { at, packet: RoutedPacket { hop, packet } } = arrival;
        let next = self.hops[hop as usize + 1];
        if next & ROUTE_END != 0 {
            return Some(Output::Send(Delivery { at, route: RouteId(next & !ROUTE_END), packet }));
        }
        self.enter(at, next, hop + 1, packet).map(Output::Event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_algo::Rate;

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Probe(u64);

    impl Packet for Probe {
        fn bytes(&self) -> u32 {
            1_000
        }
        fn mark(&mut self) {}
    }

    const fn ms(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    /// Makes a link of 1 Mbyte/s, on which a packet takes a millisecond.
    fn config(delay_ms: u64) -> LinkConfig {
        LinkConfig::new(Rate::from_bytes(1_000_000), Span::from_millis(delay_ms))
    }

    fn run(net: &mut Net<Probe>, mut now: Time, end: Time) -> Vec<Output<Delivery<Probe>, Event<Probe>>> {
        let mut outputs = Vec::new();
        loop {
            match net.poll(now) {
                Output::Wait(next) if next > end || next == Time::NEVER => return outputs,
                Output::Wait(next) => {
                    assert!(next > now);
                    now = next;
                }
                output => outputs.push(output),
            }
        }
    }

    fn delivered(outputs: &[Output<Delivery<Probe>, Event<Probe>>]) -> Vec<(Time, u32, u64)> {
        let of = |output: &Output<Delivery<Probe>, Event<Probe>>| match output {
            Output::Send(Delivery { at, route, packet }) => Some((*at, route.0, packet.0)),
            _ => None,
        };
        outputs.iter().filter_map(of).collect()
    }

    #[test]
    fn a_packet_takes_the_links_of_its_route_in_turn() {
        let mut net = Net::new(1);
        let (a, b, c) = (net.link("a", config(5)), net.link("b", config(7)), net.link("c", config(9)));
        let (long, short) = (net.route(&[a, b, c]), net.route(&[b]));
        net.send(Time::ZERO, long, Probe(1));
        net.send(Time::ZERO, long, Probe(2));
        net.send(Time::ZERO, short, Probe(3));
        let expected = [(ms(8), short.0, 3), (ms(24), long.0, 1), (ms(25), long.0, 2)];
        assert_eq!(delivered(&run(&mut net, Time::ZERO, Time::NEVER)), expected);
        assert!([a, b, c].iter().all(|&link| net.occupancy(link) == 0));
        assert_eq!((net.stats(b).delivered, net.stats(c).delivered_bytes), (3, 2_000));
    }

    #[test]
    fn polled_late_it_is_still_exact() {
        let make = || {
            let mut net = Net::new(1);
            let links = [net.link("a", config(5)), net.link("b", config(0)), net.link("c", config(3))];
            let routes = [net.route(&links), net.route(&links[1..])];
            (1..=50).for_each(|id| net.send(Time::ZERO, routes[id as usize % 2], Probe(id)));
            net
        };
        let (mut early, mut late) = (make(), make());
        let on_time = run(&mut early, Time::ZERO, Time::NEVER);
        assert_eq!(on_time.len(), 50);
        assert_eq!(on_time, run(&mut late, ms(10_000), Time::NEVER));
    }

    #[test]
    fn a_drop_names_link_and_route() {
        let mut net = Net::new(1);
        let a = net.link("a", config(1));
        let b = net.link("b", LinkConfig { scripted_drops: vec![1], ..config(1) }.down(ms(4), ms(6)));
        let route = net.route(&[a, b]);
        (1..=3).for_each(|id| net.send(Time::ZERO, route, Probe(id)));
        let outputs = run(&mut net, Time::ZERO, Time::NEVER);
        let dropped =
            |at, reason, id| Output::Event(Event::Dropped { at, link: b, route, reason, packet: Probe(id) });
        let state = |at, up| Output::Event(Event::State { at, link: b, up });
        // Packet 2 leaves b in the instant in which b breaks, so it is past the break.
        let expected = [
            dropped(ms(2), DropReason::Scripted, 1),
            state(ms(4), false),
            dropped(ms(4), DropReason::Down, 3),
            Output::Send(Delivery { at: ms(5), route, packet: Probe(2) }),
            state(ms(6), true),
        ];
        assert_eq!(outputs, expected);
    }

    #[test]
    fn changes_reach_their_link() {
        let mut net = Net::new(1);
        let (a, b) = (net.link("a", config(1)), net.link("b", config(1)));
        let routes = [net.route(&[a]), net.route(&[b])];
        net.handle(ms(1), Input::Change { link: a, change: LinkChange::Up(false) });
        routes.iter().for_each(|&route| net.handle(ms(1), Input::Send { route, packet: Probe(1) }));
        assert_eq!(delivered(&run(&mut net, ms(1), Time::NEVER)), [(ms(3), routes[1].0, 1)]);
        assert!(!net.is_up(a) && net.is_up(b));
        assert_eq!(net.stats(a).dropped.down, 1);
    }

    #[test]
    fn an_idle_link_is_small() {
        // Three idle links and a flow are to fit 4 KiB. A link that was busy frees its memory.
        assert!(size_of::<LinkSlot<[u64; 6]>>() <= 224, "{}", size_of::<LinkSlot<[u64; 6]>>());
        assert!(size_of::<link::Link<Probe>>() < 1_024);
        let event_link = size_of::<crate::event_link::EventLink<Probe>>();
        assert!(event_link <= 1_536, "{event_link}");
    }
}
