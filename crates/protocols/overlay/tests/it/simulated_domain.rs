//! A whole domain in virtual time: its forwarders, services, receivers and publishers, joined by its lines.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anabranch_algo::{Machine as _, Output, Span, Time};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::peer::Peer;
use anabranch_overlay::call::{Call, Reach, Sent};
use anabranch_overlay::client::{Event, Member, Registered, Registration, ServiceKind, Subscription};
use anabranch_overlay::domain::{Domain, PathChoice};
use anabranch_overlay::domain_file;
use anabranch_overlay::forwarder::{Forwarder, Frames, Hop, Step};
use anabranch_overlay::frame::{self, Frame};
use anabranch_overlay::message::{Body, Message, Route, Routes, Wanted};
use anabranch_overlay::publication::{Publication, ScopeKey};
use anabranch_overlay::rendezvous::Rendezvous;
use anabranch_overlay::topology_manager::{Outgoing, TopologyManager};
use anabranch_topology::graph::{LinkId, NodeId};
use anabranch_topology::keyed::DomainKey;
use anabranch_topology::plan::Policy;

/// The time since 1970 at which the simulation begins.
pub(crate) const SINCE_1970: Span = Span::from_secs(1_800_000_000);

/// Four forwarders between `a` and the publishers p1 and p2: three ways that share no link.
pub(crate) const DOMAIN: &str = r#"
    name = "diamond"
    forwarders = ["r1", "r2", "r3", "r4", "r5"]
    [rendezvous]
    node = "rv"
    [topology]
    node = "tm"
    [scopes]
    films = "KEY"
    [[line]]
    between = ["a", "r1"]
    delay_ms = 1
    [[line]]
    between = ["r1", "r2"]
    delay_ms = 5
    [[line]]
    between = ["r1", "r3"]
    delay_ms = 10
    [[line]]
    between = ["r1", "r4"]
    delay_ms = 20
    [[line]]
    between = ["r2", "r5"]
    delay_ms = 5
    [[line]]
    between = ["r3", "r5"]
    delay_ms = 10
    [[line]]
    between = ["r4", "r5"]
    delay_ms = 20
    [[line]]
    between = ["r5", "p1"]
    delay_ms = 1
    [[line]]
    between = ["r5", "p2"]
    delay_ms = 1
    [[line]]
    between = ["r5", "rv"]
    delay_ms = 1
    [[line]]
    between = ["r4", "tm"]
    delay_ms = 1
    [[line]]
    between = ["r1", "tm"]
    delay_ms = 1
"#;

pub(crate) fn key() -> ScopeKey {
    ScopeKey::new([7; 32]).expect("a key")
}

/// The port at which publishers and receivers get answers.
pub(crate) const MEMBER_PORT: u16 = 40_000;

/// The key of domains with keyed identifiers.
pub(crate) const DOMAIN_KEY: DomainKey = DomainKey::new([9; 32]);

pub(crate) fn rendezvous(domain: &Arc<Domain>) -> Rendezvous {
    let new = Rendezvous::new(Arc::clone(domain));
    if domain.is_keyed() { new.with_key(DOMAIN_KEY) } else { new }
}

pub(crate) fn manager(domain: &Arc<Domain>) -> TopologyManager {
    let mut new = TopologyManager::new(Arc::clone(domain));
    new.set_zero_since_1970(SINCE_1970);
    if domain.is_keyed() { new.with_key(DOMAIN_KEY) } else { new }
}

/// A frame under way.
struct Packet {
    link: LinkId,
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// A simulated domain; see the [module](self).
pub(crate) struct Network {
    pub(crate) domain: Arc<Domain>,
    pub(crate) now: Time,
    pub(crate) forwarders: BTreeMap<NodeId, Forwarder>,
    pub(crate) rendezvous: Option<Rendezvous>,
    pub(crate) manager: Option<TopologyManager>,
    /// Receivers by their nodes, with the events that they have reported; then publishers likewise.
    pub(crate) receivers: BTreeMap<NodeId, (Subscription, Vec<(Time, Event)>)>,
    pub(crate) publishers: BTreeMap<NodeId, (Registration, Vec<Registered>)>,
    /// Payloads for ports of hosts at which there is no member.
    pub(crate) delivered: Vec<(NodeId, u16, Vec<u8>)>,
    /// Links whose lines drop everything.
    pub(crate) cut: BTreeSet<LinkId>,
    packets: BTreeMap<(Time, u64), Packet>,
    sent: u64,
}

impl Network {
    pub(crate) fn new() -> Self {
        Self::of(&DOMAIN.replace("KEY", &key().public().to_string()))
    }

