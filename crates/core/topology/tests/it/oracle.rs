//! Against NetworkX on 1,000 random graphs: `vectors.py` has made `vectors.txt` and describes it.

use anabranch_topology::disjoint::{Disjoint, disjoint_paths};
use anabranch_topology::graph::{Builder, Graph, NodeId};
use anabranch_topology::paths::{Costs, PATHS_MAX, Router};

struct Vector {
    graph: Graph,
    costs: Costs,
    shortest: Vec<u64>,
    link_connectivity: usize,
    node_connectivity: usize,
    least_cost: u64,
}

fn numbers(text: &str, by: char) -> Vec<u64> {
    text.split(by).filter(|n| !n.is_empty()).map(|n| n.parse().expect("a number")).collect()
}

fn vector(line: &str) -> Vector {
    let fields: Vec<&str> = line.split('|').collect();
    let [nodes, lines, links, shortest, link_connectivity, node_connectivity, least_cost] = fields[..] else {
        panic!("seven fields: {line}")
    };
    let number = |text: &str| text.parse().expect("a number");
    let mut builder = Builder::new();
    for node in 0..number(nodes) {
        builder.node(&node.to_string(), None).expect("a node");
    }
    let ends = |text: &str| {
        let [a, b, cost] = numbers(text, '-')[..] else { panic!("two nodes and a cost: {text}") };
        (NodeId(a as u32), NodeId(b as u32), cost)
    };
    for (a, b, cost) in lines.split_whitespace().map(ends) {
        builder.line(a, b, None, cost).expect("a line");
    }
    for (a, b, cost) in links.split_whitespace().map(ends) {
        builder.link(a, b, None, cost).expect("a link");
    }
    let graph = builder.build();
    Vector {
        costs: Costs::delay(&graph),
        graph,
        shortest: numbers(shortest, ' '),
        link_connectivity: number(link_connectivity) as usize,
        node_connectivity: number(node_connectivity) as usize,
        least_cost: number(least_cost),
    }
}

#[test]
fn networkx_finds_the_same() {
    let (mut graphs, mut disconnected) = (0, 0);
    for (place, line) in include_str!("../vectors.txt").lines().enumerate() {
        let v = vector(line);
        let (from, to) = (NodeId(0), NodeId(1));
        let costs =
            |paths: &[anabranch_topology::paths::Path]| paths.iter().map(|p| p.cost).collect::<Vec<_>>();
        let found = Router::new(&v.graph, v.costs.clone()).shortest(from, to, 8);
        assert_eq!(costs(&found), v.shortest, "graph {place}");
        let all = |disjoint| disjoint_paths(&v.graph, &v.costs, from, to, PATHS_MAX, disjoint);
        let links = all(Disjoint::Links);
        assert_eq!(links.len(), v.link_connectivity, "graph {place}");
        assert_eq!(costs(&links).iter().sum::<u64>(), v.least_cost, "graph {place}");
        assert_eq!(all(Disjoint::Nodes).len(), v.node_connectivity, "graph {place}");
        graphs += 1;
        disconnected += usize::from(links.is_empty());
    }
    assert_eq!(graphs, 1_000);
    assert!((1..200).contains(&disconnected), "{disconnected}");
}
