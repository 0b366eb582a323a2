//! Holds BBR's model of a path and derives the window and the pace from it (draft-ietf-ccwg-bbr, section 2
//! and section 5.6).

use super::super::{Ack, Flight, Group, INITIAL_WINDOW, Window};
use super::bounds::{Bounds, FLIGHT_MIN, packets_of};
use super::delivery::{Delivery, Sample};
use super::group_rate::GroupRate;
use super::min_rtt::MinRtt;
use super::phase::Phase;
use super::plateau::Plateau;
use crate::softfloat::Real;
use crate::{Span, Time};

/// The factor that keeps the pace 1 % below its nominal value.
const MARGIN: Real = Real::from_ratio(1014, 10);

/// Holds the times of probes and the results of the last probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cycle {
    /// The time at which the wait began; its length as a time and in rounds; and the rounds that have passed.
    pub(super) at: Time,
    pub(super) wait: Span,
    pub(super) rounds_max: u32,
    pub(super) rounds: u32,
    /// The time at which the group's last probe began.
    pub(super) probe_at: Time,
    /// Whether arriving samples belong to a probe that has not lost too much.
    pub(super) is_sampling: bool,
    /// Whether arriving samples belong to a probe that is already over.
    pub(super) is_stopping: bool,
    /// Whether the last probe lost more than two percent, and whether it ended at the bound of an earlier
    /// probe that had.
    pub(super) was_too_high: bool,
    pub(super) was_careful: bool,
}

/// Implements BBR for one subflow: window and pace follow from a model of the path, not from losses
/// (draft-ietf-ccwg-bbr; `control/bbr.rs` lists the differences).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bbr {
    pub(super) is_coupled: bool,
    pub(super) phase: Phase,
    pub(super) cwnd: u32,
    /// The window before ProbeRtt, in packets.
    pub(super) prior_cwnd: u32,
    /// The time between two packets; zero before the first round-trip time.
    pub(super) pace: Span,
    pub(super) flight: Flight,
    /// The lowest bits of the sequence number that ends this round.
    pub(super) round_end: u32,
    /// The number of rounds in Drain; in ProbeRtt, the number of rounds since the flight was low.
    pub(super) phase_rounds: u32,
    /// The time at which ProbeRtt ends; zero while the flight is not low yet.
    pub(super) probe_rtt_done: Time,
    pub(super) delivery: Delivery,
    pub(super) group_rate: GroupRate,
    pub(super) rtt: MinRtt,
    pub(super) plateau: Plateau,
    pub(super) bounds: Bounds,
    pub(super) cycle: Cycle,
}

/// Holds one acknowledgement and the results computed from it.
pub(super) struct Seen<'a> {
    pub(super) ack: &'a Ack,
    pub(super) group: &'a Group<'a>,
    pub(super) sample: Option<Sample>,
    /// Whether a round has ended.
    pub(super) is_round: bool,
}

impl Bbr {
    /// Creates BBR without any measurements. Each path runs on its own.
    #[must_use]
    pub const fn new() -> Self {
        let cycle = Cycle {
            at: Time::ZERO,
            wait: Span::ZERO,
            rounds_max: 0,
            rounds: 0,
            probe_at: Time::ZERO,
            is_sampling: false,
            is_stopping: false,
            was_too_high: false,
            was_careful: false,
        };
        Self {
            is_coupled: false,
            phase: Phase::Startup,
            cwnd: INITIAL_WINDOW.floor(),
            prior_cwnd: 0,
            pace: Span::ZERO,
            flight: Flight::NONE,
            round_end: 0,
            phase_rounds: 0,
            probe_rtt_done: Time::ZERO,
            delivery: Delivery::NEW,
            group_rate: GroupRate::NEW,
            rtt: MinRtt::NEW,
            plateau: Plateau::NEW,
            bounds: Bounds::NEW,
            cycle,
        }
    }

    /// Creates BBR without any measurements. The paths of a group together run as one flow.
    #[must_use]
    pub const fn coupled() -> Self {
        Self { is_coupled: true, ..Self::new() }
    }

    /// Takes over the window that the world has set itself, in packets.
    pub fn set_window(&mut self, cwnd: u32) {
        self.cwnd = cwnd.clamp(1, Window::MAX.floor());
    }

    pub(super) fn bw(&self) -> Real {
        self.bounds.bw(self.max_bw())
    }

    /// Returns b, the largest delivery rate, in packets a nanosecond.
    pub(super) fn max_bw(&self) -> Real {
        self.group_rate.bound(self.delivery.max_bw())
    }

    /// Returns the number of packets in `gain` times the product of the rate `bw` and the smallest RTT; the
    /// initial window before the first measurement.
    pub(super) fn product(&self, bw: Real, gain: Real) -> u32 {
        match self.rtt.get() {
            Some(rtt) if !bw.is_zero() => {
                packets_of(bw * Real::from_u64(rtt.as_nanos()) * gain + Real::ONE.half())
            }
            _ => INITIAL_WINDOW.floor(),
        }
        .clamp(FLIGHT_MIN, Window::MAX.floor())
    }

    /// Begins a round.
    pub(super) fn start_round(&mut self) {
        self.round_end = self.flight.next_seq as u32;
    }

    /// Derives the window and the pace from the model, after sections 5.6.2 and 5.6.4.
    pub(super) fn control(&mut self, ack: &Ack) {
        let bw = self.bw();
        let mut target = self.product(bw, self.phase.cwnd_gain());
        if self.phase == Phase::Up {
            target = target.saturating_add(2);
        }
        if self.plateau.was_ever {
            self.cwnd = self.cwnd.saturating_add(ack.acked).min(target);
        } else if self.cwnd < target || bw.is_zero() {
            self.cwnd = self.cwnd.saturating_add(ack.acked);
        }
        self.cwnd = match self.phase {
            Phase::Startup | Phase::Drain => self.bounds.cap(self.cwnd, false),
            Phase::ProbeRtt => self.bounds.cap(self.cwnd, true).min(target),
            phase => self.bounds.cap(self.cwnd, phase == Phase::Cruise),
        }
        .clamp(FLIGHT_MIN, Window::MAX.floor());

        let bw = if bw.is_zero() {
            Real::from_u64(u64::from(self.cwnd)) / Real::from_u64(ack.srtt.as_nanos().max(1))
        } else {
            bw
        };
        let pace = Span::from_nanos((bw * self.phase.pacing_gain() * MARGIN).inverse().to_fixed(0).max(1));
        if ack.srtt > Span::ZERO && (self.plateau.was_ever || self.pace == Span::ZERO || pace < self.pace) {
            self.pace = pace.min(Span::from_secs(1));
        }
    }
}

impl Default for Bbr {
    fn default() -> Self {
        Self::new()
    }
}
