//! What a controller is told of a subflow (RFC 5681 section 3, RFC 3168 section 6.1.2), and what it decides.

use super::{Group, SubflowStats};
use crate::{Span, Time};

/// What came: input of [`Control::on_ack`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Ack {
    /// When.
    pub now: Time,
    /// Packets that arrived; a batch counts as its number of packets, never as one.
    pub acked: u32,
    /// Rounds (windows' worth of packets, each about one RTT) that this subflow has completed so far.
    pub round: u32,
    /// Smoothed RTT of this subflow.
    pub srtt: Span,
    /// The latest RTT among the packets that arrived; zero if none was measured.
    pub rtt: Span,
    /// The smallest RTT of this subflow in a long time, taken for that without queues; zero before the first.
    pub min_rtt: Span,
    /// Whether the window was the limit; if not, it must not grow (RFC 7661's concern).
    pub cwnd_limited: bool,
    /// Whether what arrived was asked before the last congestion event: the window does not grow then.
    pub recovering: bool,
}

/// What is in flight: input of [`Control::on_flight`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// The highest sequence number that has arrived; zero before the first.
    pub highest: u64,
    /// The sequence number of the next packet to be sent.
    pub next_seq: u64,
    /// Packets outstanding, without those that have just arrived.
    pub in_flight: u32,
    /// Packets declared lost so far; it wraps around.
    pub lost: u32,
}

impl Flight {
    /// Nothing was sent.
    pub const NONE: Self = Self { highest: 0, next_seq: 0, in_flight: 0, lost: 0 };
}

/// Why a congestion event is one.
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

/// A congestion event: input of [`Control::on_congestion`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CongestionEvent {
    /// When.
    pub now: Time,
    /// Why.
    pub cause: CongestionCause,
    /// Smoothed RTT of this subflow.
    pub srtt: Span,
}

/// Congestion control of one subflow. What it decides is its window: how many packets may be outstanding, at
/// least one; and, if it has one, its pace.
pub trait Control {
    /// What is in flight as packets arrive; told before each [`on_ack`](Self::on_ack). For controllers that
    /// measure rates.
    fn on_flight(&mut self, _flight: &Flight) {}
    /// Packets arrived: the window from now on.
    fn on_ack(&mut self, ack: &Ack, group: &Group<'_>) -> u32;
    /// A congestion event: the window from now on.
    fn on_congestion(&mut self, event: &CongestionEvent, group: &Group<'_>) -> u32;
    /// The numbers to publish, given this subflow's smoothed RTT.
    fn stats(&self, srtt: Span) -> SubflowStats;
    /// The time that each packet has to have to itself at least; `None` if the window alone says when packets
    /// may leave.
    fn pace(&self) -> Option<Span> {
        None
    }
}