    pub(crate) fn of(file: &str) -> Self {
        let domain = Arc::new(domain_file::read(file).expect("a domain"));
        let mut new = Self {
            now: Time::ZERO,
            forwarders: BTreeMap::new(),
            rendezvous: Some(rendezvous(&domain)),
            manager: Some(manager(&domain)),
            receivers: BTreeMap::new(),
            publishers: BTreeMap::new(),
            delivered: Vec::new(),
            cut: BTreeSet::new(),
            packets: BTreeMap::new(),
            sent: 0,
            domain,
        };
        for node in new.domain.forwarders().collect::<Vec<_>>() {
            new.start(node);
        }
        new
    }

    pub(crate) fn start(&mut self, node: NodeId) {
        let started_ms = (self.now + SINCE_1970).as_nanos() / 1_000_000;
        let mut forwarder = Forwarder::new(&self.domain, node, started_ms, [node.0 as u8; 32], self.now);
        if self.domain.is_keyed() {
            forwarder = forwarder.with_secret(DOMAIN_KEY.node_secret(node), self.now + SINCE_1970);
        }
        self.forwarders.insert(node, forwarder);
    }

    pub(crate) fn node(&self, name: &str) -> NodeId {
        self.domain.graph.by_name(name).expect("a node")
    }

    pub(crate) fn member(&self, name: &str, port: u16) -> Member {
        let node = self.node(name);
        Member {
            domain: Arc::clone(&self.domain),
            node,
            port,
            secret: [node.0 as u8; 32],
            zero_since_1970: SINCE_1970,
        }
    }

    /// Cuts a line.
    pub(crate) fn cut(&mut self, a: &str, b: &str) {
        let (a, b) = (self.node(a), self.node(b));
        let link = self.domain.graph.outgoing(a).iter().find(|link| self.domain.graph.link(**link).to == b);
        let link = *link.expect("a line");
        self.cut.extend([link, self.domain.reverse(link)]);
    }

    /// Sends a frame over a way, from the host where the way begins.
    pub(crate) fn send(&mut self, sent: Sent, port: u16) {
        let first = sent.way.links[0];
        self.send_over(first, port, sent.frame);
    }

    pub(crate) fn send_over(&mut self, first: LinkId, port: u16, bytes: Vec<u8>) {
        let from = SocketAddr::new(self.domain.address_here(first), port);
        let (ip, to) = self.domain.address_there(first);
        self.put(from, SocketAddr::new(ip, to.unwrap_or(port)), bytes);
    }

    fn put(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let here = |link: &LinkId| self.domain.address_here(*link) == from.ip();
        let link = self.domain.graph.link_ids().find(here).expect("the end of a line");
        if !self.cut.contains(&link) {
            let delay = Span::from_nanos(self.domain.graph.link(link).delay_ns);
            self.sent += 1;
            self.packets.insert((self.now + delay, self.sent), Packet { link, from, to, bytes });
        }
    }

    /// Forgets the hellos that forwarders want to send now: none follow for a while.
    pub(crate) fn skip_hellos(&mut self) {
        for forwarder in self.forwarders.values_mut() {
            drain(forwarder, self.now, &[]);
        }
    }

    fn arrive(&mut self, mut packet: Packet) {
        let at = self.domain.graph.link(packet.link).to;
        let now = self.now;
        if let Some(forwarder) = self.forwarders.get_mut(&at) {
            let stride = packet.bytes.len();
            for (hop, frame) in sent_on(forwarder, now, packet.from, &mut packet.bytes, stride) {
                self.put(SocketAddr::new(hop.from, self.domain.forwarder_port), hop.to, frame);
            }
            return;
        }
        if self.domain.is_forwarder(at) {
            return;
        }
        let Ok(Frame::Routed(routed)) = frame::parse(&packet.bytes) else { panic!("no frame came") };
        let peer = Peer { address: packet.from, way_back: routed.way_back };
        let port = packet.to.port();
        if at == self.domain.rendezvous.node && port == self.domain.rendezvous.port {
            let Some(rendezvous) = &mut self.rendezvous else { return };
            rendezvous.handle(now + SINCE_1970, (peer, routed.payload));
        } else if at == self.domain.topology.node && port == self.domain.topology.port {
            let Some(manager) = &mut self.manager else { return };
            manager.handle(now, (peer, routed.payload));
        } else if let Some((receiver, _)) = self.receivers.get_mut(&at).filter(|_| port == MEMBER_PORT) {
            receiver.handle(now, routed.payload);
        } else if let Some((publisher, _)) = self.publishers.get_mut(&at).filter(|_| port == MEMBER_PORT) {
            publisher.handle(now, routed.payload);
        } else {
            self.delivered.push((at, port, packet.bytes));
        }
    }

