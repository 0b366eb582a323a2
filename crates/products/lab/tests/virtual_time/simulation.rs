//! Tests transfers over simulated links with every fault of a source or a path: the content always arrives
//! intact, nothing is reported twice, no window is exceeded, and the liar is named.

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Rate, Span, Time};
use anabranch_lab::simulation::{SimSourceId, WantId};
use anabranch_lab::{Content, Fault, Misbehaviour, PathSpec, Simulation};
use anabranch_mmtp::subscriber::{Event, PathState};
use anabranch_sim::LinkConfig;

const fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

/// A receiver with one path to each source: 20 Mbit/s each, round trips of 20, 30, 40 … ms.
struct Star {
    simulation: Simulation,
    content: Content,
    want: WantId,
}

fn star(
    seed: u64,
    bytes: usize,
    misbehaviours: &[Misbehaviour],
    down: impl Fn(usize, LinkConfig) -> LinkConfig,
) -> Star {
    let content = Content::random(seed, bytes);
    let mut simulation = Simulation::new(seed);
    let receiver = simulation.receiver(Span::ZERO);
    for (i, misbehaviour) in misbehaviours.iter().enumerate() {
        let source = simulation.source(std::slice::from_ref(&content), *misbehaviour);
        let one_way = Span::from_millis(10 + 5 * i as u64);
        let config = LinkConfig::new(Rate::from_bits(20_000_000), one_way).queue_bytes(100_000);
        let down = down(i, config);
        let up = LinkConfig { delay: one_way, mtu_bytes: down.mtu_bytes, ..LinkConfig::default() };
        let to = simulation.link(&format!("down {i}"), down);
        let from = simulation.link(&format!("up {i}"), up);
        let spec = PathSpec {
            group: i as u32,
            ..PathSpec::new(&[to], &[from], Algorithm::by_name("nmcc").unwrap())
        };
        simulation.path(receiver, source, &spec);
    }
    let want = simulation.want(receiver, &content, Time::ZERO);
    Star { simulation, content, want }
}

impl Star {
    fn banned(&self) -> Vec<SimSourceId> {
        let banned = self.simulation.events(0).iter().filter_map(|(_, event)| match event {
            Event::Banned { source, .. } => self.simulation.source_of(0, *source),
            _ => None,
        });
        banned.collect()
    }

    /// Runs until the transfer is complete and correct, which must take at most `limit_s` virtual seconds.
    #[track_caller]
    fn finish(&mut self, limit_s: u64) -> f64 {
        let done = self.simulation.run_to_end(ms(limit_s * 1_000));
        assert_eq!(self.simulation.violations(), Vec::<String>::new());
        let progress = self.simulation.progress(0, self.want);
        let (verified, length) = (progress.verified_bytes, self.content.id().length);
        assert!(done, "{verified} of {length} bytes after {limit_s} s\n{:#?}", self.simulation.paths(0));
        assert!(progress.is_identical());
        progress.complete.expect("it is done").as_nanos() as f64 / 1e9
    }
}

fn same(_: usize, config: LinkConfig) -> LinkConfig {
    config
}

#[test]
fn every_size_arrives() {
    for bytes in [0, 1, 1_171, 1_172, 16_383, 16_384, 16_385, 100_000, 1_048_577, 5_000_000] {
        star(1, bytes, &[Misbehaviour::Honest; 3], same).finish(10);
    }
}

