//! Holds datagrams of one flow back until earlier ones arrive, which travel over a slower path.
//!
//! Waiting is limited in bytes, and in time by the difference between the paths' delays, from [`HOLD_MIN`] to
//! [`HOLD_MAX`]. That difference comes from the round trips and from late datagrams. A receiver sends little,
//! so its round trips are seldom measured, and a queue at the other end may have grown since. So a datagram
//! that comes too late shows how late it is, and the next ones are waited for that long. Paths keep order:
//! once every path that answers has brought a later datagram, an earlier one is lost and no longer waited
//! for.

use std::collections::{BTreeMap, VecDeque};

use anabranch_algo::{Span, Time};
use bytes::Bytes;

use super::packet::PATHS_MAX;
use crate::trunk::Destination;

/// The shortest time that a datagram waits for an earlier one that may still arrive.
pub const HOLD_MIN: Span = Span::from_millis(5);
/// The longest time that a datagram waits for an earlier one.
pub const HOLD_MAX: Span = Span::from_millis(100);
/// The most bytes of one flow that wait. Beyond that, the oldest are passed on.
pub const HELD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The time after which the patience learned from a late datagram halves. Until then, the wait is a quarter
/// longer than that datagram was late.
const PATIENCE_HALF_LIFE: Span = Span::from_secs(10);
/// The most gaps that were given up whose times are kept.
const GIVEN_UP_MAX: usize = 64;

/// A datagram that waits.
pub(super) type Item = (Destination, Bytes);

#[derive(Debug, Default)]
pub(super) struct Reorder {
    /// The first number that was neither passed on nor given up.
    next: u64,
    waiting: BTreeMap<u64, Item>,
    /// The arrival times and numbers of waiting datagrams, in the order of arrival. Some may have been passed
    /// on since.
    arrivals: VecDeque<(Time, u64)>,
    bytes: usize,
    /// For each path, one more than the highest number that it brought.
    brought: [u64; PATHS_MAX],
    /// The gaps that were given up: the number below which datagrams were missing, and the start of the wait.
    given_up: VecDeque<(u64, Time)>,
    /// How late the latest late datagram was, and when that was seen.
    patience: Option<(Span, Time)>,
}

impl Reorder {
    /// Starts anew at this number, and passes on all waiting datagrams.
    pub(super) fn restart(&mut self, number: u64, out: &mut Vec<Item>) {
        self.release_to(u64::MAX, out);
        *self = Self { next: number, ..Self::default() };
    }

    /// Notes that everything up to this number was passed on without waiting.
    pub(super) fn pass(&mut self, number: u64, out: &mut Vec<Item>) {
        self.release_to(number, out);
        self.next = self.next.max(number + 1);
    }

    /// Takes a datagram that is no second copy. Returns whether it arrived after a later one was passed on.
    pub(super) fn insert(
        &mut self,
        now: Time,
        path: u8,
        number: u64,
        item: Item,
        out: &mut Vec<Item>,
    ) -> bool {
        if let Some(brought) = self.brought.get_mut(usize::from(path)) {
            *brought = (*brought).max(number + 1);
        }
        if number <= self.next {
            out.push(item);
            let is_late = number < self.next;
            if is_late {
                self.learn(now, number);
            } else {
                self.next += 1;
                self.release_run(out);
            }
            return is_late;
        }
        self.bytes += item.1.len();
        self.waiting.insert(number, item);
        self.arrivals.push_back((now, number));
        while self.bytes > HELD_BYTES_MAX {
            let Some((first, _)) = self.waiting.first_key_value() else { break };
            self.release_to(*first, out);
        }
        false
    }

