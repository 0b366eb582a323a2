//! Runs `anabranch lab cdn`: the study of ephemeral caches, and where the next caches of a network should be.
//! The crate `cdn` has the simulator and its tables.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anabranch_cdn::as_graph::AsGraph;
use anabranch_cdn::place::{Delivery, Question, read_demand, read_sites};
use anabranch_cdn::plan::Plan;
use anabranch_cdn::policy::Policy;
use anabranch_cdn::prefixes::Prefixes;
use anabranch_cdn::study::{self as cdn_study, Measure, Row, Task};
use anabranch_cdn::{figure, links_file, report};
use anabranch_lab::sweep::pool;
use serde::Serialize;

use super::args::Cdn;
use super::study::{self, Shown};
use super::workers::Workers;
use crate::exit::{Failure, Outcome};
use crate::json;
use crate::names::show;
use crate::signals::stop_signals;
use crate::stdout::print;
use crate::view::printable;

/// A leaf network of unknown relations has at most so many lines.
const LEAF_LINES_MAX: usize = 3;
/// One of so many leaf networks of a file without roles is a content provider, about as in the paper.
const CONTENT_EVERY: u32 = 5;
/// Percent of the viewers' streams that a cache serves, unless `--hits` says it.
const HITS_PERCENT: f64 = 90.0;

/// Runs the study, as [`study::run`] does, or answers where caches should be.
///
/// # Errors
/// 2 if a file is missing or makes no sense, and those of [`study::run`].
pub(super) fn cdn(args: &Cdn) -> Outcome {
    let plan = match &args.plan {
        Some(path) => Plan::read(&text(path)?).map_err(|error| wrong(path, &error))?,
        None => Plan::default(),
    };
    if args.demand.is_some() {
        return place(args, &plan);
    }
    let graph = args.links.as_ref().map(|path| graph(args, path)).transpose()?.map(Arc::new);
    let plan = Arc::new(plan);
    let tasks = Task::each(&plan, graph.as_ref(), args.seed, args.seeds);
    study::run(&args.study, "runs", tasks.clone(), Task::run, |results| {
        let rows = cdn_study::rows(&tasks, results)?;
        let boot_s = plan.caches.boot_s;
        Ok(Shown {
            objects: objects(&rows),
            table: format!(
                "{}\n{}\n{}",
                report::table(&rows),
                report::beside(&rows),
                report::claims(&rows, boot_s)
            ),
            page: report::markdown(&rows, &plan, &command(args)),
            figure: figure::figure(&rows, boot_s),
        })
    })
}

/// Returns the command that makes the page again.
fn command(args: &Cdn) -> String {
    let mut out = "anabranch lab cdn".to_owned();
    for (option, path) in [("--plan", &args.plan), ("--links", &args.links), ("--roles", &args.roles)] {
        if let Some(path) = path {
            let _ = write!(out, " {option} {}", show(path));
        }
    }
    let _ = write!(out, " --seed {} --seeds {}", args.seed, args.seeds);
    if let Some(path) = &args.study.report {
        let _ = write!(out, " --report {}", show(path));
    }
    out
}

/// Reads a file of text.
fn text(path: &Path) -> Result<String, Failure> {
    let cannot = |error: std::io::Error| Failure::usage(format!("cannot read {}: {error}", show(path)));
    let mut text = String::new();
    let most = links_file::BYTES_MAX as u64 + 1;
    File::open(path).map_err(cannot)?.take(most).read_to_string(&mut text).map_err(cannot)?;
    Ok(text)
}

fn wrong(path: &Path, error: &impl ToString) -> Failure {
    Failure::usage(format!("{}: {}", show(path), printable(&error.to_string())))
}

/// Reads the network of a file, and what its places are.
fn graph(args: &Cdn, links: &Path) -> Result<AsGraph, Failure> {
    let mut graph = links_file::read(&text(links)?).map_err(|error| wrong(links, &error))?;
    let mut turn = 0u32;
    graph.classify(LEAF_LINES_MAX, || {
        turn += 1;
        turn.is_multiple_of(CONTENT_EVERY)
    });
    if let Some(roles) = &args.roles {
        links_file::read_roles(&text(roles)?, &mut graph).map_err(|error| wrong(roles, &error))?;
    }
    Ok(graph)
}

/// Reports a policy, as a line of JSON: means over the seeds.
#[derive(Serialize)]
struct PolicyObject {
    policy: &'static str,
    deployed_percent: Option<u32>,
    boot_s: Option<f64>,
    seed: u64,
    streams: usize,
    /// Percentiles 0, 5, … 100; `null` for streams that never start.
    start_s: Vec<Option<f64>>,
    buffering_percent: Vec<f64>,
    stalls_per_minute: Vec<f64>,
    playback_percent: Vec<f64>,
    mean_buffering_percent: f64,
    cached_percent: f64,
    boots: u32,
    origin_terabytes: f64,
}

fn objects(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        for (seed, run) in &row.runs {
            let at = |measure: Measure| (0..=100).step_by(5).map(move |percent| run.at(measure, percent));
            let (policy, deployed_percent, boot_s) = match row.policy {
                Policy::Origin => ("origin", None, None),
                Policy::Traditional { deployed_percent } => ("traditional", Some(deployed_percent), None),
                Policy::Ephemeral { boot_s, .. } => ("ephemeral", None, Some(boot_s)),
            };
            let object = PolicyObject {
                policy,
                deployed_percent,
                boot_s,
                seed: *seed,
                streams: run.streams,
                start_s: at(Measure::Start)
                    .map(|start| Some(start).filter(|start| start.is_finite()))
                    .collect(),
                buffering_percent: at(Measure::Buffering).collect(),
                stalls_per_minute: at(Measure::Stalls).collect(),
                playback_percent: at(Measure::Playback).collect(),
                mean_buffering_percent: run.mean_buffering,
                cached_percent: run.cached_percent,
                boots: run.boots,
                origin_terabytes: run.origin_terabytes,
            };
            out += &json::text("policy", &object);
        }
    }
    out
}