    /// Lets all machines do what is due now. Returns when the first of them wants to be asked again.
    fn poll(&mut self) -> Time {
        let (now, mut due, mut out) = (self.now, Time::NEVER, Vec::new());
        let port = self.domain.forwarder_port;
        for forwarder in self.forwarders.values_mut() {
            forwarder.set_zero_since_1970(now, SINCE_1970);
            let (sent, wait) = drain(forwarder, now, &[]);
            out.extend(sent.into_iter().map(|(hop, bytes)| (SocketAddr::new(hop.from, port), hop.to, bytes)));
            due = due.min(wait);
        }
        let mut answer = |port: u16, to: Peer, ip: IpAddr, message: &[u8]| {
            out.push((SocketAddr::new(ip, port), to.address, [to.prefix(), message].concat()));
        };
        // Returns the address of a service towards a forwarder.
        let ip = |to: &Peer| {
            let there = |link: &LinkId| self.domain.address_there(*link).0 == to.address.ip();
            self.domain.address_here(self.domain.graph.link_ids().find(there).expect("a line"))
        };
        if let Some(rendezvous) = &mut self.rendezvous {
            loop {
                match rendezvous.poll(now + SINCE_1970) {
                    Output::Send(sent) => {
                        answer(self.domain.rendezvous.port, sent.to, ip(&sent.to), &sent.message);
                    }
                    Output::Event(_) => {}
                    Output::Wait(wait) => {
                        due = due.min(Time::ZERO + wait.since(Time::ZERO + SINCE_1970));
                        break;
                    }
                }
            }
        }
        let mut pushes = Vec::new();
        if let Some(manager) = &mut self.manager {
            loop {
                match manager.poll(now) {
                    Output::Send(Outgoing::Answer { to, message }) => {
                        answer(self.domain.topology.port, to, ip(&to), &message);
                    }
                    Output::Send(Outgoing::Push { first, frame }) => pushes.push((first, frame)),
                    Output::Event(_) => {}
                    Output::Wait(wait) => {
                        due = due.min(wait);
                        break;
                    }
                }
            }
        }
        let mut sent = Vec::new();
        for (receiver, events) in self.receivers.values_mut() {
            loop {
                match receiver.poll(now) {
                    Output::Send(it) => sent.push(it),
                    Output::Event(event) => events.push((now, event)),
                    Output::Wait(wait) => {
                        due = due.min(wait);
                        break;
                    }
                }
            }
        }
        for (publisher, events) in self.publishers.values_mut() {
            loop {
                match publisher.poll(now) {
                    Output::Send(it) => sent.push(it),
                    Output::Event(event) => events.push(event),
                    Output::Wait(wait) => {
                        due = due.min(wait);
                        break;
                    }
                }
            }
        }
        out.into_iter().for_each(|(from, to, bytes)| self.put(from, to, bytes));
        sent.into_iter().for_each(|sent| self.send(sent, MEMBER_PORT));
        pushes.into_iter().for_each(|(first, frame)| self.send_over(first, self.domain.topology.port, frame));
        due
    }

    /// Lets this time pass.
    pub(crate) fn run(&mut self, span: Span) {
        let end = self.now + span;
        loop {
            let due = self.poll();
            let arrival = self.packets.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at);
            let next = due.min(arrival);
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            while let Some(entry) = self.packets.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let packet = entry.remove();
                self.arrive(packet);
            }
        }
    }

    /// Lets frames under way arrive while no machine sends any of its own. Returns the links that frames
    /// cross.
    pub(crate) fn drain(&mut self) -> Vec<LinkId> {
        let mut crossed = Vec::new();
        while let Some(((at, _), packet)) = self.packets.pop_first() {
            self.now = self.now.max(at);
            crossed.push(packet.link);
            self.arrive(packet);
        }
        crossed
    }

    /// Returns the events that a receiver has reported.
    pub(crate) fn events(&self, name: &str) -> Vec<&Event> {
        self.receivers[&self.node(name)].1.iter().map(|(_, event)| event).collect()
    }
}

