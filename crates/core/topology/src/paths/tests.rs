//! Compares Yen's algorithm with all paths, sorted.

use proptest::prelude::*;

use super::*;
use crate::graph::Builder;

/// Generates small graphs with parallel links and equal costs.
pub(crate) fn graphs() -> impl Strategy<Value = Graph> {
    (2u32..8).prop_flat_map(|nodes| {
        let link = (0..nodes, 0..nodes, 0u64..4);
        prop::collection::vec(link, 0..20).prop_map(move |links| {
            let mut builder = Builder::new();
            for node in 0..nodes {
                builder.node(&node.to_string(), None).expect("a node");
            }
            for (a, b, delay) in links.into_iter().filter(|(a, b, _)| a != b) {
                builder.link(NodeId(a), NodeId(b), None, delay).expect("a link");
            }
            builder.build()
        })
    })
}

/// Returns all loopless paths, in order.
pub(crate) fn all_paths(graph: &Graph, costs: &Costs, from: NodeId, to: NodeId) -> Vec<Path> {
    fn go(
        graph: &Graph,
        to: NodeId,
        visited: &mut Vec<NodeId>,
        links: &mut Vec<LinkId>,
        all: &mut Vec<Vec<LinkId>>,
    ) {
        let here = *visited.last().expect("a start");
        if here == to {
            all.push(links.clone());
            return;
        }
        for id in graph.outgoing(here) {
            let next = graph.link(*id).to;
            if !visited.contains(&next) {
                visited.push(next);
                links.push(*id);
                go(graph, to, visited, links, all);
                links.pop();
                visited.pop();
            }
        }
    }
    let mut all = Vec::new();
    if from != to {
        go(graph, to, &mut vec![from], &mut Vec::new(), &mut all);
    }
    let mut all: Vec<Path> = all.into_iter().map(|links| costs.path(links)).collect();
    all.sort_by(|a, b| a.order().cmp(&b.order()));
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn the_first_of_all_paths(graph in graphs(), k in 0usize..12, by_delay: bool) {
        let costs = if by_delay { Costs::delay(&graph) } else { Costs::hops(&graph) };
        let mut router = Router::new(&graph, costs.clone());
        for to in graph.node_ids() {
            for from in graph.node_ids() {
                let mut all = all_paths(&graph, &costs, from, to);
                all.truncate(k);
                prop_assert_eq!(router.shortest(from, to, k), all);
            }
        }
    }
}

#[test]
fn more_than_there_are_and_none() {
    let mut builder = Builder::new();
    let nodes: Vec<_> = (0..3).map(|n| builder.node(&n.to_string(), None).expect("a node")).collect();
    builder.line(nodes[0], nodes[1], None, 5).expect("a line");
    let graph = builder.build();
    let mut router = Router::new(&graph, Costs::delay(&graph));
    let found = router.shortest(nodes[0], nodes[1], PATHS_MAX + 1);
    assert_eq!(found, [Path { links: vec![LinkId(0)], cost: 5 }]);
    assert_eq!(router.shortest(nodes[0], nodes[2], 3), []);
    assert_eq!(router.shortest(nodes[0], nodes[0], 3), []);
}
