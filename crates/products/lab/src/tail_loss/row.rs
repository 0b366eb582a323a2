//! The results of a burst, by policy.

use anabranch_algo::Span;
use anabranch_mptcp::{TAIL_LOSS_POLICIES, TailLoss};

use super::burst::Completion;
use super::grid::{Burst, bursts};

/// The result of a burst with each policy, in the order of [`TAIL_LOSS_POLICIES`].
#[derive(Clone, Debug)]
pub struct Row {
    /// The burst.
    pub burst: Burst,
    /// The results by policy.
    pub completions: Vec<Completion>,
}

impl Row {
    /// Returns the result with a policy.
    #[must_use]
    pub fn with(&self, policy: TailLoss) -> Completion {
        let at = TAIL_LOSS_POLICIES.iter().position(|row| row.policy == policy);
        at.and_then(|at| self.completions.get(at).copied()).unwrap_or_default()
    }

    /// Returns by how much the alternate path shortens the completion time, percent of that with the same
    /// path.
    #[must_use]
    pub fn gain_percent(&self) -> f64 {
        let ms = |policy| self.with(policy).time.as_nanos() as f64;
        100.0 * (1.0 - ms(TailLoss::AlternatePath) / ms(TailLoss::SamePath))
    }

    /// Returns by how much the alternate path lengthens the completion time; zero if it does not.
    #[must_use]
    pub fn slower_by(&self) -> Span {
        let (same, other) = (self.with(TailLoss::SamePath).time, self.with(TailLoss::AlternatePath).time);
        if other > same { other - same } else { Span::ZERO }
    }

    /// Returns how many more segments are sent with the alternate path.
    #[must_use]
    pub fn extra_segments(&self) -> i64 {
        let sent = |policy| self.with(policy).segments as i64;
        sent(TailLoss::AlternatePath) - sent(TailLoss::SamePath)
    }
}

/// Puts the results of the grid, in its order, into rows.
///
/// # Errors
/// If a run does not count; the error names the burst and the condition.
pub fn rows(results: &[Result<Completion, String>]) -> Result<Vec<Row>, String> {
    let each = results.chunks(TAIL_LOSS_POLICIES.len());
    let row = |(burst, results): (Burst, &[Result<Completion, String>])| {
        let completions = results.iter().cloned().collect::<Result<Vec<_>, _>>();
        Ok(Row { burst, completions: completions.map_err(|what| format!("{burst:?}: {what}"))? })
    };
    bursts().zip(each).map(row).collect()
}
