//! Tests whether a receiver finds out which paths share a bottleneck: [`Grouping::Auto`] over simulated
//! links. The scenarios `scenarios/groups-*.toml` make tables over more places and seeds.

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Rate, Span, Time};
use anabranch_lab::{Content, Fault, Misbehaviour, PathSpec, Simulation};
use anabranch_mmtp::subscriber::{Event, Grouping};
use anabranch_sim::{LinkChange, LinkConfig, LinkId, Rng};

/// Part of each round trip that is the bottleneck's own propagation delay.
const BOTTLENECK_DELAY: Span = Span::from_millis(2);
/// Largest random delay of each packet before the bottleneck.
const JITTER: Span = Span::from_millis(1);

/// The properties of a network; the watched paths and their neighbours share them.
#[derive(Clone, Copy, Debug)]
struct Place {
    mbit: u64,
    queue_ms: u64,
    /// Round trips of the watched receiver's two paths.
    rtts_ms: [u64; 2],
    /// Number of single-path neighbour flows on each bottleneck.
    bulk: u64,
    /// Mean time between fetches of half a megabyte by a neighbour, on each bottleneck, ms; 0: no fetches.
    short_every_ms: u64,
    coalesce_us: u64,
    /// Controller of the watched receiver.
    control: &'static str,
    /// Controller of its neighbours.
    others: &'static str,
    /// Probability of random loss of each packet before the bottleneck.
    loss: f64,
}

const PLACE: Place = Place {
    mbit: 20,
    queue_ms: 50,
    rtts_ms: [20, 50],
    bulk: 1,
    short_every_ms: 0,
    coalesce_us: 0,
    control: "nmcc",
    others: "reno",
    loss: 0.0,
};

/// Returns the default of `get` beside one CUBIC flow, with a queue of a bandwidth-delay product.
const fn beside_cubic(mbit: u64, rtt_ms: u64) -> Place {
    let (control, others) = ("cubic-coupled", "cubic");
    Place { mbit, queue_ms: rtt_ms, rtts_ms: [rtt_ms; 2], control, others, ..PLACE }
}

/// Returns the seeds of each place.
fn seeds() -> std::ops::RangeInclusive<u64> {
    1..=anabranch_net::testing::extent(1, 4)
}

/// Places in a LAN, in a town, and beyond a continent and an ocean.
const PLACES: [Place; 3] = [beside_cubic(20, 5), beside_cubic(10, 20), beside_cubic(10, 200)];

/// The results of a run.
struct Outcome {
    /// Groups at the end of each half second.
    seen: Vec<Vec<u32>>,
    digest: u64,
    /// Payload of the watched receiver's paths, bytes.
    bytes: u64,
    /// Number of times that the groups changed.
    changes: usize,
}

impl Outcome {
    /// Returns the part of the time in which the groups were `wanted`, percent.
    fn right(&self, wanted: &[u32]) -> usize {
        self.seen.iter().filter(|groups| *groups == wanted).count() * 100 / self.seen.len()
    }

    /// Returns the first time at which the groups were `wanted`, s.
    fn first(&self, wanted: &[u32]) -> Option<f64> {
        Some((self.seen.iter().position(|groups| groups == wanted)? + 1) as f64 / 2.0)
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
        let config = LinkConfig::new(rate, BOTTLENECK_DELAY).queue_bytes(queue);
        self.simulation.link(&format!("bottleneck {}", self.links), config)
    }

    fn path(&mut self, receiver: usize, through: LinkId, rtt_ms: u64, control: &str) {
        self.path_over(receiver, &[through], rtt_ms, control);
    }

    fn path_over(&mut self, receiver: usize, through: &[LinkId], rtt_ms: u64, control: &str) {
        self.path_by(receiver, through, rtt_ms, control, |_| {});
    }

    /// Adds a path, after a change to its specification.
    fn path_by(
        &mut self,
        receiver: usize,
        through: &[LinkId],
        rtt_ms: u64,
        control: &str,
        change: impl FnOnce(&mut PathSpec),
    ) {
        self.links += 1;
        let fast = Rate::from_bits(1_000_000_000);
        let rest = Span::from_millis(rtt_ms) - BOTTLENECK_DELAY;
        let jitter = JITTER.min(rest.over(8));
        let there = LinkConfig { jitter, ..LinkConfig::new(fast, rest.over(2)) }.loss(self.place.loss);
        let there = self.simulation.link(&format!("there {}", self.links), there);
        let back = self.simulation.link(&format!("back {}", self.links), LinkConfig::new(fast, rest.over(2)));
        let source = self.simulation.source(&[self.bulk.clone(), self.short.clone()], Misbehaviour::Honest);
        let control = Algorithm::by_name(control).expect("in the table");
        let there: Vec<LinkId> = [there].into_iter().chain(through.iter().copied()).collect();
        let mut spec = PathSpec::new(&there, &[back], control);
        change(&mut spec);
        self.simulation.path(receiver, source, &spec);
    }

