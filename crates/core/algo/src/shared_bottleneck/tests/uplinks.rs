//! The assumptions about paths over different uplinks, and the effects of evidence on them.

use std::vec;

use super::super::*;
use super::{Queue, SEEDS, SampledPath, empty, right, watch};
use crate::SplitMix64;

/// Returns a path through this queue, over the uplink of this number.
fn over(uplink: u32, queue: usize) -> SampledPath {
    SampledPath { uplink: Some(uplink), ..SampledPath::at(queue) }
}

#[test]
fn paths_over_different_uplinks_start_apart() {
    let start = |uplinks: &[Option<u32>]| {
        let mut detector = Detector::new();
        uplinks.iter().for_each(|uplink| assert!(detector.add(*uplink).is_some()));
        detector.groups().to_vec()
    };
    assert_eq!(start(&[Some(7), Some(3)]), [0, 1]);
    assert_eq!(start(&[Some(7), Some(3), Some(7), Some(3), Some(4)]), [0, 1, 0, 1, 2]);
    assert_eq!(start(&[Some(7), Some(3), None]), [0, 0, 0], "it may be over both");
    assert_eq!(start(&[None, None]), [0, 0]);
}

#[test]
fn one_queue_behind_two_uplinks_joins_them_within_ten_seconds() {
    let modem = |seed| vec![Queue::busy(seed)];
    let short = |seed| vec![Queue::new(seed, 4, 0.5, (100.0, 100.0), 20.0)];
    for every_ms in [4, 12, 40] {
        let paths = [0, 1].map(|uplink| SampledPath { every_ms, ..over(uplink, 0) });
        for all in [right(modem, &paths, 60, &[0, 0]), right(short, &paths, 60, &[0, 0])] {
            assert!(all.iter().all(|(_, first)| first.is_some_and(|s| s < 10)), "{every_ms} ms: {all:?}");
            assert!(all.iter().all(|(seconds, _)| *seconds >= 50), "{every_ms} ms: {all:?}");
        }
    }
}

#[test]
fn losses_alone_do_not_join_what_starts_apart() {
    let lossy = |uplink| SampledPath { loss: 0.01, ..over(uplink, uplink as usize) };
    for (seconds, _) in right(empty, &[lossy(0), lossy(1)], 60, &[0, 1]) {
        assert_eq!(seconds, 60);
    }
    // Losses of more than p_l in the same moments do not join them either, if the delays show nothing.
    let (mut detector, mut now) = (Detector::new(), Time::ZERO);
    assert_eq!([detector.add(Some(0)), detector.add(Some(1))], [Some(0), Some(1)]);
    for i in 0..6_000u64 {
        for path in 0..2 {
            match i % 100 {
                0..20 => detector.lost(path, 1),
                _ => detector.delivered(path, 1),
            }
            detector.sample(path, now, Span::from_millis(20));
        }
        now += Span::from_millis(10);
        detector.tick(now);
        assert_eq!(detector.groups(), [0, 1], "{i}");
    }
}

#[test]
fn two_bottlenecks_behind_two_uplinks_stay_apart() {
    let queues = |seed| vec![Queue::busy(seed), Queue::busy(seed + 100)];
    let all = right(queues, &[over(0, 0), over(1, 1)], 120, &[0, 1]);
    assert!(all.iter().all(|(_, first)| *first == Some(0)), "{all:?}");
    let mean = all.iter().map(|(seconds, _)| seconds).sum::<usize>() / all.len();
    assert!(mean >= 115, "{mean} of 120 s: {all:?}");
    let queues = |seed| vec![Queue::busy(seed), Queue::idle(seed + 100)];
    let all = right(queues, &[over(0, 0), over(1, 1)], 120, &[0, 1]);
    let mean = all.iter().map(|(seconds, _)| seconds).sum::<usize>() / all.len();
    assert!(mean >= 115, "{mean} of 120 s: {all:?}");
}

/// Returns the groups after each second, where two uplinks have these queues: ms at a time in ms.
fn fill(queue: [fn(u64) -> f64; 2], secs: u64) -> Vec<Vec<u32>> {
    let (mut detector, mut rng, mut seconds) = (Detector::new(), SplitMix64(1), Vec::new());
    assert_eq!([detector.add(Some(0)), detector.add(Some(1))], [Some(0), Some(1)]);
    for ms in 0..secs * 1_000 {
        let now = Time::from_nanos(ms * 1_000_000);
        for (path, queue) in queue.iter().enumerate() {
            let delay = 50.0 + queue(ms) + 0.5 * rng.unit();
            detector.rtt_min(path, Span::from_millis(50));
            detector.delivered(path, 1);
            detector.sample(path, now, Span::from_nanos((delay * 1e6) as u64));
        }
        detector.tick(now);
        if ms % 1_000 == 999 {
            seconds.push(detector.groups().to_vec());
        }
    }
    seconds
}