#[test]
fn three_links_are_filled() {
    let seconds = star(1, 30_000_000, &[Misbehaviour::Honest; 3], same).finish(20);
    let ideal = 30_000_000.0 * 8.0 / 60e6;
    assert!(seconds < ideal * 1.15, "{seconds:.2} s, ideally {ideal:.2}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed| {
        let lossy = |_, config: LinkConfig| LinkConfig { loss: 0.01, reorder: 0.01, ..config };
        let mut star = star(
            seed,
            3_000_000,
            &[Misbehaviour::Honest, Misbehaviour::Flip { every: 500_000 }, Misbehaviour::Garbage],
            lossy,
        );
        star.finish(60);
        star.simulation.digest()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn a_late_caller_changes_nothing() {
    let run = |every: u64| {
        let mut star = star(3, 2_000_000, &[Misbehaviour::Honest; 2], same);
        for i in 0..10_000 / every {
            star.simulation.step(ms(i * every));
        }
        star.finish(10);
        star.simulation.digest()
    };
    assert_eq!(run(1), run(777));
}

/// Returns all misbehaviours with wrong bytes; `every` is the distance of flipped bytes.
const fn liars(every: u64) -> [Misbehaviour; 4] {
    use Misbehaviour::{Flip, Random, Stale, WrongHashes};
    [Flip { every }, Stale, Random, WrongHashes]
}

#[test]
fn liars_are_named_and_others_are_not() {
    for misbehaviour in liars(1_000_000) {
        let mut star = star(2, 8_000_000, &[Misbehaviour::Honest, misbehaviour, Misbehaviour::Honest], same);
        star.finish(30);
        assert_eq!(star.banned(), [1], "{misbehaviour:?}");
    }
}

#[test]
fn the_fast_liar_beside_one_honest_source() {
    for misbehaviour in liars(100_000) {
        let mut star = star(2, 4_000_000, &[misbehaviour, Misbehaviour::Honest], same);
        star.finish(30);
        assert_eq!(star.banned(), [0], "{misbehaviour:?}");
    }
}

#[test]
fn sources_that_are_odd_but_do_not_lie_stay() {
    for misbehaviour in [Misbehaviour::Unresponsive, Misbehaviour::Triplicate] {
        let mut star = star(2, 8_000_000, &[Misbehaviour::Honest, misbehaviour, Misbehaviour::Honest], same);
        star.finish(30);
        assert!(star.banned().is_empty(), "{misbehaviour:?}");
    }
}

#[test]
fn garbage_harms_nobody_else() {
    // A source of such packets may be banned: a chunk with another chunk's number is a wrong chunk.
    for seed in 0..20 {
        let mut star =
            star(seed, 4_000_000, &[Misbehaviour::Honest, Misbehaviour::Garbage, Misbehaviour::Honest], same);
        star.finish(30);
        assert!(star.banned().iter().all(|source| *source == 1));
    }
}

#[test]
fn losses_do_not_stop_it() {
    for loss in [0.001, 0.01, 0.1, 0.3] {
        star(4, 1_000_000, &[Misbehaviour::Honest; 3], |_, config| config.loss(loss)).finish(200);
    }
}

#[test]
fn broken_bits_do_not_get_through() {
    let corrupt = |_, config| LinkConfig { corrupt: 0.001, duplicate: 0.01, ..config };
    let mut star = star(4, 4_000_000, &[Misbehaviour::Honest; 3], corrupt);
    star.finish(60);
}

#[test]
fn reordering_is_not_loss() {
    let reorder = |_, config| LinkConfig { reorder: 0.05, reorder_by: Span::from_millis(3), ..config };
    let mut star = star(4, 10_000_000, &[Misbehaviour::Honest; 3], reorder);
    star.finish(10);
}

#[test]
fn a_source_dies_and_returns() {
    for unreachable in [false, true] {
        let mut star = star(6, 20_000_000, &[Misbehaviour::Honest; 3], same);
        star.simulation.at(ms(800), Fault::Kill { source: 0, unreachable });
        star.simulation.at(ms(1_600), Fault::Restart { source: 0 });
        star.finish(20);
        let states: Vec<PathState> = star
            .simulation
            .events(0)
            .iter()
            .filter_map(|(_, event)| match event {
                Event::Path { path: 0, state } => Some(*state),
                _ => None,
            })
            .collect();
        assert_eq!(
            states,
            [PathState::Open, PathState::Unresponsive, PathState::Open],
            "unreachable: {unreachable}"
        );
        let seconds = &star.simulation.payload_per_second(0)[0];
        assert!(seconds.last().is_some_and(|bytes| *bytes > 0), "it works again: {seconds:?}");
    }
}

#[test]
fn an_interface_goes_and_comes() {
    let mut star = star(6, 20_000_000, &[Misbehaviour::Honest; 3], same);
    star.simulation.at(ms(500), Fault::Interface { receiver: 0, path: 1, up: false });
    star.simulation.at(ms(1_500), Fault::Interface { receiver: 0, path: 1, up: true });
    star.finish(20);
}

#[test]
fn every_source_is_gone_for_a_while() {
    let mut star = star(6, 5_000_000, &[Misbehaviour::Honest; 2], same);
    for source in 0..2 {
        star.simulation.at(ms(300), Fault::Kill { source, unreachable: source == 0 });
        star.simulation.at(ms(30_300), Fault::Restart { source });
    }
    let seconds = star.finish(60);
    assert!(seconds < 34.0, "back within the longest retry: {seconds}");
}

#[test]
fn a_silent_path_in_the_middle_does_not_decide_the_end() {
    // One link breaks for good at a third of the transfer.
    let broken = |i, config: LinkConfig| if i == 2 { config.down(ms(600), ms(100_000)) } else { config };
    let seconds = star(7, 12_000_000, &[Misbehaviour::Honest; 3], broken).finish(20);
    // The ideal is 0.6 s at 60 Mbit/s, then 40 Mbit/s for the rest.
    let ideal = 0.6 + (12_000_000.0 * 8.0 - 0.6 * 60e6) / 40e6;
    assert!(seconds < ideal * 1.25, "{seconds:.2} s, ideally {ideal:.2}");
}

#[test]
fn a_small_mtu_is_found() {
    let tunnel = |i: usize, config: LinkConfig| LinkConfig { mtu_bytes: [1_514, 1_394, 1_294][i], ..config };
    let mut star = star(8, 4_000_000, &[Misbehaviour::Honest; 3], tunnel);
    star.finish(20);
    let chunks: Vec<usize> = star.simulation.paths(0).iter().map(|path| path.chunk_bytes).collect();
    assert_eq!(chunks, [1_366, 1_261, 1_171]);
}

#[test]
fn an_mtu_of_1200_is_enough() {
    for sources in 1..=2 {
        let narrow = |_, config: LinkConfig| LinkConfig { mtu_bytes: 1_200 + 14, ..config };
        let mut star = star(8, 4_000_000, &[Misbehaviour::Honest, Misbehaviour::Honest][..sources], narrow);
        star.finish(10);
        assert!(star.simulation.paths(0).iter().all(|path| path.chunk_bytes == 1_024));
    }
}

#[test]
fn a_source_that_returns_takes_over_from_a_slow_one() {
    let slow = |i, config: LinkConfig| {
        let rate = Rate::from_bits(if i == 0 { 1_000_000 } else { 20_000_000 });
        LinkConfig { rate: Some(rate), ..config }
    };
    let mut star = star(9, 3_000_000, &[Misbehaviour::Honest; 2], slow);
    star.simulation.at(ms(200), Fault::Kill { source: 1, unreachable: false });
    star.simulation.at(ms(4_000), Fault::Restart { source: 1 });
    // Alone, the slow path would need 24 s.
    let seconds = star.finish(40);
    assert!(seconds < 9.0, "{seconds:.2} s");
}

#[test]
fn an_unknown_content_is_refused_and_fetched_elsewhere() {
    let content = Content::random(1, 1_000_000);
    let mut simulation = Simulation::new(1);
    let receiver = simulation.receiver(Span::ZERO);
    for i in 0..2 {
        let store = if i == 0 { Content::random(2, 1_000_000) } else { content.clone() };
        let source = simulation.source(&[store], Misbehaviour::Honest);
        let config = LinkConfig::new(Rate::from_bits(20_000_000), Span::from_millis(10));
        let links = ["down", "up"].map(|way| simulation.link(&format!("{way} {i}"), config.clone()));
        let spec = PathSpec::new(&links[..1], &links[1..], Algorithm::by_name("nmcc").unwrap());
        simulation.path(receiver, source, &spec);
    }
    let want = simulation.want(receiver, &content, Time::ZERO);
    assert!(simulation.run_to_end(ms(10_000)));
    assert!(simulation.progress(receiver, want).is_identical());
    assert!(simulation.events(receiver).iter().any(|(_, e)| matches!(e, Event::Refused { source: 0, .. })));
}
