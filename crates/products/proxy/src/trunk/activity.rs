//! Counts the streams that move bytes, without a list of them.

use anabranch_algo::{Span, Time};

/// The length of an epoch. A stream counts for one to two epochs after its last bytes.
const EPOCH: Span = Span::from_secs(1);

/// The numbers of streams that moved bytes in this epoch and in the one before.
#[derive(Debug, Default)]
pub(super) struct Activity {
    epoch: u32,
    current: u32,
    before: u32,
}

impl Activity {
    /// Notes that a stream moves bytes now. `last` is the epoch in which it last did, and is updated.
    pub(super) fn note(&mut self, now: Time, last: &mut u32) {
        self.turn(now);
        if *last != self.epoch {
            *last = self.epoch;
            self.current = self.current.saturating_add(1);
        }
    }

    /// Returns the number of streams that move bytes.
    pub(super) fn moving(&mut self, now: Time) -> u32 {
        self.turn(now);
        self.current.max(self.before)
    }

    fn turn(&mut self, now: Time) {
        // Epochs begin at 1, because 0 stands for a stream that never had bytes.
        let epoch = u32::try_from(now.as_nanos() / EPOCH.as_nanos() + 1).unwrap_or(u32::MAX);
        if epoch > self.epoch {
            self.before = if epoch == self.epoch + 1 { self.current } else { 0 };
            (self.epoch, self.current) = (epoch, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_count_for_a_while_after_their_last_bytes() {
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let (mut activity, mut streams) = (Activity::default(), [0; 3]);
        assert_eq!(activity.moving(at(0)), 0);
        for time in [0, 10, 20] {
            streams.iter_mut().for_each(|last| activity.note(at(time), last));
        }
        assert_eq!(activity.moving(at(900)), 3);
        activity.note(at(1_100), &mut streams[0]);
        assert_eq!(activity.moving(at(1_900)), 3);
        assert_eq!(activity.moving(at(2_100)), 1);
        assert_eq!(activity.moving(at(3_100)), 0);
        assert_eq!(activity.moving(at(60_000)), 0);
    }
}
