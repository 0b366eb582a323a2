//! Queues small enough to understand: a fluid queue fed by on/off traffic, sampled by the packets of the
//! paths.

mod uplinks;

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::SplitMix64;

/// A queue that runs in steps of a millisecond: on/off sources with exponential times, a server, a limit.
struct Queue {
    rng: SplitMix64,
    /// The rate of each source while it is on, as a part of the server's rate.
    share: f64,
    on: Vec<bool>,
    /// The mean times on and off, in ms.
    period_ms: (f64, f64),
    backlog_ms: f64,
    limit_ms: f64,
    /// The part of the offered traffic that the last step dropped.
    dropped: f64,
}

impl Queue {
    fn new(seed: u64, sources: usize, share: f64, period_ms: (f64, f64), limit_ms: f64) -> Self {
        let on = vec![false; sources];
        Self { rng: SplitMix64(seed), share, on, period_ms, backlog_ms: 0.0, limit_ms, dropped: 0.0 }
    }

    /// Returns a busy queue: it is offered 0.5 × 4 × 0.5 = 100 % of the server's rate on average, in bursts
    /// of hundreds of milliseconds.
    fn busy(seed: u64) -> Self {
        Self::new(seed, 4, 0.5, (400.0, 400.0), 120.0)
    }

    /// Returns a queue with the load of a busy one in bursts of another length, and with a lower limit.
    fn busy_otherwise(seed: u64) -> Self {
        Self::new(seed, 4, 0.5, (1500.0, 1500.0), 40.0)
    }

    /// Returns a queue that is offered 20 % of the server's rate.
    fn idle(seed: u64) -> Self {
        Self::new(seed, 4, 0.5, (40.0, 360.0), 120.0)
    }

    fn step(&mut self) {
        let mut offered = 0.0;
        for on in &mut self.on {
            let mean = if *on { self.period_ms.0 } else { self.period_ms.1 };
            *on ^= self.rng.unit() < 1.0 / mean;
            offered += if *on { self.share } else { 0.0 };
        }
        let full = (self.backlog_ms + offered - 1.0).max(0.0);
        self.backlog_ms = full.min(self.limit_ms);
        self.dropped = if offered > 0.0 { (full - self.backlog_ms) / offered } else { 0.0 };
    }
}

/// A path: its queue, the time between its samples in ms, and the changes made to its delays.
#[derive(Clone, Copy)]
struct SampledPath {
    queue: usize,
    every_ms: u64,
    offset_ms: f64,
    /// The parts per million by which the path's clock runs fast.
    drift_ppm: f64,
    noise_ms: f64,
    /// The part of the packets that the path itself loses.
    loss: f64,
    uplink: Option<u32>,
    /// The time from which and until which the path samples, in seconds.
    from_s: u64,
    until_s: u64,
}

impl SampledPath {
    fn at(queue: usize) -> Self {
        Self {
            queue,
            every_ms: 10,
            offset_ms: 20.0,
            drift_ppm: 0.0,
            noise_ms: 0.5,
            loss: 0.0,
            uplink: None,
            from_s: 0,
            until_s: u64::MAX,
        }
    }
}

/// Runs for `secs` seconds. Returns the detector, and the groups at the end of each second.
fn watch(mut queues: Vec<Queue>, paths: &[SampledPath], secs: u64, seed: u64) -> (Detector, Vec<Vec<u32>>) {
    let (mut detector, mut rng, mut seconds) = (Detector::new(), SplitMix64(seed), Vec::new());
    for path in paths {
        detector.add(path.uplink).expect("room");
    }
    for ms in 0..secs * 1_000 {
        let now = Time::from_nanos(ms * 1_000_000);
        queues.iter_mut().for_each(Queue::step);
        for (p, path) in paths.iter().enumerate() {
            let looks = (path.from_s * 1_000..path.until_s.saturating_mul(1_000)).contains(&ms);
            if !looks || !(ms + p as u64 * 3).is_multiple_of(path.every_ms) {
                continue;
            }
            let queue = &queues[path.queue];
            detector.rtt_min(p, Span::from_millis(50));
            if rng.unit() < queue.dropped.max(path.loss) {
                detector.lost(p, 1);
                continue;
            }
            detector.delivered(p, 1);
            let noise = path.noise_ms * rng.unit();
            let delay = path.offset_ms + queue.backlog_ms + noise + ms as f64 * path.drift_ppm / 1e6;
            detector.sample(p, now, Span::from_nanos((delay * 1e6) as u64));
        }
        detector.tick(now);
        if ms % 1_000 == 999 {
            seconds.push(detector.groups().to_vec());
        }
    }
    (detector, seconds)
}

