//! Implements CUBIC (RFC 9438), uncoupled: most of the Internet runs it, so other algorithms must live with
//! it.
//!
//! With w a window in packets, t the time in congestion avoidance since the last congestion event in seconds:
//!
//! * W_cubic(t) = C (t − K)³ + W_max, K = ∛((W_max − w_epoch)/C), C = 0.4 (figures 1 and 2).
//! * Each packet that arrives: w += (target − w)/w, target = W_cubic(t + RTT) within w and 1.5 w (section
//!   4.2).
//! * W_est += α/w, α = 3 (1 − β)/(1 + β), or 1 once W_est has reached the window before the last event: what
//!   Reno would have (figure 4). Where W_cubic(t) < W_est, w = W_est (section 4.3).
//! * A loss or mark leaves β w, β = 0.7; at least two packets stay (section 4.6). Fast convergence: W_max =
//!   w, but w (1 + β)/2 if the last W_max was not reached (section 4.7). A timeout: the same ssthresh; the
//!   next congestion avoidance begins with K = 0 and W_max = w, as does one without a loss before it
//!   (sections 4.8, 4.10).
//!
//! Where the text leaves a choice: the first packet after an event begins the epoch. Time does not pass while
//! the window is not the limit or a recovery is under way (section 5.8). A mark reduces by the same β as a
//! loss.

use super::{
    Ack, CongestionAvoidance, CongestionCause, CongestionEvent, Group, SubflowStats, Window, WindowDelta,
};
use crate::softfloat::Real;
use crate::{Span, Time};

/// Holds one epoch of CUBIC, from a congestion event to the next. An epoch may grow more slowly: C and α are
/// divided by the shares s and s'. For CUBIC itself, both shares are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Epoch {
    /// The window W_max; zero before the first event and after a timeout.
    pub(super) w_max: Window,
    /// The window W_est that Reno would have in this epoch; zero before the epoch begins.
    w_est: Window,
    /// The time up to which `t_us` counts.
    at: Time,
    /// The times t and K in microseconds. They saturate after an hour, when the window has long reached its
    /// maximum.
    t_us: u32,
    k_us: u32,
}

/// The shift that turns a window of 32 bits, in units of 2⁻⁸ packets, into the units of [`Window`].
pub(super) const PRIOR_SHIFT: u32 = 32;

/// Returns (C/s)⁻¹ for times in microseconds: 10¹⁸ s/0.4.
fn per_cube(share: Real) -> Real {
    share * Real::from_u64(2_500_000_000_000_000_000)
}

impl Epoch {
    /// Creates the epoch before any event.
    pub(super) const fn new() -> Self {
        Self { w_max: Window::ZERO, w_est: Window::ZERO, at: Time::ZERO, t_us: 0, k_us: 0 }
    }

    /// Returns whether anything has arrived since the last event.
    pub(super) fn has_begun(&self) -> bool {
        self.w_est != Window::ZERO
    }

    /// Notes packets that arrived. Time does not pass while the window is not the limit or a recovery is
    /// under way.
    #[inline]
    pub(super) fn on_ack(&mut self, ack: &Ack) {
        if !ack.cwnd_limited || ack.recovering {
            self.at = ack.now;
        }
    }

    pub(super) fn begin(&mut self, now: Time, cwnd: Window, share: Real) {
        self.w_max = self.w_max.max(cwnd);
        (self.w_est, self.at, self.t_us) = (cwnd, now, 0);
        let cube = self.w_max.saturating_sub(cwnd).real() * per_cube(share);
        let k_us = cube.cbrt().to_fixed(0);
        self.k_us = u32::try_from(k_us).unwrap_or(u32::MAX);
        if k_us > u64::from(u32::MAX) {
            // W_max is more than an hour away. Lower it to the window that the curve reaches from here in an
            // hour, or the curve would not begin at the window.
            let k = Real::from_u64(u64::from(self.k_us));
            self.w_max = cwnd.grown(k.square() * k / per_cube(share));
        }
    }

