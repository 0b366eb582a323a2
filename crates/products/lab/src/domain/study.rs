//! Runs the study: lists its cases, runs one draw, and computes the figures from many draws.

use std::sync::Arc;

use anabranch_topology::graph::{Graph, GraphError};
use anabranch_topology::import::Defaults;
use anabranch_topology::zoo::{BUILTIN, Builtin};

use super::draw::{Draw, Parameters, Policy, has_disjoint_pair};
use super::network::{Network, Rule};
pub use super::rank_gain::Mean;
use super::rank_gain::{RankGain, more, sum};
use super::{fluid, packets};

/// Number of paths of a multipath client in Fig. 4.16; the dissertation does not give it.
const FRIENDLINESS_PATHS: usize = 2;
/// Settings of Fig. 4.16: rate of the network's links, Mbit/s, and the longest access delay, ms. Those of
/// (a) come first, then those of (b); the setting (10, 125) is in both.
pub const FRIENDLINESS: [(u64, u64); 5] = [(1_000, 125), (100, 125), (10, 125), (10, 250), (10, 500)];
/// Rates of the network's links in Fig. 4.17, Mbit/s: (a), (b), (c) and (d).
pub const CAPACITIES_MBITS: [u64; 3] = [10, 100, 1_000];
/// Longest access delay in Fig. 4.17, ms.
const GAINS_DELAY_MAX_MS: u64 = 125;
/// Policies by which paths are selected in Fig. 4.17.
pub const POLICIES: [Policy; 3] = [Policy::Shortest(2), Policy::Shortest(3), Policy::Disjoint];
/// Limit of every queue, packets: the default of ns-3's drop-tail queue. The dissertation, which used ns-3,
/// prints none.
pub const QUEUE_PACKETS: u32 = 100;
/// Most draws of a network.
pub const DRAWS_MAX: u64 = 100_000;

/// The world that rates come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// The steady state, from the fluid model.
    Fluid,
    /// The packet simulator: mean rates between two times after the start.
    Packets {
        /// Start of the counted time, seconds.
        from_s: u64,
        /// End of the counted time, seconds.
        until_s: u64,
    },
}

impl World {
    /// Returns the rate of each flow, packets a second, and the residual of the fluid model (zero for
    /// packets). For packets, `seed` decides the flows' starts.
    pub(super) fn rates(self, network: &Network, seed: u64) -> (Vec<f64>, f64) {
        match self {
            Self::Fluid => {
                let steady = fluid::solve(network);
                (steady.flow_rates(), steady.residual)
            }
            Self::Packets { from_s, until_s } => {
                (packets::rates(network, seed, &[from_s, until_s]).pop().unwrap_or_default(), 0.0)
            }
        }
    }
}

/// The settings of a study.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed that decides everything random.
    pub seed: u64,
    /// Number of draws of each network.
    pub draws: u64,
    /// Limit of every queue, packets.
    pub queue_packets: u32,
    /// World that the rates come from.
    pub world: World,
    /// The networks.
    pub networks: Vec<Arc<StudyNetwork>>,
}

/// A network of the study.
#[derive(Clone, Debug)]
pub struct StudyNetwork {
    /// Name of the network, which decides the draws together with the seed.
    pub name: String,
    graph: Graph,
}

impl StudyNetwork {
    /// Creates a network of the study.
    ///
    /// # Errors
    /// If it has fewer than two access nodes, where clients are, or too many for the graph's limits with all
    /// clients.
    pub fn new(name: &str, graph: Graph) -> Result<Self, String> {
        let count = graph.access_nodes().len();
        if count < 2 {
            return Err(format!(
                "{name} has {count} nodes with a single line, where clients are, and needs at least 2"
            ));
        }
        let network = Self { name: name.to_owned(), graph };
        Both::new(&network, 0, 0).map_err(|error| format!("{name} has no room for all clients: {error}"))?;
        Ok(network)
    }
}

impl From<&Builtin> for StudyNetwork {
    fn from(builtin: &Builtin) -> Self {
        Self { name: builtin.name.to_owned(), graph: builtin.network(&Defaults::default()).graph }
    }
}

impl Options {
    /// Creates a study of all built-in networks by the fluid model.
    #[must_use]
    pub fn new(seed: u64, draws: u64) -> Self {
        let networks = BUILTIN.iter().map(|builtin| Arc::new(StudyNetwork::from(builtin))).collect();
        Self { seed, draws, queue_packets: QUEUE_PACKETS, world: World::Fluid, networks }
    }

    /// Returns one task for each draw of each network.
    #[must_use]
    pub fn tasks(&self) -> Vec<Task> {
        let task =
            |(options, network): (&Self, usize), draw| Task { options: options.clone(), network, draw };
        (0..self.networks.len())
            .flat_map(|n| (0..self.draws).map(move |draw| task((self, n), draw)))
            .collect()
    }
}

