//! Implements PIE, a queue discipline that drops arriving packets at random. A controller sets the
//! probability, so that the delay of the queue settles at a target.
//!
//! Follows RFC 8033, sections 4.1 to 4.5 and its appendix A, with the values of section 4.2 for a period of
//! 15 ms. The delay is the queue over the rate; on a link that plays a trace or shares a medium it is the
//! time for which the first packet has been there. Of the optional parts (section 5) it has ECN (5.1), which
//! marks as long as the probability is at most one in ten. The other optional parts are missing: no
//! de-randomization, no cap on steps.

use crate::Rng;
use crate::fate::Fate;
use anabranch_algo::{Span, Time};

/// The period of the controller, `T_UPDATE`.
const UPDATE: Span = Span::from_millis(15);
/// The weight of the distance from the target, per second.
const ALPHA: f64 = 0.125;
/// The weight of the change of the delay, per second.
const BETA: f64 = 1.25;
/// The divisors of the probability's steps: a row's divisor applies while the probability is below its first
/// number.
const SCALES: [(f64, f64); 6] =
    [(0.000_001, 2_048.0), (0.000_01, 512.0), (0.000_1, 128.0), (0.001, 32.0), (0.01, 8.0), (0.1, 2.0)];
/// The factor by which an update reduces the probability while there is no queue.
const DECAY: f64 = 0.98;
/// The probability below which no packet is dropped while the delay was short, so that a link is never idle
/// for it.
const INACTIVE_BELOW: f64 = 0.2;
/// The probability up to which packets are marked instead of dropped.
const MARK_UP_TO: f64 = 0.1;

/// Holds the state of PIE for one queue.
#[derive(Clone, Debug)]
pub(crate) struct Pie {
    target: Span,
    burst: Span,
    ecn: bool,
    /// The probability of a drop.
    probability: f64,
    /// The delay at the last update.
    delay_before: Span,
    /// The time for which arriving packets are still never dropped.
    burst_left: Span,
    /// The time of the next update; [`Time::NEVER`] while there is neither a queue nor a probability.
    next_update: Time,
    rng: Rng,
}

impl Pie {
    pub(crate) const fn new(target: Span, burst: Span, ecn: bool, rng: Rng) -> Self {
        Self {
            target,
            burst,
            ecn,
            probability: 0.0,
            delay_before: Span::ZERO,
            burst_left: Span::ZERO,
            next_update: Time::NEVER,
            rng,
        }
    }

    /// Returns the time at which the probability is to be updated.
    pub(crate) const fn next_update(&self) -> Time {
        self.next_update
    }

    /// Decides about a packet of `bytes` bytes that arrives at `now`, when the queue has `queued_bytes` bytes
    /// and a delay of `delay`. `is_ect` tells whether the packet can carry a mark.
    pub(crate) fn arrival(
        &mut self,
        now: Time,
        delay: Span,
        queued_bytes: u64,
        bytes: u32,
        is_ect: bool,
    ) -> Fate {
        if self.next_update == Time::NEVER {
            self.next_update = now + UPDATE;
        }
        let half = self.target.over(2);
        if self.probability == 0.0 && delay < half && self.delay_before < half {
            self.burst_left = self.burst;
        }
        let inactive = self.delay_before < half && self.probability < INACTIVE_BELOW;
        let short = queued_bytes <= 2 * u64::from(bytes);
        if self.burst_left > Span::ZERO || inactive || short || !self.rng.chance(self.probability) {
            Fate::Queued
        } else if self.ecn && is_ect && self.probability <= MARK_UP_TO {
            Fate::Marked
        } else {
            Fate::Dropped
        }
    }

