//! The times at which links come and go, the clock leaps, the caller stops, the process is killed, and the
//! disk is full.

use std::collections::VecDeque;
use std::path::PathBuf;

use anabranch_algo::{Span, Time};

use super::rng::Rng;

/// A full file system has room for less than the content and this number of bytes more.
const SLACK_BYTES: u64 = 16 << 10;

/// The events of a run that mirrors and sources do not cause. By default there are none.
#[derive(Clone, Debug)]
pub(in crate::get) struct Weather {
    /// The time at which a link comes or goes next; further changes follow at random.
    pub(in crate::get) flap_at: Time,
    /// The time at which the caller stops.
    pub(in crate::get) stop_at: Time,
    /// The time at which the clock leaps.
    pub(in crate::get) leap_at: Time,
    /// The time of the kill, and the directory that the run writes to.
    pub(in crate::get) kill: Option<(Time, PathBuf)>,
    /// The bytes that are left on the target's file system; `None` if it does not fill up.
    pub(in crate::get) room: Option<u64>,
    /// Whether the second link is up from the start.
    pub(in crate::get) has_second_link: bool,
    /// The links that go down or come up, with the times, in order.
    pub(in crate::get) changes: VecDeque<(Time, usize, bool)>,
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            flap_at: Time::NEVER,
            stop_at: Time::NEVER,
            leap_at: Time::NEVER,
            kill: None,
            room: None,
            has_second_link: true,
            changes: VecDeque::new(),
        }
    }
}

impl Weather {
    /// Makes random weather without a kill, for a content of `length` bytes.
    pub(in crate::get) fn foul(seed: u64, length: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut at = |most_ms: u64, odds: u64| match rng.one_in(odds) {
            false => Time::NEVER,
            true => Time::ZERO + rng.millis(1, most_ms),
        };
        let (flap_at, stop_at, leap_at) = (at(2_000, 2), at(4_000, 3), at(3_000, 4));
        // The room has random numbers of its own, so that it does not change the rest of the world.
        let mut own = Rng::new(!seed);
        let room = own.one_in(4).then(|| own.below(length + SLACK_BYTES));
        let has_second_link = rng.one_in(2);
        Self { flap_at, stop_at, leap_at, kill: None, room, has_second_link, changes: VecDeque::new() }
    }

    /// Returns the time of the next event.
    pub(super) fn next(&self) -> Time {
        let kill_at = self.kill.as_ref().map_or(Time::NEVER, |(at, _)| *at);
        let change_at = self.changes.front().map_or(Time::NEVER, |(at, ..)| *at);
        [self.flap_at, self.stop_at, self.leap_at, change_at].into_iter().fold(kill_at, Time::min)
    }

    /// Returns a link that goes down or comes up now, and whether it is up then.
    pub(super) fn change(&mut self, now: Time) -> Option<(usize, bool)> {
        let (at, link, is_up) = *self.changes.front()?;
        (now >= at).then(|| {
            self.changes.pop_front();
            (link, is_up)
        })
    }

    /// Returns how far the clock leaps, if it does now.
    pub(super) fn leap(&mut self, now: Time, rng: &mut Rng) -> Option<Span> {
        (now >= self.leap_at).then(|| {
            self.leap_at = Time::NEVER;
            Span::from_secs(5 + rng.below(600))
        })
    }

    /// Returns the directory, if the process is killed now.
    pub(super) fn killed(&mut self, now: Time) -> Option<PathBuf> {
        self.kill.take_if(|(at, _)| now >= *at).map(|(_, dir)| dir)
    }

    /// Returns whether the caller stops now.
    pub(super) fn stops(&mut self, now: Time) -> bool {
        let stops = now >= self.stop_at;
        if stops {
            self.stop_at = Time::NEVER;
        }
        stops
    }
}
