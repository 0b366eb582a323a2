//! When links come and go, the clock leaps, the caller stops, the process is killed and the disk is full.

use std::path::PathBuf;

use anabranch_algo::{Span, Time};

use super::rng::Rng;

/// A file system that fills up has at most so many bytes more left than the content is long.
const SLACK_BYTES: u64 = 16 << 10;

/// What happens to a run besides what mirrors and sources do. The default is nothing.
#[derive(Clone, Debug)]
pub(in crate::get) struct Weather {
    /// When a link comes or goes next; then it goes on at random.
    pub(in crate::get) flap_at: Time,
    /// When the caller stops.
    pub(in crate::get) stop_at: Time,
    /// When the clock leaps.
    pub(in crate::get) leap_at: Time,
    /// When it is killed, and the directory that it writes to.
    pub(in crate::get) kill: Option<(Time, PathBuf)>,
    /// The bytes that the target's file system has left; none: as many as are wanted.
    pub(in crate::get) room: Option<u64>,
    /// Whether the second link is there from the start.
    pub(in crate::get) has_second_link: bool,
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
        }
    }
}

impl Weather {
    /// Some of all but a kill, for a content of so many bytes.
    pub(in crate::get) fn foul(seed: u64, length: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut at = |most_ms: u64, odds: u64| match rng.one_in(odds) {
            false => Time::NEVER,
            true => Time::ZERO + rng.millis(1, most_ms),
        };
        let (flap_at, stop_at, leap_at) = (at(2_000, 2), at(4_000, 3), at(3_000, 4));
        // By numbers of its own: with a full disk or without, the rest of the world is the same.
        let mut own = Rng::new(!seed);
        let room = own.one_in(4).then(|| own.below(length + SLACK_BYTES));
        Self { flap_at, stop_at, leap_at, kill: None, room, has_second_link: rng.one_in(2) }
    }

    /// When the next of it happens.
    pub(super) fn next(&self) -> Time {
        let kill_at = self.kill.as_ref().map_or(Time::NEVER, |(at, _)| *at);
        [self.flap_at, self.stop_at, self.leap_at].into_iter().fold(kill_at, Time::min)
    }

    /// How long the clock leaps, if it does now.
    pub(super) fn leap(&mut self, now: Time, rng: &mut Rng) -> Option<Span> {
        (now >= self.leap_at).then(|| {
            self.leap_at = Time::NEVER;
            Span::from_secs(5 + rng.below(600))
        })
    }

    /// The directory, if it is killed now.
    pub(super) fn killed(&mut self, now: Time) -> Option<PathBuf> {
        self.kill.take_if(|(at, _)| now >= *at).map(|(_, dir)| dir)
    }

    /// Whether the caller stops now.
    pub(super) fn stops(&mut self, now: Time) -> bool {
        let stops = now >= self.stop_at;
        if stops {
            self.stop_at = Time::NEVER;
        }
        stops
    }
}