const SEEDS: u64 = 20;

/// Returns for each seed how many seconds of all have the groups `wanted`, and the first of them.
fn right(
    queues: impl Fn(u64) -> Vec<Queue>,
    paths: &[SampledPath],
    secs: u64,
    wanted: &[u32],
) -> Vec<(usize, Option<usize>)> {
    let one = |seed| {
        let (_, seconds) = watch(queues(seed), paths, secs, seed);
        let first = seconds.iter().position(|groups| groups == wanted);
        (seconds.iter().filter(|groups| *groups == wanted).count(), first)
    };
    let all: Vec<_> = (0..SEEDS).map(one).collect();
    std::println!("(seconds right of {secs}, first): {all:?}");
    all
}

#[test]
fn one_queue_is_one_group_whatever_the_paths_look_like() {
    // The paths differ: fewer packets, another offset, a clock that drifts, noise of a fifth of the mean
    // delay.
    let paths = [
        SampledPath::at(0),
        SampledPath { every_ms: 45, offset_ms: 70.0, ..SampledPath::at(0) },
        SampledPath { every_ms: 20, drift_ppm: 100.0, ..SampledPath::at(0) },
        SampledPath { every_ms: 15, noise_ms: 10.0, ..SampledPath::at(0) },
    ];
    for (seconds, _) in right(|seed| vec![Queue::busy(seed)], &paths, 120, &[0; 4]) {
        assert_eq!(seconds, 120);
    }
}

#[test]
fn two_queues_are_two_groups_in_seconds() {
    let queues = |seed| vec![Queue::busy(seed), Queue::busy_otherwise(seed + 100)];
    for (seconds, first) in
        right(queues, &[SampledPath::at(0), SampledPath::at(1), SampledPath::at(0)], 120, &[0, 1, 0])
    {
        assert!(first.is_some_and(|s| s <= 15) && seconds >= 90, "{first:?} {seconds}");
    }
}

#[test]
fn two_queues_of_the_same_kind_are_two_groups() {
    let queues = |seed| vec![Queue::busy(seed), Queue::busy(seed + 100)];
    let all = right(queues, &[SampledPath::at(0), SampledPath::at(1)], 120, &[0, 1]);
    assert!(all.iter().all(|(_, first)| first.is_some_and(|s| s <= 40)), "{all:?}");
    let mean = all.iter().map(|(seconds, _)| seconds).sum::<usize>() / all.len();
    assert!(mean >= 90, "{mean} of 120 s: {all:?}");
}

#[test]
fn a_path_without_a_bottleneck_is_apart_from_one_with() {
    let queues = |seed| vec![Queue::busy(seed), Queue::idle(seed + 100)];
    let all = right(queues, &[SampledPath::at(0), SampledPath::at(1)], 120, &[0, 1]);
    let mean = all.iter().map(|(seconds, _)| seconds).sum::<usize>() / all.len();
    assert!(mean >= 60, "{mean} of 120 s: {all:?}");
}

#[test]
fn noise_hides_what_two_paths_share_and_so_keeps_them_together() {
    // The paths pass one queue, then two: the noise is five times the delay of a queue.
    let path = |queue| SampledPath { noise_ms: 600.0, every_ms: 50, ..SampledPath::at(queue) };
    for second in [0, 1] {
        let queues = |seed| vec![Queue::busy(seed), Queue::busy(seed + 100)];
        let all = right(queues, &[path(0), path(second)], 120, &[0, 0]);
        assert!(all.iter().all(|(seconds, _)| *seconds == 120), "{all:?}");
    }
}

#[test]
fn where_nothing_queues_everything_stays_together() {
    let still = |seed| vec![Queue::new(seed, 1, 0.1, (9.0, 1.0), 10.0)];
    let constant = SampledPath { noise_ms: 0.0, ..SampledPath::at(0) };
    for (seconds, _) in right(still, &[constant, constant], 120, &[0, 0]) {
        assert_eq!(seconds, 120);
    }
}

/// Returns two queues that are never filled.
fn empty(seed: u64) -> Vec<Queue> {
    [seed, seed + 100].map(|seed| Queue::new(seed, 1, 0.1, (9.0, 1.0), 10.0)).into()
}

