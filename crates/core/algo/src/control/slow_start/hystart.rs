//! Implements HyStart++ (RFC 9406), a slow start that watches the round-trip time. When a round's smallest
//! RTT is clearly above the smallest RTT of the round before, growth falls to a quarter (conservative slow
//! start, CSS). If the RTT falls back, the alarm was false; if it does not within [`CSS_ROUNDS`] rounds, slow
//! start ends without a loss.
//!
//! Where the text leaves a choice:
//!
//! * Its limit L on what one acknowledgement adds is "infinite with pacing" and 8 without. We have none:
//!   growth is weighed by packets, as in the standard slow start here, and the world decides how to send.
//! * An acknowledgement has one sample; here a batch counts as a sample for each of its packets, and its
//!   smallest RTT is reported ([`Ack::rtt`]). A batch without an RTT counts as no sample.
//! * Only for the initial slow start (section 4.3): later ones know where to end.
//! * RTTs are observed in packets that do not let the window grow, too.

use super::super::Ack;
use super::super::state::{SSTHRESH_INITIAL, State};
use crate::Span;
use crate::softfloat::Real;

/// The growth of the RTT below which no growth counts.
const MIN_RTT_THRESH: Span = Span::from_millis(4);
/// The growth of the RTT from which any growth counts.
const MAX_RTT_THRESH: Span = Span::from_millis(16);
/// The divisor of the RTT that gives the threshold in between.
const MIN_RTT_DIVISOR: u64 = 8;
/// The number of samples that a round must have to be judged.
const N_RTT_SAMPLE: u32 = 8;
/// The divisor by which CSS reduces the growth of slow start.
const CSS_GROWTH_DIVISOR: u64 = 4;
/// The number of rounds of CSS, including the first even if it began amidst a round.
const CSS_ROUNDS: u8 = 5;

/// Implements HyStart++ for one subflow. An unknown RTT is [`Span::MAX`], the infinity of the RFC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Hystart {
    /// The smallest RTTs of the last round and of this round.
    last_min: Span,
    current_min: Span,
    /// The smallest RTT when CSS began; infinite in slow start.
    baseline: Span,
    round: u32,
    /// The number of samples in this round, up to 65,535.
    samples: u16,
    /// The number of rounds of CSS so far.
    css_rounds: u8,
}

impl Default for Hystart {
    fn default() -> Self {
        Self::new()
    }
}

