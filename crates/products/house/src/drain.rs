//! The draining law: users leave an instance at a rate, for targets, until a time.
//!
//! Whatever has users drains in the same way: a proxy's server, a packet function, a server of telephony. The
//! owner says N users a second, the targets with their weights and capacities, and a deadline. [`Drain`]
//! decides who goes where and when. It has no clock and no socket, and its state can be written to a journal,
//! so a drain continues after its scheduler was killed.
//!
//! **When.** Moves are equally spaced. A world that asks late gets what was due in the last 100 ms, not more,
//! so no second has more than 1.1 N + 1 moves. The user that was in the population first goes first.
//!
//! **Where.** Each move goes to the target with the smallest quotient of users received and weight, among
//! those with capacity (Jefferson's method: Balinski and Young, "Fair Representation", 1982). So after each
//! move no target is below its share by weight, rounded down. Without targets, a user goes wherever its own
//! choice leads.
//!
//! **Times** count from any epoch, but always the same one. A journal needs a clock that outlives the
//! process: Unix time. A clock that is set back delays no move by more than one interval.

use std::collections::VecDeque;

use anabranch_algo::{Span, Time};
use serde::{Deserialize, Serialize};

/// The time whose moves may happen at once if the world asks late.
const CATCH_UP: Span = Span::from_millis(100);
const SECOND: Span = Span::from_secs(1);
/// The lowest rate: one user a day, in users a second.
const RATE_MIN: f64 = 1.0 / 86_400.0;
/// The highest rate, in users a second.
const RATE_MAX: f64 = 1e6;

/// The reason why there is no drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrainError {
    /// The rate is 0, negative, no number, or out of range.
    #[error("the rate is between one user a day and a million a second: with 0, no user would ever go")]
    Rate,
    /// The deadline is not after the begin.
    #[error("the time until which users go is over already")]
    Past,
    /// A target has the weight 0.
    #[error("a target of weight 0 gets no users: leave it out")]
    Weight,
}

/// A target of a drain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The name.
    pub name: String,
    /// The share of users that it gets, relative to the other targets; at least 1.
    pub weight: u32,
    /// The most users that it takes from this drain.
    pub capacity: u64,
    /// The number of users that it got.
    #[serde(default)]
    pub received: u64,
}

impl Target {
    /// Creates a target of weight 1 that takes all users.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), weight: 1, capacity: u64::MAX, received: 0 }
    }

    const fn has_room(&self) -> bool {
        self.received < self.capacity
    }
}

/// A user that goes now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move<U> {
    /// The user.
    pub user: U,
    /// The index of its target; `None` if the drain has no targets.
    pub target: Option<usize>,
}

/// The state of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Users go.
    Running,
    /// The drain waits for [`Drain::resume`].
    Paused,
    /// The deadline has passed; users that wait stay.
    Ended,
}

/// A drain of users of type `U`. Serialised, it is its own journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drain<U> {
    waiting: VecDeque<U>,
    targets: Vec<Target>,
    /// The time between two moves in nanoseconds, at least 1.
    interval_ns: u64,
    until_ns: Option<u64>,
    /// The earliest time of the next move, and the latest time that this was told.
    next_ns: u64,
    seen_ns: u64,
    phase: Phase,
    moved: u64,
}

