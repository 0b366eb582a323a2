//! Tests the domain-scale study: the fluid model against packets, and invariants of every draw.

use std::path::Path;
use std::sync::Arc;

use anabranch_lab::domain::check::Check;
use anabranch_lab::domain::draw::{Draw, Parameters, Policy};
use anabranch_lab::domain::fluid;
use anabranch_lab::domain::network::Rule;
use anabranch_lab::domain::rank_pairs::{
    self, PAIRS, Pair, PairGain, PairResult, PairTask, SETTINGS, pair_gains,
};
use anabranch_lab::domain::study::{
    Case, Clients, DrawResult, Options, POLICIES, Study, StudyNetwork, Task, World,
};
use anabranch_lab::named_network;
use anabranch_topology::import::{self, Defaults};
use anabranch_topology::zoo::Builtin;

/// Five small cases in both worlds. The sum of all rates is within 8 %. Single clients differ more: where a
/// few flows share a drop-tail queue, phase decides which one loses (Goodnet, single paths: 48 %), and
/// windows have not gone through many cycles in 96 s.
#[test]
fn the_model_is_near_the_packets() {
    let half = |rule| Clients::Half { rule, paths: 2 };
    let all = |policy, assisted| Clients::All { policy, assisted };
    let cases = [
        ("SwitchL3", half(Rule::Nmcc)),
        ("Geant2012", half(Rule::Lia)),
        ("Goodnet", all(Policy::Single, false)),
        ("Geant2012", all(Policy::Shortest(3), true)),
        ("Goodnet", all(Policy::Disjoint, true)),
    ];
    let mut clients_differ = 0.0;
    for (network, clients) in cases {
        let case = Case { core_mbits: 10, delay_max_ms: 125, clients };
        let compared = Check { network, draw: 0, case, seconds: 120 }.run(1).expect("a network");
        let (aggregate, client) = (compared.aggregate_error(), compared.client_error());
        println!("{network} {clients:?}: sum {aggregate:+.1} %, a client {client:.1} %");
        assert!(aggregate.abs() < 8.0, "{network} {clients:?}: the sum differs by {aggregate:.1} %");
        assert!(client < 60.0, "{network} {clients:?}: clients differ by {client:.1} %");
        clients_differ += client / cases.len() as f64;
    }
    assert!(clients_differ < 30.0, "clients differ by {clients_differ:.1} % in the mean");
}

fn studied(name: &str) -> Arc<StudyNetwork> {
    Arc::new(StudyNetwork::from(Builtin::named(name).expect("built in")))
}

/// A network from a file gives the results of an equal network that is built in.
#[test]
fn a_file_is_studied_as_what_is_built_in() {
    let builtin = Builtin::named("Gridnet").expect("built in").network(&Defaults::default());
    let file = std::env::temp_dir().join(format!("anabranch-domain-{}.net", std::process::id()));
    std::fs::write(&file, import::write("x", &builtin.graph)).expect("written");
    let read = named_network::read(&file.display().to_string(), Path::new(""), &Defaults::default());
    std::fs::remove_file(&file).expect("removed");
    let own = StudyNetwork::new("Gridnet", read.expect("a network").graph).expect("it can be studied");
    let run = |network| {
        let options = Options { networks: vec![network], ..Options::new(1, 1) };
        options.tasks().iter().map(Task::run).collect::<Vec<_>>()
    };
    assert_eq!(run(Arc::new(own)), run(studied("Gridnet")));
    let ring = "network r\nnode a\nnode b\nnode c\nlink 0 1\nlink 1 2\nlink 2 0\n";
    let ring = import::read(ring.as_bytes(), &Defaults::default()).expect("a network").graph;
    let what = StudyNetwork::new("r", ring).expect_err("no node has a single line");
    assert!(what.starts_with("r has 0 nodes with a single line"), "{what}");
}

fn small(seed: u64, draws: u64) -> Options {
    let networks = ["Nsfnet", "Gridnet", "SwitchL3"].map(studied);
    Options { networks: networks.to_vec(), ..Options::new(seed, draws) }
}

fn results(options: &Options) -> Vec<DrawResult> {
    options.tasks().iter().map(Task::run).collect()
}

#[test]
fn a_seed_makes_a_study() {
    let options = small(7, 2);
    let first = results(&options);
    assert_eq!(first, results(&options));
    assert_ne!(first, results(&small(8, 2)));
    // More draws leave the earlier draws unchanged.
    let more = results(&small(7, 3));
    for network in 0..3 {
        assert_eq!(first[2 * network..2 * network + 2], more[3 * network..3 * network + 2]);
    }
}

