//! Runs `anabranch lab domain`: the study of whole networks. The crate `lab` has the study and its tables.

use std::path::Path;
use std::sync::Arc;

use anabranch_lab::domain::check::{Check, Compared, checks};
use anabranch_lab::domain::rank_pairs::{self, PairTask, pair_gains};
use anabranch_lab::domain::report::{Page, tables};
use anabranch_lab::domain::study::{
    CAPACITIES_MBITS, Gains, Mean, Options, POLICIES, QUEUE_PACKETS, Study, StudyNetwork, Task, World,
};
use anabranch_lab::named_network;
use anabranch_lab::sweep::pool;
use anabranch_topology::import::Defaults;
use anabranch_topology::zoo::Builtin;
use serde::Serialize;

use super::args::Domain;
use super::output::{check_writable, save};
use super::workers::Workers;
use crate::exit::{Failure, Outcome};
use crate::json;
use crate::names::show;
use crate::signals::stop_signals;
use crate::stdout::print;
use crate::view::{note, printable};

/// The start and the end, in seconds, of the time in which the dissertation may have measured: all flows have
/// started by then and left slow start.
const SOON_S: (u64, u64) = (10, 13);
/// The length of the page's longer queues, as a multiple of the study's.
const LONG_QUEUES: u32 = 10;

/// Runs the study and prints its tables, or writes the page.
///
/// # Errors
/// 2 if there is no such network, 6 if the page cannot be written, 130 on Ctrl-C.
pub(super) fn domain(args: &Domain) -> Outcome {
    let mut options = Options::new(args.seed, args.draws);
    options.queue_packets = args.queue.unwrap_or(QUEUE_PACKETS);
    if !args.network.is_empty() {
        let wrong = |what: String| Failure::usage(format!("--network: {}", printable(&what)));
        let named = |name: &String| {
            let network = named_network::read(name, Path::new(""), &Defaults::default()).map_err(wrong)?;
            let builtin = Builtin::named(name).map(|builtin| builtin.name);
            // A network in a file may have no name.
            let stem = Path::new(name).file_stem().unwrap_or_default().to_string_lossy();
            let studied = StudyNetwork::new(builtin.unwrap_or(&stem), network.graph).map_err(wrong)?;
            Ok(Arc::new(studied))
        };
        options.networks = args.network.iter().map(named).collect::<Result<_, Failure>>()?;
    }
    args.report.as_deref().map_or(Ok(()), check_writable)?;
    let (_wake, stop) = stop_signals()?;
    let run = Workers { jobs: args.jobs.unwrap_or_else(pool::threads), stop, what: "draws" };
    let study = run_study(&run, options.clone())?;
    if args.json {
        print(objects(&study).as_bytes())?;
    } else {
        print(tables(&study).as_bytes())?;
    }
    let Some(path) = &args.report else { return Ok(()) };
    let queue_packets = options.queue_packets.saturating_mul(LONG_QUEUES);
    let long_queues = run_study(&run, Options { queue_packets, ..options.clone() })?;
    let world = World::Packets { from_s: SOON_S.0, until_s: SOON_S.1 };
    let packets = run_study(&run, Options { world, draws: args.packet_draws, ..options.clone() })?;
    let pairs = pair_gains(&options, &run.all(rank_pairs::tasks(&options), PairTask::run)?);
    let (all, seed) = (checks(), options.seed);
    let compared = run.all(all.clone(), move |check: &Check| check.run(seed))?;
    let checks: Vec<(Check, Compared)> =
        all.into_iter().zip(compared).filter_map(|(check, compared)| Some((check, compared?))).collect();
    save(path, &Page { study, long_queues, packets, pairs, checks }.markdown())?;
    note(&format!("{} is written", show(path)));
    Ok(())
}

/// Runs the study with these options.
fn run_study(workers: &Workers, options: Options) -> Result<Study, Failure> {
    let results = workers.all(options.tasks(), Task::run)?;
    Ok(Study::new(options, &results))
}

/// Reports a setting of Fig. 4.16, as a line of JSON.
#[derive(Serialize)]
struct Friendliness {
    core_mbits: u64,
    delay_max_ms: u64,
    nmcc_of_fastest_percent: Vec<f64>,
    lia_of_fastest_percent: Vec<f64>,
    gain_by_rank_percent: Vec<f64>,
    gain_percent: f64,
    gaining_ranks_percent: f64,
}

/// Reports the gains of a network, as a line of JSON.
#[derive(Serialize)]
struct GainObject<'a> {
    /// The name of the network; `None` for the mean of all.
    network: Option<&'a str>,
    core_mbits: u64,
    policy: String,
    disjoint_percent: f64,
    without_tm_percent: f64,
    without_tm_half_percent: f64,
    with_tm_percent: f64,
    with_tm_half_percent: f64,
    added_by_tm_points: f64,
    added_by_tm_half_points: f64,
    without_tm_over_fast_percent: f64,
    with_tm_over_fast_percent: f64,
}

fn objects(study: &Study) -> String {
    let mut out = String::new();
    for setting in &study.friendliness {
        let ranks = &setting.ranks;
        let [nmcc, lia] = ranks.relative.map(|curve| curve.to_vec());
        let object = Friendliness {
            core_mbits: setting.core_mbits,
            delay_max_ms: setting.delay_max_ms,
            nmcc_of_fastest_percent: nmcc,
            lia_of_fastest_percent: lia,
            gain_by_rank_percent: ranks.gain.to_vec(),
            gain_percent: ranks.aggregate.mean,
            gaining_ranks_percent: ranks.gaining,
        };
        out += &json::text("friendliness", &object);
    }
    let names = study.options.networks.iter().map(|studied| Some(studied.name.as_str()));
    for (network, gains) in names.zip(&study.networks).chain([(None, &study.mean)]) {
        out += &gain_objects(network, gains);
    }
    out
}

fn gain_objects(network: Option<&str>, gains: &Gains) -> String {
    let mut out = String::new();
    for (core_mbits, row) in CAPACITIES_MBITS.into_iter().zip(&gains.gains) {
        for (place, gain) in row.iter().enumerate() {
            let both = |Mean { mean, half }: Mean| (mean, half);
            let (without, with, added) = (both(gain.without), both(gain.with), both(gain.added));
            let object = GainObject {
                network,
                core_mbits,
                policy: POLICIES[place].name(),
                disjoint_percent: gains.disjoint[place],
                without_tm_percent: without.0,
                without_tm_half_percent: without.1,
                with_tm_percent: with.0,
                with_tm_half_percent: with.1,
                added_by_tm_points: added.0,
                added_by_tm_half_points: added.1,
                without_tm_over_fast_percent: gain.over_fast.0,
                with_tm_over_fast_percent: gain.over_fast.1,
            };
            out += &json::text("gain", &object);
        }
    }
    out
}