impl<U: PartialEq> Drain<U> {
    /// Begins a drain. `rate` is the number of users a second; with `None` it is what moves all of these
    /// users by `until`, or 10 without a deadline.
    ///
    /// # Errors
    /// If the rate is out of range, the deadline has passed, or a target has weight 0; see [`DrainError`].
    pub fn new(
        now: Time,
        users: impl IntoIterator<Item = U>,
        targets: Vec<Target>,
        rate: Option<f64>,
        until: Option<Time>,
    ) -> Result<Self, DrainError> {
        if until.is_some_and(|until| until <= now) {
            return Err(DrainError::Past);
        }
        if targets.iter().any(|target| target.weight == 0) {
            return Err(DrainError::Weight);
        }
        let waiting: VecDeque<U> = users.into_iter().collect();
        let rate = match (rate, until) {
            (Some(rate), _) => rate,
            (None, None) => 10.0,
            // One more than there are, since the first goes at once and the last before the deadline.
            (None, Some(until)) => {
                let seconds = until.since(now).as_nanos() as f64 / 1e9;
                ((waiting.len() + 1) as f64 / seconds).clamp(RATE_MIN, RATE_MAX)
            }
        };
        if !(RATE_MIN..=RATE_MAX).contains(&rate) {
            return Err(DrainError::Rate);
        }
        let interval_ns = (SECOND.as_nanos() as f64 / rate).floor().max(1.0) as u64;
        let (next_ns, seen_ns) = (now.as_nanos(), now.as_nanos());
        let until_ns = until.map(Time::as_nanos);
        let (phase, moved) = (Phase::Running, 0);
        Ok(Self { waiting, targets, interval_ns, until_ns, next_ns, seen_ns, phase, moved })
    }

    /// Returns the next user that goes now. Call it until it returns `None`; then wait for
    /// [`next_at`](Self::next_at).
    pub fn poll(&mut self, now: Time) -> Option<Move<U>> {
        self.see(now);
        if self.phase != Phase::Running || self.seen_ns < self.next_ns {
            return None;
        }
        let target = self.target()?;
        let user = self.waiting.pop_front()?;
        if let Some(target) = target.and_then(|place| self.targets.get_mut(place)) {
            target.received += 1;
        }
        self.moved += 1;
        // What was due earlier than CATCH_UP is not made up for.
        let earliest = self.seen_ns.saturating_sub(CATCH_UP.as_nanos());
        self.next_ns = self.next_ns.max(earliest).saturating_add(self.interval_ns);
        Some(Move { user, target })
    }

    /// Takes the time, which may have been set back.
    fn see(&mut self, now: Time) {
        let now = now.as_nanos();
        if now < self.seen_ns {
            self.next_ns = self.next_ns.saturating_sub(self.seen_ns - now);
        }
        self.seen_ns = now;
        if self.until_ns.is_some_and(|until| now >= until) {
            self.phase = Phase::Ended;
        }
    }

    /// Returns the target of the next user: `Some(None)` means any, `None` that no target has capacity.
    #[expect(clippy::option_option, reason = "no targets and no target with capacity are different")]
    fn target(&self) -> Option<Option<usize>> {
        if self.targets.is_empty() {
            return Some(None);
        }
        let with_room = self.targets.iter().enumerate().filter(|(_, target)| target.has_room());
        // (a + 1) / v < (b + 1) / w, without division. Equal quotients go to the first.
        let after = |target: &Target| (u128::from(target.received) + 1, u128::from(target.weight));
        let best = with_room.min_by(|(_, one), (_, other)| {
            let ((a, v), (b, w)) = (after(one), after(other));
            (a * w).cmp(&(b * v))
        });
        best.map(|(place, _)| Some(place))
    }

    /// Returns when [`poll`](Self::poll) may have a move; [`Time::NEVER`] if only a call can change that.
    #[must_use]
    pub fn next_at(&self) -> Time {
        match self.phase {
            Phase::Running if !self.waiting.is_empty() && self.target().is_some() => {
                Time::from_nanos(self.next_ns.min(self.until_ns.unwrap_or(u64::MAX)))
            }
            Phase::Running => self.until_ns.map_or(Time::NEVER, Time::from_nanos),
            Phase::Paused | Phase::Ended => Time::NEVER,
        }
    }

    /// Adds a user that came during the drain, unless it waits already.
    pub fn add(&mut self, user: U) {
        if !self.waiting.contains(&user) {
            self.waiting.push_back(user);
        }
    }

    /// Takes back a move that failed: the user waits again, before all others.
    pub fn failed(&mut self, failed: Move<U>) {
        if let Some(target) = failed.target.and_then(|place| self.targets.get_mut(place)) {
            target.received = target.received.saturating_sub(1);
        }
        self.moved = self.moved.saturating_sub(1);
        self.waiting.push_front(failed.user);
    }