#[test]
fn losses_that_no_queue_explains_part_paths() {
    let lossy = SampledPath { loss: 0.01, ..SampledPath::at(0) };
    let other = SampledPath { queue: 1, ..lossy };
    let all = right(empty, &[lossy, other], 60, &[0, 1]);
    assert!(all.iter().all(|(_, first)| first.is_some_and(|s| s <= 15)), "{all:?}");
    let mean = all.iter().map(|(seconds, _)| seconds).sum::<usize>() / all.len();
    assert!(mean >= 45, "{mean} of 60 s: {all:?}");
    // A path that has lost nothing is no evidence.
    for (seconds, _) in right(empty, &[lossy, SampledPath::at(1)], 60, &[0, 0]) {
        assert_eq!(seconds, 60);
    }
}

#[test]
fn losses_in_the_same_moments_do_not() {
    // Both paths drop packets once a second on average, for 20 ms; there is no queue.
    for seed in 0..SEEDS {
        let (mut detector, mut rng, mut until) = (Detector::new(), SplitMix64(seed), 0);
        assert_eq!([detector.add(None), detector.add(None)], [Some(0), Some(1)]);
        for ms in 0..60_000u64 {
            let now = Time::from_nanos(ms * 1_000_000);
            if rng.unit() < 0.001 {
                until = ms + 20;
            }
            for path in 0..2 {
                detector.rtt_min(path, Span::from_millis(50));
                match (ms + 3 * path as u64).is_multiple_of(10) {
                    true if ms < until => detector.lost(path, 1),
                    true => detector.sample(path, now, Span::from_nanos(25_000_000 + ms % 500_000)),
                    false => {}
                }
            }
            assert_eq!(detector.groups(), [0, 0], "seed {seed}, {ms} ms");
        }
    }
}

#[test]
fn a_short_queue_is_a_queue() {
    // The queue holds a tenth of the round trip.
    let queues = |seed| vec![Queue::new(seed, 4, 0.5, (100.0, 100.0), 5.0)];
    let path = SampledPath { every_ms: 4, ..SampledPath::at(0) };
    for (seconds, _) in right(queues, &[path, path], 60, &[0, 0]) {
        assert_eq!(seconds, 60);
    }
}

#[test]
fn little_is_no_evidence() {
    // Two samples a second are too few. The third path stops after 20 s; it is on its own when its samples
    // have left the memory, and no longer holds the others together.
    let queues = |seed| vec![Queue::busy(seed), Queue::busy_otherwise(seed + 100)];
    let paths = [SampledPath::at(0), SampledPath { every_ms: 500, ..SampledPath::at(1) }];
    for (seconds, _) in right(queues, &paths, 60, &[0, 0]) {
        assert_eq!(seconds, 60);
    }
    let paths = [
        SampledPath::at(0),
        SampledPath::at(1),
        SampledPath { every_ms: 500, until_s: 20, ..SampledPath::at(0) },
    ];
    for (_, first) in right(queues, &paths, 90, &[0, 1, 2]) {
        assert!(first.is_some_and(|s| (30..=60).contains(&s)), "{first:?}");
    }
}

#[test]
fn a_new_path_and_a_reset_one_join_all() {
    let queues = vec![Queue::busy(1), Queue::busy_otherwise(2)];
    let (mut detector, _) = watch(queues, &[SampledPath::at(0), SampledPath::at(1)], 30, 1);
    let now = detector.deadline();
    assert_eq!(detector.groups(), [0, 1]);
    let mut other = detector.clone();
    assert_eq!(other.add(None), Some(2));
    assert_eq!(other.tick(now), Some(&[0, 0, 0][..]));
    assert_eq!(other.tick(now), None, "told once");
    detector.reset(1);
    assert_eq!(detector.tick(now), Some(&[0, 0][..]));
    assert_eq!(detector.summary(1).map(|s| s.samples), Some(0));
    detector.reset(7);
}

#[test]
fn a_queue_that_swings_too_fast_for_any_interval_is_not_taken_for_two() {
    // Each path samples the queue every 10 ms, 3 ms after the other: by then the queue has changed.
    let fast = |seed| vec![Queue::new(seed, 4, 0.5, (2.0, 2.0), 4.0)];
    let path = SampledPath { noise_ms: 0.1, ..SampledPath::at(0) };
    for (seconds, _) in right(fast, &[path, path], 120, &[0, 0]) {
        assert_eq!(seconds, 120);
    }
}

