//! Implements LEDBAT++, a scavenger: it keeps a short queue where it is alone, and yields to flows that fill
//! the queue (draft-irtf-iccrg-ledbat-plus-plus-06 sections 4.1 to 4.5; RFC 6817). The coupling is ours: the
//! subflows of a group together are one scavenger.
//!
//! With w a window in packets, r a smoothed RTT, base the smallest RTT known, q the smallest RTT of the last
//! round less base, T the target, sums over the group:
//!
//! * G = 1/min(16, ⌈2 · 60 ms/base⌉), the gain; n = Σ x / max x, x = w/r: how many flows as fast as the
//!   fastest the group is worth.
//! * Once a round: q < T: w + G/n. Else: w + max(G/n − w (q/T − 1), −w/2).
//! * Slow start, [`ledbat`](super::SlowStart::Ledbat): + G a packet, until q > 3T/4 or a loss.
//! * Slowdown, so that queues drain and base can be seen: two packets for two round trips, then + G/n a
//!   packet up to the window before. The first begins two round trips after the start, each other one nine
//!   times as long after the one before as that took.
//! * A loss halves. At least two packets stay.
//!
//! These parts are ours, and docs/congestion-control.md, "In the background", has the reasons: T = 60 ms, or
//! half of the smoothed queueing delay at losses if that is less, at least 5 ms; 1/n; slowdowns of a whole
//! group; q of one round.

mod gain;
mod siblings;

use super::{
    Ack, CongestionAvoidance, CongestionCause, CongestionEvent, Group, SubflowStats, Window, WindowDelta,
};
use crate::softfloat::Real;
use crate::{Span, Time};
use gain::TARGET_US;
pub(super) use gain::{gain, micros};
use siblings::{Siblings, UNIT_PLACES, is_after, kept, since};

/// The shortest target delay in µs; below it noise would count as a queue.
const TARGET_US_MIN: u32 = 5_000;
/// The number of samples after which a round's smallest RTT counts before the round is over.
const SAMPLES_MIN: u32 = 4;
/// The weight of a new delay at a loss: 1 in 4.
const SMOOTHING: u32 = 4;
/// The window of a slowdown, and the smallest of all: two packets, with a margin against rounding.
const LOW: Window = Window::from_units(2 * Window::ONE + Window::ONE / 256);
/// The number of round trips for which a slowdown stays low, and after which the first slowdown begins.
const LOW_ROUND_TRIPS: u64 = 2;
/// The pause between two slowdowns, in multiples of the earlier slowdown's length.
const PAUSE: u64 = 9;
/// The number of binary places of a window kept in 32 bits.
const KEPT_PLACES: u32 = 8;
/// Implements LEDBAT++ for one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Ledbat {
    round: u32,
    /// The smallest RTT known, in µs.
    base_us: u32,
    /// The number of RTT samples of this round, and the smallest and the largest of them, in µs.
    samples: u32,
    min_us: u32,
    max_us: u32,
    /// The smallest RTT of the round before, in µs, until the window has followed it; then zero.
    last_us: u32,
    /// The smoothed queueing delay at losses, in µs; zero before the first loss.
    deepest_us: u32,
    /// The window to return to after a slowdown, in units of 2⁻⁸ packets; zero outside of a slowdown.
    resume: u32,
    /// The times, as [kept], at which the group's last slowdown began and the next is due; zero if none is
    /// due.
    began: u32,
    due: u32,
}

impl Default for Ledbat {
    fn default() -> Self {
        Self::new()
    }
}

impl Ledbat {
    /// Creates the rule without any measurements.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            round: 0,
            base_us: 0,
            samples: 0,
            min_us: u32::MAX,
            max_us: 0,
            last_us: 0,
            deepest_us: 0,
            resume: 0,
            began: kept(Time::ZERO),
            due: 0,
        }
    }

    /// Returns T in microseconds.
    fn target_us(&self) -> u32 {
        match self.deepest_us {
            0 => TARGET_US,
            deepest => (deepest / 2).clamp(TARGET_US_MIN, TARGET_US),
        }
    }

    /// Begins a slowdown of the group whose time is `began`.
    fn slow_down(&mut self, began: u32, cwnd: Window) -> WindowDelta {
        (self.began, self.due) = (began, 0);
        if cwnd <= LOW {
            // The window is already low, so the slowdown ends at once.
            self.resume = 1;
            return WindowDelta::NONE;
        }
        self.resume = u32::try_from(cwnd.real().to_fixed(KEPT_PLACES)).unwrap_or(u32::MAX);
        WindowDelta::between(cwnd, LOW)
    }

    /// Returns the change of the window after a round whose queueing delay was `queue_us`.
    fn adjust(&self, cwnd: Window, queue_us: u32, grows: Real) -> WindowDelta {
        let target_us = self.target_us();
        let over_us = queue_us.saturating_sub(target_us);
        let share = Real::from_u64(u64::from(over_us)) / Real::from_u64(u64::from(target_us));
        let w = cwnd.real();
        // w + max(G/n − w (q/T − 1), −w/2), and two packets stay.
        let decrease = (w * share).min(w.half() + grows).min(cwnd.saturating_sub(LOW).real() + grows);
        WindowDelta { increase: grows, decrease }
    }
}

