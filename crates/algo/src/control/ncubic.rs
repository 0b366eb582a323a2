//! NMCC with CUBIC's moves, for senders that are CUBIC themselves: a window that takes longer to come back
//! than theirs bounds them where nobody else wants the bandwidth. After Thomas, dissertation, section 4.2.2
//! (the increase shared by m²) and RFC 9438 (its shape, and what a loss leaves).
//!
//! With w a window in packets, r a smoothed RTT, t the time in congestion avoidance since the last congestion
//! event in seconds, sums over the members of the group:
//!
//! * m² = Σ 1/r² / max 1/r², that of [`nmcc`](super::nmcc) where nobody is in slow start. The share s = m²,
//!   or 1 while the path has no queue: smoothed RTT < 9/8 of the smallest + 1 ms.
//! * W(t) = C/s (t − K)³ + W_max, K = ∛(s (W_max − w_epoch)/C), C = 0.4 (RFC 9438 section 4.2).
//! * Each packet that arrives: w += (target − w)/w, target = W(t + RTT) within w and 1.5 w; but W_est += α/(s
//!   w), α = 9/17 or, once W_est has reached W_max, 1; where W(t) < W_est, w = W_est (section 4.3).
//! * A loss or mark leaves 0.7 w, at least two packets (section 4.6), with fast convergence (section 4.7). A
//!   timeout: as [`cubic`](super::cubic) has it.
//!
//! Who is in slow start counts as one who is not: this is for windows over TCP, whose senders end theirs by
//! themselves, and one that is bounded by its server never loses a packet that would end ours.
//!
//! Why a path without a queue grows as if alone: what it takes there nobody else does, for a link that others
//! fill has a queue. That is no detection of who shares what: it only brings a window back to where links are
//! full. A path of which the smallest RTT was never seen, for its queue was never empty, errs to that side
//! until it has been seen.
//!
//! When s changes by more than a quarter, a new epoch begins from the window as it is. Alone it is CUBIC, but
//! that α becomes 1 at W_max where that has converged below the window before the event.

use super::{Ack, Cause, Change, Group, Loss, Member, Rule, Window};
use crate::real::Real;
use crate::{Span, Time};

/// What the smallest RTT varies by without a queue, besides an eighth of it: the clock of timestamps.
const EMPTY: Span = Span::from_millis(1);

/// NMCC with CUBIC's moves, of one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Ncubic {
    /// Zero before the first event and after a timeout.
    max: Window,
    /// What Reno's window would be in this epoch; zero before it begins.
    reno: Window,
    /// s of this epoch.
    share: Real,
    /// When time was last added up.
    at: Time,
    /// t and K in microseconds; they saturate after an hour.
    t_us: u32,
    k_us: u32,
}

impl Default for Ncubic {
    fn default() -> Self {
        Self::new()
    }
}

/// (C/s)⁻¹ for times in microseconds.
fn per_cube(share: Real) -> Real {
    share * Real::from_u64(2_500_000_000_000_000_000)
}

impl Ncubic {
    /// No event yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { max: Window(0), reno: Window(0), share: Real::ONE, at: Time::ZERO, t_us: 0, k_us: 0 }
    }

    fn begin(&mut self, now: Time, cwnd: Window, share: Real) {
        self.max = self.max.max(cwnd);
        (self.reno, self.share, self.at, self.t_us) = (cwnd, share, now, 0);
        let cube = self.max.beyond(cwnd).real() * per_cube(share);
        self.k_us = u32::try_from(cube.cbrt().to_fixed(0)).unwrap_or(u32::MAX);
    }

    /// W, that many microseconds into the epoch.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
    fn window(&self, t_us: u64) -> Window {
        let k = u64::from(self.k_us);
        let off = Real::from_u64(t_us.abs_diff(k));
        let cube = (off.square() * off / per_cube(self.share)).to_fixed(40);
        Window(if t_us < k { self.max.0.saturating_sub(cube) } else { self.max.0.saturating_add(cube) })
    }
}

/// s: how many times more slowly this subflow grows than CUBIC.
#[inline(always)]
#[expect(clippy::inline_always, reason = "eBPF programs cannot return structs from functions")]
fn share(mine: &Member, ack: &Ack, group: &Group<'_>) -> Real {
    if ack.srtt < ack.min_rtt + ack.min_rtt.over(8) + EMPTY {
        return Real::ONE;
    }
    let (sum, max) = group.fold(Group::mine(mine), (Real::ZERO, Real::ZERO), |(sum, max), peer| {
        let omega = peer.per_r.square() * Real::from_u64(u64::from(peer.one));
        (sum + omega, max.max(omega))
    });
    (sum / max).max(Real::ONE)
}

impl Rule for Ncubic {
    const ALONE: bool = true;

    #[inline]
    fn arrived(&mut self, ack: &Ack) {
        if !ack.limited || ack.recovering {
            self.at = ack.now;
        }
    }

    fn change(&mut self, mine: &Member, ack: &Ack, group: &Group<'_>) -> Change {
        let cwnd = mine.cwnd;
        let share = share(mine, ack, group);
        let (more, less) = (share.max(self.share), share.min(self.share));
        if self.reno == Window(0) || more * Real::from_u64(4) > less * Real::from_u64(5) {
            self.begin(ack.now, cwnd, share);
        }
        // Whole microseconds only; the rest stays for the next time.
        let passed = ack.now.since(self.at).as_micros();
        self.at += Span::from_micros(passed);
        self.t_us = self.t_us.saturating_add(u32::try_from(passed).unwrap_or(u32::MAX));
        let t = u64::from(self.t_us);

        let each = Real::from_u64(u64::from(ack.acked)) / cwnd.real();
        let alpha = if self.reno >= self.max { Real::ONE } else { Real::from_u64(9) / Real::from_u64(17) };
        self.reno = self.reno.grown(alpha * each / self.share);
        if self.window(t) < self.reno {
            return Change::more(self.reno.beyond(cwnd).real());
        }
        let half = cwnd.half();
        let target = self.window(t.saturating_add(ack.srtt.as_micros()));
        Change::more(target.beyond(cwnd).min(half).real() * each)
    }

    fn left(&mut self, mine: &Member, loss: &Loss, _group: &Group<'_>) -> Window {
        let percent = |n: u64| Window::from_real(mine.cwnd.real() * Real::from_u64(n) / Real::from_u64(100));
        self.max = match loss.cause {
            Cause::Timeout => Window(0),
            Cause::Loss | Cause::Mark if mine.cwnd < self.max => percent(85),
            Cause::Loss | Cause::Mark => mine.cwnd,
        };
        self.reno = Window(0);
        percent(70)
    }
}
