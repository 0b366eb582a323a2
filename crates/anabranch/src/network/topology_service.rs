//! Rendezvous and topology manager at work.

use std::collections::BTreeMap;
use std::path::Path;

use algo::{Machine, Output, Time};
use mmtp::peer::Peer;
use overlay::rendezvous::Rendezvous;
use overlay::topology_manager::{Change, Outgoing, TopologyManager};
use serde::Serialize;
use topology::graph::NodeId;

use super::event::ServiceEvent;
use super::line_sockets::{Arrived, Outlets};
use super::place::{Place, since_1970};
use super::service_loop::{Service, run};
use super::state::{State, StateStats};
use crate::format::seconds;
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
    /// Its state, if it has one.
    pub state: Option<StateStats>,
}

/// What a topology manager has done.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TopologyStats {
    /// Seconds since it was started.
    pub elapsed_s: f64,
    /// Forwarders that have reported, without those that have died since.
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

/// Keeps publications and answers lookups, at the node of the domain's rendezvous, until `stop` is stopped or
/// `listener` answers [`Control::Stop`]. What it knows is in the file `state`, if there is one, before it
/// says so to anybody, and a new start takes it from there.
///
/// # Errors
/// [`Error::Usage`] if the domain has another node for that or the file is another thing, [`Error::Target`]
/// if the file cannot be used, or takes no more later on; [`Error::System`] if it cannot listen.
pub fn rendezvous(
    place: &Place,
    state: Option<&Path>,
    stop: &Stop,
    listener: &mut dyn FnMut(ServiceEvent<RendezvousStats>) -> Control,
) -> Result<RendezvousStats> {
    let service = place.domain().rendezvous;
    check(place, "rendezvous", service)?;
    let start = |clock: net::Clock| {
        let mut machine = Rendezvous::new(place.domain().clone());
        let now = clock.now() + since_1970(clock);
        let state = state.map(|path| State::open(path, place.domain(), now, &mut machine)).transpose()?;
        let (state, told) = state.unzip();
        Ok(RendezvousService { machine, clock, state, told })
    };
    run(place, service.port, start, stop, listener)
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
    check(place, "topology", service)?;
    run(place, service.port, |_| Ok(TopologyManager::new(place.domain().clone())), stop, listener)
}

/// # Errors
/// [`Error::Usage`] if the domain has another node for it.
fn check(place: &Place, what: &str, at: overlay::domain::Service) -> Result<()> {
    if at.node == place.node() {
        return Ok(());
    }
    Err(Error::usage(format!(
        "in the domain {} {what} is on {}, not on {}",
        place.domain().name,
        place.name_of(at.node),
        place.node_name()
    )))
}

/// The messages that came from forwarders, and who sent them.
fn messages<'a>(place: &Place, arrived: &'a Arrived<'_>) -> impl Iterator<Item = (Peer, &'a [u8])> {
    let address = arrived.from;
    place.routed(arrived).map(move |routed| (Peer { address, way_back: routed.way_back }, routed.payload))
}

/// Sends an answer over the line whose other end handed the question over.
fn answer(place: &Place, out: &Outlets, to: &Peer, message: &[u8]) {
    if let Some(from) = place.address_towards(to.address) {
        out.send(from, to.address, &[to.prefix(), message].concat(), None);
    }
}

struct RendezvousService {
    machine: Rendezvous,
    clock: net::Clock,
    state: Option<State>,
    /// What a person should know of the start.
    told: Option<String>,
}

impl RendezvousService {
    fn write(&mut self) -> Result<()> {
        self.state.as_mut().map_or(Ok(()), State::write)
    }
}

impl Service for RendezvousService {
    type Stats = RendezvousStats;

    fn receive(&mut self, now: Time, place: &Place, _: &Outlets, arrived: Arrived<'_>) {
        let now = now + since_1970(self.clock);
        // What is not polled yet waits in the machine, which one turn's packets bound.
        messages(place, &arrived).for_each(|message| self.machine.handle(now, message));
    }

    fn poll(&mut self, now: Time, place: &Place, out: &Outlets, notices: &mut Vec<String>) -> Result<Time> {
        notices.extend(self.told.take());
        // Read each time: the system's clock may be set, and this one stand still while the machine sleeps.
        let zero_since_1970 = since_1970(self.clock);
        loop {
            match self.machine.poll(now + zero_since_1970) {
                Output::Event(change) => {
                    if let Some(state) = &mut self.state {
                        state.push(change);
                    }
                }
                // All changes come before the first answer, so this is one commit for all that has arrived.
                Output::Send(sent) => {
                    self.write()?;
                    answer(place, out, &sent.to, &sent.message);
                }
                Output::Wait(until) => {
                    self.write()?;
                    return Ok(match until {
                        Time::NEVER => until,
                        _ => Time::ZERO + until.since(Time::ZERO + zero_since_1970),
                    });
                }
            }
        }
    }

    fn stats(&self, now: Time, _: &Place) -> RendezvousStats {
        let counters = self.machine.counters();
        RendezvousStats {
            elapsed_s: seconds(now.since(Time::ZERO)),
            kept: self.machine.len(),
            published: counters.published,
            refused: counters.refused.clone(),
            lookups: counters.lookups,
            unknown: counters.unknown,
            dropped: counters.dropped,
            state: self.state.as_ref().map(|state| state.stats().clone()),
        }
    }
}

impl Service for TopologyManager {
    type Stats = TopologyStats;

    fn receive(&mut self, now: Time, place: &Place, _: &Outlets, arrived: Arrived<'_>) {
        messages(place, &arrived).for_each(|message| self.handle(now, message));
    }

    fn poll(&mut self, now: Time, place: &Place, out: &Outlets, notices: &mut Vec<String>) -> Result<Time> {
        loop {
            match Machine::poll(self, now) {
                Output::Send(Outgoing::Answer { to, message }) => answer(place, out, &to, &message),
                Output::Send(Outgoing::Push { first, frame }) => {
                    if let Some((from, forwarder)) = place.hop(first) {
                        out.send(from, forwarder, &frame, None);
                    }
                }
                Output::Event(Change::Line { link, up }) => {
                    let link = place.domain().graph.link(link);
                    let (a, b) = (place.name_of(link.from), place.name_of(link.to));
                    notices.push(format!("the line {a} – {b} is {}", if up { "up again" } else { "down" }));
                }
                Output::Wait(until) => return Ok(until),
            }
        }
    }

    fn stats(&self, now: Time, place: &Place) -> TopologyStats {
        let counters = self.counters();
        let graph = &place.domain().graph;
        let name = |node: NodeId| place.name_of(node).to_owned();
        let ends = |link| [name(graph.link(link).from), name(graph.link(link).to)];
        TopologyStats {
            elapsed_s: seconds(now.since(Time::ZERO)),
            forwarders: self.reporters(),
            down: self.down().map(ends).collect(),
            watchers: self.watchers(),
            requests: counters.requests,
            link_states: counters.link_states,
            pushes: counters.pushes,
            dropped: counters.dropped,
        }
    }
}
