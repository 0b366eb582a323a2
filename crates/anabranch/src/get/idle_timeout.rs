//! How long nobody has answered, and when that is reported.

use algo::{Span, Time};

use crate::event::Observer;

/// Without an answer for so long, the user is told that nobody answers.
const REPORT_AFTER: Span = Span::from_secs(3);

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