impl CongestionAvoidance for Ledbat {
    const APPLIES_ALONE: bool = true;
    const YIELDS: bool = true;

    fn on_ack(&mut self, ack: &Ack) {
        if ack.round != self.round {
            self.last_us = if self.samples > 0 { self.min_us } else { 0 };
            (self.round, self.samples, self.min_us, self.max_us) = (ack.round, 0, u32::MAX, 0);
        }
        self.base_us = micros(ack.min_rtt);
        if ack.rtt > Span::ZERO {
            let us = micros(ack.rtt);
            self.samples = self.samples.saturating_add(1);
            (self.min_us, self.max_us) = (self.min_us.min(us), self.max_us.max(us));
        }
    }

    fn exit_slow_start(&mut self, mine: &SubflowStats, _ack: &Ack) -> Option<Window> {
        let seen_us = if self.samples >= SAMPLES_MIN { self.min_us } else { self.last_us };
        let is_over = seen_us.saturating_sub(self.base_us) > self.target_us() / 4 * 3;
        // After a timeout, slow start goes on until the window has grown again.
        (is_over && mine.cwnd > LOW).then_some(mine.cwnd)
    }

    fn window_delta(&mut self, mine: &SubflowStats, ack: &Ack, group: &Group<'_>) -> WindowDelta {
        let (now, cwnd) = (kept(ack.now), mine.cwnd);
        let siblings = Siblings::of(mine, group);
        let grows = gain(self.base_us) / siblings.flows;
        let each = grows * Real::from_u64(u64::from(ack.acked));
        if self.resume == 0 && self.due == 0 {
            // Slow start has just ended.
            self.due = kept(ack.now + ack.srtt.times(LOW_ROUND_TRIPS));
        }
        // A sibling has begun a slowdown.
        if is_after(siblings.began, self.began) {
            return self.slow_down(siblings.began, cwnd);
        }
        if self.resume > 0 {
            if since(now, self.began) < siblings.longest.times(LOW_ROUND_TRIPS) {
                return WindowDelta::NONE;
            }
            let resume = Window::from_real(Real::from_ratio(u64::from(self.resume), KEPT_PLACES));
            if cwnd < resume {
                return WindowDelta::increase(each.min(resume.saturating_sub(cwnd).real()));
            }
            let pause = since(now, self.began).times(PAUSE);
            (self.resume, self.last_us, self.due) = (0, 0, kept(ack.now + pause));
        }
        if siblings.leads && is_after(now, self.due) {
            return self.slow_down(now, cwnd);
        }
        match core::mem::take(&mut self.last_us) {
            0 => WindowDelta::NONE,
            last_us => self.adjust(cwnd, last_us.saturating_sub(self.base_us), grows),
        }
    }

    fn reduced_window(&mut self, mine: &SubflowStats, event: &CongestionEvent, _group: &Group<'_>) -> Window {
        if event.cause == CongestionCause::Loss && self.samples > 0 {
            // The samples of this round arrived behind the lost packet.
            let queue_us = self.max_us.saturating_sub(self.base_us).max(1);
            self.deepest_us = match self.deepest_us {
                0 => queue_us,
                deepest => deepest - deepest / SMOOTHING + queue_us / SMOOTHING,
            };
        }
        self.resume /= 2;
        mine.cwnd.half()
    }

    fn publish(&self, member: &mut SubflowStats) {
        member.phase_at = Time::from_nanos(u64::from(self.began) << UNIT_PLACES);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ClassicCc, Control as _, INITIAL_WINDOW, SlowStart};
    use super::*;
    use std::vec::Vec;

    const MS: fn(u64) -> Span = Span::from_millis;
    const BASE: Span = Span::from_millis(40);

    /// Simulates subflows of one group over one link, where a step is a round trip. Packets beyond the link's
    /// `product` wait.
    struct Link {
        product: f64,
        room: f64,
        now: Time,
        round: u32,
        flows: Vec<ClassicCc<Ledbat>>,
    }

