//! A network: links, routes over them, and one queue of wake-ups.
//!
//! Each link is a FIFO of which only the next moment is in the queue, ordered by time, then by when it was
//! put there: the cost of a packet depends on the number of links that are busy, not on the packets under
//! way. Every packet is taken on at the exact time at which it left the link before, however late the network
//! is polled.

use crate::link::{self, Arrival, Link, Packet, Why};
use crate::{Command, LinkConfig, Stats};
use algo::{Machine, Output, Time};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, binary_heap::PeekMut};

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
    routes: Vec<Box<[LinkId]>>,
    wakes: BinaryHeap<Reverse<Wake>>,
    /// How many wake-ups were made: the order among those of one time.
    made: u64,
}

#[derive(Clone, Debug)]
struct Slot<P> {
    link: Link<Hop<P>>,
    /// The wake-up that counts; others of this link in the queue are out of date.
    wake: Option<Wake>,
}

/// A packet on the way, `hop` links of its route behind it.
#[derive(Clone, Debug)]
struct Hop<P> {
    route: RouteId,
    hop: u32,
    packet: P,
}

impl<P: Packet> Packet for Hop<P> {
    fn bytes(&self) -> u32 {
        self.packet.bytes()
    }
    fn mark(&mut self) {
        self.packet.mark();
    }
    fn corrupt(&mut self, bit: u64) {
        self.packet.corrupt(bit);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wake {
    at: Time,
    nth: u64,
    link: LinkId,
}

impl<P: Packet> Net<P> {
    /// A network without links; `seed` decides everything that is left to chance.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, links: Vec::new(), routes: Vec::new(), wakes: BinaryHeap::new(), made: 0 }
    }

    /// Adds a link. Its luck depends on the seed and its `name` alone, so give every link its own name.
    pub fn link(&mut self, name: &str, config: LinkConfig) -> LinkId {
        let id = LinkId(u32::try_from(self.links.len()).expect("fewer than 2^32 links"));
        self.links.push(Slot { link: Link::new(config, self.seed, name), wake: None });
        self.rouse(id);
        id
    }

    /// Adds a route over `links`, in this order.
    ///
    /// # Panics
    /// If there are no links or one is not of this network.
    pub fn route(&mut self, links: &[LinkId]) -> RouteId {
        assert!(!links.is_empty(), "a route has at least one link");
        assert!(links.iter().all(|link| (link.0 as usize) < self.links.len()), "a link of another network");
        let id = RouteId(u32::try_from(self.routes.len()).expect("fewer than 2^32 routes"));
        self.routes.push(links.into());
        id
    }

    /// Sends `packet` over `route`: [`Input::Send`] for short.
    ///
    /// # Panics
    /// If the route is not of this network.
    pub fn send(&mut self, now: Time, route: RouteId, packet: P) {
        self.enter(now, Hop { route, hop: 0, packet });
    }

    /// Changes a link: [`Input::Command`] for short.
    ///
    /// # Panics
    /// If the link is not of this network.
    pub fn command(&mut self, now: Time, link: LinkId, command: Command) {
        self.links[link.0 as usize].link.handle(now, link::Input::Command(command));
        self.rouse(link);
    }

    /// What a link has seen.
    ///
    /// # Panics
    /// If the link is not of this network.
    #[must_use]
    pub fn stats(&self, link: LinkId) -> &Stats {
        self.links[link.0 as usize].link.stats()
    }

    /// Whether a link is up.
    ///
    /// # Panics
    /// If the link is not of this network.
    #[must_use]
    pub fn is_up(&self, link: LinkId) -> bool {
        self.links[link.0 as usize].link.is_up()
    }

    /// Bytes queued at a link, the packet being sent included, as of the link's last wake-up.
    ///
    /// # Panics
    /// If the link is not of this network.
    #[must_use]
    pub fn queued_bytes(&self, link: LinkId) -> u64 {
        self.links[link.0 as usize].link.queued_bytes()
    }

    /// Packets queued or propagating on a link.
    ///
    /// # Panics
    /// If the link is not of this network.
    #[must_use]
    pub fn inside(&self, link: LinkId) -> usize {
        self.links[link.0 as usize].link.inside()
    }

    /// Puts a packet on the next link of its route.
    fn enter(&mut self, at: Time, hop: Hop<P>) {
        let id = self.routes[hop.route.0 as usize][hop.hop as usize];
        self.links[id.0 as usize].link.handle(at, link::Input::Packet(hop));
        self.rouse(id);
    }

    /// Wakes a link no later than it is due.
    fn rouse(&mut self, id: LinkId) {
        let slot = &mut self.links[id.0 as usize];
        let at = slot.link.due();
        if at < slot.wake.map_or(Time::NEVER, |wake| wake.at) {
            let wake = Wake { at, nth: self.made, link: id };
            self.made += 1;
            slot.wake = Some(wake);
            self.wakes.push(Reverse(wake));
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
    fn poll(&mut self, now: Time) -> Output<Delivery<P>, Event<P>> {
        loop {
            let Some(mut top) = self.wakes.peek_mut() else { return Output::Wait(Time::NEVER) };
            let wake = top.0;
            if wake.at > now {
                return Output::Wait(wake.at);
            }
            let slot = &mut self.links[wake.link.0 as usize];
            if slot.wake != Some(wake) {
                PeekMut::pop(top);
                continue;
            }
            let output = slot.link.poll(wake.at);
            let due = slot.link.due();
            if due == Time::NEVER {
                slot.wake = None;
                PeekMut::pop(top);
            } else {
                // In place: one sift instead of a pop and a push.
                let next = Wake { at: due, nth: self.made, link: wake.link };
                self.made += 1;
                slot.wake = Some(next);
                *top = Reverse(next);
                drop(top);
            }
            match output {
                Output::Wait(_) => {}
                Output::Send(Arrival { at, packet: Hop { route, hop, packet } }) => {
                    if hop as usize + 1 == self.routes[route.0 as usize].len() {
                        return Output::Send(Delivery { at, route, packet });
                    }
                    self.enter(at, Hop { route, hop: hop + 1, packet });
                }
                Output::Event(link::Event::State { at, up }) => {
                    return Output::Event(Event::State { at, link: wake.link, up });
                }
                Output::Event(link::Event::Dropped { at, why, packet: Hop { route, packet, .. } }) => {
                    return Output::Event(Event::Dropped { at, link: wake.link, route, why, packet });
                }
            }
        }
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
}
