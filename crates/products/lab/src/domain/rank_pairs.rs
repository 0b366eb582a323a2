//! Tests possible origins of the printed curve of Fig. 4.16: gains by rank against an uncoupled rule, rates
//! measured soon after the start, and differences by chance alone.

use super::network::Rule;
use super::rank_gain::{RankGain, more};
use super::study::{Both, Case, Clients, Options, World};

/// Settings in which pairs are compared: rate of the network's links, Mbit/s, and the longest access delay,
/// ms.
pub const SETTINGS: [(u64, u64); 2] = [(10, 125), (10, 500)];
/// Most draws of each network: packet simulations are slow.
pub const PAIR_DRAWS_MAX: u64 = 20;
/// Number added to the seed of the flows' start on the other side, if flows start at other times there.
const RESTARTED: u64 = 1 << 32;
/// Three seconds just after all flows have started.
const AT_ONCE: World = World::Packets { from_s: 1, until_s: 4 };
/// Three seconds after most flows have left slow start.
const LATER: World = World::Packets { from_s: 10, until_s: 13 };

/// Two ways to send in equal draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Rule of the multipath clients, and the other rule.
    pub rules: [Rule; 2],
    /// Number of paths of a multipath client.
    pub paths: usize,
    /// World that the rates come from.
    pub world: World,
    /// Whether the flows start at other times on the other side.
    pub is_restarted: bool,
}

/// Pairs that the report shows. Uncoupled means a TCP on each path, the least friendly behaviour of a
/// client.
pub const PAIRS: [Pair; 10] = [
    pair([Rule::Nmcc, Rule::Lia], 2, World::Fluid),
    pair([Rule::Nmcc, Rule::Lia], 3, World::Fluid),
    pair([Rule::Nmcc, Rule::Reno], 2, World::Fluid),
    pair([Rule::Nmcc, Rule::Reno], 3, World::Fluid),
    pair([Rule::Nmcc, Rule::Lia], 2, AT_ONCE),
    pair([Rule::Nmcc, Rule::Lia], 3, AT_ONCE),
    pair([Rule::Nmcc, Rule::Lia], 2, LATER),
    pair([Rule::Nmcc, Rule::Lia], 3, LATER),
    Pair { is_restarted: true, ..pair([Rule::Lia, Rule::Lia], 2, AT_ONCE) },
    Pair { is_restarted: true, ..pair([Rule::Lia, Rule::Lia], 2, LATER) },
];

const fn pair(rules: [Rule; 2], paths: usize, world: World) -> Pair {
    Pair { rules, paths, world, is_restarted: false }
}

/// A draw of a network in which one pair is compared.
#[derive(Clone, Debug)]
pub struct PairTask {
    options: Options,
    network: usize,
    draw: u64,
    setting: (u64, u64),
    pair: Pair,
}

/// Returns one task for each setting, pair, network and draw.
#[must_use]
pub fn tasks(options: &Options) -> Vec<PairTask> {
    let mut tasks = Vec::new();
    for setting in SETTINGS {
        for pair in PAIRS {
            for network in 0..options.networks.len() {
                let task = |draw| PairTask { options: options.clone(), network, draw, setting, pair };
                tasks.extend((0..options.draws.min(PAIR_DRAWS_MAX)).map(task));
            }
        }
    }
    tasks
}

/// The result of a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairResult {
    /// Rate of each client on both sides, packets a second.
    pub rates: [Vec<f64>; 2],
    /// Whether each client has several paths.
    pub is_multipath: Vec<bool>,
}

impl PairTask {
    /// Runs both sides.
    #[must_use]
    pub fn run(&self) -> PairResult {
        let Self { options, network, draw, setting: (core_mbits, delay_max_ms), pair } = self;
        // The graph has room: this was checked when the network was made.
        let Ok(both) = Both::new(&options.networks[*network], options.seed, *draw) else {
            return PairResult::default();
        };
        let seed = options.seed.wrapping_add(*draw);
        let seeds = [seed, if pair.is_restarted { seed.wrapping_add(RESTARTED) } else { seed }];
        let side = |side: usize| {
            let clients = Clients::Half { rule: pair.rules[side], paths: pair.paths };
            let case = Case { core_mbits: *core_mbits, delay_max_ms: *delay_max_ms, clients };
            pair.world.rates(&both.network(&case, options.queue_packets), seeds[side]).0
        };
        PairResult { rates: [0, 1].map(side), is_multipath: both.multipath_of_half() }
    }
}

/// A pair in one setting over all draws.
#[derive(Clone, Debug, PartialEq)]
pub struct PairGain {
    /// Rate of the network's links, Mbit/s, and the longest access delay, ms.
    pub setting: (u64, u64),
    /// Pair that is compared.
    pub pair: Pair,
    /// Gains by rank of the first side over the second.
    pub ranks: RankGain,
    /// Mean rate of a multipath client divided by that of a single-path client, on both sides.
    pub multipath_share: [f64; 2],
    /// Gain of all single-path clients together, percent.
    pub single_gain: f64,
}

/// Computes the gains of all pairs from the results of all [`tasks`] in their order.
///
/// # Panics
/// If the number of results differs from the number of tasks.
#[must_use]
pub fn pair_gains(options: &Options, results: &[PairResult]) -> Vec<PairGain> {
    let draws = options.networks.len() * options.draws.min(PAIR_DRAWS_MAX) as usize;
    assert_eq!(results.len(), SETTINGS.len() * PAIRS.len() * draws, "a result of each task");
    let places = SETTINGS.iter().flat_map(|setting| PAIRS.iter().map(move |pair| (*setting, *pair)));
    let gain = |((setting, pair), results): ((_, _), &[PairResult])| {
        let total = |side: usize, is_multipath: bool| -> f64 {
            let chosen = |result: &PairResult| -> f64 {
                let clients = result.rates[side].iter().zip(&result.is_multipath);
                clients.filter(|(_, multipath)| **multipath == is_multipath).map(|(rate, _)| rate).sum()
            };
            results.iter().map(chosen).sum()
        };
        // Both kinds have equally many clients.
        let share = |side| total(side, true) / total(side, false).max(f64::MIN_POSITIVE);
        PairGain {
            setting,
            pair,
            ranks: RankGain::new(results.iter().map(|result| [0, 1].map(|n: usize| &result.rates[n][..]))),
            multipath_share: [0, 1].map(share),
            single_gain: more(total(0, false), total(1, false)),
        }
    };
    places.zip(results.chunks(draws.max(1))).map(gain).collect()
}
