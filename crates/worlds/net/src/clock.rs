//! Implements the clock: the only place that asks the operating system for the time.

use std::thread;
use std::time::Duration;

use anabranch_algo::{Span, Time};
use nix::time::{ClockId, clock_gettime};

/// A monotonic clock whose origin is the time of its start. Copies share the origin.
///
/// `CLOCK_MONOTONIC`: never set back, and on Linux it stands still while the machine is suspended, so that
/// waking up does not expire every timer at once.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin_nanos: u64,
}

impl Clock {
    /// Starts a clock at [`Time::ZERO`].
    #[must_use]
    pub fn start() -> Self {
        Self { origin_nanos: monotonic_nanos() }
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::from_nanos(monotonic_nanos().saturating_sub(self.origin_nanos))
    }

    /// Returns how much later than `other` this clock was started; zero if it was started earlier.
    #[must_use]
    pub const fn after(&self, other: &Self) -> Span {
        Span::from_nanos(self.origin_nanos.saturating_sub(other.origin_nanos))
    }

    /// Blocks this thread until `deadline`; returns at once if the deadline has passed.
    pub fn sleep_until(&self, deadline: Time) {
        loop {
            let left = deadline.since(self.now());
            if left == Span::ZERO {
                return;
            }
            thread::sleep(Duration::from_nanos(left.as_nanos()));
        }
    }
}

fn monotonic_nanos() -> u64 {
    // POSIX lets this call fail only for an unknown clock.
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Unix has CLOCK_MONOTONIC");
    let (secs, nanos) = (now.tv_sec(), now.tv_nsec());
    u64::try_from(secs)
        .unwrap_or(0)
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(nanos).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_to_the_deadline_and_not_past_ones() {
        let clock = Clock::start();
        let deadline = clock.now() + Span::from_millis(5);
        clock.sleep_until(deadline);
        let woke = clock.now();
        assert!(woke >= deadline);
        clock.sleep_until(Time::ZERO);
        assert!(clock.now() >= woke);
    }
}
