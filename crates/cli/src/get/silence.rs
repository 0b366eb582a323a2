//! How long nothing has been heard, and when people are told.

use algo::{Span, Time};

use crate::view::View;

/// Without an answer for so long, the user is told that nobody answers.
const TOLD_AFTER: Span = Span::from_secs(3);

/// A watch on something that counts up while anybody answers.
pub(super) struct Silence {
    count: u64,
    since: Time,
    told: bool,
}

impl Silence {
    pub(super) const fn new(now: Time) -> Self {
        Self { count: 0, since: now, told: false }
    }

    /// Until now nobody was listened to.
    pub(super) const fn restart(&mut self, now: Time) {
        self.since = now;
    }

    /// Something was heard.
    pub(super) const fn heard(&mut self, now: Time) {
        (self.since, self.told) = (now, false);
    }

    /// Looks at the count. After some silence says that no `who` answers; where it has lasted for `timeout`,
    /// returns its seconds.
    pub(super) fn look(
        &mut self,
        now: Time,
        count: u64,
        timeout: Span,
        who: &str,
        view: &mut View,
    ) -> Option<u64> {
        if count != self.count {
            self.count = count;
            self.heard(now);
        }
        let silence = now.since(self.since);
        if silence >= timeout {
            return Some(silence.as_millis() / 1_000);
        }
        if silence >= TOLD_AFTER && !self.told {
            self.told = true;
            let left = (timeout - silence).as_millis() / 1_000;
            view.note(&format!("no {who} answers: waiting, gives up in {left} s"));
        }
        None
    }
}