    /// Passes on the datagrams that have waited for `hold`, and those that wait for datagrams that none of
    /// these paths can still bring.
    pub(super) fn release(
        &mut self,
        now: Time,
        hold: Span,
        paths: impl Iterator<Item = u8>,
        out: &mut Vec<Item>,
    ) {
        let passed = paths.map(|path| self.brought.get(usize::from(path)).copied().unwrap_or(0)).min();
        // No path can still bring a number below this.
        let passed = passed.unwrap_or(0);
        while let Some((first, _)) = self.waiting.first_key_value()
            && *first <= passed
        {
            self.release_to(*first, out);
        }
        let hold = self.hold(now, hold);
        while let Some(&(came, number)) = self.arrivals.front() {
            if number >= self.next {
                if came + hold > now {
                    break;
                }
                self.release_to(number, out);
                self.given_up.truncate(GIVEN_UP_MAX - 1);
                self.given_up.push_front((number, came));
            }
            self.arrivals.pop_front();
        }
    }

    /// Learns from a late datagram how much longer a wait would have caught it.
    fn learn(&mut self, now: Time, number: u64) {
        let given_up = self.given_up.iter().rev().find(|(below, _)| number < *below);
        let Some(late) = given_up.map(|(_, since)| now.since(*since)) else { return };
        if late <= HOLD_MAX && late > self.patience(now) {
            self.patience = Some((late, now));
        }
    }

    fn patience(&self, now: Time) -> Span {
        self.patience.map_or(Span::ZERO, |(late, seen)| {
            let halvings = now.since(seen).as_nanos() / PATIENCE_HALF_LIFE.as_nanos();
            late.over(1 << halvings.min(30))
        })
    }

    /// Returns the waiting time, given `hold` from the round trips.
    fn hold(&self, now: Time, hold: Span) -> Span {
        let patience = self.patience(now);
        hold.max(patience + patience.over(4)).min(HOLD_MAX)
    }

    /// Passes on the waiting datagrams up to this number, and those that follow without a gap.
    fn release_to(&mut self, number: u64, out: &mut Vec<Item>) {
        while let Some(entry) = self.waiting.first_entry()
            && *entry.key() <= number
        {
            self.next = entry.key() + 1;
            let item = entry.remove();
            self.bytes -= item.1.len();
            out.push(item);
        }
        self.release_run(out);
    }

    fn release_run(&mut self, out: &mut Vec<Item>) {
        while let Some(item) = self.waiting.remove(&self.next) {
            self.next += 1;
            self.bytes -= item.1.len();
            out.push(item);
        }
        if self.waiting.is_empty() {
            self.arrivals.clear();
        }
    }

    /// Returns when [`release`](Self::release) would pass on a datagram because of time alone.
    pub(super) fn deadline(&self, now: Time, hold: Span) -> Time {
        let hold = self.hold(now, hold);
        let waits = self.arrivals.iter().find(|(_, number)| *number >= self.next);
        waits.map_or(Time::NEVER, |(came, _)| *came + hold)
    }

    pub(super) const fn held_bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn item(n: u64) -> Item {
        ("192.0.2.1:53".parse().unwrap(), Bytes::from(n.to_be_bytes().to_vec()))
    }

