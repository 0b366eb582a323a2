//! Rendezvous and topology manager at work.

use std::collections::BTreeMap;

use algo::{Machine, Output, Time};
use mmtp::peer::Peer;
use overlay::domain::Service;
use overlay::frame::{self, Frame};
use overlay::rendezvous::Rendezvous;
use overlay::topology_manager::{Change, Outgoing, TopologyManager};
use serde::Serialize;
use topology::graph::NodeId;

use super::event::ServiceEvent;
use super::forward::STATS_EVERY;
use super::line_sockets::LineSockets;
use super::place::{Place, since_1970};
use crate::{Control, Error, Result, Stop};

/// What a rendezvous has done.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RendezvousStats {
    /// Seconds since it was started.
    pub elapsed_s: f64,
    /// Publications that are kept now.
    pub kept: usize,
    /// Publications taken, renewed leases among them.
    pub published: u64,
    /// Publications refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Lookups answered.
    pub lookups: u64,
    /// Those of them with nothing.
    pub unknown: u64,
    /// Messages that made no sense.
    pub dropped: u64,
}

/// What a topology manager has done.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TopologyStats {
    /// Seconds since it was started.
    pub elapsed_s: f64,
    /// Forwarders that have reported.
    pub forwarders: usize,
    /// Lines that are down now, each with the names of its ends.
    pub down: Vec<[String; 2]>,
    /// Receivers that are told of changes now.
    pub watchers: usize,
    /// Requests for paths answered.
    pub requests: u64,
    /// Link states taken.
    pub link_states: u64,
    /// Paths sent because a line went down or came up.
    pub pushes: u64,
    /// Messages refused or that made no sense.
    pub dropped: u64,
}

/// What a service's machine and the loop have to agree on.
trait Served {
    type Stats;
    /// A message came.
    fn handle(&mut self, now: Time, from: Peer, payload: &[u8]);
    /// Does what is to be done; returns until when it waits.
    fn poll(&mut self, now: Time, place: &Place, sockets: &LineSockets, notices: &mut Vec<String>) -> Time;
    fn stats(&self, now: Time, place: &Place) -> Self::Stats;
}

/// Keeps publications and answers lookups, at the node of the domain's rendezvous, until `stop` is stopped or
/// `listener` answers [`Control::Stop`].
///
/// # Errors
/// [`Error::Usage`] if the domain has another node for that, [`Error::System`] if it cannot listen.
pub fn rendezvous(
    place: &Place,
    stop: &Stop,
    listener: &mut dyn FnMut(ServiceEvent<RendezvousStats>) -> Control,
) -> Result<RendezvousStats> {
    let service = place.domain().rendezvous;
    let machine = |clock| RendezvousService { machine: Rendezvous::new(place.domain().clone()), clock };
    run(place, "rendezvous", service, machine, stop, listener)
}

/// Keeps how the lines of the domain do, and hands out paths, at the node of the domain's topology manager,
/// until `stop` is stopped or `listener` answers [`Control::Stop`].
///
/// # Errors
/// As [`rendezvous`].
pub fn manage_topology(
    place: &Place,
    stop: &Stop,
    listener: &mut dyn FnMut(ServiceEvent<TopologyStats>) -> Control,
) -> Result<TopologyStats> {
    let service = place.domain().topology;
    let machine = |_| TopologyManager::new(place.domain().clone());
    run(place, "topology", service, machine, stop, listener)
}

fn run<M: Served>(
    place: &Place,
    what: &str,
    service: Service,
    machine: impl FnOnce(net::Clock) -> M,
    stop: &Stop,
    listener: &mut dyn FnMut(ServiceEvent<M::Stats>) -> Control,
) -> Result<M::Stats> {
    if service.node != place.node() {
        return Err(Error::usage(format!(
            "in the domain {1} {what} is on {2}, not on {0}",
            place.node_name(),
            place.domain().name,
            place.name_of(service.node)
        )));
    }
    let mut sockets = LineSockets::bind(&place.addresses(), service.port)?;
    let clock = sockets.clock;
    let mut machine = machine(clock);
    let mut notices = Vec::new();
    let mut stopped = listener(ServiceEvent::Listening(sockets.addresses())) == Control::Stop;
    let mut report_at = clock.now() + STATS_EVERY;
    while !stopped && !stop.is_stopped() {
        let now = clock.now();
        let due = machine.poll(now, place, &sockets, &mut notices);
        for notice in notices.drain(..) {
            stopped |= listener(ServiceEvent::Notice(notice)) == Control::Stop;
        }
        if now >= report_at {
            report_at = now + STATS_EVERY;
            let stats = Box::new(machine.stats(now, place));
            stopped |= listener(ServiceEvent::Stats(stats)) == Control::Stop;
        }
        sockets.wait(due.min(report_at), stop)?;
        let now = clock.now();
        sockets.receive(|_, arrived| {
            if !place.is_forwarder(arrived.from) {
                return;
            }
            for datagram in arrived.received.datagrams() {
                if let Ok(Frame::Routed(routed)) = frame::parse(datagram) {
                    let from = Peer { address: arrived.from, way_back: routed.way_back };
                    machine.handle(now, from, routed.payload);
                }
            }
        })?;
    }
    Ok(machine.stats(clock.now(), place))
}

