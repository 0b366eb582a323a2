//! Runs a topology manager.

use anabranch_algo::{Machine, Output, Time};
use anabranch_overlay::topology_manager::{Change, Outgoing, TopologyManager};
use anabranch_topology::graph::NodeId;
use serde::Serialize;

use super::event::ServiceEvent;
use super::keys::services_key;
use super::service_loop::{Service, answer, messages, run};
use anabranch::network::line_sockets::{Arrived, Outlets};
use anabranch::network::{Place, since_1970};
use anabranch::text::seconds;
use anabranch::{Control, Result, Stop};

/// The statistics of a topology manager.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct TopologyStats {
    /// The time since the start, in seconds.
    pub elapsed_s: f64,
    /// The number of forwarders that have reported, without those that have died since.
    pub forwarders: usize,
    /// The lines that are down now, each with the names of its ends.
    pub down: Vec<[String; 2]>,
    /// The number of receivers that are told of changes now.
    pub watchers: usize,
    /// The number of answered requests for paths.
    pub requests: u64,
    /// The number of accepted link states.
    pub link_states: u64,
    /// The number of paths sent because a line went down or came up.
    pub pushes: u64,
    /// The number of messages that were refused or malformed.
    pub dropped: u64,
}

/// Runs a topology manager at the domain's node for it, until `stop` is stopped or `listener` answers
/// [`Control::Stop`]. It keeps the state of the domain's lines and hands out paths.
///
/// # Errors
/// [`ErrorKind::Usage`](anabranch::ErrorKind::Usage) if the domain has another node for the topology manager,
/// or if the key is missing or wrong; [`ErrorKind::System`](anabranch::ErrorKind::System) if it cannot
/// listen.
pub fn manage_topology(
    place: &Place,
    stop: &Stop,
    listener: &mut dyn FnMut(ServiceEvent<TopologyStats>) -> Control,
) -> Result<TopologyStats> {
    let service = place.domain().topology;
    place.must_be_at("topology", service)?;
    let key = services_key(place)?;
    let start = |clock: anabranch_net::Clock| {
        let mut machine = TopologyManager::new(place.domain().clone());
        if let Some(key) = key {
            machine = machine.with_key(key);
        }
        Ok(TopologyService { machine, clock })
    };
    run(place, service.port, start, stop, listener)
}

struct TopologyService {
    machine: TopologyManager,
    clock: anabranch_net::Clock,
}

impl Service for TopologyService {
    type Stats = TopologyStats;

    fn receive(&mut self, now: Time, place: &Place, _: &Outlets, arrived: Arrived<'_>) {
        self.machine.set_zero_since_1970(since_1970(self.clock));
        messages(place, &arrived).for_each(|message| self.machine.handle(now, message));
    }

    fn poll(&mut self, now: Time, place: &Place, out: &Outlets, notices: &mut Vec<String>) -> Result<Time> {
        self.machine.set_zero_since_1970(since_1970(self.clock));
        loop {
            match self.machine.poll(now) {
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
        let counters = self.machine.counters();
        let graph = &place.domain().graph;
        let name = |node: NodeId| place.name_of(node).to_owned();
        let ends = |link| [name(graph.link(link).from), name(graph.link(link).to)];
        TopologyStats {
            elapsed_s: seconds(now.since(Time::ZERO)),
            forwarders: self.machine.reporters(),
            down: self.machine.down().map(ends).collect(),
            watchers: self.machine.watchers(),
            requests: counters.requests,
            link_states: counters.link_states,
            pushes: counters.pushes,
            dropped: counters.dropped,
        }
    }
}
