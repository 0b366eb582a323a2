//! Runs one step of BBR (draft-ietf-ccwg-bbr, section 5.2).

use super::super::{Ack, CongestionCause, CongestionEvent, Control, Flight, Group, SubflowStats, Window};
use super::delivery::is_reached;
use super::phase::Phase;
use super::state::{Bbr, Seen};
use crate::Span;
use crate::softfloat::Real;

impl Control for Bbr {
    fn on_flight(&mut self, flight: &Flight) {
        self.flight = *flight;
    }

    fn on_ack(&mut self, ack: &Ack, group: &Group<'_>) -> u32 {
        let needed = self.product(self.bw(), Real::ONE).min(self.cwnd) / 2;
        let needed = if self.phase == Phase::ProbeRtt { u32::MAX } else { needed };
        let flight = self.flight;
        let sample = self.delivery.on_ack(ack, &flight, needed);
        let is_round = is_reached(flight.highest as u32, self.round_end);
        let seen = Seen { ack, group, sample, is_round };
        if is_round {
            self.start_round();
            self.cycle.rounds = self.cycle.rounds.saturating_add(1);
        }
        if let Some(sample) = &seen.sample {
            self.bounds.sample(sample);
            if self.is_coupled {
                self.group_rate.sample(sample, group);
            }
            if is_round {
                self.plateau.round(sample);
            }
        }
        self.start_up(&seen);
        if is_round {
            let (adapts, max_bw) = (!self.phase.is_probing(), self.max_bw());
            self.bounds.round(flight.lost, adapts, self.cwnd, max_bw, seen.sample.as_ref());
        }
        if self.plateau.was_ever {
            let has_begun_probe = self.adapt_long_term(&seen);
            if !has_begun_probe {
                self.probe_bw(&seen);
            }
        }
        let is_due = self.rtt.sample(ack.now, ack.rtt);
        self.probe_rtt(&seen, is_due);
        self.control(ack);
        self.cwnd
    }

    fn on_congestion(&mut self, event: &CongestionEvent, group: &Group<'_>) -> u32 {
        match event.cause {
            // The flight report already counts each loss.
            CongestionCause::Loss => {}
            CongestionCause::Timeout => {
                self.cwnd = 1;
                self.delivery.reset();
            }
            CongestionCause::EcnCe => {
                let ack = Ack {
                    now: event.now,
                    acked: 0,
                    round: 0,
                    srtt: event.srtt,
                    rtt: Span::ZERO,
                    min_rtt: Span::ZERO,
                    cwnd_limited: false,
                    recovering: false,
                };
                let seen = Seen { ack: &ack, group, sample: None, is_round: false };
                if self.phase == Phase::Startup {
                    self.plateau.fill();
                }
                self.too_high(self.flight.in_flight, &seen);
                self.cwnd = self.bounds.cap(self.cwnd, false);
            }
        }
        self.cwnd
    }

    fn stats(&self, srtt: Span) -> SubflowStats {
        SubflowStats {
            cwnd: Window::packets(self.cwnd),
            srtt,
            slow_start: !self.plateau.was_ever,
            phase_at: self.cycle.probe_at,
            peak: self.group_rate.published(srtt),
            ..SubflowStats::default()
        }
    }

    fn pace(&self) -> Option<Span> {
        (self.pace > Span::ZERO).then_some(self.pace)
    }
}
