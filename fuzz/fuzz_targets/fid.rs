//! Any bytes as a packet's header, at forwarders of every kind: what parses is the same as bytes again;
//! nothing goes back over the line it came by, or on without a hop less.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use anabranch_topology::fid::{HEADER_BYTES, Header};
use anabranch_topology::graph::{Graph, LinkId, NodeId};
use anabranch_topology::import::Defaults;
use anabranch_topology::keyed::{DomainKey, KeyedForwarder};
use anabranch_topology::tags::{Forwarder, Tags};
use anabranch_topology::zoo::Builtin;

struct Domain {
    graph: Graph,
    forwarders: Vec<Forwarder>,
    keyed: KeyedForwarder,
}

fn domain() -> &'static Domain {
    static DOMAIN: OnceLock<Domain> = OnceLock::new();
    DOMAIN.get_or_init(|| {
        let graph = Builtin::named("Janetlense").expect("built in").network(&Defaults::default()).graph;
        let exact = Tags::exact(&graph).expect("a small domain");
        let lipsin = Tags::lipsin(graph.links().len(), 1);
        let forwarders = [exact, lipsin].map(|tags| tags.forwarder(&graph, NodeId(0))).to_vec();
        let secret = DomainKey::new([1; 32]).node_secret(NodeId(0));
        let keyed = KeyedForwarder::new(&graph, NodeId(0), secret, 3);
        Domain { graph, forwarders, keyed }
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Ok((header, rest)) = Header::parse(bytes).map_err(|error| error.to_string()) else { return };
    assert_eq!((&header.to_bytes()[..], rest), bytes.split_at(HEADER_BYTES));
    let Domain { graph, forwarders, keyed } = domain();
    let incoming = graph.incoming(NodeId(0)).iter().copied().map(Some);
    let mut out = Vec::new();
    for ingress in incoming.chain([None]) {
        let check = |passed: Option<Header>, out: &[LinkId]| {
            let Some(next) = passed else { return assert!(out.is_empty()) };
            assert_eq!((next.hop_limit + 1, next.fid), (header.hop_limit, header.fid));
            for link in out.iter().map(|id| graph.link(*id)) {
                assert!(link.from == NodeId(0) && (ingress.is_none() || link.reverse != ingress));
            }
        };
        for forwarder in forwarders {
            check(forwarder.forward(&header, ingress, &mut out).ok(), &out);
        }
        check(keyed.forward(&header, ingress, &mut out).ok(), &out);
    }
});