/// The setting of the links and clients in one case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Rate of the network's links, Mbit/s.
    pub core_mbits: u64,
    /// Longest access delay, ms.
    pub delay_max_ms: u64,
    /// Behaviour of the clients.
    pub clients: Clients,
}

/// The behaviour of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Single-homed clients; half of them have several paths, the others one TCP (Fig. 4.16).
    Half {
        /// Rule of the clients with several paths.
        rule: Rule,
        /// Number of their paths, which are the shortest.
        paths: usize,
    },
    /// Dual-homed clients, all with NMCC over several paths (Fig. 4.17).
    All {
        /// Policy that selects the paths.
        policy: Policy,
        /// Whether the topology manager reports which paths share a link. Otherwise all paths are in one
        /// group.
        assisted: bool,
    },
}

/// Returns all cases, in the order of [`DrawResult::rates`].
#[must_use]
pub fn cases() -> Vec<Case> {
    let half = |(core_mbits, delay_max_ms)| {
        let half = |rule| Clients::Half { rule, paths: FRIENDLINESS_PATHS };
        let case = move |rule| Case { core_mbits, delay_max_ms, clients: half(rule) };
        [Rule::Nmcc, Rule::Lia].map(case)
    };
    let all = |core_mbits| {
        let case = move |policy, assisted| Case {
            core_mbits,
            delay_max_ms: GAINS_DELAY_MAX_MS,
            clients: Clients::All { policy, assisted },
        };
        let single = [Policy::Single, Policy::SingleFast].map(|policy| case(policy, false));
        let several = POLICIES.into_iter().flat_map(move |policy| [false, true].map(|tm| case(policy, tm)));
        single.into_iter().chain(several)
    };
    FRIENDLINESS.into_iter().flat_map(half).chain(CAPACITIES_MBITS.into_iter().flat_map(all)).collect()
}

/// One draw of one network.
#[derive(Clone, Debug)]
pub struct Task {
    options: Options,
    network: usize,
    draw: u64,
}

/// The results of a draw.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawResult {
    /// Rate of each client in each case, packets a second.
    pub rates: Vec<Vec<f64>>,
    /// Fraction of the clients with two paths that share no link, for each of [`POLICIES`].
    pub disjoint: [f64; POLICIES.len()],
    /// Worst residual of the fluid model ([`fluid::Steady::residual`]).
    pub residual: f64,
}

impl Task {
    /// Runs all cases of the draw.
    #[must_use]
    pub fn run(&self) -> DrawResult {
        let Self { options, network, draw } = self;
        let mut result = DrawResult { rates: Vec::new(), disjoint: [0.0; POLICIES.len()], residual: 0.0 };
        // The graph has room: this was checked when the network was made.
        let Ok(both) = Both::new(&options.networks[*network], options.seed, *draw) else { return result };
        for (place, policy) in POLICIES.into_iter().enumerate() {
            let apart = both.dual.paths(policy).iter().filter(|paths| has_disjoint_pair(paths)).count();
            result.disjoint[place] = apart as f64 / both.dual.clients().max(1) as f64;
        }
        for case in cases() {
            let network = both.network(&case, options.queue_packets);
            let (rates, residual) = options.world.rates(&network, options.seed.wrapping_add(*draw));
            result.residual = result.residual.max(residual);
            result.rates.push(rates);
        }
        result
    }
}

/// One draw with single-homed clients, and the corresponding draw with dual-homed clients.
pub(super) struct Both {
    single: Draw,
    dual: Draw,
}

impl Both {
    pub(super) fn new(network: &StudyNetwork, seed: u64, draw: u64) -> Result<Self, GraphError> {
        let StudyNetwork { name, graph } = network;
        let new = |is_dual_homed| Draw::new(name, graph, is_dual_homed, seed, draw);
        Ok(Self { single: new(false)?, dual: new(true)? })
    }

    /// Returns whether each client has several paths, in cases where half of them do.
    pub(super) fn multipath_of_half(&self) -> Vec<bool> {
        self.single.multipath_of_half()
    }

    pub(super) fn network(&self, case: &Case, queue_packets: u32) -> Network {
        let parameters = Parameters {
            core_rate_bits: case.core_mbits * 1_000_000,
            access_delay_max_ms: case.delay_max_ms as f64,
            queue_packets,
        };
        match case.clients {
            Clients::Half { rule, paths } => {
                let paths = self.single.paths(Policy::Shortest(paths));
                self.single.half_multipath(&parameters, rule, &paths)
            }
            Clients::All { policy, assisted } => {
                let paths = self.dual.paths(policy);
                let groups = assisted.then(|| self.dual.groups(&paths));
                self.dual.network(&parameters, Rule::Nmcc, &paths, groups.as_deref())
            }
        }
    }
}

/// A setting of Fig. 4.16.
#[derive(Clone, Debug, PartialEq)]
pub struct Friendliness {
    /// Rate of the network's links, Mbit/s.
    pub core_mbits: u64,
    /// The longest access delay, ms.
    pub delay_max_ms: u64,
    /// Gains of NMCC over LIA.
    pub ranks: RankGain,
}

