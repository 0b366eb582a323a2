//! Finds out by hellos whether the forwarder at the other end of a line answers, and how long packets take to
//! it.

use anabranch_algo::{Span, Time};

/// The time between two hellos.
pub(super) const HELLO_EVERY: Span = Span::from_millis(200);
/// A neighbour that has answered nothing for this long, in addition to the line's round-trip time, is gone:
/// it has missed three hellos.
const GONE_AFTER: Span = Span::from_millis(700);
/// The most hellos that may be under way.
const STAMPS: usize = 64;
/// A sample counts one part in this many in the smoothed delay.
const SMOOTHING: u64 = 8;

/// The other end of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neighbour {
    /// When the neighbour last answered, or when it was first asked.
    heard_at: Time,
    /// When the next hello is due.
    due: Time,
    /// The stamps of the last hellos: only these can be answered.
    stamps: [Option<u64>; STAMPS],
    up: bool,
    delay: Option<Span>,
    gone_after: Span,
}

impl Neighbour {
    /// Creates the state of a neighbour over a line whose delay in one direction is about `delay`.
    pub(super) fn new(now: Time, delay: Span) -> Self {
        let gone_after = GONE_AFTER + delay.times(2);
        Self { heard_at: now, due: now, stamps: [None; STAMPS], up: true, delay: None, gone_after }
    }

    /// Whether the neighbour is there. It counts as there until it has been silent for long enough.
    pub(super) const fn is_up(&self) -> bool {
        self.up
    }

    /// Returns the measured delay in one direction.
    pub(super) const fn delay(&self) -> Option<Span> {
        self.delay
    }

    /// Returns the stamp of a hello to send now, if one is due.
    pub(super) fn hello(&mut self, now: Time) -> Option<u64> {
        if now < self.due {
            return None;
        }
        self.due = now + HELLO_EVERY;
        self.stamps.rotate_right(1);
        self.stamps[0] = Some(now.as_nanos());
        Some(now.as_nanos())
    }

    /// Records the answer to a hello. Returns whether the neighbour was gone and is back by it.
    pub(super) fn answered(&mut self, now: Time, stamp: u64) -> bool {
        let Some(asked) = self.stamps.iter_mut().find(|asked| **asked == Some(stamp)) else { return false };
        *asked = None;
        self.heard_at = now;
        let sample = Span::from_nanos(now.since(Time::from_nanos(stamp)).as_nanos() / 2);
        self.delay = Some(self.delay.map_or(sample, |delay| {
            let weighted = delay.as_nanos() * (SMOOTHING - 1) + sample.as_nanos();
            Span::from_nanos(weighted / SMOOTHING)
        }));
        !std::mem::replace(&mut self.up, true)
    }

    /// Whether the neighbour has just gone.
    pub(super) fn has_gone(&mut self, now: Time) -> bool {
        let gone = self.up && now >= self.heard_at + self.gone_after;
        self.up &= !gone;
        gone
    }

    /// Returns when the neighbour needs attention next.
    pub(super) fn due(&self) -> Time {
        if self.up { self.due.min(self.heard_at + self.gone_after) } else { self.due }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_takes_its_time() {
        let mut neighbour = Neighbour::new(Time::ZERO, Span::from_millis(600));
        let ms = |ms| Time::ZERO + Span::from_millis(ms);
        let stamp = neighbour.hello(ms(0)).expect("it is due");
        (1..6).for_each(|n| assert!(neighbour.hello(ms(200 * n)).is_some()));
        assert!(!neighbour.has_gone(ms(1_200)));
        assert!(!neighbour.answered(ms(1_200), stamp));
        assert_eq!(neighbour.delay(), Some(Span::from_millis(600)));
        assert!(neighbour.has_gone(ms(3_100)));
        let stamp = neighbour.hello(ms(3_200)).expect("it is due");
        assert!(neighbour.answered(ms(4_400), stamp), "it is back");
    }

    #[test]
    fn it_goes_and_comes_back() {
        let mut neighbour = Neighbour::new(Time::ZERO, Span::ZERO);
        let ms = |ms| Time::ZERO + Span::from_millis(ms);
        let stamp = neighbour.hello(ms(0)).expect("it is due");
        assert!(neighbour.hello(ms(100)).is_none() && !neighbour.answered(ms(20), stamp + 1));
        assert!(!neighbour.answered(ms(20), stamp));
        assert_eq!((neighbour.delay(), neighbour.is_up()), (Some(Span::from_millis(10)), true));
        assert!(!neighbour.answered(ms(30), stamp), "twice");
        assert!(!neighbour.has_gone(ms(719)) && neighbour.has_gone(ms(720)) && !neighbour.has_gone(ms(721)));
        assert!(!neighbour.is_up());
        let stamp = neighbour.hello(ms(800)).expect("it is due");
        assert!(neighbour.answered(ms(820), stamp) && neighbour.is_up());
    }
}
