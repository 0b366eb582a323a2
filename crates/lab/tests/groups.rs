//! Who shares a bottleneck, by what a receiver sees of its paths: [`Grouping::Auto`] over simulated links.
//!
//! `sweep` (ignored: minutes) prints a table over more places and seeds than the tests look at.

use algo::control::Algorithm;
use algo::{Rate, Span, Time};
use lab::{Content, Fault, Misbehaviour, PathSpec, Simulation};
use mmtp::subscriber::{Event, Grouping};
use sim::{LinkConfig, LinkId, Rng};

/// Of each round trip this much is the bottleneck's own propagation delay.
const BOTTLENECK_DELAY: Span = Span::from_millis(2);

/// What a place is like; its paths and their neighbours see the same.
#[derive(Clone, Copy, Debug)]
struct Place {
    mbit: u64,
    queue_ms: u64,
    /// Of each of the two paths of the receiver that is watched.
    rtts_ms: [u64; 2],
    /// Extra delay of each packet before the bottleneck, at random.
    jitters_us: [u64; 2],
    /// Single-path Reno flows beside it, on each bottleneck.
    bulk: u64,
    /// How often, on each bottleneck, somebody fetches half a megabyte, ms on average; 0: never.
    short_every_ms: u64,
    coalesce_us: u64,
    /// Random loss on the bottleneck.
    loss: f64,
}

const PLACE: Place = Place {
    mbit: 20,
    queue_ms: 50,
    rtts_ms: [20, 50],
    jitters_us: [1_000, 1_000],
    bulk: 1,
    short_every_ms: 0,
    coalesce_us: 0,
    loss: 0.0,
};

/// What came out.
struct Outcome {
    /// The groups and the RFC's own grouping, each half second.
    seen: Vec<(Vec<u32>, Vec<Option<u32>>)>,
    digest: u64,
    /// Payload of the watched receiver's paths.
    bytes: u64,
    /// How often the groups were changed.
    changes: usize,
    /// The correlation of the two paths' delays after ten seconds, each half second, sorted, percent.
    correlations: Vec<i64>,
}

impl Outcome {
    /// Part of the time in which the groups were `wanted`, percent.
    fn right(&self, wanted: &[u32]) -> usize {
        self.seen.iter().filter(|(groups, _)| groups == wanted).count() * 100 / self.seen.len()
    }

    /// The same for the RFC's own grouping.
    fn raw_right(&self, wanted: &[u32]) -> usize {
        let same = |raw: &[Option<u32>]| raw.iter().zip(wanted).all(|(a, b)| *a == Some(*b));
        self.seen.iter().filter(|(_, raw)| same(raw)).count() * 100 / self.seen.len()
    }

    /// When they first were, s.
    fn first(&self, wanted: &[u32]) -> Option<f64> {
        Some((self.seen.iter().position(|(groups, _)| groups == wanted)? + 1) as f64 / 2.0)
    }
}

struct Bench {
    simulation: Simulation,
    place: Place,
    bulk: Content,
    short: Content,
    links: usize,
}

impl Bench {
    fn bottleneck(&mut self) -> LinkId {
        self.links += 1;
        let rate = Rate::from_bits(self.place.mbit * 1_000_000);
        let queue = rate.bytes_in(Span::from_millis(self.place.queue_ms));
        let config = LinkConfig::new(rate, BOTTLENECK_DELAY).queue_bytes(queue).loss(self.place.loss);
        self.simulation.link(&format!("bottleneck {}", self.links), config)
    }

    fn path(&mut self, receiver: usize, through: LinkId, rtt_ms: u64, jitter_us: u64, control: &str) {
        self.links += 1;
        let (fast, jitter) = (Rate::from_bits(1_000_000_000), Span::from_micros(jitter_us));
        let rest = Span::from_millis(rtt_ms) - BOTTLENECK_DELAY;
        let there = LinkConfig { jitter, ..LinkConfig::new(fast, rest.over(2)) };
        let there = self.simulation.link(&format!("there {}", self.links), there);
        let back = self.simulation.link(&format!("back {}", self.links), LinkConfig::new(fast, rest.over(2)));
        let source = self.simulation.source(&[self.bulk.clone(), self.short.clone()], Misbehaviour::Honest);
        let control = Algorithm::by_name(control).expect("in the table");
        self.simulation.path(receiver, source, &PathSpec::new(&[there, through], &[back], control));
    }

