//! Packets through the forwarders of whole networks: along their path, nowhere else, and not for ever.

mod common;

use common::{Random, random_graph};
use topology::fid::{EPOCHS, HEADER_BYTES, Header, Refusal};
use topology::graph::{Builder, Graph, LinkId, NodeId};
use topology::import::Defaults;
use topology::keyed::{DomainKey, KeyedForwarder};
use topology::paths::{Costs, Router};
use topology::tags::{Encoded, Forwarder, Tags};
use topology::zoo::{BUILTIN, Builtin};

/// Every link that copies of a packet cross, in order, and how many were refused for their hop limit.
fn flood(
    graph: &Graph,
    from: NodeId,
    header: Header,
    mut forward: impl FnMut(NodeId, &Header, Option<LinkId>, &mut Vec<LinkId>) -> Result<Header, Refusal>,
) -> (Vec<LinkId>, usize) {
    let (mut crossed, mut expired, mut out) = (Vec::new(), 0, Vec::new());
    let mut packets = std::collections::VecDeque::from([(from, header, None)]);
    while let Some((node, header, ingress)) = packets.pop_front() {
        match forward(node, &header, ingress, &mut out) {
            Ok(next) => {
                crossed.extend(&out);
                packets.extend(out.iter().map(|id| (graph.link(*id).to, next, Some(*id))));
            }
            Err(Refusal::HopLimit) => expired += 1,
            Err(_) => {}
        }
        assert!(crossed.len() < 1_000_000, "a packet lives for ever");
    }
    (crossed, expired)
}

fn forwarders(graph: &Graph, tags: &Tags) -> Vec<Forwarder> {
    graph.node_ids().map(|node| tags.forwarder(graph, node)).collect()
}

/// Three paths between all nodes of all networks, with exact tags where there is room and with LIPSIN's: each
/// packet crosses the links of its path in order, and the false positives that were counted beforehand, which
/// are none.
#[test]
fn packets_keep_to_their_paths() {
    for builtin in BUILTIN {
        let graph = builtin.network(&Defaults::default()).graph;
        let lipsin = Tags::lipsin(graph.links().len(), 7);
        let mut router = Router::new(&graph, Costs::hops(&graph));
        for tags in Tags::exact(&graph).into_iter().chain([lipsin]) {
            let forwarders = forwarders(&graph, &tags);
            let step = if graph.nodes().len() > 30 { 7 } else { 1 };
            for to in graph.node_ids().step_by(step) {
                for from in graph.node_ids() {
                    for path in router.shortest(from, to, 3) {
                        let encoded = tags.encode(&graph, &path.links).expect("it fits");
                        assert_eq!(encoded.false_positives, 0, "{}: {path:?}", builtin.name);
                        let header = encoded.header(&path.links);
                        let (crossed, expired) = flood(&graph, from, header, |node, header, ingress, out| {
                            forwarders[node.index()].forward(header, ingress, out)
                        });
                        assert_eq!((crossed, expired), (path.links, 0), "{}", builtin.name);
                    }
                }
            }
        }
    }
}

/// A ring, and an identifier of all its links in one direction: the packet goes round until its hops are used
/// up.
#[test]
fn a_loop_ends() {
    let mut builder = Builder::new();
    let nodes: Vec<NodeId> = (0..6).map(|n| builder.node(&n.to_string(), None).expect("a node")).collect();
    let ring: Vec<LinkId> =
        (0..6).map(|n| builder.line(nodes[n], nodes[(n + 1) % 6], None, 1).expect("a line")).collect();
    let graph = builder.build();
    for tags in [Tags::exact(&graph).expect("a small domain"), Tags::lipsin(12, 3)] {
        let forwarders = forwarders(&graph, &tags);
        let Encoded { fid, .. } = tags.encode(&graph, &ring).expect("it fits");
        let header = Header { hop_limit: 50, fid };
        let (crossed, expired) = flood(&graph, nodes[0], header, |node, header, ingress, out| {
            forwarders[node.index()].forward(header, ingress, out)
        });
        assert_eq!((crossed.len(), expired), (50, 1));
    }
}

