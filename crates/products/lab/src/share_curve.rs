//! Computes the time that a share takes to settle: in one run, or in the mean of several.

use serde::{Deserialize, Serialize};

use crate::scenario::Duration;

/// Default length of the time over which a share is averaged, seconds.
const CONVERGED_MEAN_S: f64 = 5.0;
/// Greatest difference between a settled share and its final value, percentage points.
const CONVERGED_POINTS: f64 = 3.0;

/// A share over time: bytes delivered by the end of each step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShareCurve {
    /// Seconds between two values.
    pub step_s: f64,
    /// Bytes of the flows whose share it is.
    pub part: Vec<u64>,
    /// Bytes of all flows.
    pub whole: Vec<u64>,
}

impl ShareCurve {
    /// Returns the sum of curves of equal length; `None` for no curves. Its share at each step is that of
    /// all bytes together, and so the mean of the shares if all runs deliver equally much.
    pub(crate) fn sum<'a>(curves: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        let mut curves = curves.into_iter();
        let mut sum = curves.next()?.clone();
        for curve in curves {
            sum.part.iter_mut().zip(&curve.part).for_each(|(sum, bytes)| *sum += bytes);
            sum.whole.iter_mut().zip(&curve.whole).for_each(|(sum, bytes)| *sum += bytes);
        }
        Some(sum)
    }

    /// Returns the seconds until the share, averaged over `mean`, stays within [`CONVERGED_POINTS`] of the
    /// share in the last third; `None` if it does not.
    pub(crate) fn settled(&self, mean: Option<Duration>) -> Option<f64> {
        let share = |from: usize, to: usize| {
            let (part, whole) = (self.part[to] - self.part[from], self.whole[to] - self.whole[from]);
            if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
        };
        let width = (mean.map_or(CONVERGED_MEAN_S, Duration::secs) / self.step_s).ceil() as usize;
        let last = self.part.len().checked_sub(1)?;
        let settled = share(last - self.part.len() / 3, last);
        let off = |from: &usize| (share(*from, from + width) - settled).abs() > CONVERGED_POINTS;
        let starts = 0..last.checked_sub(width)?;
        if starts.is_empty() {
            return None;
        }
        // The share has settled after the end of the last window that was off.
        let wrong = starts.clone().rev().find(off);
        let steps = wrong.map_or(0, |from| from + 1 + width);
        wrong.is_none_or(|from| from + 1 < starts.end).then_some(steps as f64 * self.step_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a curve of one step a second, 100 bytes each, of which `part` belong to the share.
    fn curve(part: impl Iterator<Item = u64>) -> ShareCurve {
        let add = |sum: &mut u64, bytes| {
            *sum += bytes;
            Some(*sum)
        };
        let part: Vec<u64> = part.scan(0, add).collect();
        let whole = (1..=part.len() as u64).map(|step| 100 * step).collect();
        ShareCurve { step_s: 1.0, part, whole }
    }

    #[test]
    fn a_share_settles_where_the_last_window_ends_that_was_off() {
        let mean = |text: &str| Some(text.parse::<Duration>().expect("a duration"));
        let slow = curve((0..90).map(|step| if step < 30 { 80 } else { 50 }));
        assert_eq!(slow.settled(mean("5 s")), Some(34.0));
        assert_eq!(curve((0..90).map(|_| 50)).settled(mean("5 s")), Some(0.0));
        assert_eq!(curve(0..90).settled(mean("5 s")), None);
        assert_eq!(curve(0..3).settled(mean("5 s")), None);
    }

    #[test]
    fn the_mean_of_noisy_runs_settles_where_none_of_them_does() {
        let noisy = |odd: u64| curve((0..90).map(move |step| if (step / 10) % 2 == odd { 40 } else { 60 }));
        let (a, b) = (noisy(0), noisy(1));
        assert_eq!((a.settled(None), b.settled(None)), (None, None));
        assert_eq!(ShareCurve::sum([&a, &b]).expect("two").settled(None), Some(0.0));
        assert_eq!(ShareCurve::sum([]), None);
    }
}