/// Sends an answer over the line whose other end handed the question over.
fn answer(place: &Place, sockets: &LineSockets, to: &Peer, message: &[u8]) {
    let links = place.domain().graph.outgoing(place.node()).iter();
    let mut hops = links.filter_map(|link| place.hop(*link));
    if let Some((from, forwarder)) = hops.find(|(_, forwarder)| *forwarder == to.address) {
        sockets.out.send(from, forwarder, &[to.prefix(), message].concat(), None);
    }
}

struct RendezvousService {
    machine: Rendezvous,
    clock: net::Clock,
}

impl Served for RendezvousService {
    type Stats = RendezvousStats;

    fn handle(&mut self, now: Time, from: Peer, payload: &[u8]) {
        // What is not polled yet waits in the machine, which one turn's packets bound.
        self.machine.handle(now + since_1970(self.clock), (from, payload));
    }

    fn poll(&mut self, now: Time, place: &Place, sockets: &LineSockets, _: &mut Vec<String>) -> Time {
        // Read each time: the system's clock may be set, and this one stand still while the machine sleeps.
        let zero_since_1970 = since_1970(self.clock);
        loop {
            match self.machine.poll(now + zero_since_1970) {
                Output::Send(sent) => answer(place, sockets, &sent.to, &sent.message),
                Output::Event(_) => {}
                Output::Wait(Time::NEVER) => return Time::NEVER,
                Output::Wait(until) => return Time::ZERO + until.since(Time::ZERO + zero_since_1970),
            }
        }
    }

    fn stats(&self, now: Time, _: &Place) -> RendezvousStats {
        let counters = self.machine.counters();
        RendezvousStats {
            elapsed_s: now.since(Time::ZERO).as_nanos() as f64 / 1e9,
            kept: self.machine.len(),
            published: counters.published,
            refused: counters.refused.clone(),
            lookups: counters.lookups,
            unknown: counters.unknown,
            dropped: counters.dropped,
        }
    }
}

impl Served for TopologyManager {
    type Stats = TopologyStats;

    fn handle(&mut self, now: Time, from: Peer, payload: &[u8]) {
        Machine::handle(self, now, (from, payload));
    }

    fn poll(&mut self, now: Time, place: &Place, sockets: &LineSockets, notices: &mut Vec<String>) -> Time {
        loop {
            match Machine::poll(self, now) {
                Output::Send(Outgoing::Answer { to, message }) => answer(place, sockets, &to, &message),
                Output::Send(Outgoing::Push { first, frame }) => {
                    if let Some((from, forwarder)) = place.hop(first) {
                        sockets.out.send(from, forwarder, &frame, None);
                    }
                }
                Output::Event(Change::Line { link, up }) => {
                    let link = place.domain().graph.link(link);
                    let (a, b) = (place.name_of(link.from), place.name_of(link.to));
                    notices.push(format!("the line {a} – {b} is {}", if up { "up again" } else { "down" }));
                }
                Output::Wait(until) => return until,
            }
        }
    }

    fn stats(&self, now: Time, place: &Place) -> TopologyStats {
        let counters = self.counters();
        let graph = &place.domain().graph;
        let is_down = |link: &topology::graph::LinkId| {
            graph.link(*link).reverse.is_some_and(|reverse| *link < reverse) && !self.is_up(*link)
        };
        let name = |node: NodeId| place.name_of(node).to_owned();
        let ends = |link| [name(graph.link(link).from), name(graph.link(link).to)];
        TopologyStats {
            elapsed_s: now.since(Time::ZERO).as_nanos() as f64 / 1e9,
            forwarders: self.reporters(),
            down: graph.link_ids().filter(is_down).map(ends).collect(),
            watchers: self.watchers(),
            requests: counters.requests,
            link_states: counters.link_states,
            pushes: counters.pushes,
            dropped: counters.dropped,
        }
    }
}