#[test]
fn what_the_figures_show() {
    let options = small(1, 10);
    let study = Study::new(options.clone(), &results(&options));
    assert!(study.residual.0 < 0.01, "{:?}", study.residual);
    for setting in &study.friendliness {
        for curve in &setting.ranks.relative {
            assert!(curve.is_sorted() && curve[0] > 0.0, "{curve:?}");
            assert!((curve[curve.len() - 1] - 100.0).abs() < 1e-9);
        }
        assert!((0.0..=100.0).contains(&setting.ranks.gaining));
    }
    // Unequal delays make unequal rates (Fig. 4.16 b.1).
    let slowest = |n: usize| study.friendliness[n].ranks.relative[0][0];
    assert!(slowest(2) > slowest(4), "{} {}", slowest(2), slowest(4));
    let mean = &study.mean;
    assert!(mean.disjoint[0] <= mean.disjoint[1] && mean.disjoint[1] <= mean.disjoint[2]);
    for (place, gains) in mean.gains.iter().enumerate() {
        for (policy, gain) in gains.iter().enumerate() {
            // Knowing which paths are disjoint does not harm all clients together, though it may harm one.
            assert!(gain.added.mean > -1.0, "{place} {:?}: {gain:?}", POLICIES[policy]);
        }
    }
    // A third path, and wider links, bring more (Fig. 4.17).
    assert!(mean.gains[2][1].with.mean > mean.gains[2][0].with.mean);
    assert!(mean.gains[2][0].with.mean > mean.gains[0][0].with.mean);
    // 112 Mbit/s over two access links are at most 12 % more than the fast link alone gives.
    assert!(mean.gains[2].iter().all(|gain| gain.over_fast.1 < 15.0));
}

/// The gain of the slowest in Fig. 4.16 is bounded: uncoupled clients take about as much as they have paths,
/// LIA and NMCC do not. If rates are measured only for seconds, chance alone makes a mean of gains.
#[test]
fn where_a_gain_of_the_slowest_comes_from() {
    let options = small(1, 3);
    let tasks = rank_pairs::tasks(&options);
    let results: Vec<PairResult> = tasks.iter().map(PairTask::run).collect();
    assert_eq!(results[0], tasks[0].run());
    let gains = pair_gains(&options, &results);
    assert_eq!(gains.len(), SETTINGS.len() * PAIRS.len());
    let find = |rules, paths, fluid| {
        let is = |gain: &&PairGain| {
            let Pair { world, .. } = gain.pair;
            (gain.pair.rules, gain.pair.paths, world == World::Fluid) == (rules, paths, fluid)
        };
        gains.iter().find(is).expect("in the list")
    };
    let lia = find([Rule::Nmcc, Rule::Lia], 3, true);
    let uncoupled = find([Rule::Nmcc, Rule::Reno], 3, true);
    assert_eq!(lia.multipath_share[0], uncoupled.multipath_share[0]);
    assert!(lia.ranks.slowest.mean < 5.0 && uncoupled.ranks.slowest.mean > 25.0, "{lia:?} {uncoupled:?}");
    assert!(uncoupled.single_gain > lia.single_gain + 10.0, "{uncoupled:?}");
    // With one rule on both sides, only the starts differ, so the results differ by some packets.
    let anew = find([Rule::Lia, Rule::Lia], 2, false);
    assert!(anew.pair.is_restarted && anew.ranks.gain[0] != 0.0, "{anew:?}");
    assert!(anew.ranks.aggregate.mean.abs() < 10.0, "{anew:?}");
}

/// No link carries more than its capacity, in any case of any network.
#[test]
fn no_link_is_overloaded() {
    for name in ["Bren", "Globalcenter", "Ans"] {
        let graph = Builtin::named(name).expect("built in").network(&Defaults::default()).graph;
        let draw = Draw::new(name, &graph, true, 3, 0).expect("room");
        for core_rate_bits in [10_000_000, 1_000_000_000] {
            let parameters = Parameters { core_rate_bits, access_delay_max_ms: 500.0, queue_packets: 100 };
            let paths = draw.paths(Policy::Shortest(3));
            let groups = draw.groups(&paths);
            let network = draw.network(&parameters, Rule::Nmcc, &paths, Some(&groups));
            let steady = fluid::solve(&network);
            let mut load = vec![0.0; network.links.len()];
            for (flow, rates) in network.flows.iter().zip(&steady.rates) {
                for (path, rate) in flow.paths.iter().zip(rates) {
                    assert!(*rate > 0.0);
                    path.links.iter().for_each(|link| load[*link] += rate);
                }
            }
            for (link, load) in network.links.iter().zip(&load) {
                assert!(*load <= 1.01 * link.packets_per_second(), "{name}: {load} on {link:?}");
            }
        }
    }
}

#[test]
fn the_same_study_runs_in_the_packet_simulator() {
    let world = World::Packets { from_s: 3, until_s: 5 };
    let networks = vec![studied("Nsfnet")];
    let options = Options { world, networks, ..Options::new(1, 1) };
    let rates = &results(&options)[0].rates;
    assert!(rates.iter().all(|clients| clients.len() == 6 && clients.iter().sum::<f64>() > 100.0));
}
