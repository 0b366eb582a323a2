//! What flows are made of.

use anabranch_algo::controller::ControllerKind;
use anabranch_algo::{Span, Time};
use anabranch_mirror::receive_windows::Sharing;
use anabranch_sim::RouteId;

/// What a flow is made of.
#[derive(Clone, Debug)]
pub struct FlowConfig {
    /// Its paths: controller, route of data, route of acknowledgements (none: they are back at once), group.
    pub paths: Vec<(ControllerKind, RouteId, Option<RouteId>, u32)>,
    /// Size of its packets on the wire, bytes.
    pub packet_bytes: u16,
    /// How many packets it transfers; none: without end.
    pub packets: Option<u64>,
    /// When it starts.
    pub start: Time,
    /// When it stops, if it does.
    pub stop: Option<Time>,
    /// The uplink of each path, where it is known, if its groups follow shared-bottleneck detection; none:
    /// they are as given.
    pub detect: Option<Vec<Option<u32>>>,
    /// How long an acknowledgement waits for a second packet at most; none: each packet is acknowledged at
    /// once.
    pub ack_delay: Option<Span>,
    /// With which others each path may share a bottleneck, if paths are connections to mirrors, whose windows
    /// the receiver bounds. Their senders are then coupled by `paths` alone.
    pub mirrors: Option<Vec<Sharing>>,
}
