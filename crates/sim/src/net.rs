//! A network: links, routes over them, and one queue of wake-ups.
//!
//! Each link is a FIFO of which only the head is in the queue, by the time of its arrival: the cost of a
//! packet depends on the number of links that are busy, not on the packets under way. Every packet is taken
//! on at the exact time at which it left the link before, however late the network is polled.
//!
//! **Sending on the way.** [`Net::poll`] hands out deliveries one at a time in the order of time. After one
//! at `t`, not after the limit of the call, the caller may send with `now = t` and go on polling: nothing
//! later than `t` has happened yet.

use crate::link::{self, Arrival, Core, Packet, Why};
use crate::medium::Medium;
use crate::{Command, EventQueue, LinkConfig, MediumId, Stats};
use algo::{Machine, Output, Time};
use std::collections::VecDeque;

/// A link of a [`Net`], by the order in which they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// A route of a [`Net`], by the order in which they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub u32);

/// What a network may be told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input<P> {
    /// Carry this.
    Send {
        /// Over which links.
        route: RouteId,
        /// What.
        packet: P,
    },
    /// Change a link.
    Command {
        /// Which.
        link: LinkId,
        /// How.
        command: Command,
    },
}

/// A packet at the end of its route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// When exactly it arrived; not after the time of the call that hands it out.
    pub at: Time,
    /// The route it took.
    pub route: RouteId,
    /// The packet.
    pub packet: P,
}

/// What a network reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<P> {
    /// A packet is gone.
    Dropped {
        /// When.
        at: Time,
        /// On which link.
        link: LinkId,
        /// Of which route.
        route: RouteId,
        /// Why.
        why: Why,
        /// The packet.
        packet: P,
    },
    /// A link went up or down.
    State {
        /// When.
        at: Time,
        /// Which.
        link: LinkId,
        /// What it is now.
        up: bool,
    },
}

/// Links and routes; see the [module](self).
#[derive(Clone, Debug)]
pub struct Net<P> {
    seed: u64,
    links: Vec<Slot<P>>,
    /// Route after route: its links, then [`END`] and its number.
    hops: Vec<u32>,
    /// Where each route begins in `hops`.
    routes: Vec<u32>,
    mediums: Vec<Medium>,
    wakes: EventQueue<u32>,
    /// The time of the last wake-up.
    clock: Time,
    /// Packets refused where they were sent, and nobody has been told yet.
    refused: VecDeque<Event<P>>,
    /// Whether nobody wants to hear of drops.
    quiet: bool,
}

/// Marks the end of a route in `hops`: no link has such a number.
const END: u32 = 1 << 31;

#[derive(Clone, Debug)]
struct Slot<P> {
    /// When the wake-up that counts is; others of this link in the queue are out of date.
    wake: Time,
    core: Core<Hop<P>>,
}

/// A packet on the way, on the link at `place` in `hops`.
#[derive(Clone, Debug)]
struct Hop<P> {
    place: u32,
    packet: P,
}

impl<P: Packet> Packet for Hop<P> {
    fn bytes(&self) -> u32 {
        self.packet.bytes()
    }
    fn is_ect(&self) -> bool {
        self.packet.is_ect()
    }
    fn flow(&self) -> Option<u32> {
        self.packet.flow()
    }
    fn mark(&mut self) {
        self.packet.mark();
    }
    fn corrupt(&mut self, bit: u64) {
        self.packet.corrupt(bit);
    }
}