    fn numbers(items: &[Item]) -> Vec<u64> {
        items.iter().map(|(_, bytes)| u64::from_be_bytes(bytes[..8].try_into().unwrap())).collect()
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn what_a_path_brings_late_is_waited_for_within_a_bound() {
        let (mut reorder, mut out) = (Reorder::default(), Vec::new());
        reorder.restart(10, &mut out);
        let hold = Span::from_millis(30);
        for (n, path) in [(10, 0), (12, 0), (13, 0)] {
            assert!(!reorder.insert(at(n), path, n, item(n), &mut out));
        }
        reorder.release(at(41), hold, [0, 1].into_iter(), &mut out);
        assert_eq!(numbers(&out), [10]);
        assert_eq!(reorder.deadline(at(41), hold), at(42));
        assert!(!reorder.insert(at(41), 1, 11, item(11), &mut out));
        assert_eq!(numbers(&out), [10, 11, 12, 13]);
        assert_eq!((reorder.deadline(at(41), hold), reorder.held_bytes()), (Time::NEVER, 0));
        // 14 does not arrive in time.
        reorder.insert(at(50), 0, 15, item(15), &mut out);
        reorder.release(at(80), hold, [0, 1].into_iter(), &mut out);
        assert_eq!(numbers(&out[4..]), [15]);
        assert!(reorder.insert(at(90), 1, 14, item(14), &mut out), "late, but passed on");
        assert_eq!(numbers(&out[5..]), [14]);
    }

    #[test]
    fn what_came_too_late_is_waited_for_longer_the_next_time() {
        let (mut reorder, mut out) = (Reorder::default(), Vec::new());
        let hold = Span::from_millis(5);
        let mut late = 0;
        // Path 1 is 40 ms slower than path 0, which `hold` does not include.
        for n in 0..1_000_u64 {
            for (path, number) in [(0, n), (1, n.wrapping_sub(40))] {
                if number < 1_000 && number % 2 == u64::from(path) {
                    reorder.release(at(n), hold, [0, 1].into_iter(), &mut out);
                    late += u32::from(reorder.insert(at(n), path, number, item(number), &mut out));
                }
            }
        }
        assert!((1..=40).contains(&late), "{late}");
        // The patience decreases with time, and is never above the limit.
        let after = |seconds| reorder.deadline(at(1_000) + Span::from_secs(seconds), hold);
        assert!(after(0) > after(10) && after(10) > after(60), "{:?}", [after(0), after(10), after(60)]);
        reorder.patience = Some((HOLD_MAX, at(1_000)));
        assert_eq!(reorder.hold(at(1_000), hold), HOLD_MAX);
    }

    #[test]
    fn what_no_path_can_bring_is_not_waited_for() {
        let (mut reorder, mut out) = (Reorder::default(), Vec::new());
        reorder.insert(at(0), 0, 1, item(1), &mut out);
        reorder.release(at(0), HOLD_MAX, [0, 1].into_iter(), &mut out);
        assert!(out.is_empty());
        reorder.insert(at(0), 1, 3, item(3), &mut out);
        reorder.release(at(0), HOLD_MAX, [0, 1].into_iter(), &mut out);
        assert_eq!(numbers(&out), [1], "0 is lost; 2 may come over path 0");
        reorder.release(at(0), HOLD_MAX, [1].into_iter(), &mut out);
        assert_eq!(numbers(&out), [1, 3], "that path does not answer any more");
    }

    proptest! {
        /// Everything is passed on once and waits no longer than allowed, and in order if the wait is long
        /// enough.
        #[test]
        fn all_once_and_in_time(
            delays in proptest::collection::vec((0u8..2, 0u64..40), 1..300),
            hold in 5u64..60,
        ) {
            let hold = Span::from_millis(hold);
            // Paths keep order: a datagram does not arrive before an earlier one on the same path.
            let (mut last, mut comes) = ([0; 2], Vec::new());
            for (n, (path, delay)) in delays.iter().enumerate() {
                let time = last[usize::from(*path)].max(n as u64 + delay);
                last[usize::from(*path)] = time;
                comes.push((time, n as u64, *path));
            }
            comes.sort_unstable();
            let (mut reorder, mut out, mut came) = (Reorder::default(), Vec::new(), BTreeMap::new());
            let mut seen = 0;
            for (time, n, path) in &comes {
                while reorder.deadline(at(*time), hold) < at(*time) {
                    let due = reorder.deadline(at(*time), hold);
                    let longest = reorder.hold(due, hold);
                    // The wait is longer only after a datagram came too late.
                    prop_assert!(longest == hold || !numbers(&out).is_sorted());
                    reorder.release(due, hold, [0, 1].into_iter(), &mut out);
                    for n in numbers(&out[seen..]) {
                        prop_assert!(due <= came[&n] + longest);
                    }
                    seen = out.len();
                }
                came.insert(*n, at(*time));
                reorder.insert(at(*time), *path, *n, item(*n), &mut out);
                reorder.release(at(*time), hold, [0, 1].into_iter(), &mut out);
                seen = out.len();
            }
            reorder.release(at(1_000_000), hold, [0, 1].into_iter(), &mut out);
            let mut all = numbers(&out);
            prop_assert!(hold < Span::from_millis(40) || all.is_sorted(), "{all:?}");
            all.sort_unstable();
            prop_assert_eq!(all, (0..delays.len() as u64).collect::<Vec<_>>());
        }
    }
}
