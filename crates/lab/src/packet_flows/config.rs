//! What flows and cross traffic are made of.

use algo::control::Algorithm;
use algo::{Rate, Span, Time};
use sim::RouteId;

/// What a flow is made of.
#[derive(Clone, Debug)]
pub struct FlowConfig {
    /// Its paths: controller, route of data, route of acknowledgements (none: they are back at once), group.
    pub paths: Vec<(Algorithm, RouteId, Option<RouteId>, u32)>,
    /// Size of its packets on the wire, bytes.
    pub packet_bytes: u16,
    /// How many packets it transfers; none: without end.
    pub packets: Option<u64>,
    /// When it starts.
    pub start: Time,
    /// When it stops, if it does.
    pub stop: Option<Time>,
    /// Whether its groups follow shared-bottleneck detection.
    pub detect: bool,
}

/// Bursts of random length.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// Mean length of a burst, uniform from 0 to twice this.
    pub on: Span,
    /// Mean pause after it, likewise.
    pub off: Span,
}

/// What such traffic is made of.
#[derive(Clone, Debug)]
pub struct CbrConfig {
    /// Chooses its random stream.
    pub name: String,
    /// Its route.
    pub route: RouteId,
    /// Its rate while it is on.
    pub rate: Rate,
    /// Size of its packets on the wire, bytes.
    pub packet_bytes: u16,
    /// Bursts, if it has any.
    pub burst: Option<Burst>,
    /// When it starts.
    pub start: Time,
    /// When it stops, if it does.
    pub stop: Option<Time>,
}
