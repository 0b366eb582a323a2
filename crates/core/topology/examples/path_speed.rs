//! How long path requests take, one after the other, in wall time:
//!
//! ```text
//! cargo run --release -p anabranch-topology --example path_speed
//! ```

use std::time::Instant;

use anabranch_algo::SplitMix64;
use anabranch_topology::disjoint::{Disjoint, disjoint_paths};
use anabranch_topology::graph::{Builder, Graph, LinkId, NodeId};
use anabranch_topology::groups::Grouping;
use anabranch_topology::import::Defaults;
use anabranch_topology::paths::{Costs, Router};
use anabranch_topology::tags::Tags;
use anabranch_topology::zoo::Builtin;

const NODES: usize = 10_000;
const REQUESTS: usize = 1_000;

#[expect(clippy::disallowed_methods, reason = "an example measures; the library knows no clock")]
fn seconds(mut work: impl FnMut()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64()
}

fn graph(lines: &[(usize, usize)], rng: &mut SplitMix64) -> Graph {
    let mut builder = Builder::new();
    for node in 0..NODES {
        builder.node(&format!("n{node}"), None).expect("a node");
    }
    for (a, b) in lines {
        let delay_ns = 1_000_000 + rng.index(20_000_000) as u64;
        let (a, b) = (NodeId(*a as u32), NodeId(*b as u32));
        builder.line(a, b, Some(125_000_000), delay_ns).expect("a line");
    }
    builder.build()
}

/// Each node joined to three that were there before: short ways.
fn random_lines(rng: &mut SplitMix64) -> Vec<(usize, usize)> {
    let mut lines = Vec::new();
    for node in 1..NODES {
        lines.extend((0..3).map(|_| (node, rng.index(node))));
    }
    lines
}

/// 100 by 100: ways of up to 198 links.
fn grid_lines() -> Vec<(usize, usize)> {
    let mut lines = Vec::new();
    for node in 0..NODES {
        lines.extend((node % 100 < 99).then_some((node, node + 1)));
        lines.extend((node + 100 < NODES).then_some((node, node + 100)));
    }
    lines
}

fn percentiles(what: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let ms = |share: f64| 1e3 * times[((times.len() - 1) as f64 * share) as usize];
    println!("{what:<52} median {:7.3} ms  p99 {:7.3} ms  max {:7.3} ms", ms(0.5), ms(0.99), ms(1.0));
}

fn main() {
    let uninett = Builtin::named("Uninett2011").expect("built in").network(&Defaults::default()).graph;
    for (what, costs) in [("hops", Costs::hops(&uninett)), ("delay", Costs::delay(&uninett))] {
        let mut pairs = 0;
        let mut groups = 0;
        let time = seconds(|| {
            let mut router = Router::new(&uninett, costs.clone());
            let mut grouping = Grouping::new(uninett.links().len());
            for to in uninett.node_ids() {
                for from in uninett.node_ids().filter(|from| *from != to) {
                    let paths = router.shortest(from, to, 3);
                    groups += grouping.group_ids(&paths).len();
                    pairs += 1;
                }
            }
        });
        println!("Uninett2011, k = 3 and groups, {what}: {pairs} pairs, {groups} paths in {time:.3} s");
    }
    let mut rng = SplitMix64(1);
    let random_lines = random_lines(&mut rng);
    for (what, lines) in [("random", random_lines), ("grid", grid_lines())] {
        let graph = graph(&lines, &mut rng);
        println!("{what}: {} nodes, {} links", graph.nodes().len(), graph.links().len());
        for (cost, costs) in [("hops", Costs::hops(&graph)), ("delay", Costs::delay(&graph))] {
            let mut router = Router::new(&graph, costs.clone());
            let mut grouping = Grouping::new(graph.links().len());
            let mut request = |with: &mut dyn FnMut(NodeId, NodeId) -> Vec<Vec<LinkId>>| -> Vec<f64> {
                let pair = |rng: &mut SplitMix64| (rng.index(NODES) as u32, rng.index(NODES) as u32);
                let mut one = || {
                    let (from, to) = pair(&mut rng);
                    seconds(|| drop(with(NodeId(from), NodeId(to))))
                };
                (0..REQUESTS).map(|_| one()).collect()
            };
            let times = request(&mut |from, to| {
                let paths: Vec<_> = router.shortest(from, to, 3).into_iter().map(|p| p.links).collect();
                grouping.group_ids(&paths);
                paths
            });
            percentiles(&format!("{what}, {cost}: k = 3 shortest and groups"), times);
            for (name, disjoint) in [("link", Disjoint::Links), ("node", Disjoint::Nodes)] {
                let times = request(&mut |from, to| {
                    let paths = disjoint_paths(&graph, &costs, from, to, 2, disjoint);
                    paths.into_iter().map(|p| p.links).collect()
                });
                percentiles(&format!("{what}, {cost}: {name}-disjoint pair"), times);
            }
        }
        let tags = Tags::lipsin(graph.links().len(), 1);
        let costs = Costs::hops(&graph);
        let mut router = Router::new(&graph, costs);
        let mut times = Vec::new();
        while times.len() < REQUESTS && what == "random" {
            let (from, to) = (NodeId(rng.index(NODES) as u32), NodeId(rng.index(NODES) as u32));
            for path in router.shortest(from, to, 1) {
                times.push(seconds(|| assert!(tags.encode(&graph, &path.links).is_ok())));
            }
        }
        if !times.is_empty() {
            percentiles(&format!("{what}: LIPSIN identifier of a path, best of 8"), times);
        }
    }
}