    fn neighbours(&mut self, through: LinkId, rng: &mut Rng, secs: u64) {
        let place = self.place;
        for i in 0..place.bulk {
            let one = self.simulation.receiver(Span::ZERO);
            self.path(one, through, 25 + 10 * i, 1_000, "reno");
            let bulk = self.bulk.clone();
            self.simulation.want(one, &bulk, Time::from_nanos(rng.below(3_000_000_000)));
        }
        if place.short_every_ms > 0 {
            let one = self.simulation.receiver(Span::ZERO);
            self.path(one, through, 30, 1_000, "reno");
            let mut at = 0;
            while at < secs * 1_000 {
                at += rng.below(2 * place.short_every_ms);
                let short = self.short.clone();
                self.simulation.want(one, &short, Time::from_nanos(at * 1_000_000));
            }
        }
    }
}

/// Two paths of one receiver through one bottleneck, or through one each.
fn run(place: Place, shared: bool, grouping: Grouping, secs: u64, seed: u64) -> Outcome {
    run_with(place, shared, grouping, secs, seed, &[])
}

/// The same, while path 1 of the watched receiver goes down or up at these seconds.
fn run_with(
    place: Place,
    shared: bool,
    grouping: Grouping,
    secs: u64,
    seed: u64,
    interface: &[(u64, bool)],
) -> Outcome {
    let bytes = Rate::from_bits(2 * place.mbit * 1_000_000).bytes_in(Span::from_secs(secs + 1));
    let bulk = Content::repeating(1, 256, bytes.div_ceil(mmtp::id::BLOCK_BYTES as u64));
    let short = Content::repeating(2, 16, 32);
    let mut bench = Bench { simulation: Simulation::new(seed), place, bulk, short, links: 0 };
    let mut rng = Rng::stream(seed, "neighbours");
    let first = bench.bottleneck();
    let through = [first, if shared { first } else { bench.bottleneck() }];
    let watched = bench.simulation.receiver(Span::from_micros(place.coalesce_us));
    bench.simulation.grouping(watched, grouping);
    for (i, link) in through.into_iter().enumerate() {
        bench.path(watched, link, place.rtts_ms[i], place.jitters_us[i], "nmcc");
    }
    let content = bench.bulk.clone();
    bench.simulation.want(watched, &content, Time::ZERO);
    for &(second, up) in interface {
        let fault = Fault::Interface { receiver: watched, path: 1, up };
        bench.simulation.at(Time::ZERO + Span::from_secs(second), fault);
    }
    bench.neighbours(through[0], &mut rng, secs);
    if !shared {
        bench.neighbours(through[1], &mut rng, secs);
    }
    let mut simulation = bench.simulation;
    let mut correlations = Vec::new();
    let seen = (1..=secs * 2).map(|half| {
        simulation.run_until(Time::from_nanos(half * 500_000_000));
        let detector = simulation.detector(watched);
        if half > 20 {
            correlations.extend(detector.correlation_percent(0, 1));
        }
        let groups = simulation.paths(watched).iter().map(|path| path.group).collect();
        (groups, detector.rfc8382_groups().to_vec())
    });
    let seen = seen.collect();
    correlations.sort_unstable();
    assert_eq!(simulation.violations(), Vec::<String>::new());
    let changed = |(_, event): &&(Time, Event)| matches!(event, Event::Groups { .. });
    Outcome {
        seen,
        correlations,
        digest: simulation.digest(),
        bytes: simulation.paths(watched).iter().map(|path| path.counters.bytes).sum(),
        changes: simulation.events(watched).iter().filter(changed).count(),
    }
}

#[test]
fn two_sources_behind_one_bottleneck_stay_one_group() {
    for (seed, place) in [
        (1, PLACE),
        (2, Place { bulk: 0, ..PLACE }),
        (3, Place { bulk: 3, short_every_ms: 800, ..PLACE }),
        (4, Place { mbit: 50, queue_ms: 10, coalesce_us: 1_000, ..PLACE }),
    ] {
        let outcome = run(place, true, Grouping::Auto, 40, seed);
        assert_eq!(outcome.right(&[0, 0]), 100, "{place:?}");
        assert_eq!(outcome.changes, 0);
    }
}

