//! Any text as the file of a domain: what is read has lines only, whose ends have addresses of their own, and
//! ways through forwarders.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use overlay::domain_file;
use topology::plan::Policy;

fuzz_target!(|text: &str| {
    let Ok(domain) = domain_file::read(text) else { return };
    let links: Vec<_> = domain.graph.link_ids().collect();
    let ends: BTreeSet<_> = links.iter().map(|link| domain.address_here(*link)).collect();
    assert_eq!(ends.len(), links.len());
    assert!(links.iter().all(|link| domain.reverse(domain.reverse(*link)) == *link));
    let (from, to) = (domain.rendezvous.node, domain.topology.node);
    if from != to && links.len() < 200 {
        for found in domain.plan(from, &[to], 3, Policy::Shortest, |_| true) {
            let visits = domain.graph.visits(&found.way.links);
            assert!(visits[1..visits.len() - 1].iter().all(|node| domain.is_forwarder(*node)));
            if domain.graph.links().len() <= 256 {
                assert_eq!(domain.origin(to, &found.way.back), Some(from));
            }
        }
    }
});