/// Reports what is delivered with some caches, as a line of JSON.
#[derive(Serialize)]
struct CacheObject<'a> {
    caches: usize,
    /// Where the last cache is; `None` for none.
    place: Option<&'a str>,
    wanted_mbits: f64,
    delivered_mbits: f64,
    gain_mbits: f64,
    whole_percent: f64,
    carried_mbits: f64,
    fullest_percent: f64,
}

/// Answers where the next caches should be.
fn place(args: &Cdn, plan: &Plan) -> Outcome {
    let (Some(demand), Some(links)) = (&args.demand, &args.links) else {
        return Err(Failure::usage("--demand needs --links"));
    };
    let graph = graph(args, links)?;
    let prefixes = match &args.prefixes {
        Some(path) => Prefixes::read(&text(path)?).map_err(|error| wrong(path, &error))?,
        None => Prefixes::default(),
    };
    let rows = read_demand(&text(demand)?, &graph, &prefixes).map_err(|error| wrong(demand, &error))?;
    let sites = match &args.sites {
        Some(path) => read_sites(&text(path)?, &graph, &prefixes).map_err(|error| wrong(path, &error))?,
        None => {
            let mut places: Vec<u32> = rows.iter().map(|row| row.place).collect();
            places.sort_unstable();
            places.dedup();
            places
        }
    };
    let name = args.origin.as_deref().unwrap_or_default();
    let Some(origin) = graph.by_name(name) else {
        let what = format!("--origin: {} has no place {}", show(links), printable(name));
        return Err(Failure::usage(what));
    };
    let hits = args.hits.unwrap_or(HITS_PERCENT) / 100.0;
    let mbits = (plan.capacities.core_mbits, plan.capacities.leaf_mbits);
    let question = Question::new(&graph, origin, rows, sites, hits, mbits);
    let question = Arc::new(question.map_err(|error| wrong(links, &error))?);
    let (_wake, stop) = stop_signals()?;
    let jobs = args.study.jobs.unwrap_or_else(pool::threads);
    let workers = Workers { jobs, stop, what: "candidates" };
    let mut answer =
        Answer { question: &question, graph: &graph, last: question.deliver(&[]), json: args.study.json };
    answer.show(0, None)?;
    let mut chosen: Vec<usize> = Vec::new();
    for number in 1..=args.caches.unwrap_or(1).min(question.sites()) {
        let rest = (0..question.sites()).filter(|site| !chosen.contains(site));
        let tried: Vec<Vec<usize>> = rest.map(|site| [chosen.as_slice(), &[site]].concat()).collect();
        let asked = Arc::clone(&question);
        let deliveries = workers.all(tried.clone(), move |caches: &Vec<usize>| asked.deliver(caches))?;
        let last = |caches: &Vec<usize>| caches.last().copied().unwrap_or_default();
        let candidates: Vec<(usize, Delivery)> = tried.iter().map(last).zip(deliveries).collect();
        let Some(best) = Question::best(&candidates) else { break };
        if !best.1.is_better(&answer.last) {
            if !args.study.json {
                print(b"No further cache helps.\n")?;
            }
            break;
        }
        chosen.push(best.0);
        answer.show(number, Some(best))?;
    }
    Ok(())
}

/// What has been answered so far.
struct Answer<'a> {
    question: &'a Question,
    graph: &'a AsGraph,
    last: Delivery,
    json: bool,
}

impl Answer<'_> {
    /// Prints the next cache, or what is delivered without one.
    fn show(&mut self, caches: usize, next: Option<(usize, Delivery)>) -> Outcome {
        let gain_mbits = next.map_or(0.0, |next| next.1.delivered_mbits - self.last.delivered_mbits);
        let carried_before = self.last.carried_mbits;
        self.last = next.map_or(self.last, |next| next.1);
        let place = next.map(|next| self.graph.ases()[self.question.site(next.0) as usize].name.as_str());
        let Delivery { delivered_mbits, whole_percent, carried_mbits, fullest_percent } = self.last;
        let wanted_mbits = self.question.wanted_mbits();
        if self.json {
            let object = CacheObject {
                caches,
                place,
                wanted_mbits,
                delivered_mbits,
                gain_mbits,
                whole_percent,
                carried_mbits,
                fullest_percent,
            };
            return print(json::text("cache", &object).as_bytes());
        }
        let delivered = format!(
            "{delivered_mbits:.0} of {wanted_mbits:.0} Mbit/s delivered, {whole_percent:.0} % of the \
             streams at their whole rate, the fullest line {fullest_percent:.0} %"
        );
        let line = match place {
            None => format!("without caches: {delivered}\n"),
            Some(place) => format!(
                "{caches}. {}: +{gain_mbits:.0} Mbit/s, {:.0} Mbit/s less on the lines; {delivered}\n",
                printable(place),
                carried_before - carried_mbits,
            ),
        };
        print(line.as_bytes())
    }
}
