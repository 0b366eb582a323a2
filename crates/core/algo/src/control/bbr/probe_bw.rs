//! Probes for bandwidth: decides when a probe begins, when it ends and what it changes (draft-ietf-ccwg-bbr,
//! section 5.3.3.6 and section 5.5.10.2).

use super::super::MEMBERS_MAX;
use super::bounds::{BETA, FLIGHT_MIN, times};
use super::phase::Phase;
use super::state::{Bbr, Seen};
use crate::softfloat::Real;
use crate::{Span, SplitMix64, Time};

impl Bbr {
    pub(super) fn start_down(&mut self, seen: &Seen<'_>) {
        // The time differs between flows, so they do not probe in step.
        let seed = seen.ack.now.as_nanos() ^ u64::from(self.flight.next_seq as u32).rotate_left(40);
        let mut draws = SplitMix64(seed);
        self.bounds.new_round(self.flight.lost);
        self.cycle.wait = Span::from_millis(2_000 + draws.below(1_000));
        (self.cycle.rounds_max, self.cycle.rounds) = (62 + draws.below(2) as u32, 0);
        (self.cycle.at, self.cycle.is_stopping) = (seen.ack.now, true);
        self.phase = Phase::Down;
        self.start_round();
    }

    pub(super) fn start_refill(&mut self) {
        self.bounds.forget_short_term();
        self.bounds.begin_up();
        (self.cycle.was_careful, self.cycle.is_stopping) = (false, false);
        self.phase = Phase::Refill;
        self.start_round();
    }

    /// Returns whether a probe is due: the wait is over, or a sibling has begun a probe.
    pub(super) fn is_probe_due(&mut self, seen: &Seen<'_>) -> bool {
        let (now, group) = (seen.ack.now, seen.group);
        let mut product = u64::from(self.product(self.bw(), Real::ONE).min(self.cwnd));
        if self.is_coupled && !group.is_alone() {
            let members = || group.members.iter().take(MEMBERS_MAX).filter(|member| member.srtt > Span::ZERO);
            let newest = members().map(|member| member.phase_at).max().unwrap_or(Time::ZERO);
            if newest > self.cycle.probe_at {
                self.cycle.probe_at = newest;
                (self.cycle.at, self.cycle.rounds) = (now, 0);
                return now.since(newest) <= seen.ack.srtt.times(2);
            }
            let all: u64 = members().map(|member| u64::from(member.cwnd.floor())).sum();
            product = product * all.max(1) / u64::from(self.cwnd.max(1));
        }
        let is_due = now.since(self.cycle.at) > self.cycle.wait
            || u64::from(self.cycle.rounds) >= product.min(u64::from(self.cycle.rounds_max));
        if is_due {
            self.cycle.probe_at = now;
        }
        is_due
    }

    /// Returns whether the probe can find nothing more.
    pub(super) fn is_up_over(&mut self, seen: &Seen<'_>) -> bool {
        if self.cycle.was_too_high && self.flight.in_flight >= self.bounds.hi {
            self.cycle.was_careful = true;
            return true;
        }
        if seen.ack.cwnd_limited && self.cwnd >= self.bounds.hi {
            if let Some(sample) = &seen.sample {
                self.plateau.restart(sample.rate);
            }
            return false;
        }
        self.plateau.is_now
    }

    /// Handles a loss of more than two percent of `flight` packets.
    pub(super) fn too_high(&mut self, flight: u32, seen: &Seen<'_>) {
        self.cycle.is_sampling = false;
        self.cycle.was_too_high = true;
        let target = self.product(self.bw(), Real::ONE).min(self.cwnd);
        self.bounds.hi = flight.max(times(target, BETA)).max(FLIGHT_MIN);
        if self.phase == Phase::Up {
            self.start_down(seen);
        }
    }

    /// Adapts the long-term bound, after section 5.5.10.2. Returns whether a probe has begun: then the
    /// present round trip is no round trip of Refill.
    pub(super) fn adapt_long_term(&mut self, seen: &Seen<'_>) -> bool {
        let mut has_begun_probe = false;
        if self.cycle.is_stopping && seen.is_round {
            (self.cycle.is_sampling, self.cycle.is_stopping) = (false, false);
            if matches!(self.phase, Phase::Down | Phase::Cruise) {
                self.delivery.next_cycle();
                self.group_rate.next_cycle();
                if self.cycle.was_careful && !self.cycle.was_too_high {
                    self.cycle.probe_at = seen.ack.now;
                    self.start_refill();
                    has_begun_probe = true;
                }
            }
        }
        if let Some(flight) = self.delivery.too_high(self.flight.lost) {
            if self.cycle.is_sampling {
                self.too_high(flight, seen);
            }
            return has_begun_probe;
        }
        if self.bounds.hi == u32::MAX {
            return has_begun_probe;
        }
        if let Some(sample) = &seen.sample {
            self.bounds.hi = self.bounds.hi.max(sample.flight);
        }
        if self.phase == Phase::Up && seen.ack.cwnd_limited && self.cwnd >= self.bounds.hi {
            self.bounds.grow(seen.ack.acked);
            if seen.is_round {
                self.bounds.steeper(self.cwnd);
            }
        }
        has_begun_probe
    }

    /// Moves through the phases of ProbeBW, after section 5.3.3.6.
    pub(super) fn probe_bw(&mut self, seen: &Seen<'_>) {
        let max_bw = self.max_bw();
        let phase = self.phase;
        match phase {
            Phase::Down | Phase::Cruise if self.is_probe_due(seen) => self.start_refill(),
            Phase::Down => {
                let low = self.product(max_bw, Real::ONE).min(self.bounds.with_headroom());
                if self.flight.in_flight <= low {
                    self.phase = Phase::Cruise;
                }
            }
            Phase::Refill if seen.is_round => {
                self.cycle.is_sampling = true;
                self.plateau.restart(seen.sample.as_ref().map_or(max_bw, |sample| sample.rate));
                self.phase = Phase::Up;
                self.start_round();
                self.bounds.steeper(self.cwnd);
            }
            Phase::Up if self.is_up_over(seen) => {
                self.cycle.was_too_high = false;
                self.start_down(seen);
            }
            _ => {}
        }
    }
}
