//! Whether the delays of two paths rise and fall together: ours, not the RFC's.
//!
//! One queue delays all its packets by the same at the same time. So the mean delays of two paths through it
//! change by the same from one interval to the next, however different their samples are otherwise; those
//! through two queues change independently. Pearson's coefficient of the changes of E_T(OWD), rather than of
//! E_T(OWD) itself: what drifts slowly seems correlated with anything else that does.

use alloc::vec::Vec;

use super::stats::Stats;
const W: usize = N - 1;
use super::{N, PAIRS_MIN};

/// Changes are scaled to fit into so many bits and a sign: 30 squares of them fit into an `i64` then.
const BITS: u32 = 24;

/// The changes of a path's mean delay over the last [`M`] intervals, newest first, in a unit of their own;
/// `None` where there is none.
pub(super) struct Changes([Option<i64>; W]);

impl Changes {
    pub(super) fn of(path: &Stats) -> Self {
        let mut changes = [None; W];
        changes.iter_mut().zip(path.changes()).for_each(|(to, from)| *to = from);
        let most = changes.iter().flatten().map(|change: &i64| change.unsigned_abs()).max().unwrap_or(0);
        let shift = (u64::BITS - most.leading_zeros()).saturating_sub(BITS);
        Self(changes.map(|change| change.map(|change| change >> shift)))
    }

    /// The coefficient in percent, −100 to 100; `None` where there is too little to tell.
    pub(super) fn correlation_percent(&self, other: &Self) -> Option<i64> {
        let both = self.0.iter().zip(&other.0).filter_map(|(a, b)| Some(((*a)?, (*b)?)));
        let pairs: Vec<(i64, i64)> = both.collect();
        if pairs.len() < PAIRS_MIN {
            return None;
        }
        let n = pairs.len() as i64;
        let mean = pairs.iter().fold((0, 0), |(a, b), (x, y)| (a + x, b + y));
        let mean = (mean.0 / n, mean.1 / n);
        let (mut xy, mut xx, mut yy) = (0i64, 0i64, 0i64);
        for (x, y) in pairs {
            let (x, y) = (x - mean.0, y - mean.1);
            (xy, xx, yy) = (xy + x * y, xx + x * x, yy + y * y);
        }
        let whole = (i128::from(xx) * i128::from(yy)).isqrt();
        // Delays that never change are like nothing.
        Some((i128::from(xy) * 100).checked_div(whole).unwrap_or(0) as i64)
    }
}
