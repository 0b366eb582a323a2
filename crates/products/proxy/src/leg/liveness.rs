//! Timers: decides which paths answer, when they are probed, and which packets are lost.

use anabranch_algo::control::{CongestionCause, Group};
use anabranch_algo::subflow::{AckRule, Timer};
use anabranch_algo::{Span, Time};

use super::packet::{Ack, PATHS_MAX};
use super::path::Path;
use super::received::WINDOW;
use super::reorder::{HOLD_MAX, HOLD_MIN};
use super::{Event, Leg};
use crate::trunk::Side;

/// The time between two probes of a path while bytes move on the leg or its trunks.
pub(super) const PROBE_EVERY: Span = Span::from_millis(200);
/// The time between two probes while an earlier packet has no answer.
pub(super) const PROBE_UNANSWERED: Span = Span::from_millis(100);
/// The times between two probes of a dead path: while bytes move, and while none do.
pub(super) const PROBE_DEAD: Span = Span::from_millis(500);
pub(super) const PROBE_DEAD_IDLE: Span = Span::from_secs(2);
/// The time after the last traffic during which bytes count as moving.
const TRAFFIC_LASTS: Span = Span::from_secs(1);
/// The time without an answer after which a path is dead, unless three round trips are longer.
pub(super) const DEAD_AFTER: Span = Span::from_millis(500);
/// The time without an answer after which other paths are preferred, unless two round trips are longer.
const SUSPECT_AFTER: Span = Span::from_millis(50);

impl Path {
    /// Whether other paths should be preferred, because an answer is overdue.
    pub(super) fn is_suspect(&self, now: Time) -> bool {
        let patience = self.subflow.rtt().srtt().times(2).max(SUSPECT_AFTER);
        self.waiting_since.is_some_and(|since| now.since(since) > patience)
    }

    fn dead_at(&self) -> Time {
        let patience = self.subflow.rtt().srtt().times(3).max(DEAD_AFTER);
        self.waiting_since.filter(|_| self.is_alive).map_or(Time::NEVER, |since| since + patience)
    }
}

impl Leg {
    /// Returns when the path is to be probed next.
    pub(super) fn probe_at(&self, now: Time, path: &Path) -> Time {
        let moves = self.traffic_at.is_some_and(|at| now.since(at) < TRAFFIC_LASTS);
        let every = match (self.side, path.is_alive, moves) {
            (_, true, true) if path.waiting_since.is_some() => PROBE_UNANSWERED,
            (_, true, true) => PROBE_EVERY,
            // Only the client keeps idle paths up and finds those that answer again.
            (Side::Server, ..) => return Time::NEVER,
            (Side::Client, true, false) if path.waiting_since.is_some() => PROBE_UNANSWERED,
            (Side::Client, true, false) => self.settings.idle_probe,
            (Side::Client, false, true) => PROBE_DEAD,
            (Side::Client, false, false) => PROBE_DEAD_IDLE,
        };
        path.asked_at.map_or(Time::ZERO, |at| at + every)
    }

    /// Handles all timers that have expired.
    pub(super) fn tick(&mut self, now: Time) {
        for i in 0..self.paths.len() {
            self.detect(now, i);
            match self.paths[i].subflow.timer(now) {
                Timer::None => {}
                Timer::Probe => self.paths[i].is_probe_due = self.paths[i].is_alive,
                Timer::Timeout => self.expire(now, i),
            }
            if now >= self.paths[i].dead_at() {
                self.bury(now, i);
            }
            if now >= self.probe_at(now, &self.paths[i]) {
                self.paths[i].is_probe_due = true;
            }
        }
        self.release(now);
    }

    fn expire(&mut self, now: Time, i: usize) {
        let (path, group) = (&mut self.paths[i], Group { members: &self.members, me: i });
        let mut lost = 0;
        path.subflow.expire(now, &group, |(), _| lost += 1);
        path.subflow.forget(now);
        path.count(now, 0, lost);
        self.publish(i);
    }

    /// Marks the path as dead.
    fn bury(&mut self, now: Time, i: usize) {
        let path = &mut self.paths[i];
        (path.is_alive, path.waiting_since) = (false, None);
        let lost = path.subflow.abandon(|(), _| {});
        path.count(now, 0, lost.into());
        self.events.push_back(Event::Path { path: path.number, is_alive: false });
        self.publish(i);
    }

    /// Marks the path as alive, because it has answered.
    fn revive(&mut self, i: usize) {
        let path = &mut self.paths[i];
        if !std::mem::replace(&mut path.is_alive, true) {
            // The path may lead over another network now, so its measurements start anew.
            path.subflow.restart(self.settings.control);
            self.events.push_back(Event::Path { path: path.number, is_alive: true });
        }
    }

