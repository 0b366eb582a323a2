//! How long nobody has answered, and when that is reported; whether what comes is slow.

use algo::{Rate, Span, Time};

use crate::event::Observer;

/// Without an answer for so long, the user is told that nobody answers.
const REPORT_AFTER: Span = Span::from_secs(3);

/// What brings less than so many bytes in so long is slow.
const SLOW_BYTES: u64 = 512 << 10;
const SLOW_FOR: Span = Span::from_secs(30);

/// A watch on how much comes.
pub(super) struct SlowTimer {
    bytes: u64,
    since: Time,
}

impl SlowTimer {
    pub(super) const fn new(now: Time) -> Self {
        Self { bytes: 0, since: now }
    }

    /// Looks, now and then, at the bytes that have come so far; returns why that is slow.
    pub(super) fn look(&mut self, now: Time, bytes: impl FnOnce() -> Option<u64>) -> Option<String> {
        let span = now.since(self.since);
        if span < SLOW_FOR {
            return None;
        }
        let all = bytes().unwrap_or(self.bytes);
        let came = all.saturating_sub(self.bytes);
        *self = Self { bytes: all, since: now };
        let is_slow = Rate::of(came, span) < Rate::of(SLOW_BYTES, SLOW_FOR);
        is_slow.then(|| format!("{came} bytes have come in {} s, which is slow", span.as_millis() / 1_000))
    }

    /// Something else was done meanwhile.
    pub(super) const fn restart(&mut self, now: Time) {
        self.since = now;
    }
}

/// A watch on something that counts up while anybody answers.
pub(super) struct IdleTimer {
    count: u64,
    since: Time,
    reported: bool,
}

impl IdleTimer {
    pub(super) const fn new(now: Time) -> Self {
        Self { count: 0, since: now, reported: false }
    }

    /// Something was heard.
    pub(super) const fn heard(&mut self, now: Time) {
        (self.since, self.reported) = (now, false);
    }

    /// Looks at the count. After some silence says that no `who` answers, or that nothing comes but `faults`;
    /// where it has lasted for `timeout`, returns that as the reason to give up.
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
