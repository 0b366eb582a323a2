//! Implements RED, a queue discipline that drops arriving packets at random, with a probability that grows
//! with the average length of the queue.
//!
//! Follows Floyd, Jacobson: "Random Early Detection Gateways for Congestion Avoidance", IEEE/ACM Transactions
//! on Networking 1993, section 4. RFC 2309 recommended it; RFC 7567, which replaced that, recommends no
//! algorithm. Between `min` and `max` the probability of a drop grows from 0 to `drop` (`maxp` of the paper).
//! Above `max` it is "gentle" (Floyd: "Recommendation on using the gentle variant of RED", 2000): it grows
//! from `drop` to 1 at twice `max`. The distances between drops are uniform: a packet is dropped with
//! probability `p / (1 - count p)`, where `count` packets were queued since the last drop. So each distance
//! from 1 to `1 / p` is as likely, and the mean share of packets that are dropped is `2 p / (1 + p)`.
//!
//! The average has the weight `weight` (`wq`) for each arrival. After a time without a queue it decays as if
//! packets of the arriving one's size had come to an empty queue in that time, at the rate of the link. A
//! link that plays a trace has its mean rate for this.
//!
//! The queue is counted in bytes, and packets of all sizes are dropped with one probability (RFC 7141). A
//! packet that can carry a mark is marked instead while the average is below `max`; above it packets are
//! dropped, as marks have not helped.

use crate::Rng;
use crate::fate::Fate;
use anabranch_algo::{Rate, Span, Time};

/// The parameters of RED, in bytes of the average queue; see [`Discipline::Red`](crate::Discipline::Red).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Thresholds {
    pub(crate) min_bytes: u64,
    pub(crate) max_bytes: u64,
    pub(crate) drop: f64,
    pub(crate) weight: f64,
    pub(crate) ecn: bool,
}

/// Holds the state of RED for one queue.
#[derive(Clone, Debug)]
pub(crate) struct Red {
    thresholds: Thresholds,
    /// The mean rate of the link if it plays a trace.
    trace_rate: Option<Rate>,
    /// The average length of the queue, in bytes.
    average: f64,
    /// The number of packets that were queued since the last drop or mark, or since the average was below the
    /// minimum.
    count: u32,
    /// Since when there has been no queue; `None` while there is one.
    idle_since: Option<Time>,
    rng: Rng,
}

impl Red {
    pub(crate) const fn new(thresholds: Thresholds, trace_rate: Option<Rate>, rng: Rng) -> Self {
        Self { thresholds, trace_rate, average: 0.0, count: 0, idle_since: None, rng }
    }

    /// Records that the queue has become empty at `at`.
    pub(crate) const fn idle(&mut self, at: Time) {
        self.idle_since = Some(at);
    }

    /// Decides about a packet of `bytes` bytes that arrives at `now`, when the queue has `queued_bytes`
    /// bytes. `rate` is the rate of the link if it has one; `is_ect` tells whether the packet can carry a
    /// mark.
    pub(crate) fn arrival(
        &mut self,
        now: Time,
        queued_bytes: u64,
        bytes: u32,
        rate: Option<Rate>,
        is_ect: bool,
    ) -> Fate {
        self.update_average(now, queued_bytes, bytes, rate);
        let Some(probability) = self.probability() else {
            self.count = 0;
            return Fate::Queued;
        };
        let left = 1.0 - f64::from(self.count) * probability;
        // A probability of 1 or more is certain.
        if left > probability && !self.rng.chance(probability / left) {
            self.count = self.count.saturating_add(1);
            return Fate::Queued;
        }
        self.count = 0;
        let is_overloaded = self.average >= self.thresholds.max_bytes as f64;
        if self.thresholds.ecn && is_ect && !is_overloaded { Fate::Marked } else { Fate::Dropped }
    }