    /// Updates the probability at [`next_update`](Self::next_update), when the delay of the queue is `delay`.
    pub(crate) fn update(&mut self, delay: Span) {
        let secs = |span: Span| span.as_nanos() as f64 / 1e9;
        let step = ALPHA * (secs(delay) - secs(self.target)) + BETA * (secs(delay) - secs(self.delay_before));
        let scale = SCALES.iter().find(|(below, _)| self.probability < *below);
        self.probability += step / scale.map_or(1.0, |(_, scale)| *scale);
        if delay == Span::ZERO && self.delay_before == Span::ZERO {
            self.probability *= DECAY;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.burst_left = self.burst_left - UPDATE.min(self.burst_left);
        let at_rest = delay == Span::ZERO && self.delay_before == Span::ZERO && self.probability == 0.0;
        self.next_update = if at_rest { Time::NEVER } else { self.next_update + UPDATE };
        self.delay_before = delay;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steady_load::{self, Seen};
    use crate::{Discipline, Stats};

    /// Sends a packet each `gap` for `secs` seconds over a link of 1,000 packets/s. Returns the counters
    /// after the first half of the time and at the end, and the times of the drops.
    fn run(discipline: Discipline, ect: bool, gap: Span, secs: u64) -> (Stats, Stats, Vec<Time>) {
        let (mut dropped, mut half) = (Vec::new(), None);
        let link = steady_load::run(discipline, ect, gap, secs, |seen| match seen {
            Seen::Link(link, now) if now >= Time::ZERO + Span::from_millis(secs * 500) => {
                half.get_or_insert_with(|| link.stats());
            }
            Seen::Dropped(at) => dropped.push(at),
            Seen::Link(..) | Seen::Arrived(..) => {}
        });
        (half.expect("half of the time passed"), link.stats(), dropped)
    }

    /// Returns the mean delay in ms and the share of the arrivals that was dropped, between two counters.
    fn between(before: &Stats, after: &Stats) -> (f64, f64) {
        let span_ns = after.until.since(before.until).as_nanos() as f64;
        let queue_bytes = (after.queue_byte_ns - before.queue_byte_ns) as f64 / span_ns;
        let dropped = (after.dropped.early - before.dropped.early) as f64;
        // A byte takes a microsecond.
        (queue_bytes / 1_000.0, dropped / (after.offered - before.offered) as f64)
    }

    #[test]
    fn the_delay_settles_at_the_target_and_drops_are_the_excess() {
        // The integral part leaves no error: with a load of ρ the delay settles at the target and the share 1
        // - 1/ρ is dropped, as nothing else reduces the load.
        for (gap_us, target_ms) in [(900, 15), (800, 15), (500, 15), (800, 30)] {
            let discipline = Discipline::Pie {
                target: Span::from_millis(target_ms),
                burst: Span::from_millis(150),
                ecn: false,
            };
            let (half, end, _) = run(discipline, false, Span::from_micros(gap_us), 120);
            let (delay_ms, dropped) = between(&half, &end);
            let excess = 1.0 - gap_us as f64 / 1_000.0;
            assert!((dropped / excess - 1.0).abs() < 0.03, "{gap_us} µs: {dropped}");
            assert!((delay_ms / target_ms as f64 - 1.0).abs() < 0.1, "{gap_us} µs: {delay_ms} ms");
        }
    }

    #[test]
    fn a_burst_of_150_ms_passes() {
        // RFC 8033, section 4.4: no packet is dropped for MAX_BURST after a time without congestion.
        let (_, _, dropped) = run(Discipline::PIE, false, Span::from_micros(500), 2);
        let first_ms = dropped[0].as_nanos() / 1_000_000;
        assert!((150..250).contains(&first_ms), "{first_ms}");
        let (_, stats, _) = run(Discipline::PIE, false, Span::from_micros(1_000), 20);
        assert_eq!(stats.dropped.total(), 0, "a link that is just not overloaded has no queue to control");
    }

    #[test]
    fn marks_up_to_a_tenth_and_drops_above() {
        let ecn = Discipline::Pie { target: Span::from_millis(15), burst: Span::from_millis(150), ecn: true };
        // This sender reacts to marks: here the overload is so short that the probability never reaches a
        // tenth.
        let (_, marked, _) = run(ecn, true, Span::from_micros(980), 2);
        let (_, dropped, _) = run(ecn, false, Span::from_micros(980), 2);
        assert!(marked.marked > 0 && marked.dropped.early == 0, "{marked:?}");
        assert!(dropped.marked == 0 && dropped.dropped.early > 0, "{dropped:?}");
        // This sender ignores marks: they reduce no load, so the probability passes a tenth and packets are
        // dropped.
        let (half, end, _) = run(ecn, true, Span::from_micros(800), 120);
        let (delay_ms, lost) = between(&half, &end);
        assert!((lost / 0.2 - 1.0).abs() < 0.03 && (delay_ms / 15.0 - 1.0).abs() < 0.1, "{lost} {delay_ms}");
    }

    #[test]
    fn an_idle_link_has_nothing_to_update() {
        let mut pie = Pie::new(Span::from_millis(15), Span::from_millis(150), false, Rng::new(1));
        assert_eq!(pie.next_update(), Time::NEVER);
        assert_eq!(pie.arrival(Time::ZERO, Span::ZERO, 0, 1_000, false), Fate::Queued);
        for _ in 0..40 {
            pie.update(Span::from_millis(40));
        }
        assert!(pie.probability > 0.01 && pie.burst_left == Span::ZERO);
        let updates = std::iter::repeat_with(|| pie.update(Span::ZERO)).take(5_000);
        updates.for_each(drop);
        assert_eq!((pie.next_update(), pie.probability), (Time::NEVER, 0.0));
    }
}
