//! Where the printed curve of Fig. 4.16 may come from: gains by rank where the other side is no coupled rule,
//! where rates are measured soon after the start, and where nothing differs but chance.

use super::network::Rule;
use super::rank_gain::{RankGain, more};
use super::study::{Both, Case, Clients, Options, World};

/// The settings in which they are compared: rate of the network's links, Mbit/s, and the longest access
/// delay, ms.
pub const SETTINGS: [(u64, u64); 2] = [(10, 125), (10, 500)];
/// Draws of each network at most: packets take their time.
pub const PAIR_DRAWS_MAX: u64 = 20;
/// What the seed of the flows' start is for the other side, where flows start at other times.
const RESTARTED: u64 = 1 << 32;
/// Three seconds just after all have started.
const AT_ONCE: World = World::Packets { from_s: 1, until_s: 4 };
/// Three seconds once most have left slow start.
const LATER: World = World::Packets { from_s: 10, until_s: 13 };

/// Two ways to send in the same draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The rule of the multipath clients, and the other one.
    pub rules: [Rule; 2],
    /// Paths of a multipath client.
    pub paths: usize,
    /// Where rates come from.
    pub world: World,
    /// Whether the flows start at other times on the other side.
    pub is_restarted: bool,
}

/// The pairs that the report shows. Uncoupled: a TCP on each path, the least friendly that a client can be.
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

/// One task for each draw of each network, for each pair, for each setting.
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

/// What became of a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairResult {
    /// The rate of each client on both sides, packets a second.
    pub rates: [Vec<f64>; 2],
    /// Which clients have several paths.
    pub is_multipath: Vec<bool>,
}

impl PairTask {
    /// Runs both sides.
    #[must_use]
    pub fn run(&self) -> PairResult {
        let Self { options, network, draw, setting: (core_mbits, delay_max_ms), pair } = self;
        // It has room: that was seen when it was made.
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
    /// What is compared.
    pub pair: Pair,
    /// Gains by rank of the one over the other.
    pub ranks: RankGain,
    /// The mean rate of a client with several paths in that of one with a TCP, of both.
    pub multipath_share: [f64; 2],
    /// What the clients with one TCP gain together, percent.
    pub single_gain: f64,
}

/// All pairs, from the results of all [`tasks`] in their order.
///
/// # Panics
/// If there are not as many as tasks.
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
        // There are as many of the one kind as of the other.
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
