//! Lists the flows of a run: each copy with its start and its controller.

use anabranch_algo::{Span, Time};
use anabranch_sim::Rng;

use super::transfer_draw::TransferDraw;
use crate::observations::{FlowEnd, ObservedFlow};
use crate::packet_layout::PacketLayout;
use crate::scenario::{Flow, Scenario, SizeSpec, Transport};
use crate::simulation::{OVERHEAD_BYTES, PAYLOAD_MAX};

/// One copy of a flow.
pub(crate) struct FlowInstance<'a> {
    /// Name of this copy.
    pub(crate) name: String,
    /// Name of the flow in the scenario.
    pub(crate) base: &'a str,
    pub(crate) flow: &'a Flow,
    pub(crate) start: Time,
    /// Name of the controller.
    pub(crate) controller: &'a str,
}

impl FlowInstance<'_> {
    /// Returns the sizes of packet and payload, for packets of `packet_bytes` bytes.
    pub(crate) fn layout(&self, packet_bytes: u64) -> PacketLayout {
        match self.flow.transport {
            Transport::Packet => PacketLayout::tcp(packet_bytes, self.flow.paths.len()),
            Transport::Tcp => PacketLayout::stack(packet_bytes, false),
            Transport::Mptcp => PacketLayout::stack(packet_bytes, true),
            // Each connection to a mirror is a TCP connection of its own.
            Transport::Mirrors => PacketLayout::tcp(packet_bytes, 1),
            Transport::Mmtp => PacketLayout::mmtp(udp_payload_max(packet_bytes)),
        }
    }

    /// Returns start and size in bytes of each transfer; `None` for a transfer without end. With arrivals
    /// the seed decides both.
    pub(crate) fn transfers(
        &self,
        scenario: &Scenario,
        packet_bytes: u64,
        seed: u64,
    ) -> Vec<(Time, Option<u64>)> {
        let Some(arrivals) = &self.flow.arrivals else {
            return vec![(self.start, self.payload_bytes(packet_bytes))];
        };
        let bytes = |size: SizeSpec| self.bytes_of(size, packet_bytes);
        let draw = TransferDraw {
            arrivals,
            mean_bytes: self.flow.size.map_or(0.0, |size| bytes(size) as f64),
            most_bytes: arrivals.most.map_or(f64::INFINITY, |size| bytes(size) as f64),
            list_bytes: arrivals.list.iter().map(|size| bytes(*size)).collect(),
            rng: Rng::stream(seed, &format!("arrivals of {}", self.name)),
        };
        let end = self.flow.stop.map_or(scenario.duration.0, |stop| stop.0.min(scenario.duration.0));
        let end = Time::ZERO + end;
        draw.until(self.start, end).into_iter().map(|(at, bytes)| (at, Some(bytes))).collect()
    }

    /// Returns the payload to transfer, bytes; `None` without end. A size in packets means full packets.
    pub(crate) fn payload_bytes(&self, packet_bytes: u64) -> Option<u64> {
        self.flow.size.map(|size| self.bytes_of(size, packet_bytes))
    }

    fn bytes_of(&self, size: SizeSpec, packet_bytes: u64) -> u64 {
        match size {
            SizeSpec::Packets(packets) => packets.saturating_mul(self.layout(packet_bytes).payload_bytes),
            SizeSpec::Bytes(bytes) => bytes,
            SizeSpec::Time(_) => unreachable!("checked: a flow's size is no time"),
        }
    }

    /// Whether a link that the flow's data crosses marks packets, so that the flow must use ECN.
    pub(crate) fn asks_for_ecn(&self, scenario: &Scenario) -> bool {
        self.flow.paths.iter().flat_map(|path| &path.via).any(|name| scenario.link[name].marks())
    }

    /// Returns the empty record of the flow.
    pub(crate) fn observed(&self, packet_bytes: u64) -> ObservedFlow {
        ObservedFlow {
            name: self.name.clone(),
            base: self.base.into(),
            paths: self.flow.paths.len(),
            layout: self.layout(packet_bytes),
            end: FlowEnd::default(),
        }
    }
}

/// Returns the UDP payload of packets of this size, which mmTP gets as its interface's limit.
pub(crate) fn udp_payload_max(packet_bytes: u64) -> usize {
    let bytes = usize::try_from(packet_bytes).unwrap_or(usize::MAX);
    bytes.saturating_sub(OVERHEAD_BYTES).min(PAYLOAD_MAX)
}

/// Returns all flows of a run with `controller` under comparison; the seed decides their random starts.
pub(crate) fn flow_instances<'a>(
    scenario: &'a Scenario,
    controller: &'a str,
    seed: u64,
) -> impl Iterator<Item = FlowInstance<'a>> {
    scenario.flow.iter().flat_map(move |(base, flow)| {
        (1..=flow.count).map(move |instance| {
            let name = if flow.count == 1 { base.clone() } else { format!("{base}-{instance}") };
            let mut rng = Rng::stream(seed, &format!("start of {name}"));
            let start = flow.start.time() + Span::from_nanos(rng.below(flow.start_within.0.as_nanos() + 1));
            let compared = if flow.paths.len() > 1 { controller } else { "reno" };
            FlowInstance {
                name,
                base,
                flow,
                start,
                controller: flow.controller.as_deref().unwrap_or(compared),
            }
        })
    })
}