    fn publish(&mut self, i: usize) {
        let path = &self.paths[i];
        let subflow = &path.subflow;
        self.members[i] = if path.is_alive { subflow.stats() } else { subflow.stats_without_rtt() };
    }

    /// Declares packets lost that later ones have overtaken.
    fn detect(&mut self, now: Time, i: usize) {
        let path = &mut self.paths[i];
        let mut lost = 0;
        let newest = path.subflow.detect(now, |(), _| lost += 1);
        path.subflow.forget(now);
        if let Some(seq) = newest {
            path.count(now, 0, lost);
            let group = Group { members: &self.members, me: i };
            path.subflow.congestion(now, CongestionCause::Loss, seq, &group);
            self.publish(i);
        }
    }

    /// Takes the other side's acknowledgement of packets on this path.
    pub(super) fn on_ack(&mut self, now: Time, i: usize, ack: &Ack) {
        let path = &mut self.paths[i];
        let sent = path.subflow.sent_packets().next_seq();
        // The nearest number with these lowest bits that is not above the numbers that were sent.
        let Some(next) = sent.checked_sub((sent as u32).wrapping_sub(ack.next).into()) else {
            // The acknowledgement is for packets that were not sent yet.
            self.counters.strays += 1;
            return;
        };
        let (mut at, floor) = (next, next.saturating_sub(WINDOW));
        let (mut arrived, mut is_answer, mut newest, mut first) = (0, false, None, None);
        for (skip, there) in &ack.ranges {
            let end = at.saturating_sub((*skip).into()).max(floor);
            at = end.saturating_sub((*there).into()).max(floor);
            let _ = first.get_or_insert(at..end);
            // Packets that the last acknowledgement reported are not examined again.
            let known = path.acked.start.clamp(at, end)..path.acked.end.clamp(at, end);
            for number in (at..known.start).chain(known.end..end) {
                use anabranch_algo::sent_packets::Delivery;
                match path.subflow.delivered(now, number, 0) {
                    Delivery::Acked { sent_at, seq } => {
                        arrived += 1;
                        newest = newest.max(Some((seq, sent_at)));
                    }
                    Delivery::SpuriousLoss { .. } => is_answer = true,
                    Delivery::Duplicate | Delivery::Unknown => {}
                }
            }
        }
        path.acked = first.unwrap_or(0..0);
        if arrived == 0 && !is_answer {
            return;
        }
        let is_waiting = path.subflow.sent_packets().in_flight() > 0;
        path.waiting_since = is_waiting.then_some(now);
        self.revive(i);
        let path = &mut self.paths[i];
        path.count(now, arrived, 0);
        if let Some((seq, sent_at)) = newest {
            // The delay in the acknowledgement is only that of its highest number.
            let sampled = (seq + 1 == next).then(|| (sent_at + ack.delay).min(now));
            let group = Group { members: &self.members, me: i };
            let arrived = u32::try_from(arrived).unwrap_or(u32::MAX);
            path.subflow.acked(now, arrived, seq, sampled, AckRule::ONE_BY_ONE, &group);
            self.publish(i);
        }
        self.detect(now, i);
    }

    /// Returns how long a datagram waits for an earlier one: the difference between the paths' round-trip
    /// times, plus their variation.
    pub(super) fn hold(&self) -> Span {
        let alive = || self.paths.iter().filter(|path| path.is_alive).map(|path| path.subflow.rtt());
        let slowest = alive().map(|rtt| rtt.srtt() + rtt.rttvar().times(2)).max().unwrap_or(Span::ZERO);
        let fastest = alive().map(|rtt| rtt.srtt()).min().unwrap_or(Span::ZERO);
        (slowest - fastest).max(HOLD_MIN).min(HOLD_MAX)
    }

    /// Returns when to call [`poll_transmit`](Self::poll_transmit) again if nothing arrives before.
    #[must_use]
    pub fn deadline(&self, now: Time) -> Time {
        debug_assert!(self.paths.len() <= PATHS_MAX);
        let of_path = |path: &Path| {
            let timers = path.subflow.deadline().min(path.dead_at());
            timers.min(path.ack_at).min(self.probe_at(now, path))
        };
        let paths = self.paths.iter().map(of_path).min().unwrap_or(Time::NEVER);
        let hold = self.hold();
        let held = self.holding.iter().filter_map(|flow| self.flows.get(flow));
        held.map(|flow| flow.reorder.deadline(now, hold)).min().unwrap_or(Time::NEVER).min(paths)
    }
}