#[test]
fn a_queue_that_swings_several_times_in_an_interval_is_one() {
    let queues = |seed| vec![Queue::new(seed, 4, 0.5, (40.0, 40.0), 15.0)];
    let path = |every_ms| SampledPath { noise_ms: 0.2, every_ms, ..SampledPath::at(0) };
    for (seconds, _) in right(queues, &[path(2), path(3)], 120, &[0, 0]) {
        assert_eq!(seconds, 120);
    }
}

#[test]
fn short_queues_of_their_own_are_told_apart() {
    let queue = |seed| Queue::new(seed, 4, 0.5, (40.0, 40.0), 15.0);
    let queues = |seed| vec![queue(seed), queue(seed + 100)];
    let path = |queue| SampledPath { noise_ms: 0.2, every_ms: 2, ..SampledPath::at(queue) };
    let all = right(queues, &[path(0), path(1)], 120, &[0, 1]);
    assert!(all.iter().all(|(seconds, first)| first.is_some_and(|s| s <= 15) && *seconds >= 100), "{all:?}");
}

#[test]
fn paths_whose_bottleneck_becomes_one_join_in_seconds() {
    // From 60 s on the second path passes the queue of the first.
    let mut late = Vec::new();
    for seed in 0..SEEDS {
        let (mut queues, mut rng) = (vec![Queue::busy(seed), Queue::busy(seed + 100)], SplitMix64(seed));
        let mut detector = Detector::new();
        assert_eq!([detector.add(None), detector.add(None)], [Some(0), Some(1)]);
        let mut joined = None;
        for ms in 0..75_000u64 {
            queues.iter_mut().for_each(Queue::step);
            let now = Time::from_nanos(ms * 1_000_000);
            for path in 0..2 {
                if (ms + 3 * path as u64).is_multiple_of(10) {
                    let queue = if ms < 60_000 { path } else { 0 };
                    let delay = 20.0 + queues[queue].backlog_ms + 0.5 * rng.unit();
                    detector.sample(path, now, Span::from_nanos((delay * 1e6) as u64));
                }
            }
            if ms >= 60_000 && joined.is_none() && detector.groups() == [0, 0] {
                joined = Some(ms - 60_000);
            }
        }
        late.push(joined.expect("within 15 s"));
    }
    std::println!("joined after ms: {late:?}");
    assert!(late.iter().all(|ms| *ms <= 5_000), "{late:?}");
}

#[test]
fn a_path_that_was_silent_joins_with_its_first_packet() {
    let queues = vec![Queue::busy(1), Queue::busy(2)];
    let paths = [SampledPath::at(0), SampledPath { until_s: 30, ..SampledPath::at(1) }];
    let (mut detector, _) = watch(queues, &paths, 50, 1);
    assert_eq!(detector.groups(), [0, 1]);
    let now = detector.deadline();
    detector.sample(1, now, Span::from_millis(20));
    assert_eq!(detector.tick(now), Some(&[0, 0][..]));
}

#[test]
fn a_long_sleep_forgets_everything() {
    let queues = vec![Queue::busy(1), Queue::busy_otherwise(2)];
    let (mut detector, _) = watch(queues, &[SampledPath::at(0), SampledPath::at(1)], 30, 1);
    let now = detector.deadline() + Span::from_secs(3_600);
    assert_eq!(detector.tick(now), Some(&[0, 0][..]));
    assert_eq!(detector.deadline(), now + T);
}

/// Returns the estimates of one path; each inner slice has one interval's delays in ms.
fn summary(intervals: &[&[u64]]) -> SummaryStats {
    let mut stats = PathStats::default();
    for delays in intervals {
        delays.iter().for_each(|ms| stats.sample(0, Span::from_millis(*ms)));
        stats.close();
    }
    stats.summary()
}

