//! wVegas, weighted Vegas (Cao et al., "Delay-based congestion control for multipath TCP", ICNP 2012;
//! details as in its kernel implementation): keeps a total of ten packets queued in the network, shared out
//! over the paths by their rates, and so needs no loss to know of congestion.
//!
//! With w a window in packets, base the smallest RTT known, rtt the mean of the round's, x = w/srtt, once a
//! round:
//!
//! * diff = w (rtt − base)/rtt, the packets queued. When diff ≥ α: α = max(2, 10 x/Σx); at first α = 2. Then
//!   diff > α: w − 1; diff < α: w + 1; equal: w.
//! * q = rtt − base; the smallest q seen is kept. When q ≥ twice that: w·base/(2 rtt), so that queues drain
//!   and base can be seen; the smallest is forgotten.
//! * Slow start ends when diff > γ = 1, at min(w, w·base/rtt + 1). A loss halves. At least two packets stay.
//!
//! Where the text is silent, this is what is done and why:
//!
//! * A round of two samples or fewer says nothing; then the window grows as Reno's, else a window of two
//!   packets would stay for ever. A batch weighs as many samples as packets.
//! * No queue at all (q = 0) is no reason to drain one, though twice zero is not more.
//! * Alone it is Vegas with α = 10, not Reno: the world's "ordinary TCP" would lose what this is for.

use super::{Ack, CongestionAvoidance, Group, SubflowStats, Window, WindowDelta};
use crate::Span;
use crate::softfloat::Real;

/// The number of packets to keep queued over all paths.
const TOTAL_ALPHA: u64 = 10;
/// The smallest number of packets to keep queued on one path.
const ALPHA_MIN: u64 = 2;
/// The number of queued packets above which slow start ends.
const GAMMA: u64 = 1;
/// The number of samples that a round has to exceed to be judged.
const SAMPLES_MIN: u32 = 2;

/// RTT samples beyond this (69 s), and packet counts beyond the largest window, count as these limits.
const RTT_MAX_NS: u64 = 1 << 36;
const ACKED_MAX: u32 = 1 << 24;

/// Implements weighted Vegas for one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Wvegas {
    /// The sum of the round's RTT samples in nanoseconds, and the number of samples.
    sum_ns: u64,
    samples: u32,
    round: u32,
    alpha: Real,
    /// The smallest queueing delay since the last drain; zero before the first.
    queue_min: Span,
}

impl Default for Wvegas {
    fn default() -> Self {
        Self::new()
    }
}

/// Holds the measurements of one round.
struct Round {
    samples: u32,
    rtt: Real,
    base: Real,
    queue: Span,
}

impl Round {
    /// Returns the number of packets queued at the window `cwnd`.
    fn diff(&self, cwnd: Window) -> Real {
        cwnd.real() * Real::from_u64(self.queue.as_nanos()) / self.rtt
    }
}

impl Wvegas {
    /// Creates the rule without any measurements.
    #[must_use]
    pub const fn new() -> Self {
        Self { sum_ns: 0, samples: 0, round: 0, alpha: Real::from_u64(ALPHA_MIN), queue_min: Span::ZERO }
    }

    /// Returns the last round's measurements if `ack` begins a new round.
    fn round(&mut self, ack: &Ack) -> Option<Round> {
        if ack.round == self.round {
            return None;
        }
        let mean = self.sum_ns.checked_div(u64::from(self.samples)).unwrap_or(0);
        // The world forgets the smallest RTT after a while, so it can be larger than a round's mean.
        let base = ack.min_rtt.min(Span::from_nanos(mean));
        let round = Round {
            samples: self.samples,
            rtt: Real::from_u64(mean),
            base: Real::from_u64(base.as_nanos()),
            queue: Span::from_nanos(mean) - base,
        };
        (self.sum_ns, self.samples, self.round) = (0, 0, ack.round);
        Some(round)
    }

    /// Returns the window that follows from the round.
    fn adjusted(&mut self, round: &Round, mine: &SubflowStats, group: &Group<'_>) -> Window {
        let diff = round.diff(mine.cwnd);
        if diff >= self.alpha {
            let me = Group::mine(mine);
            let rates = group.fold(me, Real::ZERO, |sum, member| sum + member.w * member.inv_rtt);
            let share = Real::from_u64(TOTAL_ALPHA) * me.w * me.inv_rtt / rates;
            self.alpha = share.max(Real::from_u64(ALPHA_MIN));
        }
        let mut cwnd = if diff > self.alpha {
            mine.cwnd.shrunk(Real::ONE)
        } else if diff < self.alpha {
            mine.cwnd.grown(Real::ONE)
        } else {
            mine.cwnd
        };
        if self.queue_min == Span::ZERO || round.queue < self.queue_min {
            self.queue_min = round.queue;
        }
        if round.queue > Span::ZERO && round.queue.over(2) >= self.queue_min {
            cwnd = Window::from_real(cwnd.real() * round.base / round.rtt).half();
            self.queue_min = Span::ZERO;
        }
        cwnd.max(Self::FLOOR)
    }
}

impl CongestionAvoidance for Wvegas {
    const APPLIES_ALONE: bool = true;

    #[inline]
    fn on_ack(&mut self, ack: &Ack) {
        if ack.rtt > Span::ZERO {
            // The limits keep the product within 64 bits: eBPF has no 128-bit multiplication to saturate
            // with.
            let (rtt, acked) = (ack.rtt.as_nanos().min(RTT_MAX_NS), u64::from(ack.acked.min(ACKED_MAX)));
            self.sum_ns = self.sum_ns.saturating_add(rtt.wrapping_mul(acked));
            self.samples = self.samples.saturating_add(ack.acked);
        }
    }

    #[inline]
    fn window_delta(&mut self, mine: &SubflowStats, ack: &Ack, group: &Group<'_>) -> WindowDelta {
        match self.round(ack) {
            None => WindowDelta::NONE,
            Some(round) if round.samples <= SAMPLES_MIN => {
                WindowDelta::increase(Real::from_u64(u64::from(round.samples)) / mine.cwnd.real())
            }
            Some(round) => WindowDelta::between(mine.cwnd, self.adjusted(&round, mine, group)),
        }
    }

    fn exit_slow_start(&mut self, mine: &SubflowStats, ack: &Ack) -> Option<Window> {
        let round = self.round(ack).filter(|round| round.samples > SAMPLES_MIN)?;
        let queued = round.diff(mine.cwnd) > Real::from_u64(GAMMA);
        queued.then(|| Window::from_real(mine.cwnd.real() * round.base / round.rtt).grown(Real::ONE))
    }
}
