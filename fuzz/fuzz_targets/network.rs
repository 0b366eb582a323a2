//! Any text: what is read as a network is within its limits, and reads the same again once written; paths in
//! it are paths.
#![no_main]

use libfuzzer_sys::fuzz_target;
use anabranch_topology::graph::NodeId;
use anabranch_topology::import::{Defaults, read, write};
use anabranch_topology::paths::Costs;
use anabranch_topology::plan::{Planner, Policy};
use anabranch_topology::tags::Tags;

fuzz_target!(|bytes: &[u8]| {
    let texts = [
        bytes.to_vec(),
        [b"graph [ node [ id 0 ] node [ id 1 ] ", bytes, b" ]"].concat(),
        [b"<graphml><graph><node id='0'/><node id='1'/>", bytes, b"</graph></graphml>"].concat(),
        [b"node a\nnode b\nlink 0 1\n", bytes].concat(),
    ];
    for text in texts {
        let read_it = read(&text, &Defaults::default());
        let Ok(network) = read_it.map_err(|error| error.to_string()) else { continue };
        let graph = &network.graph;
        let written = write(&network.name, graph);
        let again = read(written.as_bytes(), &Defaults::default()).expect("what was written can be read");
        assert_eq!(again.graph.nodes(), graph.nodes());
        assert_eq!(again.graph.links(), graph.links());
        assert_eq!(again.name, network.name);
        if graph.nodes().len() < 2 {
            continue;
        }
        let mut planner = Planner::new(graph, Costs::delay(graph), Tags::of(graph, 1));
        for policy in [Policy::Shortest, Policy::LinkDisjoint, Policy::NodeDisjoint] {
            let planned = planner.plan(NodeId(0), NodeId(1), 3, policy);
            for one in &planned {
                let visits = graph.visits(&one.path.links);
                assert_eq!((visits.first(), visits.last()), (Some(&NodeId(0)), Some(&NodeId(1))));
                assert!((1..visits.len()).all(|n| !visits[..n].contains(&visits[n])), "no loop");
            }
            let groups: std::collections::BTreeSet<_> = planned.iter().map(|one| one.group).collect();
            assert!(policy == Policy::Shortest || groups.len() == planned.len(), "disjoint");
        }
    }
});
