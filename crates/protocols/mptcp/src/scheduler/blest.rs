//! BLEST (Ferlin et al., "BLEST: blocking estimation-based MPTCP scheduler for heterogeneous networks", IFIP
//! Networking 2016, section IV). Where the paper is silent, this follows `mptcp_blest.c` of Linux MPTCP 0.96.
//!
//! Let f be the subflow with the shortest round trip and s the one that minRTT would pick. A segment on s
//! occupies the peer's window for srtt_s. In that time f could send X bytes. If the window has no room for
//! λ·X beside the bytes in flight on s and this segment, the segment would block f: then nothing is sent on s
//! now.
//!
//! * rounds = srtt_s / srtt_f; X = mss · (cwnd_f + (rounds − 1)/2) · rounds.
//! * λ starts at 1.2 and stays within 1 and 1.3: it grows by 0.04 in a round trip of f in which data had to
//!   be reinjected, and shrinks by 0.01 in one without.

use anabranch_algo::{Span, Time};

use super::min_rtt::MinRtt;
use super::view::{PathView, Schedule, Work, usable};

/// λ in hundredths: the initial, the least and the largest value. Its steps up and down follow.
const LAMBDA: (u64, u64, u64) = (120, 100, 130);
const LAMBDA_UP: u64 = 4;
const LAMBDA_DOWN: u64 = 1;
/// The most rounds of the fast subflow that are looked ahead.
const ROUNDS_MAX: u64 = 64;

/// The scheduler `blest`.
#[derive(Clone, Copy, Debug)]
pub struct Blest {
    lambda: u64,
    adapted_at: Time,
    reinjections: u64,
}

impl Default for Blest {
    fn default() -> Self {
        Self { lambda: LAMBDA.0, adapted_at: Time::ZERO, reinjections: 0 }
    }
}

impl Blest {
    /// Adapts λ, once in a round trip of the fastest subflow.
    fn adapt(&mut self, work: &Work, srtt: Span) {
        if work.now.since(self.adapted_at) < srtt {
            return;
        }
        self.lambda = if work.reinjections > self.reinjections {
            (self.lambda + LAMBDA_UP).min(LAMBDA.2)
        } else {
            (self.lambda - LAMBDA_DOWN).max(LAMBDA.1)
        };
        (self.adapted_at, self.reinjections) = (work.now, work.reinjections);
    }
}

impl Schedule for Blest {
    fn pick(&mut self, work: &Work, paths: &[PathView]) -> Option<usize> {
        let slot = MinRtt.pick(work, paths)?;
        let slow = paths.iter().find(|path| path.slot == slot)?;
        let fast = usable(paths).min_by_key(|path| path.srtt)?;
        if fast.slot == slow.slot || fast.srtt == Span::ZERO || work.is_reinjection {
            return Some(slot);
        }
        self.adapt(work, fast.srtt);
        let rounds = (slow.srtt.as_nanos() / fast.srtt.as_nanos()).clamp(1, ROUNDS_MAX);
        let packets = u64::from(fast.cwnd) * rounds + rounds * (rounds - 1) / 2;
        let wanted = fast.mss_bytes.saturating_mul(packets).saturating_mul(self.lambda) / 100;
        let taken = slow.mss_bytes.saturating_mul(u64::from(slow.in_flight) + 1);
        (wanted <= work.window_bytes.saturating_sub(taken)).then_some(slot)
    }
}