    impl Link {
        fn new(product: f64, room: f64, flows: usize) -> Self {
            let flow = ClassicCc::new(Ledbat::new(), SlowStart::Ledbat);
            Self { product, room, now: Time::ZERO + MS(1), round: 0, flows: std::vec![flow; flows] }
        }

        fn windows(&self) -> Vec<f64> {
            let packets = |flow: &ClassicCc<Ledbat>| flow.state().cwnd.units() as f64 / Window::ONE as f64;
            self.flows.iter().map(packets).collect()
        }

        /// Runs a round trip beside `others` packets of other traffic; returns the queueing delay in ms.
        fn step(&mut self, others: f64) -> f64 {
            let all: f64 = self.windows().iter().sum::<f64>() + others;
            let queue = (all - self.product).clamp(0.0, self.room);
            let delay_ms = queue / self.product * BASE.as_millis() as f64;
            let rtt = BASE + Span::from_micros((delay_ms * 1e3) as u64);
            (self.now, self.round) = (self.now + rtt, self.round + 1);
            for me in 0..self.flows.len() {
                let members: Vec<_> = self.flows.iter().map(|flow| flow.stats(rtt)).collect();
                let group = Group { members: &members, me };
                let (now, round, acked) = (self.now, self.round, members[me].cwnd.floor().max(1));
                let is_lost = all - self.product > self.room && me == self.round as usize % self.flows.len();
                let (srtt, min_rtt) = (rtt, BASE);
                let ack =
                    Ack { now, acked, round, srtt, rtt, min_rtt, cwnd_limited: true, recovering: is_lost };
                self.flows[me].on_ack(&ack, &group);
                if is_lost {
                    let event = CongestionEvent { now, cause: CongestionCause::Loss, srtt };
                    self.flows[me].on_congestion(&event, &group);
                }
            }
            delay_ms
        }
    }

    #[test]
    fn alone_it_uses_the_link_and_keeps_the_queue_near_its_target() {
        for flows in [1, 2, 4] {
            let mut link = Link::new(100.0, 1_000.0, flows);
            let delays: Vec<f64> = (0..4_000).map(|_| link.step(0.0)).collect();
            let most = delays.iter().copied().fold(0.0, f64::max);
            // A start that sees 45 ms grows for two more round trips, by a third each.
            assert!(most < 112.0, "{flows} flows: {most} ms");
            let used = delays[400..].iter().filter(|delay| **delay > 0.0).count();
            assert!(used > 2_500, "{flows} flows: {used} of 3600 round trips");
        }
    }

    #[test]
    fn it_yields_whoever_fills_the_queue_and_so_do_several_paths() {
        for flows in [1, 4] {
            let mut link = Link::new(100.0, 1_000.0, flows);
            for _ in 0..500 {
                link.step(0.0);
            }
            for _ in 0..100 {
                link.step(300.0);
            }
            let windows = link.windows();
            assert!(windows.iter().all(|w| *w < 2.5), "{windows:?}");
        }
    }

    #[test]
    fn losses_tell_how_long_a_short_queue_is() {
        let mut link = Link::new(100.0, 50.0, 1);
        for _ in 0..3_000 {
            link.step(0.0);
        }
        // The queue holds 20 ms.
        let target_us = link.flows[0].avoidance.target_us();
        assert!((8_000..=10_500).contains(&target_us), "{target_us}");
        // Other traffic keeps the queue at 15 ms.
        for _ in 0..200 {
            link.step(138.0 - link.windows()[0]);
        }
        assert!(link.windows()[0] < 4.0, "{:?}", link.windows());
    }

    #[test]
    fn slowdowns_are_common_and_rare() {
        let mut link = Link::new(100.0, 1_000.0, 3);
        for _ in 0..100 {
            link.step(0.0);
        }
        let (mut low, mut together) = (0, 0);
        for _ in 0..4_000 {
            link.step(0.0);
            let is_low = |w: &f64| *w < 2.1;
            low += usize::from(link.windows().iter().any(is_low));
            together += usize::from(link.windows().iter().all(is_low));
        }
        assert!(together > 20 && 2 * together >= low && low < 400, "{together} of {low}");
    }

    #[test]
    fn it_begins_as_all_do_and_kept_times_come_round() {
        assert_eq!(ClassicCc::new(Ledbat::new(), SlowStart::Standard).state().cwnd, INITIAL_WINDOW);
        let early = Time::from_nanos(u64::from(u32::MAX) << UNIT_PLACES);
        let late = early + MS(100);
        assert!(is_after(kept(late), kept(early)) && !is_after(kept(early), kept(late)));
        assert!(since(kept(late), kept(early)) > MS(95), "{}", since(kept(late), kept(early)));
    }
}
