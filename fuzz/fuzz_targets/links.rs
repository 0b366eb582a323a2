//! Any text as the links of a network, the roles of its places, prefixes, a demand and a plan: what is read
//! has only places that exist, and every path is made of lines that follow each other.
#![no_main]

use anabranch_cdn::place::{read_demand, read_sites};
use anabranch_cdn::plan::Plan;
use anabranch_cdn::prefixes::Prefixes;
use anabranch_cdn::routes::Routes;
use anabranch_cdn::links_file;
use libfuzzer_sys::fuzz_target;

/// Most places of a graph whose paths are all tried.
const TRIED_MAX: usize = 20;

fuzz_target!(|text: &str| {
    if let Ok(plan) = Plan::read(text) {
        assert_eq!(plan.check(), Ok(()));
    }
    let prefixes = Prefixes::read(text).unwrap_or_default();
    let _ = prefixes.origin(text);
    let Ok(mut graph) = links_file::read(text) else { return };
    let places = graph.ases().len() as u32;
    assert!(graph.lines().iter().all(|line| line.ends.0 < places && line.ends.1 < places));
    graph.classify(3, || false);
    let _ = links_file::read_roles(text, &mut graph);
    if let Ok(rows) = read_demand(text, &graph, &prefixes) {
        assert!(rows.iter().all(|row| row.place < places && row.streams > 0.0 && row.mbits > 0.0));
    }
    let _ = read_sites(text, &graph, &prefixes);
    if places as usize > TRIED_MAX {
        return;
    }
    let all: Vec<u32> = (0..places).collect();
    let routes = Routes::new(&graph, &all, &all);
    for (from, to) in all.iter().flat_map(|from| all.iter().map(move |to| (*from, *to))) {
        let Some(path) = routes.path(from as usize, to as usize) else { continue };
        let mut at = from;
        for link in &routes.links()[path.start as usize..path.end as usize] {
            let (a, b) = graph.lines()[*link as usize / 2].ends;
            let (start, end) = if link % 2 == 0 { (a, b) } else { (b, a) };
            assert_eq!(start, at);
            at = end;
        }
        assert_eq!(at, to);
    }
});