    fn neighbours(&mut self, through: LinkId, rng: &mut Rng, secs: u64) {
        let place = self.place;
        for i in 0..place.bulk {
            let one = self.simulation.receiver(Span::ZERO);
            let rtt = if place.others == "reno" { 25 + 10 * i } else { place.rtts_ms[0] };
            self.path(one, through, rtt, place.others);
            let bulk = self.bulk.clone();
            self.simulation.want(one, &bulk, Time::from_nanos(rng.below(3_000_000_000)));
        }
        if place.short_every_ms > 0 {
            let one = self.simulation.receiver(Span::ZERO);
            self.path(one, through, 30, place.others);
            let mut at = 0;
            while at < secs * 1_000 {
                at += rng.below(2 * place.short_every_ms);
                let short = self.short.clone();
                self.simulation.want(one, &short, Time::from_nanos(at * 1_000_000));
            }
        }
    }
}

/// Runs two paths of one receiver through one shared bottleneck, or through one bottleneck each.
fn run(place: Place, shared: bool, grouping: Grouping, secs: u64, seed: u64) -> Outcome {
    run_with(place, shared, grouping, secs, seed, &[])
}

/// Runs as `run` does, while path 1 of the watched receiver goes down or up at these seconds.
fn run_with(
    place: Place,
    shared: bool,
    grouping: Grouping,
    secs: u64,
    seed: u64,
    interface: &[(u64, bool)],
) -> Outcome {
    let bytes = Rate::from_bits(2 * place.mbit * 1_000_000).bytes_in(Span::from_secs(secs + 1));
    let bulk = Content::repeating(1, 256, bytes.div_ceil(anabranch_mmtp::id::BLOCK_BYTES as u64));
    let short = Content::repeating(2, 16, 32);
    let mut bench = Bench { simulation: Simulation::new(seed), place, bulk, short, links: 0 };
    let mut rng = Rng::stream(seed, "neighbours");
    let first = bench.bottleneck();
    let through = [first, if shared { first } else { bench.bottleneck() }];
    let watched = bench.simulation.receiver(Span::from_micros(place.coalesce_us));
    bench.simulation.grouping(watched, grouping);
    for (i, link) in through.into_iter().enumerate() {
        bench.path(watched, link, place.rtts_ms[i], place.control);
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
    let seen = (1..=secs * 2).map(|half| {
        simulation.run_until(Time::from_nanos(half * 500_000_000));
        simulation.paths(watched).iter().map(|path| path.group).collect()
    });
    let seen = seen.collect();
    assert_eq!(simulation.violations(), Vec::<String>::new());
    let changed = |(_, event): &&(Time, Event)| matches!(event, Event::Groups { .. });
    Outcome {
        seen,
        digest: simulation.digest(),
        bytes: simulation.paths(watched).iter().map(|path| path.counters.bytes).sum(),
        changes: simulation.events(watched).iter().filter(changed).count(),
    }
}

#[test]
fn two_sources_behind_one_bottleneck_stay_one_group() {
    for place in [
        PLACE,
        Place { bulk: 0, ..PLACE },
        Place { bulk: 3, short_every_ms: 800, ..PLACE },
        Place { mbit: 50, queue_ms: 10, coalesce_us: 1_000, ..PLACE },
    ] {
        for seed in seeds() {
            let outcome = run(place, true, Grouping::Auto, 40, seed);
            assert_eq!((outcome.right(&[0, 0]), outcome.changes), (100, 0), "{place:?}, seed {seed}");
        }
    }
}

#[test]
fn two_bottlenecks_become_two_groups_within_seconds() {
    for place in [
        PLACE,
        Place { bulk: 3, ..PLACE },
        Place { short_every_ms: 800, ..PLACE },
        Place { mbit: 50, queue_ms: 20, coalesce_us: 1_000, ..PLACE },
    ] {
        for seed in seeds() {
            let outcome = run(place, false, Grouping::Auto, 40, seed);
            let (first, right) = (outcome.first(&[0, 1]), outcome.right(&[0, 1]));
            println!("{place:?}, seed {seed}: after {first:?} s, right {right} %");
            let in_time = first.is_some_and(|s| s <= 20.0) && right >= 30;
            assert!(in_time, "{place:?}, seed {seed}: {first:?}, {right} %");
        }
    }
}

/// Returns a random place: 5 to 50 Mbit/s, 10 to 120 ms, a queue of half a round trip to two, one to three
/// neighbours with or without short fetches.
fn any_place(rng: &mut Rng) -> Place {
    let rtts_ms = [10 + rng.below(111), 10 + rng.below(111)];
    let mean_ms = rtts_ms.iter().sum::<u64>() / 2;
    Place {
        mbit: 5 + rng.below(46),
        queue_ms: mean_ms / 2 + rng.below(mean_ms * 3 / 2),
        rtts_ms,
        bulk: 1 + rng.below(3),
        short_every_ms: if rng.below(2) == 0 { 0 } else { 400 + rng.below(1_000) },
        coalesce_us: rng.below(2) * 1_000,
        ..PLACE
    }
}

/// In no random place may paths be wrongly apart, which is unfair. Paths that are wrongly together are only
/// slow, and may remain so for longer than this test in one place or two.
#[test]
fn in_most_places_that_nobody_picked_it_is_right() {
    let places = anabranch_net::testing::extent(6, 12);
    let mut rng = Rng::stream(1, "places");
    let (mut kept, mut freed) = (0, 0);
    for seed in 1..=places {
        let place = any_place(&mut rng);
        let together = run(place, true, Grouping::Auto, 40, seed).right(&[0, 0]);
        let first = run(place, false, Grouping::Auto, 40, seed).first(&[0, 1]);
        println!("{place:?}: together {together} %; apart after {first:?} s");
        kept += u64::from(together >= 95);
        freed += u64::from(first.is_some_and(|s| s <= 30.0));
    }
    assert!(kept == places && freed >= places - 2, "of {places}: {kept} kept, {freed} set free");
}

#[test]
fn one_bottleneck_is_not_split_whatever_the_round_trip() {
    for place in PLACES {
        for seed in 1..=2 {
            let outcome = run(place, true, Grouping::Auto, 30, seed);
            let right = outcome.right(&[0, 0]);
            assert!(right >= 99, "{place:?}, seed {seed}: wrongly split for {} % of the time", 100 - right);
        }
    }
}

#[test]
fn two_bottlenecks_are_set_free_whatever_the_round_trip() {
    for (place, most) in PLACES.into_iter().zip([15.0, 15.0, 25.0]) {
        for seed in 1..=2 {
            let outcome = run(place, false, Grouping::Auto, 25, seed);
            let first = outcome.first(&[0, 1]);
            println!("{place:?}, seed {seed}: after {first:?} s, right {} %", outcome.right(&[0, 1]));
            assert!(first.is_some_and(|s| s <= most), "{place:?}, seed {seed}: after {first:?} s");
        }
    }
}

#[test]
fn losses_that_no_queue_explains_set_paths_free() {
    let place = Place { mbit: 50, bulk: 0, loss: 0.002, ..beside_cubic(50, 50) };
    let mut slow = Vec::new();
    for seed in 1..=anabranch_net::testing::extent(6, 12) {
        let outcome = run(place, false, Grouping::Auto, 30, seed);
        let (first, right) = (outcome.first(&[0, 1]), outcome.right(&[0, 1]));
        println!("seed {seed}: after {first:?} s, right {right} %");
        if first.is_none_or(|s| s > 20.0) || right < 30 {
            slow.push((seed, first, right));
        }
    }
    // Losses are random: of 24 seeds one took 23.5 s, and the others 6.5 to 12.5.
    assert!(slow.len() <= 1, "{slow:?}");
    assert!(slow.iter().all(|(_, first, _)| first.is_some()), "never set free: {slow:?}");
}

/// Both paths cross a link of their own and then a common one; the bottleneck moves between these links.
#[test]
fn paths_join_within_seconds_of_their_bottleneck_becoming_one() {
    for (place, most) in PLACES[..2].iter().zip([5.0, 5.0]) {
        for seed in 1..=2 {
            let (was_apart, joined) = joined_after(*place, 20, 30, seed);
            println!("{place:?}, seed {seed}: apart before: {was_apart}, together after {joined:?} s");
            assert!(joined.is_some_and(|s| s <= most), "{place:?}, seed {seed}: {joined:?}");
            // In a LAN, two bottlenecks before a common link are not always found within 20 s.
            assert!(was_apart || place.rtts_ms == [5, 5], "{place:?}, seed {seed}: there is nothing to join");
        }
    }
}

/// Runs two bottlenecks until `change`, then one until `secs`. Returns whether the paths were ever apart
/// before, and the time after which they are together for good, s; `None` if they never are.
fn joined_after(place: Place, change: u64, secs: u64, seed: u64) -> (bool, Option<f64>) {
    let bytes = Rate::from_bits(2 * place.mbit * 1_000_000).bytes_in(Span::from_secs(secs + 1));
    let bulk = Content::repeating(1, 256, bytes.div_ceil(anabranch_mmtp::id::BLOCK_BYTES as u64));
    let short = Content::repeating(2, 16, 32);
    let mut bench = Bench { simulation: Simulation::new(seed), place, bulk, short, links: 0 };
    let mut rng = Rng::stream(seed, "neighbours");
    let (own, common) = ([bench.bottleneck(), bench.bottleneck()], bench.bottleneck());
    let watched = bench.simulation.receiver(Span::ZERO);
    bench.simulation.grouping(watched, Grouping::Auto);
    let slow = Rate::from_bits(place.mbit * 1_000_000);
    let fast = Rate::from_bits(4 * place.mbit * 1_000_000);
    for (link, rtt) in own.into_iter().zip(place.rtts_ms) {
        bench.path_over(watched, &[link, common], rtt, place.control);
        bench.neighbours(link, &mut rng, secs);
    }
    bench.neighbours(common, &mut rng, secs);
    let content = bench.bulk.clone();
    bench.simulation.want(watched, &content, Time::ZERO);
    for (at, of_own, of_common) in [(0, slow, fast), (change, fast, slow)] {
        for (link, rate) in own.into_iter().map(|link| (link, of_own)).chain([(common, of_common)]) {
            let fault = Fault::Link { link, change: LinkChange::Rate(Some(rate)) };
            bench.simulation.at(Time::ZERO + Span::from_secs(at), fault);
        }
    }
    let groups = |simulation: &Simulation| -> Vec<u32> {
        simulation.paths(watched).iter().map(|path| path.group).collect()
    };
    let mut simulation = bench.simulation;
    let (mut apart, mut together) = (false, None);
    for tenth in 1..=secs * 10 {
        simulation.run_until(Time::from_nanos(tenth * 100_000_000));
        let one = groups(&simulation) == [0, 0];
        if tenth <= change * 10 {
            apart |= !one;
        } else if !one {
            together = None;
        } else {
            together = together.or(Some((tenth - change * 10) as f64 / 10.0));
        }
    }
    (apart, together)
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
    let at = |secs: usize| outcome.seen[2 * secs - 1].as_slice();
    assert_eq!([at(19), at(26), at(32), at(48)], [&[0, 1], &[0, 0], &[0, 0], &[0, 1]]);
}

/// Groups decide shares: if the paths share nothing, separate groups are faster.
#[test]
fn apart_is_faster_where_it_is_right() {
    let place = Place { bulk: 2, rtts_ms: [20, 20], ..PLACE };
    let mean = |grouping| (1..=3).map(|seed| run(place, false, grouping, 40, seed).bytes).sum::<u64>();
    let (auto, given) = (mean(Grouping::Auto), mean(Grouping::Given));
    println!("auto {auto}, all {given} bytes");
    assert!(auto * 100 > given * 110, "auto {auto}, all {given} bytes");
}

/// Adds a receiver with two paths over one uplink each: `bottlenecks` are their links, which may be equal.
fn over_uplinks(bench: &mut Bench, bottlenecks: [LinkId; 2], grouping: Grouping, at: Time) -> usize {
    let watched = bench.simulation.receiver(Span::ZERO);
    bench.simulation.grouping(watched, grouping);
    for (i, link) in bottlenecks.into_iter().enumerate() {
        bench.path_by(watched, &[link], bench.place.rtts_ms[i], bench.place.control, |spec| {
            // Given groups couple nothing.
            (spec.uplink, spec.group) =
                (Some(i as u32), if grouping == Grouping::Given { i as u32 } else { 0 });
        });
    }
    let content = bench.bulk.clone();
    bench.simulation.want(watched, &content, at);
    watched
}

fn bench(place: Place, bytes: u64, seed: u64) -> Bench {
    let bulk = Content::repeating(1, 256, bytes.div_ceil(anabranch_mmtp::id::BLOCK_BYTES as u64));
    let short = Content::repeating(2, 16, 32);
    Bench { simulation: Simulation::new(seed), place, bulk, short, links: 0 }
}

/// Fetches a file over two idle links. Returns the time at which it is complete, s, whether the paths were
/// ever together, and how often the groups changed.
fn idle_uplinks(place: Place, grouping: Grouping, bytes: u64, seed: u64) -> (f64, bool, usize) {
    let mut bench = bench(place, bytes, seed);
    let links = [bench.bottleneck(), bench.bottleneck()];
    let watched = over_uplinks(&mut bench, links, grouping, Time::ZERO);
    let (mut simulation, mut together) = (bench.simulation, false);
    for hundredth in 1..=12_000u64 {
        simulation.run_until(Time::from_nanos(hundredth * 10_000_000));
        together |= simulation.paths(watched)[0].group == simulation.paths(watched)[1].group;
        if simulation.events(watched).iter().any(|(_, event)| matches!(event, Event::Complete { .. })) {
            let told =
                simulation.events(watched).iter().filter(|e| matches!(e.1, Event::Groups { .. })).count();
            return (hundredth as f64 / 100.0, together, told);
        }
    }
    panic!("{place:?}, {grouping:?}, seed {seed}: not complete within 120 s");
}

#[test]
fn two_idle_uplinks_carry_a_file_as_fast_as_uncoupled_paths() {
    for loss in [0.0, 0.001, 0.003] {
        let place = Place { bulk: 0, loss, ..beside_cubic(50, 50) };
        let (mut auto, mut oracle) = (0.0, 0.0);
        for seed in seeds() {
            let ((a, together, told), (o, ..)) = (
                idle_uplinks(place, Grouping::Auto, 40_000_000, seed),
                idle_uplinks(place, Grouping::Given, 40_000_000, seed),
            );
            println!("{loss}, seed {seed}: {a} s, uncoupled {o} s, ever together: {together}, told {told}");
            assert_eq!((together, told), (false, 0), "{loss}, seed {seed}");
            (auto, oracle) = (auto + a, oracle + o);
        }
        assert!(auto <= oracle * 1.05, "{loss}: {auto} s, uncoupled {oracle} s");
    }
}

#[test]
fn two_uplinks_into_one_modem_are_found_out_within_ten_seconds() {
    for (mbit, rtt_ms) in [(20, 20), (20, 50), (50, 20), (50, 50)] {
        for seed in seeds() {
            let mut bench = bench(beside_cubic(mbit, rtt_ms), 200_000_000, seed);
            let modem = bench.bottleneck();
            bench.neighbours(modem, &mut Rng::stream(seed, "neighbours"), 20);
            let watched =
                over_uplinks(&mut bench, [modem; 2], Grouping::Auto, Time::from_nanos(3_000_000_000));
            let mut simulation = bench.simulation;
            let apart = (0..200u64).filter(|tenth| {
                simulation.run_until(Time::from_nanos(3_000_000_000 + tenth * 100_000_000));
                simulation.paths(watched)[0].group != simulation.paths(watched)[1].group
            });
            let last = apart.last().map(|tenth| tenth as f64 / 10.0);
            println!("{mbit} Mbit/s, {rtt_ms} ms, seed {seed}: apart for the last time after {last:?} s");
            assert!(
                last.is_some_and(|s| s > 0.0 && s < 10.0),
                "{mbit} Mbit/s, {rtt_ms} ms, seed {seed}: {last:?}"
            );
        }
    }
}

#[test]
fn two_loaded_uplinks_stay_apart() {
    for (mbit, rtt_ms) in [(20, 20), (50, 50)] {
        let mut right = 0;
        for seed in seeds() {
            let mut bench = bench(beside_cubic(mbit, rtt_ms), 400_000_000, seed);
            let links = [bench.bottleneck(), bench.bottleneck()];
            let mut rng = Rng::stream(seed, "neighbours");
            links.into_iter().for_each(|link| bench.neighbours(link, &mut rng, 30));
            let watched = over_uplinks(&mut bench, links, Grouping::Auto, Time::ZERO);
            let mut simulation = bench.simulation;
            let apart = (1..=60u64).filter(|half| {
                simulation.run_until(Time::from_nanos(half * 500_000_000));
                simulation.paths(watched)[0].group != simulation.paths(watched)[1].group
            });
            let apart = apart.count() as u64;
            println!("{mbit} Mbit/s, {rtt_ms} ms, seed {seed}: apart for {apart} of 60 half seconds");
            right += apart;
        }
        // Two equal links whose neighbours began in the same seconds sometimes look like one for a while.
        let all = seeds().end() * 60;
        assert!(right * 100 >= all * 85, "{mbit} Mbit/s, {rtt_ms} ms: {right} of {all}");
    }
}
