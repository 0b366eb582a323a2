//! Runs the phases outside of the probing for bandwidth: Startup, Drain and ProbeRtt (draft-ietf-ccwg-bbr,
//! section 5.3.1, 5.3.2 and 5.3.4).

use super::phase::Phase;
use super::state::{Bbr, Seen};
use crate::softfloat::Real;
use crate::{Span, Time};

/// The number of packets lost in a round that ends Startup, if they are 2 % of the round.
const STARTUP_LOST_MIN: u32 = 6;
/// The time for which ProbeRtt keeps the flight low.
const PROBE_RTT_TIME: Span = Span::from_millis(200);
/// The largest number of rounds in Drain.
const DRAIN_ROUNDS: u32 = 3;

impl Bbr {
    /// Runs Startup and Drain, after sections 5.3.1 and 5.3.2.
    pub(super) fn start_up(&mut self, seen: &Seen<'_>) {
        if self.phase == Phase::Startup {
            let lost = self.bounds.lost(self.flight.lost);
            if lost >= STARTUP_LOST_MIN && self.delivery.too_high(self.flight.lost).is_some() {
                self.bounds.hi = self.bounds.latest().max(self.product(self.bw(), Real::ONE));
                self.plateau.fill();
            }
            if self.plateau.was_ever {
                (self.phase, self.phase_rounds) = (Phase::Drain, 0);
            }
        }
        if self.phase == Phase::Drain {
            self.phase_rounds += u32::from(seen.is_round);
            let low = self.product(self.max_bw(), Real::ONE);
            if self.flight.in_flight <= low || self.phase_rounds > DRAIN_ROUNDS {
                self.start_down(seen);
            }
        }
    }

    /// Runs ProbeRtt, after section 5.3.4.3.
    pub(super) fn probe_rtt(&mut self, seen: &Seen<'_>, is_due: bool) {
        let now = seen.ack.now;
        if is_due && self.phase != Phase::ProbeRtt {
            self.prior_cwnd = self.cwnd;
            (self.phase, self.probe_rtt_done, self.cycle.is_stopping) = (Phase::ProbeRtt, Time::ZERO, true);
            self.start_round();
        }
        if self.phase != Phase::ProbeRtt {
            return;
        }
        if self.probe_rtt_done == Time::ZERO {
            if self.flight.in_flight <= self.product(self.bw(), self.phase.cwnd_gain()) {
                (self.probe_rtt_done, self.phase_rounds) = (now + PROBE_RTT_TIME, 0);
                self.start_round();
            }
            return;
        }
        self.phase_rounds += u32::from(seen.is_round);
        if self.phase_rounds > 0 && now > self.probe_rtt_done {
            self.rtt.drained(now);
            self.cwnd = self.cwnd.max(self.prior_cwnd);
            self.bounds.forget_short_term();
            if self.plateau.was_ever {
                self.start_down(seen);
                self.phase = Phase::Cruise;
            } else {
                self.phase = Phase::Startup;
            }
        }
    }
}