    fn update_average(&mut self, now: Time, queued_bytes: u64, bytes: u32, rate: Option<Rate>) {
        let weight = self.thresholds.weight;
        if let Some(since) = self.idle_since.take_if(|_| queued_bytes == 0) {
            let per_packet = rate.or(self.trace_rate).map(|rate| rate.time_for(u64::from(bytes)));
            let per_packet = per_packet.filter(|span| *span > Span::ZERO && *span < Span::MAX);
            let packets =
                per_packet.map_or(0.0, |span| now.since(since).as_nanos() as f64 / span.as_nanos() as f64);
            self.average *= (1.0 - weight).powf(packets);
            // The queue stays empty if this packet is dropped.
            self.idle_since = Some(now);
        } else {
            self.idle_since = None;
            self.average += weight * (queued_bytes as f64 - self.average);
        }
    }

    /// Returns the probability of a drop, before it is made uniform; `None` if nothing is to be dropped.
    fn probability(&self) -> Option<f64> {
        let Thresholds { min_bytes, max_bytes, drop, .. } = self.thresholds;
        let (min, max) = (min_bytes as f64, max_bytes as f64);
        match self.average {
            average if average < min => None,
            average if average < max => Some(drop * (average - min) / (max - min)),
            average => Some((drop + (1.0 - drop) * (average - max) / max).min(1.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steady_load::{self, Seen};
    use crate::{Discipline, Stats};

    const RED: Discipline =
        Discipline::Red { min_bytes: 5_000, max_bytes: 15_000, drop: 0.1, weight: 0.002, ecn: false };

    /// Sends a packet each `gap` for `secs` seconds over a link of 1,000 packets/s. Returns the counters
    /// after the first half of the time and at the end.
    fn run(discipline: Discipline, ect: bool, gap: Span, secs: u64) -> (Stats, Stats) {
        let mut half = None;
        let link = steady_load::run(discipline, ect, gap, secs, |seen| match seen {
            Seen::Link(link, now) if now >= Time::ZERO + Span::from_millis(secs * 500) => {
                half.get_or_insert_with(|| link.stats());
            }
            Seen::Link(..) | Seen::Arrived(..) | Seen::Dropped(_) => {}
        });
        (half.expect("half of the time passed"), link.stats())
    }

    #[test]
    fn the_queue_settles_where_the_drops_are_the_excess() {
        // With a load of ρ the share s = 1 - 1/ρ must be dropped, so p = s / (2 - s), and the average queue
        // is where that is the probability: between the thresholds, or in the gentle part above them.
        for (gap_us, expected_bytes) in
            [(980.0, 6_010.1), (950.0, 7_564.1), (800.0, 15_185.2), (500.0, 18_888.9)]
        {
            let share = 1.0 - gap_us / 1_000.0;
            let p = share / (2.0 - share);
            let bytes =
                if p < 0.1 { 5_000.0 + 10_000.0 * p / 0.1 } else { 15_000.0 * (1.0 + (p - 0.1) / 0.9) };
            assert!((bytes / expected_bytes - 1.0_f64).abs() < 1e-4, "{bytes}");
            let (before, after) = run(RED, false, Span::from_micros(gap_us as u64), 240);
            let span_ns = after.until.since(before.until).as_nanos() as f64;
            let queue = (after.queue_byte_ns - before.queue_byte_ns) as f64 / span_ns;
            let dropped = (after.dropped.early - before.dropped.early) as f64;
            let dropped = dropped / (after.offered - before.offered) as f64;
            assert!((dropped / share - 1.0).abs() < 0.03, "{gap_us} µs: {dropped}");
            assert!((queue / bytes - 1.0).abs() < 0.1, "{gap_us} µs: {queue} for {bytes}");
        }
    }

    #[test]
    fn drops_are_spread_uniformly() {
        // Section 7 of the paper: with a fixed average, distances are uniform from 1 to 1/p, not geometric.
        let thresholds = Thresholds { min_bytes: 0, max_bytes: 10_000, drop: 0.1, weight: 0.002, ecn: false };
        let mut red = Red::new(thresholds, None, Rng::new(1));
        red.average = 5_000.0;
        let (mut distances, mut distance) = (Vec::new(), 0);
        for _ in 0..200_000 {
            distance += 1;
            if red.arrival(Time::ZERO, 5_000, 1_000, None, false) == Fate::Dropped {
                distances.push(std::mem::take(&mut distance));
            }
        }
        assert!(distances.iter().all(|distance| (1..=20).contains(distance)));
        let share = |of: usize| {
            distances.iter().filter(|distance| **distance == of).count() as f64 / distances.len() as f64
        };
        assert!(
            (1..=20).all(|of| (share(of) * 20.0 - 1.0).abs() < 0.1),
            "{:?}",
            (1..=20).map(share).max_by(f64::total_cmp)
        );
    }

    #[test]
    fn a_burst_passes_and_a_link_that_is_not_overloaded_drops_nothing() {
        // The average takes 500 packets to follow, so the first 50 of a burst see none of it.
        let mut red = Red::new(of(RED), None, Rng::new(1));
        let fates = (0..50).map(|number| red.arrival(Time::ZERO, number * 1_000, 1_000, None, false));
        assert!({ fates }.all(|fate| fate == Fate::Queued));
        let (_, stats) = run(RED, false, Span::from_micros(1_000), 20);
        assert_eq!(stats.dropped.total(), 0);
    }

    /// Returns the thresholds of a discipline.
    fn of(discipline: Discipline) -> Thresholds {
        match discipline {
            Discipline::Red { min_bytes, max_bytes, drop, weight, ecn } => {
                Thresholds { min_bytes, max_bytes, drop, weight, ecn }
            }
            _ => panic!("RED"),
        }
    }

    #[test]
    fn the_average_decays_while_the_link_is_idle() {
        let rate = Some(Rate::from_bytes(1_000_000));
        let after = |rate, trace_rate, millis: u64| {
            let mut red = Red::new(of(RED), trace_rate, Rng::new(1));
            red.average = 10_000.0;
            red.idle(Time::ZERO);
            red.arrival(Time::ZERO + Span::from_millis(millis), 0, 1_000, rate, false);
            red.average
        };
        // A packet of 1,000 bytes takes 1 ms: in 500 ms the average falls by (1 - 0.002)^500.
        assert!((after(rate, None, 500) / 10_000.0 - 0.998_f64.powi(500)).abs() < 1e-9);
        assert!((after(None, rate, 500) / 10_000.0 - 0.998_f64.powi(500)).abs() < 1e-9);
        assert_eq!((after(rate, None, 0), after(None, None, 500)), (10_000.0, 10_000.0));
        assert_eq!(after(Some(Rate::from_bytes(0)), None, 500), 10_000.0, "a link of no rate sends nothing");
    }

    #[test]
    fn marks_below_the_maximum_and_drops_above() {
        let Discipline::Red { min_bytes, max_bytes, drop, weight, .. } = RED else { panic!("RED") };
        let ecn = Discipline::Red { min_bytes, max_bytes, drop, weight, ecn: true };
        // In the first second the average stays below the maximum.
        let gap = Span::from_micros(980);
        let ((_, marked), (_, dropped)) = (run(ecn, true, gap, 1), run(ecn, false, gap, 1));
        assert!(marked.marked > 0 && marked.dropped.early == 0, "{marked:?}");
        assert!(dropped.marked == 0 && dropped.dropped.early > 0, "{dropped:?}");
        // A sender that ignores marks fills the queue until packets are dropped.
        let (before, after) = run(ecn, true, Span::from_micros(500), 60);
        let dropped = (after.dropped.early - before.dropped.early) as f64;
        assert!((dropped / (after.offered - before.offered) as f64 / 0.5 - 1.0).abs() < 0.03);
    }
}