    /// Removes a user that has left by itself. Returns whether it waited.
    pub fn left(&mut self, user: &U) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|one| one != user);
        self.waiting.len() < before
    }

    /// Whether this user waits for its move.
    #[must_use]
    pub fn waits(&self, user: &U) -> bool {
        self.waiting.contains(user)
    }

    /// Stops moving users until [`resume`](Self::resume). The deadline stays.
    pub fn pause(&mut self) {
        if self.phase == Phase::Running {
            self.phase = Phase::Paused;
        }
    }

    /// Moves users again. The time of the pause is not made up for.
    pub fn resume(&mut self, now: Time) {
        if self.phase == Phase::Paused {
            self.phase = Phase::Running;
            self.see(now);
            self.next_ns = self.next_ns.max(self.seen_ns);
        }
    }

    /// Returns the phase.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether no user waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the number of users that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of users that went.
    #[must_use]
    pub const fn moved(&self) -> u64 {
        self.moved
    }

    /// Returns the targets, with what each got.
    #[must_use]
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Returns the number of users a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        SECOND.as_nanos() as f64 / self.interval_ns as f64
    }

    /// Returns the deadline.
    #[must_use]
    pub fn until(&self) -> Option<Time> {
        self.until_ns.map(Time::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn target(weight: u32, capacity: u64) -> Target {
        Target { weight, capacity, ..Target::new("t") }
    }

    /// Runs a drain by its own deadlines, and returns when each user went where.
    fn run(drain: &mut Drain<u32>, mut now: Time, end: Time) -> Vec<(Time, Move<u32>)> {
        let mut moves = Vec::new();
        while now < end {
            while let Some(one) = drain.poll(now) {
                moves.push((now, one));
            }
            now = drain.next_at().max(now + Span::from_nanos(1));
        }
        moves
    }

    #[test]
    fn two_users_a_second_go_two_a_second_in_their_order() {
        let mut drain = Drain::new(at(0), 0..10, Vec::new(), Some(2.0), None).unwrap();
        let moves = run(&mut drain, at(0), at(60_000));
        assert!(moves.iter().map(|(_, one)| one.user).eq(0..10));
        let times: Vec<u64> = moves.iter().map(|(time, _)| time.since(Time::ZERO).as_millis()).collect();
        assert_eq!(times, (0..10).map(|n| n * 500).collect::<Vec<_>>());
        assert!(drain.is_empty() && drain.phase() == Phase::Running && drain.next_at() == Time::NEVER);
    }

    #[test]
    fn the_deadline_alone_sets_the_rate_and_ends_the_drain() {
        let mut drain = Drain::new(at(0), 0..100, Vec::new(), None, Some(at(10_000))).unwrap();
        let moves = run(&mut drain, at(0), at(10_001));
        assert_eq!((moves.len(), drain.waiting()), (100, 0));
        assert_eq!(drain.phase(), Phase::Ended);
        let mut slow = Drain::new(at(0), 0..100, Vec::new(), Some(1.0), Some(at(10_000))).unwrap();
        assert_eq!(run(&mut slow, at(0), at(60_000)).len(), 10, "who waits at the deadline stays");
        assert_eq!((slow.phase(), slow.waiting(), slow.next_at()), (Phase::Ended, 90, Time::NEVER));
    }

    #[test]
    fn wrong_words_are_refused() {
        let new = |rate, until: Option<u64>| Drain::new(at(1_000), 0..3, Vec::new(), rate, until.map(at));
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e7, 1e-9] {
            assert_eq!(new(Some(rate), None).unwrap_err(), DrainError::Rate, "{rate}");
        }
        for until in [0, 999, 1_000] {
            assert_eq!(new(None, Some(until)).unwrap_err(), DrainError::Past);
        }
        let none = Drain::new(at(0), 0..3, vec![target(0, 9)], None, None).unwrap_err();
        assert_eq!(none, DrainError::Weight);
        let empty = Drain::<u32>::new(at(0), [], Vec::new(), None, Some(at(1))).unwrap();
        assert!(empty.is_empty());
    }

    #[test]
    fn a_pause_is_not_made_up_for_and_a_failed_move_waits_first() {
        let mut drain = Drain::new(at(0), 0..100, vec![target(1, 100)], Some(10.0), None).unwrap();
        assert_eq!(run(&mut drain, at(0), at(1_000)).len(), 10);
        drain.pause();
        assert_eq!((run(&mut drain, at(1_000), at(9_000)).len(), drain.next_at()), (0, Time::NEVER));
        drain.resume(at(9_000));
        let moves = run(&mut drain, at(9_000), at(10_000));
        assert_eq!(moves.len(), 10);
        let (_, last) = moves.into_iter().next_back().unwrap();
        drain.failed(last.clone());
        assert_eq!((drain.moved(), drain.targets()[0].received), (19, 19));
        assert_eq!(drain.poll(at(20_000)).unwrap().user, last.user);
    }

    #[test]
    fn a_full_target_gets_no_more_and_if_all_are_full_users_stay() {
        let targets = vec![target(1, 3), target(1, 5)];
        let mut drain = Drain::new(at(0), 0..20, targets, Some(100.0), None).unwrap();
        assert_eq!(run(&mut drain, at(0), at(5_000)).len(), 8);
        assert_eq!((drain.waiting(), drain.next_at()), (12, Time::NEVER));
        assert!(drain.left(&19) && !drain.left(&19) && drain.waits(&18));
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_stop_the_drain() {
        let mut drain = Drain::new(at(3_600_000), 0..20, Vec::new(), Some(10.0), None).unwrap();
        assert_eq!(run(&mut drain, at(3_600_000), at(3_601_000)).len(), 10);
        assert_eq!(run(&mut drain, at(1_000), at(2_100)).len(), 10);
    }

    proptest! {
        /// However late and irregularly a world asks, and if it is killed in between, no second has more
        /// than 1.1 N + 1 moves, each user goes once in its order, and no target is below its share.
        #[test]
        fn the_peak_is_bounded_and_the_shares_are_right(
            rate in 1_u32..200,
            weights in prop::collection::vec(1_u32..9, 1..5),
            steps in prop::collection::vec(0_u64..3_000, 1..60),
            kill_at in 0_usize..60,
        ) {
            let targets = weights.iter().map(|weight| target(*weight, u64::MAX)).collect();
            let mut drain = Drain::new(at(0), 0..500, targets, Some(f64::from(rate)), None).unwrap();
            let (mut now, mut moves) = (at(0), Vec::new());
            for (n, step) in steps.iter().enumerate() {
                now += Span::from_millis(*step);
                while let Some(one) = drain.poll(now) {
                    moves.push((now, one));
                }
                if n == kill_at {
                    let journal = serde_json::to_string(&drain).unwrap();
                    drain = serde_json::from_str(&journal).unwrap();
                }
            }
            prop_assert!(moves.iter().map(|(_, one)| one.user).eq(0..moves.len() as u32));
            for (n, (begin, _)) in moves.iter().enumerate() {
                let within = moves[n..].iter().take_while(|(time, _)| time.since(*begin) < SECOND).count();
                prop_assert!(within as f64 <= f64::from(rate) * 1.1 + 1.0, "{within} at {rate} a second");
            }
            let all: u32 = weights.iter().sum();
            for (place, weight) in weights.iter().enumerate() {
                let got = moves.iter().filter(|(_, one)| one.target == Some(place)).count() as f64;
                prop_assert_eq!(got as u64, drain.targets()[place].received);
                let share = moves.len() as f64 * f64::from(*weight) / f64::from(all);
                // Jefferson's method never gives less than the share without its fraction.
                prop_assert!(got >= share.floor(), "{} of {}", got, share);
            }
        }
    }
}
