//! Configures packet flows.

use anabranch_algo::controller::ControllerKind;
use anabranch_algo::{Span, Time};
use anabranch_mirror::receive_windows::Sharing;
use anabranch_sim::RouteId;

use super::steering::SteeringConfig;

/// The configuration of a flow.
#[derive(Clone, Debug)]
pub struct FlowConfig {
    /// Paths: controller, route of data, route of acknowledgements (`None`: they return without delay),
    /// group.
    pub paths: Vec<(ControllerKind, RouteId, Option<RouteId>, u32)>,
    /// Size of the packets on the wire, bytes.
    pub packet_bytes: u16,
    /// Number of packets to transfer; `None` for a transfer without end.
    pub packets: Option<u64>,
    /// Time at which the flow starts.
    pub start: Time,
    /// Time at which the flow stops; `None` for never.
    pub stop: Option<Time>,
    /// Uplink of each path, if known, when shared-bottleneck detection decides the groups; `None` if the
    /// groups of `paths` apply.
    pub detect: Option<Vec<Option<u32>>>,
    /// Longest time that an acknowledgement waits for a second packet; `None` if each packet is acknowledged
    /// at once.
    pub ack_delay: Option<Span>,
    /// For connections to mirrors: the paths with which each path may share a bottleneck. The receiver then
    /// bounds the windows; the senders are coupled by the groups in `paths` alone.
    pub mirrors: Option<Vec<Sharing>>,
    /// The WiFi access points between which the receiver steers; `None` if it does not.
    pub steering: Option<SteeringConfig>,
}

impl FlowConfig {
    /// Returns the settings of a flow without end on one path, in packets of 1,500 bytes.
    pub(crate) fn endless(controller: ControllerKind, route: RouteId, back: RouteId, start: Time) -> Self {
        Self {
            paths: vec![(controller, route, Some(back), 0)],
            packet_bytes: 1_500,
            packets: None,
            start,
            stop: None,
            detect: None,
            ack_delay: None,
            mirrors: None,
            steering: None,
        }
    }
}
