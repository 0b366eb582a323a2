//! Bounds rate and flight after losses (draft-ietf-ccwg-bbr, section 5.5.10).
//!
//! The long-term bound is the flight at which a probe lost more than two percent; later probes raise it,
//! slowly at first. The short-term bounds follow the packets that arrive in rounds without a probe; a new
//! probe removes them.

use super::delivery::Sample;
use crate::softfloat::Real;

/// The part of a bound that a loss leaves at least, 0.7.
pub(super) const BETA: Real = Real::from_ratio(717, 10);
/// The part of the long-term bound that is used between probes, 0.85.
const WITHOUT_HEADROOM: Real = Real::from_ratio(870, 10);
/// The smallest flight: four packets.
pub(super) const FLIGHT_MIN: u32 = 4;
/// The largest number of times that the slope doubles.
const UP_ROUNDS_MAX: u8 = 30;

/// Holds the bounds of flight and rate; [`u32::MAX`] and [`Real::MAX`] stand for no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The long-term bound of the flight, in packets.
    pub(super) hi: u32,
    /// The short-term bounds of the flight, in packets, and of the rate, in packets a nanosecond.
    lo: u32,
    bw_lo: Real,
    /// The largest numbers among this round's samples: of packets, and of the rate.
    latest: u32,
    bw_latest: Real,
    /// The number of packets lost before this round.
    lost_before: u32,
    /// The number of packets that arrived since the long-term bound last grew, and the number that makes it
    /// grow by one.
    acked: u32,
    acked_per_packet: u32,
    up_rounds: u8,
}

pub(super) fn times(packets: u32, gain: Real) -> u32 {
    packets_of(Real::from_u64(u64::from(packets)) * gain)
}

pub(super) fn packets_of(packets: Real) -> u32 {
    u32::try_from(packets.to_fixed(0)).unwrap_or(u32::MAX)
}

impl Bounds {
    pub(super) const NEW: Self = Self {
        hi: u32::MAX,
        lo: u32::MAX,
        bw_lo: Real::MAX,
        latest: 0,
        bw_latest: Real::ZERO,
        lost_before: 0,
        acked: 0,
        acked_per_packet: u32::MAX,
        up_rounds: 0,
    };

    /// Notes a sample of this round.
    pub(super) fn sample(&mut self, sample: &Sample) {
        self.latest = self.latest.max(sample.delivered);
        self.bw_latest = self.bw_latest.max(sample.rate);
    }

    /// Ends a round with `lost` packets lost in all, and begins the next with `sample`. `adapts` says that no
    /// probe is under way, so that losses move the short-term bounds.
    pub(super) fn round(
        &mut self,
        lost: u32,
        adapts: bool,
        cwnd: u32,
        max_bw: Real,
        sample: Option<&Sample>,
    ) {
        if lost != self.lost_before && adapts && !self.bw_latest.is_zero() {
            let (lo, bw_lo) = (if self.lo == u32::MAX { cwnd } else { self.lo }, self.bw_lo.min(max_bw));
            self.lo = self.latest.max(times(lo, BETA));
            self.bw_lo = self.bw_latest.max(bw_lo * BETA);
        }
        self.new_round(lost);
        if let Some(sample) = sample {
            self.sample(sample);
        }
    }

    /// Begins a round.
    pub(super) const fn new_round(&mut self, lost: u32) {
        (self.lost_before, self.latest, self.bw_latest) = (lost, 0, Real::ZERO);
    }

    /// Returns the number of packets lost in this round, given the total.
    pub(super) const fn lost(&self, lost: u32) -> u32 {
        lost.wrapping_sub(self.lost_before)
    }

    /// Returns the largest number of packets that a sample of this round delivered.
    pub(super) const fn latest(&self) -> u32 {
        self.latest
    }

    /// Removes the short-term bounds.
    pub(super) const fn forget_short_term(&mut self) {
        (self.lo, self.bw_lo) = (u32::MAX, Real::MAX);
    }

    /// Returns the rate to send at, given the largest measured rate.
    pub(super) fn bw(&self, max_bw: Real) -> Real {
        max_bw.min(self.bw_lo)
    }

    /// Returns the long-term bound, less some room for other flows.
    pub(super) fn with_headroom(&self) -> u32 {
        match self.hi {
            u32::MAX => u32::MAX,
            hi => times(hi, WITHOUT_HEADROOM).min(hi - 1).max(FLIGHT_MIN),
        }
    }

    /// Returns `cwnd` within the bounds; `cruising` leaves room for other flows.
    pub(super) fn cap(&self, cwnd: u32, cruising: bool) -> u32 {
        let hi = if cruising { self.with_headroom() } else { self.hi };
        cwnd.min(hi.min(self.lo).max(FLIGHT_MIN))
    }

    /// Begins a probe, in which the long-term bound may grow.
    pub(super) fn begin_up(&mut self) {
        (self.acked, self.up_rounds) = (0, 0);
    }

    /// Makes the slope twice as steep as in the round before.
    pub(super) fn steeper(&mut self, cwnd: u32) {
        self.acked_per_packet = (cwnd >> self.up_rounds.min(UP_ROUNDS_MAX)).max(1);
        self.up_rounds = (self.up_rounds + 1).min(UP_ROUNDS_MAX);
    }

    /// Grows the long-term bound after `acked` packets arrived in a probe that uses it up.
    pub(super) fn grow(&mut self, acked: u32) {
        self.acked = self.acked.saturating_add(acked);
        let packets = self.acked.checked_div(self.acked_per_packet).unwrap_or(0);
        self.acked -= packets * self.acked_per_packet;
        self.hi = self.hi.saturating_add(packets);
    }
}
