//! Defines the events that the world reports to a controller (RFC 5681 section 3, RFC 3168 section 6.1.2) and
//! the trait [`Control`], through which a controller answers with a window and a pace.

use super::{Group, SubflowStats};
use crate::{Span, Time};

/// Reports packets that arrived: the input of [`Control::on_ack`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Ack {
    /// The time at which the acknowledgement came.
    pub now: Time,
    /// The number of packets that arrived; a batch counts as its number of packets, never as one.
    pub acked: u32,
    /// Rounds (windows' worth of packets, each about one RTT) that this subflow has completed so far.
    pub round: u32,
    /// The smoothed RTT of this subflow.
    pub srtt: Span,
    /// The latest RTT among the packets that arrived; zero if none was measured.
    pub rtt: Span,
    /// The smallest RTT that this subflow has measured in a long time, which stands for the RTT without
    /// queues; zero before the first sample.
    pub min_rtt: Span,
    /// Whether the window was the limit; if not, it must not grow (RFC 7661's concern).
    pub cwnd_limited: bool,
    /// Whether these packets were requested before the last congestion event; the window does not grow then.
    pub recovering: bool,
}

/// Counts the packets in flight: the input of [`Control::on_flight`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// The highest sequence number that has arrived; zero before the first.
    pub highest: u64,
    /// The sequence number of the next packet to be sent.
    pub next_seq: u64,
    /// The number of packets outstanding, without the packets that have just arrived.
    pub in_flight: u32,
    /// The number of packets declared lost so far; it wraps around.
    pub lost: u32,
}

impl Flight {
    /// The value before anything was sent.
    pub const NONE: Self = Self { highest: 0, next_seq: 0, in_flight: 0, lost: 0 };
}

/// The reason for a congestion event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum CongestionCause {
    /// Packets were lost and others arrived: fast retransmit.
    Loss,
    /// Nothing arrived for a retransmission timeout.
    Timeout,
    /// The network marked a packet (ECN CE, RFC 3168).
    EcnCe,
}

/// Reports a congestion event: the input of [`Control::on_congestion`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CongestionEvent {
    /// The time of the event.
    pub now: Time,
    /// The reason for the event.
    pub cause: CongestionCause,
    /// The smoothed RTT of this subflow.
    pub srtt: Span,
}

/// Controls the congestion of one subflow. A controller decides the window, which is the number of packets
/// that may be outstanding (at least one). A controller that paces also decides the pace.
pub trait Control {
    /// Notes the packets in flight as packets arrive. The world calls this before each
    /// [`on_ack`](Self::on_ack), for controllers that measure rates.
    fn on_flight(&mut self, _flight: &Flight) {}
    /// Handles packets that arrived. Returns the window from now on, in packets.
    fn on_ack(&mut self, ack: &Ack, group: &Group<'_>) -> u32;
    /// Handles a congestion event. Returns the window from now on, in packets.
    fn on_congestion(&mut self, event: &CongestionEvent, group: &Group<'_>) -> u32;
    /// Returns the numbers to publish to the siblings, given this subflow's smoothed RTT.
    fn stats(&self, srtt: Span) -> SubflowStats;
    /// Returns the least time between two packets; `None` if the window alone decides when packets may leave.
    fn pace(&self) -> Option<Span> {
        None
    }
}