pub(crate) const NAME: &str = "films/trailer.mkv";

pub(crate) fn publication(byte: u8, version_ms: u64) -> Publication {
    Publication {
        name: NAME.parse().expect("a name"),
        content: ContentId { root: [byte; 32], length: 1_000_000 },
        collection: false,
        node: NodeId(0),
        port: 26_227,
        version_ms,
        issued_ms: 0,
        lease_s: 0,
    }
}

pub(crate) fn publish(network: &mut Network, host: &str, publication: Publication, key: ScopeKey) {
    let member = network.member(host, MEMBER_PORT);
    let node = member.node;
    let registration = Registration::new(member, key.into(), vec![publication], network.now);
    network.publishers.insert(node, (registration, Vec::new()));
}

pub(crate) fn subscribe(network: &mut Network, host: &str, policy: Policy) {
    subscribe_to(network, host, PathChoice { policy, per_host: 3, class: None });
}

pub(crate) fn subscribe_to(network: &mut Network, host: &str, paths: PathChoice) {
    let member = network.member(host, MEMBER_PORT);
    let node = member.node;
    let wanted = Wanted::Name(NAME.parse().expect("a name"));
    let subscription = Subscription::new(member, wanted, paths, network.now);
    network.receivers.insert(node, (subscription, Vec::new()));
}

pub(crate) fn last_routes(network: &Network) -> Routes {
    let routes = network.events("a").into_iter().rev().find_map(|event| match event {
        Event::Routes(routes) => Some(routes.clone()),
        _ => None,
    });
    routes.expect("routes have come")
}

/// Returns the names of the nodes that a route visits.
pub(crate) fn visits(network: &Network, route: &Route) -> String {
    let links = network.domain.links_at(network.node("a"), &route.places).expect("a way");
    let nodes = network.domain.graph.visits(&links);
    nodes.iter().map(|node| &*network.domain.graph.node(*node).name).collect::<Vec<_>>().join(" ")
}

/// Sends a message from a host as if it were another member. Returns the answer.
pub(crate) fn ask(network: &mut Network, from: &str, service: ServiceKind, body: Body) -> Body {
    let service = match service {
        ServiceKind::Rendezvous => network.domain.rendezvous,
        ServiceKind::Topology => network.domain.topology,
    };
    let reach = Reach::new(&network.domain, network.node(from), service);
    let message = Message { call: 99, body };
    let sent = Call::new(&message, 50_000, network.now).poll(network.now, &reach).expect("a frame");
    network.send(sent, 50_000);
    network.run(Span::from_secs(1));
    let (_, _, bytes) = network.delivered.pop().expect("an answer");
    let Ok(Frame::Routed(routed)) = frame::parse(&bytes) else { panic!("a frame") };
    Message::parse(routed.payload).expect("a message").body
}

/// Returns all frames that a forwarder wants to send now, and when it is to be asked again; `bytes` came
/// last.
pub(crate) fn drain(forwarder: &mut Forwarder, now: Time, bytes: &[u8]) -> (Vec<(Hop, Vec<u8>)>, Time) {
    let mut sent = Vec::new();
    loop {
        match forwarder.poll(now) {
            Output::Send(Step::Forward(hop, train)) => sent.push((hop, bytes[train].to_vec())),
            Output::Send(Step::Send(hop, frame)) => sent.push((hop, frame)),
            Output::Event(never) => match never {},
            Output::Wait(until) => return (sent, until),
        }
    }
}

/// Returns the frames that a forwarder sends after these frames have come.
pub(crate) fn sent_on(
    forwarder: &mut Forwarder,
    now: Time,
    from: SocketAddr,
    bytes: &mut [u8],
    stride: usize,
) -> Vec<(Hop, Vec<u8>)> {
    forwarder.handle(now, Frames { from, bytes: &mut *bytes, stride });
    drain(forwarder, now, bytes).0
}