/// Gains of one policy at one capacity over single paths (Fig. 4.17), percent of the sum of all rates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gain {
    /// Gain with all paths of a client in one group.
    pub without: Mean,
    /// Gain with groups from the topology manager.
    pub with: Mean,
    /// Mean of the differences between the two, percentage points.
    pub added: Mean,
    /// Both gains over single paths that always use the fast access link.
    pub over_fast: (f64, f64),
}

/// All gains of a network, or of the mean of the networks.
#[derive(Clone, Debug, PartialEq)]
pub struct Gains {
    /// Gains by capacity and policy.
    pub gains: [[Gain; POLICIES.len()]; CAPACITIES_MBITS.len()],
    /// Fraction of the clients with two disjoint paths by policy, percent.
    pub disjoint: [f64; POLICIES.len()],
}

/// The results that the figures show.
#[derive(Clone, Debug)]
pub struct Study {
    /// Settings of the study.
    pub options: Options,
    /// Fig. 4.16, by [`FRIENDLINESS`].
    pub friendliness: Vec<Friendliness>,
    /// Fig. 4.17, by network.
    pub networks: Vec<Gains>,
    /// Fig. 4.17 for the mean of the networks.
    pub mean: Gains,
    /// Worst residual of the fluid model, and the number of draws whose residual exceeds 0.01.
    pub residual: (f64, usize),
}

impl Study {
    /// Computes the study from the results of all tasks, in their order.
    ///
    /// # Panics
    /// If the number of results differs from the number of tasks.
    #[must_use]
    pub fn new(options: Options, results: &[DrawResult]) -> Self {
        let draws = options.draws.max(1) as usize;
        assert_eq!(results.len(), draws * options.networks.len(), "a result of each task");
        let networks: Vec<&[DrawResult]> = results.chunks(draws).collect();
        let friendliness = |(n, (core_mbits, delay_max_ms))| {
            let rates =
                results.iter().map(|draw| [2 * n, 2 * n + 1].map(|case: usize| &draw.rates[case][..]));
            Friendliness { core_mbits, delay_max_ms, ranks: RankGain::new(rates) }
        };
        let friendliness = FRIENDLINESS.into_iter().enumerate().map(friendliness).collect();
        let gains: Vec<Gains> = networks.iter().map(|draws| gains(draws)).collect();
        let worst = results.iter().map(|r| r.residual).fold(0.0, f64::max);
        let residual = (worst, results.iter().filter(|r| r.residual > 0.01).count());
        Self { options, friendliness, mean: mean(&gains), networks: gains, residual }
    }
}

fn gains(draws: &[DrawResult]) -> Gains {
    let first = 2 * FRIENDLINESS.len();
    let per_capacity = 2 + 2 * POLICIES.len();
    let gain = |capacity: usize, policy: usize| {
        let case = |n: usize| first + capacity * per_capacity + n;
        let of = |assisted: usize, base: usize| -> Vec<f64> {
            let total = |draw: &DrawResult, n: usize| sum(&draw.rates[case(n)]);
            draws.iter().map(|draw| more(total(draw, 2 + 2 * policy + assisted), total(draw, base))).collect()
        };
        let (without, with) = (of(0, 0), of(1, 0));
        let added: Vec<f64> = with.iter().zip(&without).map(|(with, without)| with - without).collect();
        let over_fast = (Mean::of(&of(0, 1)).mean, Mean::of(&of(1, 1)).mean);
        Gain { without: Mean::of(&without), with: Mean::of(&with), added: Mean::of(&added), over_fast }
    };
    let disjoint = |policy: usize| {
        100.0 * draws.iter().map(|draw| draw.disjoint[policy]).sum::<f64>() / draws.len().max(1) as f64
    };
    Gains {
        gains: std::array::from_fn(|capacity| std::array::from_fn(|policy| gain(capacity, policy))),
        disjoint: std::array::from_fn(disjoint),
    }
}

fn mean(networks: &[Gains]) -> Gains {
    let n = networks.len().max(1) as f64;
    let gain = |capacity: usize, policy: usize| {
        let all = || networks.iter().map(move |network| network.gains[capacity][policy]);
        let means = |of: fn(Gain) -> Mean| Mean::of_means(&all().map(of).collect::<Vec<_>>());
        let fast = |of: fn(Gain) -> f64| all().map(of).sum::<f64>() / n;
        Gain {
            without: means(|gain| gain.without),
            with: means(|gain| gain.with),
            added: means(|gain| gain.added),
            over_fast: (fast(|gain| gain.over_fast.0), fast(|gain| gain.over_fast.1)),
        }
    };
    Gains {
        gains: std::array::from_fn(|capacity| std::array::from_fn(|policy| gain(capacity, policy))),
        disjoint: std::array::from_fn(|policy| {
            networks.iter().map(|net| net.disjoint[policy]).sum::<f64>() / n
        }),
    }
}