#[test]
fn two_bottlenecks_become_two_groups_within_seconds() {
    for (seed, place) in [
        (1, PLACE),
        (2, Place { bulk: 3, ..PLACE }),
        (3, Place { short_every_ms: 800, ..PLACE }),
        (4, Place { mbit: 50, queue_ms: 20, coalesce_us: 1_000, ..PLACE }),
    ] {
        let outcome = run(place, false, Grouping::Auto, 40, seed);
        let (first, right) = (outcome.first(&[0, 1]), outcome.right(&[0, 1]));
        println!("{place:?}: after {first:?} s, right {right} %");
        assert!(first.is_some_and(|s| s <= 20.0) && right >= 30, "{place:?}: {first:?}, {right} %");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let digest = |grouping, seed| run(PLACE, false, grouping, 15, seed).digest;
    assert_eq!(digest(Grouping::Auto, 5), digest(Grouping::Auto, 5));
    assert_ne!(digest(Grouping::Auto, 5), digest(Grouping::Given, 5), "it does something");
}

#[test]
fn a_path_that_comes_back_is_together_with_all_until_more_is_known() {
    let place = Place { bulk: 2, short_every_ms: 500, ..PLACE };
    let outcome = run_with(place, false, Grouping::Auto, 50, 1, &[(20, false), (25, true)]);
    let at = |secs: usize| outcome.seen[2 * secs - 1].0.as_slice();
    assert_eq!([at(19), at(26), at(32), at(48)], [&[0, 1], &[0, 0], &[0, 0], &[0, 1]]);
}

/// Shares are what it is about: where the paths share nothing, apart is faster.
#[test]
fn apart_is_faster_where_it_is_right() {
    let place = Place { bulk: 2, rtts_ms: [20, 20], ..PLACE };
    let mean = |grouping| (1..=3).map(|seed| run(place, false, grouping, 40, seed).bytes).sum::<u64>();
    let (auto, given) = (mean(Grouping::Auto), mean(Grouping::Given));
    println!("auto {auto}, all {given} bytes");
    assert!(auto * 100 > given * 110, "auto {auto}, all {given} bytes");
}

#[test]
#[ignore = "minutes: a table, for people"]
fn sweep() {
    let secs = 60;
    let places = [
        ("plain", PLACE),
        ("alone", Place { bulk: 0, ..PLACE }),
        ("6 beside", Place { bulk: 6, ..PLACE }),
        ("short ones", Place { bulk: 0, short_every_ms: 500, ..PLACE }),
        ("both", Place { bulk: 2, short_every_ms: 500, ..PLACE }),
        ("equal RTT", Place { rtts_ms: [30, 30], ..PLACE }),
        ("long RTT", Place { rtts_ms: [100, 200], ..PLACE }),
        ("very different RTT", Place { rtts_ms: [10, 300], ..PLACE }),
        ("jitter 10 ms on one", Place { jitters_us: [1_000, 10_000], ..PLACE }),
        ("jitter 30 ms on both", Place { jitters_us: [30_000, 30_000], ..PLACE }),
        ("coalesced 4 ms", Place { coalesce_us: 4_000, ..PLACE }),
        ("loss 0.1 %", Place { loss: 0.001, ..PLACE }),
        ("loss 1 %", Place { loss: 0.01, ..PLACE }),
        ("2 Mbit/s", Place { mbit: 2, queue_ms: 200, ..PLACE }),
        ("2 Mbit/s, 4 beside", Place { mbit: 2, queue_ms: 200, bulk: 4, ..PLACE }),
        ("100 Mbit/s, 5 ms", Place { mbit: 100, queue_ms: 5, ..PLACE }),
        ("100 Mbit/s, 5 ms, 6", Place { mbit: 100, queue_ms: 5, bulk: 6, ..PLACE }),
        ("100 Mbit/s, 50 ms", Place { mbit: 100, queue_ms: 50, ..PLACE }),
        ("bloat 1 s", Place { mbit: 5, queue_ms: 1_000, ..PLACE }),
    ];
    println!("right, % of {secs} s: mean (worst), and of the RFC's own grouping; s until first right;");
    println!("correlation of the delays, percent: least/median/most");
    println!("{:<20} {:<16} {:<12} {:<16} {:<18} corr.", "place", "shared", "corr.", "disjoint", "first");
    for (name, place) in places {
        let all = |shared, wanted: &[u32]| {
            let runs: Vec<Outcome> =
                (1..=3).map(|seed| run(place, shared, Grouping::Auto, secs, seed)).collect();
            let of = |f: &dyn Fn(&Outcome) -> usize| runs.iter().map(f).collect::<Vec<_>>();
            let (right, raw) = (of(&|o| o.right(wanted)), of(&|o| o.raw_right(wanted)));
            let first: Vec<String> =
                runs.iter().map(|o| o.first(wanted).map_or("never".into(), |s| format!("{s:.1}"))).collect();
            let mean = |v: &[usize]| v.iter().sum::<usize>() / v.len();
            let worst = right.iter().min().copied().unwrap_or(0);
            let mut correlations: Vec<i64> = runs.iter().flat_map(|o| o.correlations.clone()).collect();
            correlations.sort_unstable();
            let at = |p: usize| correlations.get((correlations.len().max(1) - 1) * p / 100).unwrap_or(&0);
            let right = format!("{:>3} ({worst:>3}) {:>3}", mean(&right), mean(&raw));
            (right, first.join(" "), format!("{}/{}/{}", at(0), at(50), at(100)))
        };
        let (shared, _, alike) = all(true, &[0, 0]);
        let (disjoint, first, unlike) = all(false, &[0, 1]);
        println!("{name:<20} {shared:<16} {alike:<12} {disjoint:<16} {first:<18} {unlike}");
    }
}
