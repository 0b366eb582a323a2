//! Measures and reports the time for which no server has answered; also decides whether a transfer is slow.

use anabranch_algo::{Rate, Span, Time};
use anabranch_mirror::variants::Patience;

use crate::Progress;
use crate::event::Observer;

/// The time without an answer after which the user is told that no server answers.
const REPORT_AFTER: Span = Span::from_secs(3);

/// Measures the rate of a transfer that others wait for, to tell whether it is slow.
pub(super) struct SlowTimer {
    bytes: u64,
    since: Time,
    /// The time for which the transfer has been measured.
    lasted: Span,
}

impl SlowTimer {
    pub(super) const fn new(now: Time) -> Self {
        Self { bytes: 0, since: now, lasted: Span::ZERO }
    }

    /// Measures the progress now and then. If the transfer is slow, returns a clause that says why.
    pub(super) fn look(
        &mut self,
        now: Time,
        patience: Patience,
        progress: impl FnOnce() -> Option<Progress>,
    ) -> Option<String> {
        let span = now.since(self.since);
        if span < patience.slow_for {
            return None;
        }
        let progress = progress().unwrap_or_default();
        let all = progress.paths.iter().map(|path| path.bytes).sum::<u64>().max(self.bytes);
        let came = all - self.bytes;
        (self.bytes, self.since, self.lasted) = (all, now, self.lasted + span);
        let rate = Rate::of(came, span);
        let seconds = |span: Span| span.as_millis() / 1_000;
        if rate < patience.slow {
            return Some(format!("{came} bytes have come in {} s, which is slow", seconds(span)));
        }
        let missing = progress.total_bytes.unwrap_or_default().saturating_sub(progress.done_bytes);
        let rest = rate.time_for(missing);
        if rest > patience.rest {
            return Some(format!("the rest would take {} h, which is slow", seconds(rest) / 3_600));
        }
        let is_endless = progress.total_bytes.is_none() && self.lasted >= patience.endless;
        is_endless.then(|| format!("it has not ended after {} s", seconds(self.lasted)))
    }

    /// Restarts the measurement, because the transfer was busy with something else.
    pub(super) const fn restart(&mut self, now: Time) {
        self.since = now;
    }
}

/// Watches a counter that rises as long as any server answers.
pub(super) struct IdleTimer {
    count: u64,
    since: Time,
    reported: bool,
}

impl IdleTimer {
    pub(super) const fn new(now: Time) -> Self {
        Self { count: 0, since: now, reported: false }
    }

    /// Records that a server has answered.
    pub(super) const fn heard(&mut self, now: Time) {
        (self.since, self.reported) = (now, false);
    }

    /// Compares the counter with its last value. After some silence, tells the user that no `who` answers, or
    /// that only the errors in `faults` arrive. If the silence has lasted for `timeout`, returns this as the
    /// reason to give up.
    pub(super) fn look(
        &mut self,
        now: Time,
        count: u64,
        timeout: Span,
        who: &str,
        faults: impl FnOnce() -> Option<String>,
        observer: &mut Observer<'_>,
    ) -> Option<String> {
        if count != self.count {
            self.count = count;
            self.heard(now);
        }
        let silence = now.since(self.since);
        if silence >= timeout {
            let seconds = silence.as_millis() / 1_000;
            return Some(match faults() {
                None => format!("no {who} has answered for {seconds} s"),
                Some(faults) => format!("for {seconds} s nothing has come but errors ({faults})"),
            });
        }
        if silence >= REPORT_AFTER && !self.reported {
            self.reported = true;
            let left = (timeout - silence).as_millis() / 1_000;
            let what = match faults() {
                None => format!("no {who} answers"),
                Some(faults) => format!("nothing comes but errors ({faults})"),
            };
            observer.notice(&format!("{what}: waiting, gives up in {left} s"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathProgress;

    /// Measures every second a transfer of `total` bytes (0 means unknown) that arrives at `rate`. Returns
    /// the second in which it is found slow, and why.
    fn slow_after(rate: u64, total: u64, turn: u32) -> Option<(u64, String)> {
        let mut timer = SlowTimer::new(Time::from_nanos(0));
        (1..=1_000).find_map(|second| {
            let bytes = rate * second;
            let path = PathProgress { bytes, ..PathProgress::default() };
            let total_bytes = Some(total).filter(|total| *total > 0);
            let so_far =
                Progress { total_bytes, done_bytes: bytes, paths: vec![path], ..Progress::default() };
            let now = Time::from_nanos(second * 1_000_000_000);
            let why = timer.look(now, Patience::of_turn(turn), || Some(so_far))?;
            Some((second, why))
        })
    }

    #[test]
    fn what_has_no_end_in_sight_is_slow_and_later_each_time() {
        for turn in 0..4 {
            let is_slow = |rate, total| slow_after(rate, total, turn).map(|(second, _)| second >> turn);
            assert_eq!(is_slow(1_000, 5_000_000), Some(10));
            assert_eq!(is_slow(1_000, 0), Some(10));
            assert_eq!(is_slow(10_000, 5_000_000).is_some(), turn == 0, "half the pace is enough each time");
            assert_eq!(is_slow(100_000_000, 0), Some(60));
            assert_eq!(is_slow(20_000, 70_000_000), None);
            assert_eq!(is_slow(1_000_000, 1 << 50), Some(10));
        }
        assert_eq!(
            slow_after(20_000, 1 << 40, 0).expect("slow").1,
            "the rest would take 15270 h, which is slow"
        );
    }

    #[test]
    fn a_stage_that_did_not_listen_is_not_called_slow() {
        let mut timer = SlowTimer::new(Time::from_nanos(0));
        for second in 1..500 {
            let now = Time::from_nanos(second * 1_000_000_000);
            timer.restart(now);
            assert_eq!(timer.look(now, Patience::of_turn(0), || None), None);
        }
    }
}
