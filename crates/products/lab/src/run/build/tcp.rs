//! Configures a flow of TCP or Multipath TCP from a scenario.

use anabranch_algo::Span;
use anabranch_mptcp::Config;

use super::super::flow_instances::FlowInstance;
use super::super::links::Links;
use crate::scenario::{Scenario, Transport};
use crate::simulation::Simulation;
use crate::tcp_flows::{Message, Opener, TcpFlowConfig, TcpPath, TransferConfig, Workload};

/// Time for which a closed connection remembers its addresses: shorter than on the Internet, because links of
/// the simulation deliver nothing after that, and many short transfers must not run out of ports.
const TIME_WAIT: Span = Span::from_secs(1);

/// Returns the configuration of a flow, and adds its routes to the simulation.
pub(super) fn config(
    simulation: &mut Simulation,
    links: &Links,
    scenario: &Scenario,
    instance: &FlowInstance<'_>,
    seed: u64,
) -> TcpFlowConfig {
    let flow = instance.flow;
    let mut paths = Vec::new();
    for (p, path) in flow.paths.iter().enumerate() {
        let (down, mut up) = links.path(scenario, simulation.net_mut(), &instance.name, p, path);
        if up.is_empty() {
            up.push(simulation.pipe(Span::ZERO));
        }
        paths.push(TcpPath { down: simulation.route(&down), up: simulation.route(&up) });
    }
    let workload = |start, bytes: Option<u64>| match bytes {
        Some(bytes) => Workload::Messages(vec![Message { at: start, bytes }]),
        None => Workload::Endless,
    };
    let transfers = instance.transfers(scenario, links.packet_bytes, seed).into_iter();
    TcpFlowConfig {
        stack: stack(scenario, instance, links.packet_bytes),
        paths,
        opener: Opener::Sender,
        transfers: transfers
            .map(|(start, bytes)| TransferConfig { start, workload: workload(start, bytes) })
            .collect(),
        objects: Vec::new(),
        // No transfer arrives after `stop`; those that have arrived continue.
        stop: flow.stop.filter(|_| flow.arrivals.is_none()).map(|stop| stop.time()),
    }
}

/// Returns the settings of both stacks.
fn stack(scenario: &Scenario, instance: &FlowInstance<'_>, packet_bytes: u64) -> Config {
    let flow = instance.flow;
    let mut stack = Config { mptcp: flow.transport == Transport::Mptcp, ..Config::default() };
    flow.stack.apply(&mut stack).expect("checked: the settings exist");
    let kind = scenario.controllers.known.kind(instance.controller);
    let algorithm = kind.and_then(|kind| kind.algorithm());
    stack.congestion_control = algorithm.expect("checked: the controller is one of the table");
    stack.tcp.mtu_bytes = packet_bytes as u16;
    stack.tcp.time_wait = TIME_WAIT;
    stack.tcp.ecn = instance.asks_for_ecn(scenario);
    if let Some(delay) = flow.delayed_acks {
        stack.tcp.ack_delay = delay.0;
    }
    stack
}