impl<P: Packet> Net<P> {
    /// A network without links; `seed` decides everything that is left to chance.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            links: Vec::new(),
            hops: Vec::new(),
            routes: Vec::new(),
            mediums: Vec::new(),
            wakes: EventQueue::new(),
            clock: Time::ZERO,
            refused: VecDeque::new(),
            quiet: false,
        }
    }

    /// Whether drops are reported as events, as they are unless told otherwise; [`Stats`] count them anyway.
    /// Without, a drop costs nothing but its counter.
    pub fn report_drops(&mut self, report: bool) {
        self.quiet = !report;
        for slot in &mut self.links {
            if let Core::Full(full) = &mut slot.core {
                full.set_quiet(self.quiet);
            }
        }
    }

    /// Adds a link. Its luck depends on the seed and its `name` alone, so give every link its own name.
    ///
    /// # Panics
    /// If there are 2^31 links, or its medium is not of this network.
    pub fn link(&mut self, name: &str, config: LinkConfig) -> LinkId {
        let of_this = |medium: MediumId| (medium.0 as usize) < self.mediums.len();
        assert!(config.medium.is_none_or(|(medium, _)| of_this(medium)), "a medium of another network");
        let id = u32::try_from(self.links.len()).ok().filter(|id| *id < END).expect("fewer than 2^31 links");
        let mut core = Core::new(config, self.seed, name);
        if let Core::Full(full) = &mut core {
            full.set_quiet(self.quiet);
        }
        self.links.push(Slot { wake: Time::NEVER, core });
        self.rouse(id);
        LinkId(id)
    }

    /// Adds a medium that links share ([`LinkConfig::medium`]). Its luck depends on the seed and its `name`
    /// alone.
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
    /// If there are no links or one is not of this network.
    pub fn route(&mut self, links: &[LinkId]) -> RouteId {
        assert!(!links.is_empty(), "a route has at least one link");
        assert!(links.iter().all(|link| (link.0 as usize) < self.links.len()), "a link of another network");
        let id =
            u32::try_from(self.routes.len()).ok().filter(|id| *id < END).expect("fewer than 2^31 routes");
        self.routes.push(u32::try_from(self.hops.len()).expect("fewer than 2^32 hops of all routes"));
        self.hops.extend(links.iter().map(|link| link.0));
        self.hops.push(END | id);
        RouteId(id)
    }

    /// Sends `packet` over `route`: [`Input::Send`] for short.
    ///
    /// # Panics
    /// If the route is not of this network.
    pub fn send(&mut self, now: Time, route: RouteId, packet: P) {
        let place = self.routes[route.0 as usize];
        let event = self.enter(now.max(self.clock), self.hops[place as usize], place, packet);
        if let Some(event) = event {
            self.refused.push_back(event);
        }
    }

    /// Changes a link: [`Input::Command`] for short.
    ///
    /// # Panics
    /// If the link is not of this network.
    pub fn command(&mut self, now: Time, link: LinkId, command: Command) {
        let now = now.max(self.clock);
        let full = self.links[link.0 as usize].core.full(now);
        full.set_quiet(self.quiet);
        full.command(now, command);
        self.contend(now, link.0);
        self.rouse(link.0);
    }

    /// What a link has seen, as of the last event of the network or of the link.
    ///
    /// # Panics
    /// If the link is not of this network.
    #[must_use]
    pub fn stats(&self, link: LinkId) -> Stats {
        self.links[link.0 as usize].core.stats(self.clock)
    }

    /// Whether a link is up.
    ///
    /// # Panics
    /// If the link is not of this network.
    #[must_use]
    pub fn is_up(&self, link: LinkId) -> bool {
        self.links[link.0 as usize].core.is_up()
    }

    /// Bytes queued at a link, the packet being sent included, as of the network's or the link's last event.
    ///
    /// # Panics
    /// If the link is not of this network.
    #[must_use]
    pub fn queued_bytes(&self, link: LinkId) -> u64 {
        self.links[link.0 as usize].core.queued_bytes(self.clock)
    }

    /// Packets queued or propagating on a link.
    ///
    /// # Panics
    /// If the link is not of this network.
    #[must_use]
    pub fn inside(&self, link: LinkId) -> usize {
        self.links[link.0 as usize].core.inside()
    }

    /// Puts a packet on a link, that at `place` of all hops; what is to be reported if it is refused.
    #[inline]
    fn enter(&mut self, at: Time, id: u32, place: u32, packet: P) -> Option<Event<P>> {
        let slot = &mut self.links[id as usize];
        match &mut slot.core {
            Core::Plain(plain) => {
                let bytes = packet.bytes();
                match plain.admit(at, bytes) {
                    Ok(how) => {
                        let arrives = plain.take(at, bytes, how, Hop { place, packet });
                        if let Some(arrives) = arrives.filter(|arrives| *arrives < Time::NEVER) {
                            slot.wake = arrives;
                            self.wakes.push(arrives, id);
                        }
                        None
                    }
                    Err(_) if self.quiet => None,
                    Err(why) => Some(self.dropped(at, id, why, Hop { place, packet })),
                }
            }
            Core::Full(_) => {
                self.enter_full(at, id, Hop { place, packet });
                None
            }
        }
    }

    #[inline(never)]
    fn enter_full(&mut self, at: Time, id: u32, hop: Hop<P>) {
        let Core::Full(full) = &mut self.links[id as usize].core else { return };
        full.offer(at, hop);
        self.contend(at, id);
        self.rouse(id);
    }

    #[cold]
    fn dropped(&self, at: Time, id: u32, why: Why, hop: Hop<P>) -> Event<P> {
        let rest = &self.hops[hop.place as usize..];
        let end = rest.iter().find(|hop| **hop & END != 0).expect("a route has an end");
        Event::Dropped { at, link: LinkId(id), route: RouteId(end & !END), why, packet: hop.packet }
    }

    /// Settles who may send after link `id` has changed.
    fn contend(&mut self, at: Time, id: u32) {
        let Core::Full(full) = &self.links[id as usize].core else { return };
        let Some((medium, weight)) = full.medium() else { return };
        let (waits, sends) = full.contends();
        self.mediums[medium.0 as usize].tell(id, weight, waits, sends);
        while let Some(winner) = self.mediums[medium.0 as usize].pick() {
            let full = self.links[winner as usize].core.full(at);
            full.grant(at);
            let (waits, sends) = full.contends();
            if !sends {
                self.mediums[medium.0 as usize].tell(winner, 0, waits, sends);
            }
            self.rouse(winner);
        }
    }

    /// Wakes a link no later than it is due.
    fn rouse(&mut self, id: u32) {
        let slot = &mut self.links[id as usize];
        let at = slot.core.due().max(self.clock);
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

    /// # Panics
    /// If the route or the link is not of this network.
    fn handle(&mut self, now: Time, input: Input<P>) {
        match input {
            Input::Send { route, packet } => self.send(now, route, packet),
            Input::Command { link, command } => self.command(now, link, command),
        }
    }

    /// Everything that happens until `now`; deliveries in the order of their time.
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
            let slot = &mut self.links[id as usize];
            if slot.wake != at {
                continue;
            }
            let Core::Plain(plain) = &mut slot.core else {
                if let Some(output) = self.poll_full(at, id) {
                    return output;
                }
                continue;
            };
            let Some((arrival, due)) = plain.pop() else { continue };
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
    /// What a link that is woken at `at` hands out.
    #[inline(never)]
    fn poll_full(&mut self, at: Time, id: u32) -> Option<Output<Delivery<P>, Event<P>>> {
        let slot = &mut self.links[id as usize];
        let Core::Full(full) = &mut slot.core else { return None };
        let output = full.poll(at);
        self.contend(at, id);
        let slot = &mut self.links[id as usize];
        slot.wake = slot.core.due().max(at);
        if slot.wake < Time::NEVER {
            self.wakes.push(slot.wake, id);
        }
        match output {
            Output::Wait(_) => None,
            Output::Send(arrival) => self.forward(arrival),
            Output::Event(link::Event::State { at, up }) => {
                Some(Output::Event(Event::State { at, link: LinkId(id), up }))
            }
            Output::Event(link::Event::Dropped { at, why, packet }) => {
                Some(Output::Event(self.dropped(at, id, why, packet)))
            }
        }
    }

    /// Puts what has passed a link on the next one, or hands it out.
    #[inline]
    fn forward(&mut self, arrival: Arrival<Hop<P>>) -> Option<Output<Delivery<P>, Event<P>>> {
        let Arrival { at, packet: Hop { place, packet } } = arrival;
        let next = self.hops[place as usize + 1];
        if next & END != 0 {
            return Some(Output::Send(Delivery { at, route: RouteId(next & !END), packet }));
        }
        self.enter(at, next, place + 1, packet).map(Output::Event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use algo::{Rate, Span};

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

    /// 1 Mbyte/s: a packet takes a millisecond.
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
        assert!([a, b, c].iter().all(|&link| net.inside(link) == 0));
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
        let b = net.link("b", LinkConfig { script: vec![1], ..config(1) }.down(ms(4), ms(6)));
        let route = net.route(&[a, b]);
        (1..=3).for_each(|id| net.send(Time::ZERO, route, Probe(id)));
        let outputs = run(&mut net, Time::ZERO, Time::NEVER);
        let dropped =
            |at, why, id| Output::Event(Event::Dropped { at, link: b, route, why, packet: Probe(id) });
        let state = |at, up| Output::Event(Event::State { at, link: b, up });
        // Packet 2 leaves b as it breaks: done at that instant, so past it.
        let expected = [
            dropped(ms(2), Why::Script, 1),
            state(ms(4), false),
            dropped(ms(4), Why::Down, 3),
            Output::Send(Delivery { at: ms(5), route, packet: Probe(2) }),
            state(ms(6), true),
        ];
        assert_eq!(outputs, expected);
    }

    #[test]
    fn commands_reach_their_link() {
        let mut net = Net::new(1);
        let (a, b) = (net.link("a", config(1)), net.link("b", config(1)));
        let routes = [net.route(&[a]), net.route(&[b])];
        net.handle(ms(1), Input::Command { link: a, command: Command::Up(false) });
        routes.iter().for_each(|&route| net.handle(ms(1), Input::Send { route, packet: Probe(1) }));
        assert_eq!(delivered(&run(&mut net, ms(1), Time::NEVER)), [(ms(3), routes[1].0, 1)]);
        assert!(!net.is_up(a) && net.is_up(b));
        assert_eq!(net.stats(a).dropped.down, 1);
    }

    #[test]
    fn an_idle_link_is_small() {
        // Three of them and a flow are to fit 4 KiB; what has been busy gives its memory back.
        assert!(size_of::<Slot<[u64; 6]>>() <= 224, "{}", size_of::<Slot<[u64; 6]>>());
        assert!(size_of::<link::Link<Probe>>() < 1_024);
        let full = size_of::<crate::full::Full<Probe>>();
        assert!(full <= 1_536, "{full}");
    }
}
