//! Decides whether the connection is full: whether bytes wait for it, or it waits for bytes.

use anabranch_algo::{Span, Time};

/// The time over which waiting is judged.
const WINDOW: Span = Span::from_secs(1);
/// The time for which the connection counts as full after it was: one window, the frame's way, and some more.
const LASTS: Span = Span::from_millis(2_500);

#[derive(Debug)]
pub(super) struct Pressure {
    noted: Time,
    is_blocked: bool,
    window_began: Time,
    /// How long bytes have waited in this window.
    waited: Span,
    /// When the connection was last full, as this end or the other side found.
    full_at: Option<Time>,
}

impl Pressure {
    pub(super) const fn new(now: Time) -> Self {
        Self { noted: now, is_blocked: false, window_began: now, waited: Span::ZERO, full_at: None }
    }

    /// Notes whether bytes wait from now on. Returns whether a window ends now in which bytes waited for half
    /// of the time.
    pub(super) fn note(&mut self, now: Time, is_blocked: bool) -> bool {
        if self.is_blocked {
            self.waited = self.waited + now.since(self.noted);
        }
        (self.noted, self.is_blocked) = (now, is_blocked);
        let length = now.since(self.window_began);
        if length < WINDOW {
            return false;
        }
        let is_full = self.waited.times(2) >= length;
        (self.window_began, self.waited) = (now, Span::ZERO);
        if is_full {
            self.full_at = Some(now);
        }
        is_full
    }

    /// Notes the other side's report that its bytes have waited.
    pub(super) const fn note_peer(&mut self, now: Time) {
        self.full_at = Some(now);
    }

    pub(super) fn is_full(&self, now: Time) -> bool {
        self.full_at.is_some_and(|at| now.since(at) < LASTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn it_is_full_if_bytes_waited_for_half_of_the_time() {
        let mut pressure = Pressure::new(at(0));
        // Bytes wait 4 ms of every 10.
        for step in 0..100 {
            assert!(!pressure.note(at(step * 10), true));
            assert!(!pressure.note(at(step * 10 + 4), false));
        }
        assert!(!pressure.note(at(1_000), false) && !pressure.is_full(at(1_000)));
        // Bytes wait 6 ms of every 10.
        for step in 100..200 {
            assert!(!pressure.note(at(step * 10), true));
            assert!(!pressure.note(at(step * 10 + 6), false));
        }
        assert!(pressure.note(at(2_000), false) && pressure.is_full(at(4_000)));
        assert!(!pressure.is_full(at(4_600)));
        pressure.note_peer(at(5_000));
        assert!(pressure.is_full(at(5_100)));
    }
}
