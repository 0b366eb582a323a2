//! How many dual-homed clients get paths that share no link, in the networks of Table 4.2 (dissertation
//! §4.2.3, the shares of Fig. 4.17): two of them at least (the first three columns), or paths of more than
//! one group (`group`: of three, none of which may join two others). Two clients at each access node, each
//! with a second access node at random; servers at random nodes, a tenth to a fifth as many as clients.
//!
//! ```text
//! cargo run --release -p anabranch-topology --example disjoint_share
//! ```

use anabranch_algo::SplitMix64;
use anabranch_topology::graph::{Builder, Graph, NodeId};
use anabranch_topology::import::Defaults;
use anabranch_topology::paths::Costs;
use anabranch_topology::plan::{Planned, Planner, Policy};
use anabranch_topology::tags::Tags;
use anabranch_topology::zoo::BUILTIN;

const DRAWS: usize = 100;
const CLIENTS_PER_ACCESS_NODE: usize = 2;
const DELAY_NS: u64 = 5_000_000;

/// The network with its clients, and the clients.
fn with_clients(graph: &Graph, rng: &mut SplitMix64) -> (Graph, Vec<NodeId>) {
    let mut builder = Builder::new();
    for node in graph.nodes() {
        builder.node(&node.name, None).expect("a node");
    }
    for link in graph.links().iter().filter(|link| link.reverse.is_some() && link.from < link.to) {
        builder.line(link.from, link.to, None, DELAY_NS).expect("a line");
    }
    let access = graph.access_nodes();
    let mut clients = Vec::new();
    for (place, first) in access.iter().enumerate() {
        for _ in 0..CLIENTS_PER_ACCESS_NODE {
            let client = builder.node(&format!("client {}", clients.len()), None).expect("a node");
            let other = (place + 1 + rng.index(access.len() - 1)) % access.len();
            // One way: nobody's packets go through a client.
            builder.link(*first, client, None, DELAY_NS).expect("a link");
            builder.link(access[other], client, None, DELAY_NS).expect("a link");
            clients.push(client);
        }
    }
    (builder.build(), clients)
}

fn main() {
    let policies = [(Policy::Shortest, 2), (Policy::Shortest, 3), (Policy::LinkDisjoint, 2)];
    let row = |name: &str, cells: [String; 4]| {
        let [two, three, pair, group] = cells;
        println!("{name:<12} {two:>10} {three:>10} {pair:>10} {group:>12}");
    };
    let percent = |share: f64| format!("{share:.1} %");
    row("network", ["Yen k = 2", "Yen k = 3", "disjoint", "k = 3, group"].map(String::from));
    let (mut means, mut pooled, mut clients_all) = ([0.0; 4], [0usize; 4], 0);
    for builtin in BUILTIN {
        let plain = builtin.network(&Defaults::default()).graph;
        let (mut rng, mut several, mut all) = (SplitMix64(16), [0usize; 4], 0);
        for _ in 0..DRAWS {
            let (graph, clients) = with_clients(&plain, &mut rng);
            let share = 10 + rng.index(11);
            let servers: Vec<NodeId> = (0..(clients.len() * share).div_ceil(100))
                .map(|_| NodeId(rng.index(plain.nodes().len()) as u32))
                .collect();
            let tags = Tags::of(&graph, 1);
            let mut planner = Planner::new(&graph, Costs::hops(&graph), tags);
            for client in clients {
                let server = servers[rng.index(servers.len())];
                all += 1;
                for (place, (policy, k)) in policies.into_iter().enumerate() {
                    let planned = planner.plan(server, client, k, policy);
                    let apart = |a: &Planned, b: &Planned| {
                        a.path.links.iter().all(|link| !b.path.links.contains(link))
                    };
                    let some = planned.iter().any(|a| planned.iter().any(|b| apart(a, b)));
                    several[place] += usize::from(some);
                    if k == 3 {
                        several[3] += usize::from(planned.iter().any(|planned| planned.group > 0));
                    }
                }
            }
        }
        let shares = several.map(|some| 100.0 * some as f64 / all as f64);
        row(builtin.name, shares.map(percent));
        clients_all += all;
        pooled.iter_mut().zip(several).for_each(|(sum, some)| *sum += some);
        means.iter_mut().zip(shares).for_each(|(mean, share)| *mean += share / BUILTIN.len() as f64);
    }
    row("mean", means.map(percent));
    row("all clients", pooled.map(|some| percent(100.0 * some as f64 / clients_all as f64)));
    row("dissertation", ["32 %", "51 %", "86 %", "-"].map(String::from));
}