/// The most that a forged identifier can do: as many bits as pass, the highest hop limit.
#[test]
fn a_forged_identifier_is_bounded() {
    let mut random = Random(9);
    let graph = random_graph(&mut random, 60, 120);
    let tags = Tags::exact(&graph).expect("240 links");
    let forwarders = forwarders(&graph, &tags);
    let run = |bytes: [u8; HEADER_BYTES]| {
        let header = Header::parse(&bytes).expect("a header").0;
        flood(&graph, NodeId(0), header, |node, header, ingress, out| {
            forwarders[node.index()].forward(header, ingress, out)
        })
        .0
        .len()
    };
    let mut ones = [0xff; HEADER_BYTES];
    ones[0] = 0;
    assert_eq!(run(ones), 0, "all ones");
    // Bits 0 to 119, half of the domain: every copy ends with its hops.
    ones[2 + 15..].fill(0);
    ones[1] = 12;
    assert!(run(ones) > 0);
}

#[test]
fn keyed_identifiers_are_of_one_flow_way_and_epoch() {
    let graph = Builtin::named("Geant2012").expect("built in").network(&Defaults::default()).graph;
    let key = DomainKey::new([7; 32]);
    let epoch = 41;
    let mut forwarders: Vec<KeyedForwarder> =
        graph.node_ids().map(|node| KeyedForwarder::new(&graph, node, key.node_key(node, epoch))).collect();
    let (from, to) = (graph.by_name("IE").expect("Ireland"), graph.by_name("TR").expect("Turkey"));
    let paths = Router::new(&graph, Costs::delay(&graph)).shortest(from, to, 2);
    let encode = |path: usize, flow| key.encode(&graph, &paths[path].links, flow, epoch).expect("it fits");
    let run = |forwarders: &[KeyedForwarder], header: Header, flow: u64| {
        flood(&graph, from, header, |node, header, ingress, out| {
            forwarders[node.index()].forward(header, flow, ingress, out)
        })
        .0
    };
    let header = encode(0, 1).header(&paths[0].links);
    assert_eq!(header.fid.epoch(), epoch % EPOCHS);
    assert_eq!(run(&forwarders, header, 1), paths[0].links);
    assert_eq!(run(&forwarders, header, 2), [], "of another flow");
    // Those of two flows, OR-ed: the first flow gets no further than by its own.
    let other = encode(1, 2).header(&paths[1].links);
    let (mut both, second) = (header.to_bytes(), other.to_bytes());
    both.iter_mut().zip(second).skip(2).take(31).for_each(|(a, b)| *a |= b);
    if header.fid.table() == other.fid.table() {
        let both = Header::parse(&both).expect("a header").0;
        assert!(run(&forwarders, both, 1).iter().all(|link| paths[0].links.contains(link)));
    }
    // Taken up in the middle of the path, as if it came from elsewhere.
    let middle = graph.link(paths[0].links[1]).from;
    let mut out = Vec::new();
    let forwarder = &forwarders[middle.index()];
    assert!(forwarder.forward(&header, 1, Some(paths[0].links[0]), &mut out).is_ok());
    assert_eq!(out, [paths[0].links[1]]);
    assert!(forwarder.forward(&header, 1, None, &mut out).is_ok());
    assert_eq!(out, [], "by another way in");
    for (changes, works) in [(1, true), (2, false)] {
        for (node, forwarder) in graph.node_ids().zip(&mut forwarders) {
            forwarder.rotate(key.node_key(node, epoch + changes));
        }
        assert_eq!(run(&forwarders, header, 1) == paths[0].links, works, "{changes} epochs later");
    }
    assert_eq!(
        forwarders[from.index()].forward(&header, 1, None, &mut out),
        Err(Refusal::Epoch),
        "of another epoch"
    );
    assert_eq!(format!("{key:?} {:?}", key.node_key(from, 2)), "DomainKey(..) NodeKey(epoch 2, ..)");
}