#[test]
fn equal_links_that_fill_at_the_same_pace_are_told_apart_by_what_a_loss_leaves() {
    // Both overshoot, and are full for the first time after 4 s. Then one keeps a half, the other nothing.
    fn half(ms: u64) -> f64 {
        saw(ms, 20.0)
    }
    fn none(ms: u64) -> f64 {
        saw(ms, 1.0)
    }
    fn saw(ms: u64, left: f64) -> f64 {
        match ms {
            0..1_000 => (ms as f64 / 12.0).min(50.0),
            1_000..4_200 => 25.0 + (ms - 1_000) as f64 / 128.0,
            _ => left + ((ms - 4_200) % 6_000) as f64 / 240.0 + 2.0 * (ms as f64 / 300.0).sin(),
        }
    }
    assert!(fill([half, none], 60).iter().all(|groups| groups == &[0, 1]));
    // One queue behind both is still found.
    let one = fill([half, half], 60);
    assert!(one.iter().position(|groups| groups == &[0, 0]).is_some_and(|second| second < 10), "{one:?}");
}

#[test]
fn over_one_uplink_everything_is_as_where_none_is_known() {
    let queues = |seed| vec![Queue::busy(seed), Queue::busy_otherwise(seed + 100), Queue::busy(seed + 200)];
    for seed in 0..SEEDS {
        let run = |uplink| {
            let late = SampledPath { uplink, from_s: 20, until_s: 35, ..SampledPath::at(2) };
            let paths = [0, 1, 0].map(|queue| SampledPath { uplink, ..SampledPath::at(queue) });
            watch(queues(seed), &[paths[0], paths[1], paths[2], late], 60, seed).1
        };
        assert_eq!(run(None), run(Some(7)), "seed {seed}");
    }
}

#[test]
fn a_path_that_is_reset_is_again_with_those_of_its_uplink() {
    let queues = vec![Queue::busy(1), Queue::busy_otherwise(2)];
    let paths = [over(0, 0), over(0, 1), over(1, 0)];
    let (mut detector, _) = watch(queues, &paths, 30, 1);
    assert_eq!(detector.groups(), [0, 1, 0], "by what they share");
    let now = detector.deadline();
    detector.tick(now);
    detector.reset(1);
    assert_eq!(detector.tick(now), Some(&[0, 0, 0][..]), "what is known of the others is not forgotten");
    detector.reset(2);
    assert_eq!(detector.tick(now), Some(&[0, 0, 1][..]));
}

#[test]
fn a_path_that_comes_back_is_with_those_of_its_uplink() {
    let queues = vec![Queue::busy(1), Queue::busy(2)];
    let silent = SampledPath { until_s: 30, ..over(1, 1) };
    let (mut detector, _) = watch(queues, &[over(0, 0), silent], 50, 1);
    assert_eq!(detector.groups(), [0, 1]);
    let now = detector.deadline();
    detector.tick(now);
    detector.sample(1, now, Span::from_millis(20));
    assert_eq!(detector.tick(now), None, "nothing is new");
    assert_eq!(detector.tick(now + Span::from_secs(3_600)), None, "nor after a long sleep");
    assert_eq!(detector.groups(), [0, 1]);
}

#[test]
fn a_path_of_which_little_is_known_does_not_hold_two_uplinks_together() {
    // There is one bottleneck for 20 s, then there are two. The third path has few samples: they only show
    // that it is there.
    for seed in 0..SEEDS {
        let (mut queues, mut rng) = ([Queue::busy(seed), Queue::busy(seed + 100)], SplitMix64(seed));
        let mut detector = Detector::new();
        [0, 1, 1].into_iter().for_each(|uplink| assert!(detector.add(Some(uplink)).is_some()));
        let mut parted = None;
        let mut joined = false;
        for ms in 0..90_000u64 {
            queues.iter_mut().for_each(Queue::step);
            let now = Time::from_nanos(ms * 1_000_000);
            for (path, every_ms) in [10, 10, 2_000].into_iter().enumerate() {
                if (ms + 3 * path as u64).is_multiple_of(every_ms) {
                    let queue = if ms < 20_000 { 0 } else { path.min(1) };
                    let delay = 20.0 + queues[queue].backlog_ms + 0.5 * rng.unit();
                    detector.sample(path, now, Span::from_nanos((delay * 1e6) as u64));
                }
            }
            detector.tick(now);
            joined |= detector.groups() == [0, 0, 0];
            if ms > 20_000 && detector.groups() == [0, 1, 1] {
                parted = parted.or(Some(ms));
            }
        }
        assert!(joined && parted.is_some(), "seed {seed}: {parted:?}");
    }
}