#[test]
fn the_estimates_by_hand() {
    // The means are 10 and 14 ms. In the second interval three of four samples lie below the mean before it,
    // 10 ms: no bottleneck.
    let two = summary(&[&[5, 15], &[8, 8, 8, 32]]);
    // Three samples lie below 10, one above: (3 − 1) / 4. Weights are equal among the newest 20 intervals.
    assert_eq!(two.skew_ppm, 500_000);
    assert_eq!((two.samples, two.filled, two.congested), (6, 2, false));
    // One sample lies below 10, three above: the path passes a bottleneck. The deviations from 10 ms are 2,
    // 2, 2 and 6 ms.
    let two = summary(&[&[5, 15], &[12, 12, 12, 4]]);
    assert_eq!((two.skew_ppm, two.var_ns, two.congested), (-500_000, 3_000_000, true));
    // Hysteresis: between c_s and c_h the state stays.
    let three = |first: &[u64]| summary(&[&[5, 15], first, &[9, 9, 9, 9, 9, 9, 11]]);
    assert!(three(&[12, 12, 12, 4]).congested);
    assert!(!three(&[8, 8, 8, 32]).congested);
    // Samples equal to the mean count for neither side.
    assert_eq!(summary(&[&[7, 7], &[7, 7], &[7]]).skew_ppm, 0);
}

#[test]
fn crossings_by_hand() {
    // Ten intervals are high, ten low, and so on: after the first excursion each change of sides is a
    // crossing.
    let (high, low): (&[u64], &[u64]) = (&[40, 40, 40, 40], &[0, 0, 0, 0]);
    let series: Vec<&[u64]> = (0..50).map(|i| if i / 10 % 2 == 0 { high } else { low }).collect();
    let freq = summary(&series).freq_ppm;
    assert!((60_000..=80_000).contains(&freq), "3 or 4 of 50: {freq}");
}

#[test]
fn loss_by_hand() {
    let mut stats = PathStats::default();
    stats.delivered(85);
    stats.lost(15);
    assert_eq!(stats.close().loss_ppm, 150_000);
    assert!(!stats.summary().congested, "without a delay there is nothing to group by");
    stats.sample(0, Span::from_millis(1));
    assert!(stats.close().congested, "loss above p_l is a bottleneck");
    for _ in 0..N {
        stats.close();
    }
    assert_eq!((stats.summary().loss_ppm, stats.summary().congested), (0, false));
}

#[test]
fn grouping_by_hand() {
    let like =
        SummaryStats { congested: true, freq_ppm: 100_000, var_ns: 1_000_000, ..SummaryStats::default() };
    let grouped = |paths: &[SummaryStats]| rfc8382::group(paths);
    // Step 2: neighbours nearer than 0.1 form a chain.
    let freq = |freq_ppm| SummaryStats { freq_ppm, ..like };
    assert_eq!(grouped(&[freq(300_000), freq(120_000), freq(210_000)]), [Some(0); 3]);
    assert_eq!(grouped(&[freq(300_000), freq(100_000), freq(200_001)]), [Some(0), Some(1), Some(0)]);
    // Step 3: variability within 10 % of the higher one.
    let var = |var_ns| SummaryStats { var_ns, ..like };
    assert_eq!(grouped(&[var(1_000), var(901), var(900)]), [Some(0), Some(0), Some(0)]);
    assert_eq!(grouped(&[var(1_000), var(900)]), [Some(0), Some(1)]);
    // Step 4, and step 5, which counts only if there is enough loss.
    let skew = |skew_ppm| SummaryStats { skew_ppm, ..like };
    assert_eq!(grouped(&[skew(-100_000), skew(49_999), skew(50_000)]), [Some(0); 3]);
    assert_eq!(grouped(&[skew(-100_000), skew(50_000)]), [Some(0), Some(1)]);
    let loss = |loss_ppm| SummaryStats { loss_ppm, ..like };
    assert_eq!(grouped(&[loss(90_000), loss(0)]), [Some(0), Some(0)]);
    assert_eq!(grouped(&[loss(200_000), loss(180_000), loss(190_000)]), [Some(0); 3]);
    assert_eq!(grouped(&[loss(200_000), loss(180_000)]), [Some(0), Some(1)]);
    // Step 1: a path that passes no bottleneck has no group.
    assert_eq!(grouped(&[SummaryStats::default(), like]), [None, Some(0)]);
}

