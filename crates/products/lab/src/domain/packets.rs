//! Runs networks of the study in the packet simulator, with which the fluid model is compared.

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Rate, Span, Time};
use anabranch_sim::{LinkConfig, Rng};

use super::network::{Network, PACKET_BYTES};
use crate::packet_flows::FlowConfig;
use crate::simulation::Simulation;

/// Flows start at random times up to this, milliseconds.
const START_WITHIN_MS: u64 = 1_000;

/// Simulates packets over a network and measures rates.
///
/// Each of `marks_s` is a second of virtual time, in ascending order. For each two consecutive marks the
/// result has the mean rate of each flow between them, packets a second.
///
/// # Panics
/// If a path has a link that the network does not have.
#[must_use]
pub fn rates(network: &Network, seed: u64, marks_s: &[u64]) -> Vec<Vec<f64>> {
    let mut simulation = Simulation::new(seed);
    let mut rng = Rng::stream(seed, "domain packets");
    let mut ids = Vec::new();
    for (number, link) in network.links.iter().enumerate() {
        let config = LinkConfig::new(Rate::from_bits(link.rate_bits), Span::from_nanos(link.delay_ns));
        ids.push(simulation.link(&format!("link {number}"), config.queue_packets(link.queue_packets)));
    }
    let mut flows = Vec::new();
    for flow in &network.flows {
        let control = Algorithm::by_name(flow.rule.name()).expect("in the table of controllers");
        let mut paths = Vec::new();
        for path in &flow.paths {
            let links: Vec<_> = path.links.iter().map(|link| ids[*link]).collect();
            let down = simulation.route(&links);
            let back = simulation.pipe(Span::from_nanos(network.delay_ns(path)));
            let up = simulation.route(&[back]);
            paths.push((control.into(), down, Some(up), path.group));
        }
        let start = Time::ZERO + Span::from_millis(rng.below(START_WITHIN_MS));
        flows.push(simulation.packet_flows_mut().flow(&FlowConfig {
            paths,
            packet_bytes: PACKET_BYTES,
            packets: None,
            start,
            stop: None,
            detect: None,
            ack_delay: None,
            mirrors: None,
            steering: None,
        }));
    }
    let mut delivered = |mark: &u64| -> Vec<u64> {
        simulation.run_until(Time::ZERO + Span::from_secs(*mark));
        flows.iter().map(|flow| simulation.packet_flows().delivered_bytes(*flow).sum()).collect()
    };
    let at: Vec<Vec<u64>> = marks_s.iter().map(&mut delivered).collect();
    let rate = |pair: &[(&u64, &Vec<u64>)]| {
        let [(from, before), (to, after)] = pair else { return Vec::new() };
        let packets = f64::from(PACKET_BYTES) * to.saturating_sub(**from) as f64;
        before.iter().zip(*after).map(|(before, after)| (after - before) as f64 / packets).collect()
    };
    marks_s.iter().zip(&at).collect::<Vec<_>>().windows(2).map(rate).collect()
}