impl Hystart {
    /// Creates a slow start without any measurements.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            last_min: Span::MAX,
            current_min: Span::MAX,
            baseline: Span::MAX,
            round: 0,
            samples: 0,
            css_rounds: 0,
        }
    }

    fn is_conservative(&self) -> bool {
        self.baseline < Span::MAX
    }

    /// Notes packets that arrived (section 4.2). Ends slow start when CSS has lasted long enough.
    pub(super) fn on_ack(&mut self, state: &mut State, ack: &Ack) {
        if !state.slow_start || state.ssthresh != SSTHRESH_INITIAL {
            return;
        }
        if ack.round != self.round {
            self.round = ack.round;
            (self.last_min, self.current_min, self.samples) = (self.current_min, Span::MAX, 0);
            if self.is_conservative() {
                self.css_rounds = self.css_rounds.saturating_add(1);
                if self.css_rounds >= CSS_ROUNDS {
                    state.exit_slow_start(state.cwnd);
                    return;
                }
            }
        }
        if ack.rtt == Span::ZERO {
            return;
        }
        self.current_min = self.current_min.min(ack.rtt);
        self.samples = self.samples.saturating_add(u16::try_from(ack.acked).unwrap_or(u16::MAX));
        if u32::from(self.samples) < N_RTT_SAMPLE {
            return;
        }
        if self.is_conservative() {
            if self.current_min < self.baseline {
                (self.baseline, self.css_rounds) = (Span::MAX, 0);
            }
        } else if self.last_min < Span::MAX {
            let part = self.last_min.over(MIN_RTT_DIVISOR);
            let threshold = part.min(MAX_RTT_THRESH).max(MIN_RTT_THRESH);
            if self.current_min >= self.last_min + threshold {
                (self.baseline, self.css_rounds) = (self.current_min, 0);
            }
        }
    }

    /// Returns the packets to add to the window for `acked` packets that arrived.
    pub(super) fn packets(&self, state: &State, acked: Real) -> Real {
        if self.is_conservative() && state.ssthresh == SSTHRESH_INITIAL {
            acked / Real::from_u64(CSS_GROWTH_DIVISOR)
        } else {
            acked
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;
    use crate::control::{
        ClassicCc, CongestionCause, CongestionEvent, Control, Group, Reno, SlowStart, Window,
    };

    const ALONE: Group<'static> = Group { members: &[], me: 0 };

    fn fresh() -> ClassicCc<Reno> {
        ClassicCc::new(Reno, SlowStart::Hystart(Hystart::new()))
    }

    fn conservative(flow: &ClassicCc<Reno>) -> bool {
        matches!(flow.slow_start, SlowStart::Hystart(hystart) if hystart.is_conservative())
    }

    /// Runs a round of `n` packets with the RTT `rtt_us`; returns the packets gained.
    fn round(flow: &mut ClassicCc<Reno>, round: u32, n: u32, rtt_us: u64) -> f64 {
        let before = flow.state.cwnd;
        let rtt = Span::from_micros(rtt_us);
        for _ in 0..n {
            let now = Time::ZERO;
            let (srtt, min_rtt) = (rtt, rtt);
            flow.on_ack(
                &Ack { now, acked: 1, round, srtt, rtt, min_rtt, cwnd_limited: true, recovering: false },
                &ALONE,
            );
        }
        flow.state.cwnd.saturating_sub(before).0 as f64 / Window::ONE as f64
    }

    #[test]
    fn thresholds() {
        // The threshold is an eighth of the last round's RTT, 4 ms at least, 16 ms at most.
        for (last, threshold) in [(8_000, 4_000), (80_000, 10_000), (400_000, 16_000)] {
            for (more, leaves) in [(threshold - 1, false), (threshold, true)] {
                let mut flow = fresh();
                round(&mut flow, 1, 8, last);
                round(&mut flow, 2, 8, last + more);
                assert_eq!(conservative(&flow), leaves, "{last} µs and {more} more");
            }
        }
    }

    #[test]
    fn too_few_samples_say_nothing() {
        let mut flow = fresh();
        round(&mut flow, 1, 8, 50_000);
        round(&mut flow, 2, 7, 100_000);
        assert!(!conservative(&flow));
        round(&mut flow, 2, 1, 100_000);
        assert!(conservative(&flow));
        // A batch of eight packets counts as eight samples.
        let mut flow = fresh();
        round(&mut flow, 1, 8, 50_000);
        let rtt = Span::from_millis(100);
        let (now, cwnd_limited, recovering) = (Time::ZERO, true, false);
        let ack = Ack { now, acked: 8, round: 2, srtt: rtt, rtt, min_rtt: rtt, cwnd_limited, recovering };
        flow.on_ack(&ack, &ALONE);
        assert!(conservative(&flow));
    }

    #[test]
    fn grows_by_a_quarter_for_five_rounds_then_leaves() {
        let mut flow = fresh();
        assert!((round(&mut flow, 1, 10, 50_000) - 10.0).abs() < 1e-6);
        // The eighth sample ends fast growth.
        assert!((round(&mut flow, 2, 20, 90_000) - (7.0 + 13.0 / 4.0)).abs() < 1e-6);
        for n in 3..7 {
            assert!((round(&mut flow, n, 20, 90_000) - 5.0).abs() < 1e-6);
            assert!(flow.state.slow_start);
        }
        let ssthresh = flow.state.cwnd;
        assert!(round(&mut flow, 7, 20, 90_000) < 1.0, "congestion avoidance");
        assert_eq!((flow.state.slow_start, flow.state.ssthresh), (false, ssthresh));
    }

    #[test]
    fn a_false_alarm_is_taken_back() {
        let mut flow = fresh();
        round(&mut flow, 1, 10, 50_000);
        round(&mut flow, 2, 20, 90_000);
        assert!(conservative(&flow));
        round(&mut flow, 3, 20, 60_000);
        assert!(!conservative(&flow) && flow.state.slow_start);
        assert!((round(&mut flow, 4, 20, 60_000) - 20.0).abs() < 1e-6);
    }

    #[test]
    fn only_at_first() {
        let mut flow = fresh();
        round(&mut flow, 1, 90, 50_000);
        for cause in [CongestionCause::Loss, CongestionCause::Timeout] {
            flow.on_congestion(
                &CongestionEvent { now: Time::ZERO, cause, srtt: Span::from_millis(50) },
                &ALONE,
            );
        }
        for (n, rtt) in (2..5).zip([50_000, 90_000, 190_000]) {
            let w = flow.state.cwnd.floor();
            assert!((round(&mut flow, n, w, rtt) - f64::from(w)).abs() < 1e-6, "it doubles");
        }
    }
}
