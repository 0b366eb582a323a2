//! The share of packets that the receiver marks (ECN) on the subflow over an inefficient AP.
//!
//! **Derivation**, after equations (2.3) and (2.4) of the source. A subflow that is alone at an AP with
//! packet time T keeps its buffer half full, at b = 100 of 200 packets: its round-trip time is RTT = RTT₀ +
//! b·T, and its rate 1/T. TCP's rate at loss p is √(c/p)/RTT with c = 2, so p = c·T²/RTT². Marks may make the
//! window smaller until the buffer is empty and the rate is still 1/T: p + δ = c·T²/RTT₀². Hence
//!
//! δ = c·T²·(1/RTT₀² − 1/RTT²), where RTT₀ = RTT − b·T.
//!
//! With these marks the sender still estimates the full rate of the AP, so that it gets it where the other AP
//! has nothing to give; and it moves away from the AP where it can.
//!
//! **Not as printed.** Equation (2.5) of the source has ½·(√(p+δ) − √p)², the difference of the roots squared
//! in place of the difference of the squares, and a quarter of the buffer in place of half: it never exceeds
//! 5·10⁻⁵, and the cap of 5 % in the same text would never apply.
//!
//! **Which round-trip time.** The RTT of the formula is that *without* marks. Marks empty the buffer, and a
//! rule that took the round-trip time that it measures then would find nothing to mark, and swing. So
//! [`MarkingRule::rate`] asks for the shortest round-trip time, which is RTT₀ with and without marks.

use alloc::vec::Vec;

use super::{PacketTime, Probability};
use crate::Span;

/// The state of the subflow over one AP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApState {
    /// The packet time of the AP; `None` if it is unknown, or if the AP is a hidden terminal for the others:
    /// then congestion control alone does the right thing.
    pub packet_time: Option<PacketTime>,
    /// The shortest round-trip time of the subflow.
    pub rtt_min: Span,
    /// The channel. APs of different channels take no airtime from each other, so they are not compared.
    pub channel: u16,
}

/// The rule of marking, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkingRule {
    /// The packets for which an AP has room.
    pub buffer_packets: u32,
    /// The highest share that is marked. At 5 % TCP's window is six packets; with less it waits for timeouts.
    pub cap: Probability,
    /// An AP is marked if its packet time is at least this many percent of the shortest one on its channel.
    pub threshold_percent: u32,
}

impl Default for MarkingRule {
    /// The values of the source: 200 packets, 5 %, 120 %.
    fn default() -> Self {
        Self { buffer_packets: 200, cap: Probability::of(5, 100), threshold_percent: 120 }
    }
}

impl MarkingRule {
    /// Returns the share δ of packets to mark at an AP, before threshold and [cap](MarkingRule::cap), given
    /// the shortest round-trip time RTT₀ of the subflow; zero if it is zero, thus unknown.
    #[must_use]
    pub fn rate(&self, packet_time: PacketTime, rtt_min: Span) -> Probability {
        let queue = self.half_buffer(packet_time);
        Self::difference(packet_time, rtt_min, rtt_min + queue)
    }

    /// Returns δ given the mean round-trip time of the subflow without marks. Where that is not longer than
    /// half a buffer, the buffer is smaller than assumed, and `rtt_min` is taken for RTT₀.
    #[must_use]
    pub fn rate_of_unmarked_rtt(&self, packet_time: PacketTime, rtt: Span, rtt_min: Span) -> Probability {
        let queue = self.half_buffer(packet_time);
        let idle = if rtt > queue { rtt - queue } else { rtt_min };
        Self::difference(packet_time, idle, rtt)
    }

    /// Returns the time that half a buffer takes.
    fn half_buffer(&self, packet_time: PacketTime) -> Span {
        let units = u128::from(packet_time.units()) * u128::from(self.buffer_packets / 2);
        let nanos = units / u128::from(PacketTime::from_span(Span::from_nanos(1)).units());
        Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns 2·T²·(1/RTT₀² − 1/RTT²), at most one.
    fn difference(packet_time: PacketTime, idle: Span, rtt: Span) -> Probability {
        if idle == Span::ZERO {
            return Probability::ZERO;
        }
        let square = |span| {
            let ratio = packet_time.per(span);
            ratio.and(ratio)
        };
        let half = square(idle).minus(square(rtt));
        half.plus(half)
    }

    /// Returns the share of packets to mark at each of the APs, with threshold and cap.
    #[must_use]
    pub fn rates(&self, aps: &[ApState]) -> Vec<Probability> {
        let rate = |(i, ap): (usize, &ApState)| match ap.packet_time {
            Some(time) if self.is_inefficient(aps, i) => self.rate(time, ap.rtt_min).min(self.cap),
            _ => Probability::ZERO,
        };
        aps.iter().enumerate().map(rate).collect()
    }

    /// Returns whether the packet time of AP `i` reaches the threshold over the shortest packet time on its
    /// channel; false if it is unknown.
    #[must_use]
    pub fn is_inefficient(&self, aps: &[ApState], i: usize) -> bool {
        let Some(ApState { packet_time: Some(time), channel, .. }) = aps.get(i) else { return false };
        let rivals = aps.iter().filter(|ap| ap.channel == *channel);
        let best = rivals.filter_map(|ap| ap.packet_time).min();
        best.is_some_and(|best| best < *time && time.is_at_least(self.threshold_percent, best))
    }
}