    /// Returns W_cubic at `t_us` microseconds into the epoch.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
    fn w_cubic(&self, t_us: u64, share: Real) -> Window {
        let k = u64::from(self.k_us);
        let off = Real::from_u64(t_us.abs_diff(k));
        // Do not use `shrunk()`: W_cubic has no floor of its own.
        let cube = (off.square() * off / per_cube(share)).to_fixed(40);
        Window(if t_us < k { self.w_max.0.saturating_sub(cube) } else { self.w_max.0.saturating_add(cube) })
    }

    /// Returns how the window changes in this epoch. W_est grows as Reno's window once it has reached
    /// `cwnd_prior`.
    pub(super) fn window_delta(
        &mut self,
        cwnd: Window,
        ack: &Ack,
        (share, share_reno): (Real, Real),
        cwnd_prior: Window,
    ) -> WindowDelta {
        // Add whole microseconds only; the rest counts the next time.
        let passed = ack.now.since(self.at).as_micros();
        self.at += Span::from_micros(passed);
        self.t_us = self.t_us.saturating_add(u32::try_from(passed).unwrap_or(u32::MAX));
        let t = u64::from(self.t_us);

        let each = Real::from_u64(u64::from(ack.acked)) / cwnd.real();
        let has_reached = self.w_est.0 >> PRIOR_SHIFT >= cwnd_prior.0 >> PRIOR_SHIFT;
        let alpha = if has_reached { Real::ONE } else { Real::from_u64(9) / Real::from_u64(17) };
        self.w_est = self.w_est.grown(alpha * each / share_reno);
        if self.w_cubic(t, share) < self.w_est {
            return WindowDelta::increase(self.w_est.saturating_sub(cwnd).real());
        }
        let half = cwnd.half();
        let target = self.w_cubic(t.saturating_add(ack.srtt.as_micros()), share);
        WindowDelta::increase(target.saturating_sub(cwnd).min(half).real() * each)
    }

    /// Ends the epoch with a congestion event and returns the window that is left.
    pub(super) fn end(&mut self, cwnd: Window, cause: CongestionCause) -> Window {
        let percent = |n: u64| Window::from_real(cwnd.real() * Real::from_u64(n) / Real::from_u64(100));
        self.w_max = match cause {
            CongestionCause::Timeout => Window::ZERO,
            CongestionCause::Loss | CongestionCause::EcnCe if cwnd < self.w_max => percent(85),
            CongestionCause::Loss | CongestionCause::EcnCe => cwnd,
        };
        self.w_est = Window::ZERO;
        percent(70)
    }
}

/// Implements CUBIC for one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Cubic {
    epoch: Epoch,
    /// The window just before the last event.
    cwnd_prior: Window,
}

impl Default for Cubic {
    fn default() -> Self {
        Self::new()
    }
}

impl Cubic {
    /// Creates the rule before any event.
    #[must_use]
    pub const fn new() -> Self {
        Self { epoch: Epoch::new(), cwnd_prior: Window::ZERO }
    }
}

impl CongestionAvoidance for Cubic {
    const APPLIES_ALONE: bool = true;

    #[inline]
    fn on_ack(&mut self, ack: &Ack) {
        self.epoch.on_ack(ack);
    }

    fn window_delta(&mut self, mine: &SubflowStats, ack: &Ack, _group: &Group<'_>) -> WindowDelta {
        if !self.epoch.has_begun() {
            self.epoch.begin(ack.now, mine.cwnd, Real::ONE);
        }
        self.epoch.window_delta(mine.cwnd, ack, (Real::ONE, Real::ONE), self.cwnd_prior)
    }

    fn reduced_window(&mut self, mine: &SubflowStats, event: &CongestionEvent, _group: &Group<'_>) -> Window {
        self.cwnd_prior = mine.cwnd;
        self.epoch.end(mine.cwnd, event.cause)
    }
}
