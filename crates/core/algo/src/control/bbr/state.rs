//! What BBR knows of a path, and the window and the pace that follow (draft-ietf-ccwg-bbr, section 2 and
//! section 5.6).

use super::super::{Ack, Flight, Group, INITIAL_WINDOW, Window};
use super::bounds::{Bounds, FLIGHT_MIN, packets_of};
use super::delivery::{Delivery, Sample};
use super::group_rate::GroupRate;
use super::min_rtt::MinRtt;
use super::phase::Phase;
use super::plateau::Plateau;
use crate::softfloat::Real;
use crate::{Span, Time};

/// The pace is 1 % below what it should be.
const MARGIN: Real = Real::from_ratio(1014, 10);

/// When to probe, and what the last probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cycle {
    /// When the wait began, and how long it is, in time and in rounds.
    pub(super) at: Time,
    pub(super) wait: Span,
    pub(super) rounds_max: u32,
    pub(super) rounds: u32,
    /// When the group's last probe began.
    pub(super) probe_at: Time,
    /// Samples of a probe arrive that has not been found too high.
    pub(super) is_sampling: bool,
    /// Samples of a probe arrive, and it is over.
    pub(super) is_stopping: bool,
    /// The last probe lost more than two percent; it ended at the bound of one that had.
    pub(super) was_too_high: bool,
    pub(super) was_careful: bool,
}

/// BBR of one subflow: window and pace follow from a model of the path, not from losses
/// (draft-ietf-ccwg-bbr; what differs is said in `control/bbr.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bbr {
    pub(super) is_coupled: bool,
    pub(super) phase: Phase,
    pub(super) cwnd: u32,
    /// Window before ProbeRtt or a timeout.
    pub(super) prior_cwnd: u32,
    /// Time for a packet; zero before there is a round-trip time.
    pub(super) pace: Span,
    pub(super) flight: Flight,
    /// The lowest bits of the sequence number that ends this round.
    pub(super) round_end: u32,
    /// Rounds in Drain; in ProbeRtt whether one has passed since the flight was low.
    pub(super) phase_rounds: u32,
    /// When ProbeRtt ends; zero while the flight is not low yet.
    pub(super) probe_rtt_done: Time,
    pub(super) delivery: Delivery,
    pub(super) group_rate: GroupRate,
    pub(super) rtt: MinRtt,
    pub(super) plateau: Plateau,
    pub(super) bounds: Bounds,
    pub(super) cycle: Cycle,
}

/// What came, worked out.
pub(super) struct Seen<'a> {
    pub(super) ack: &'a Ack,
    pub(super) group: &'a Group<'a>,
    pub(super) sample: Option<Sample>,
    /// A round has ended.
    pub(super) is_round: bool,
}

impl Bbr {
    /// Nothing known; each path on its own.
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

    /// The same, but the paths of a group together as one flow.
    #[must_use]
    pub const fn coupled() -> Self {
        Self { is_coupled: true, ..Self::new() }
    }

    /// The world has set the window itself, in packets.
    pub fn set_window(&mut self, cwnd: u32) {
        self.cwnd = cwnd.clamp(1, Window::MAX.floor());
    }

    pub(super) fn bw(&self) -> Real {
        self.bounds.bw(self.max_bw())
    }

    /// b.
    pub(super) fn max_bw(&self) -> Real {
        self.group_rate.bound(self.delivery.max_bw())
    }

    /// Packets of `gain` times the product of that rate and the smallest RTT; the initial window before
    /// anything is known.
    pub(super) fn product(&self, bw: Real, gain: Real) -> u32 {
        match self.rtt.get() {
            Some(rtt) if !bw.is_zero() => {
                packets_of(bw * Real::from_u64(rtt.as_nanos()) * gain + Real::ONE.half())
            }
            _ => INITIAL_WINDOW.floor(),
        }
        .clamp(FLIGHT_MIN, Window::MAX.floor())
    }

    /// A round begins here.
    pub(super) fn start_round(&mut self) {
        self.round_end = self.flight.next_seq as u32;
    }

    /// Window and pace that follow from the model, after sections 5.6.2 and 5.6.4.
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
