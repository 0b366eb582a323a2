//! Any text as the key of a member of a domain, and as the file of one: a key, written again, is the same; a
//! domain has lines only, whose ends have addresses of their own, and ways through forwarders.
#![no_main]

use std::collections::BTreeSet;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use anabranch_overlay::domain::Domain;
use anabranch_overlay::domain_file;
use anabranch_overlay::member_key::MemberKey;
use anabranch_topology::plan::Policy;

fn small() -> &'static Domain {
    static READ: OnceLock<Domain> = OnceLock::new();
    READ.get_or_init(|| {
        let text = "name = \"small\"\nforwarders = [\"r1\"]\nrendezvous.node = \"a\"\ntopology.node = \"b\"\n\
                    [[line]]\nbetween = [\"a\", \"r1\"]\n[[line]]\nbetween = [\"r1\", \"b\"]\n";
        domain_file::read(text).expect("a domain")
    })
}

fuzz_target!(|text: &str| {
    if let Ok(key) = MemberKey::parse(small(), text) {
        let again = key.secret_text(small());
        assert_eq!(MemberKey::parse(small(), &again).map(|key| key.secret_text(small())), Ok(again));
    }
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
