//! The results of a burst, by policy.

use anabranch_algo::Span;
use anabranch_mptcp::{TAIL_LOSS_POLICIES, TailLoss};

use super::burst::Completion;
use super::grid::{Burst, RUNS, bursts};

/// The result of a burst with each policy, in the order of [`TAIL_LOSS_POLICIES`].
#[derive(Clone, Debug)]
pub struct Row {
    /// The burst.
    pub burst: Burst,
    /// The results by policy.
    pub completions: Vec<Completion>,
    /// The result if nothing is lost.
    pub whole: Completion,
}

impl Row {
    /// Returns the result with a policy.
    #[must_use]
    pub fn with(&self, policy: TailLoss) -> Completion {
        let at = TAIL_LOSS_POLICIES.iter().position(|row| row.policy == policy);
        at.and_then(|at| self.completions.get(at).copied()).unwrap_or_default()
    }

    /// Returns by how much a time is shorter than that with the same path, percent of the latter.
    #[must_use]
    pub fn shorter_percent(&self, time: Span) -> f64 {
        100.0 * (1.0 - time.as_nanos() as f64 / self.with(TailLoss::SamePath).time.as_nanos() as f64)
    }

    /// Returns by how much a policy shortens the completion time, percent of that with the same path.
    #[must_use]
    pub fn gain_percent(&self, policy: TailLoss) -> f64 {
        self.shorter_percent(self.with(policy).time)
    }

    /// Returns the time below which no policy can complete the burst that first reacts so many round trips of
    /// the primary path after the last segment: that leaves as if nothing were lost, and is sent again on
    /// the alternate path, or on the primary path and, if the probe is lost, there again a round trip later.
    #[must_use]
    pub fn bound(&self, rounds: u64) -> Span {
        let (near_ms, far_ms) = self.burst.rtts_ms;
        let left = self.whole.time - Span::from_micros(near_ms * 500);
        let again_ms = if self.burst.probe_lost { near_ms } else { 0 };
        let [same, other] = [near_ms + 2 * again_ms, far_ms].map(|twice| Span::from_micros(twice * 500));
        left + Span::from_millis(rounds * near_ms) + same.min(other)
    }

    /// Returns by how much a policy lengthens the completion time; zero if it does not.
    #[must_use]
    pub fn slower_by(&self, policy: TailLoss) -> Span {
        self.with(policy).time - self.with(TailLoss::SamePath).time
    }

    /// Returns how many more segments are sent with a policy.
    #[must_use]
    pub fn extra_segments(&self, policy: TailLoss) -> i64 {
        let sent = |policy| self.with(policy).segments as i64;
        sent(policy) - sent(TailLoss::SamePath)
    }
}

/// Puts the results of the grid, in its order, into rows.
///
/// # Errors
/// If a run does not count; the error names the burst and the condition.
pub fn rows(results: &[Result<Completion, String>]) -> Result<Vec<Row>, String> {
    let each = results.chunks(RUNS);
    let row = |(burst, results): (Burst, &[Result<Completion, String>])| {
        let completions = results.iter().cloned().collect::<Result<Vec<_>, _>>();
        let mut completions = completions.map_err(|what| format!("{burst:?}: {what}"))?;
        let whole = completions.pop().unwrap_or_default();
        Ok(Row { burst, completions, whole })
    };
    bursts().zip(each).map(row).collect()
}
