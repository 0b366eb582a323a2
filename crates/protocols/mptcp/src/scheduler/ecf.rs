//! ECF, earliest completion first (Lim et al., "ECF: an MPTCP path scheduler to manage heterogeneous
//! paths", CoNEXT 2017, algorithm 1).
//!
//! Let f be the subflow with the shortest round trip, s the one that minRTT would pick because f is full, and
//! k the bytes that are not sent yet. If f would have sent them all before a segment on s arrives, it is
//! better to wait for f:
//!
//! * n = 1 + k / CWND_f; δ = max(σ_f, σ_s).
//! * wait if n · RTT_f < (1 + waiting · β) · (RTT_s + δ), and k / CWND_s · RTT_s ≥ 2 · RTT_f + δ; `waiting`
//!   is 1 if the scheduler waited the last time and else 0, β = 1/4.

use anabranch_algo::Span;

use super::min_rtt::MinRtt;
use super::view::{PathView, Schedule, Work, usable};

/// The scheduler `ecf`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ecf {
    is_waiting: bool,
}

/// Returns the congestion window of a subflow in bytes.
fn window(path: &PathView) -> u64 {
    (u64::from(path.cwnd) * path.mss_bytes).max(1)
}

impl Schedule for Ecf {
    fn pick(&mut self, work: &Work, paths: &[PathView]) -> Option<usize> {
        let slot = MinRtt.pick(work, paths)?;
        let slow = paths.iter().find(|path| path.slot == slot)?;
        let fast = usable(paths).min_by_key(|path| path.srtt)?;
        if fast.slot == slow.slot || fast.srtt == Span::ZERO || work.is_reinjection {
            return Some(slot);
        }
        let nanos = |span: Span| u128::from(span.as_nanos());
        let delta = nanos(fast.rttvar.max(slow.rttvar));
        let (rtt_f, rtt_s) = (nanos(fast.srtt), nanos(slow.srtt));
        let (cwnd_f, cwnd_s) = (u128::from(window(fast)), u128::from(window(slow)));
        let unsent = u128::from(work.unsent_bytes);
        // Both sides are multiplied by 4 · CWND_f, so that nothing is divided.
        let beta = if self.is_waiting { 5 } else { 4 };
        let fast_first = 4 * rtt_f * (cwnd_f + unsent.max(cwnd_f)) < beta * (rtt_s + delta) * cwnd_f;
        if !fast_first {
            self.is_waiting = false;
            return Some(slot);
        }
        if rtt_s * unsent.max(cwnd_s) >= (2 * rtt_f + delta) * cwnd_s {
            self.is_waiting = true;
            return None;
        }
        Some(slot)
    }
}
