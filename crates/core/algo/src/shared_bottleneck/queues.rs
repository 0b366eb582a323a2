//! Compares how long the queues of two paths are. The RFC has no such test.
//!
//! One queue delays the packets of all paths by the same. Two equal links that begin to fill at the same time
//! have delays that rise and fall together for many seconds, so their changes look like one queue; but once
//! one of them has lost more packets than the other, its queue is shorter. The length of a queue is the mean
//! delay above the smallest delay of the path, so a path that never saw the queue empty takes it for shorter.

use alloc::vec::Vec;

use super::parameters::{OTHER_QUEUE_MAX, RECENT, SAME_QUEUE_PART};
use super::stats::PathStats;

/// The queues of a path in the newest intervals.
pub(super) struct RecentQueues {
    /// The time that packets spent in queues, in ns, newest first; `None` for intervals without samples.
    queues: Vec<Option<i64>>,
    /// The longest queue that still counts as none, in ns.
    noise: i64,
}

impl RecentQueues {
    pub(super) fn of(path: &PathStats) -> Self {
        Self { queues: path.queues().take(RECENT).collect(), noise: path.quiet_most() }
    }

    /// Whether one queue can have made the delays of both paths: in all intervals but [`OTHER_QUEUE_MAX`] it
    /// was about as long for both.
    pub(super) fn may_be_one_with(&self, other: &Self) -> bool {
        let noise = self.noise.max(other.noise);
        let both = self.queues.iter().zip(&other.queues).filter_map(|(a, b)| a.zip(*b));
        let unlike = both.filter(|(a, b)| (a - b).abs() > *a.max(b) / SAME_QUEUE_PART + noise);
        unlike.count() <= OTHER_QUEUE_MAX
    }
}