#[test]
fn the_correlation_by_hand() {
    let (mut detector, mut now) = (Detector::new(), Time::ZERO);
    for _ in 0..4 {
        assert!(detector.add(None).is_some());
    }
    // The means change by 10, −10, 30, −30 and again. The second path changes in the same way, the third in
    // the opposite way, the fourth not at all.
    for i in 0..41 {
        let ms = [100, 110, 100, 130][i % 4];
        for (path, ms) in [ms, 7 * ms, 200 - ms, 50].into_iter().enumerate() {
            detector.sample(path, now, Span::from_millis(ms));
        }
        now += T;
        detector.tick(now);
        assert_eq!(detector.correlation_percent(0, 1).is_some(), i >= PAIRS_MIN);
    }
    let with = |path| detector.correlation_percent(0, path);
    assert_eq!([with(0), with(1), with(2), with(3)], [Some(100), Some(100), Some(-100), Some(0)]);
    assert_eq!(detector.correlation_percent(0, 9), None);
}

#[derive(Clone, Debug)]
enum Step {
    Add,
    Reset(usize),
    Sample(usize, u64, u64),
    Delivered(usize, u32),
    Lost(usize, u32),
    Tick(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let nanos = prop_oneof![0..2_000_000u64, 0..20_000_000_000u64, any::<u64>()];
    let delay = prop_oneof![0..100_000_000u64, any::<u64>()];
    let step = prop_oneof![
        1 => Just(Step::Add),
        1 => (0..9usize).prop_map(Step::Reset),
        20 => (0..9usize, nanos.clone(), delay).prop_map(|(p, n, d)| Step::Sample(p, n, d)),
        5 => (0..9usize, any::<u32>()).prop_map(|(p, n)| Step::Delivered(p, n)),
        5 => (0..9usize, any::<u32>()).prop_map(|(p, n)| Step::Lost(p, n)),
        3 => nanos.prop_map(Step::Tick),
    ];
    proptest::collection::vec(step, 0..200)
}

/// Whether each group number appears after all smaller ones.
fn is_dense(mut groups: impl Iterator<Item = u32>) -> bool {
    groups.try_fold(0, |next, group| (group <= next).then(|| next.max(group + 1))).is_some()
}

proptest! {
    #[test]
    fn never_panics_and_numbers_are_dense(steps in steps()) {
        let (mut detector, mut now) = (Detector::with_hold(2), Time::ZERO);
        for step in steps {
            match step {
                Step::Add => prop_assert!(detector.add(None).is_some()),
                Step::Reset(path) => detector.reset(path),
                Step::Sample(path, wait, delay) => {
                    now += Span::from_nanos(wait);
                    detector.sample(path, now, Span::from_nanos(delay));
                }
                Step::Delivered(path, n) => detector.delivered(path, n),
                Step::Lost(path, n) => detector.lost(path, n),
                Step::Tick(wait) => {
                    now += Span::from_nanos(wait);
                    drop(detector.tick(now).map(<[u32]>::to_vec));
                    prop_assert!(detector.deadline() > now || now == Time::NEVER);
                }
            }
            prop_assert!(is_dense(detector.groups().iter().copied()));
            prop_assert!(is_dense(detector.rfc8382_groups().iter().flatten().copied()));
        }
    }

    /// Paths in another order are in the same groups, and the same input gives the same output.
    #[test]
    fn the_order_of_paths_does_not_matter(
        seed in any::<u64>(),
        order in Just([0usize, 1, 2, 3, 4]).prop_shuffle(),
    ) {
        let run = |order: &[usize]| {
            let mut queues = [Queue::busy(seed), Queue::busy_otherwise(seed ^ 1), Queue::idle(seed ^ 2)];
            let mut detector = Detector::new();
            order.iter().for_each(|_| assert!(detector.add(None).is_some()));
            for ms in 0..20_000u64 {
                queues.iter_mut().for_each(Queue::step);
                for (p, who) in order.iter().enumerate() {
                    if (ms + *who as u64).is_multiple_of(12) {
                        let delay = Span::from_nanos((queues[who % 3].backlog_ms * 1e6) as u64);
                        detector.sample(p, Time::from_nanos(ms * 1_000_000), delay);
                    }
                }
            }
            (detector.groups().to_vec(), detector.rfc8382_groups().to_vec())
        };
        let (groups, raw) = run(&[0, 1, 2, 3, 4]);
        let (other_groups, other_raw) = run(&order);
        for a in 0..5 {
            for b in 0..5 {
                let (x, y) = (order[a], order[b]);
                prop_assert_eq!(other_groups[a] == other_groups[b], groups[x] == groups[y]);
                prop_assert_eq!(other_raw[a] == other_raw[b], raw[x] == raw[y]);
            }
        }
        prop_assert_eq!(run(&order), (other_groups, other_raw));
    }
}
