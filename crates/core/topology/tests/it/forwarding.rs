//! Packets through the forwarders of whole networks: along their path, nowhere else, and not for ever.

use anabranch_algo::SplitMix64;

use crate::random_graphs::random_graph;
use anabranch_topology::fid::{EPOCHS, HEADER_BYTES, Header, Refusal};
use anabranch_topology::graph::{Builder, Graph, LinkId, NodeId};
use anabranch_topology::import::Defaults;
use anabranch_topology::keyed::{DomainKey, KeyedForwarder};
use anabranch_topology::paths::{Costs, Router};
use anabranch_topology::tags::{Encoded, Forwarder, Tags};
use anabranch_topology::zoo::{BUILTIN, Builtin};

/// What a node does with a packet that came by a link.
type Rule<'a> = &'a dyn Fn(NodeId, &Header, Option<LinkId>, &mut Vec<LinkId>) -> Result<Header, Refusal>;

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
    let mut random = SplitMix64(9);
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
fn keyed_identifiers_are_of_one_way_and_epoch() {
    let graph = Builtin::named("Geant2012").expect("built in").network(&Defaults::default()).graph;
    let key = DomainKey::new([7; 32]);
    let epoch = 41;
    let at = |node| KeyedForwarder::new(&graph, node, key.node_secret(node), epoch);
    let mut forwarders: Vec<KeyedForwarder> = graph.node_ids().map(at).collect();
    let node = |name: &str| graph.by_name(name).expect("a country");
    let (from, to) = (node("IE"), node("TR"));
    let paths = Router::new(&graph, Costs::delay(&graph)).shortest(from, to, 2);
    let encode = |path: &[LinkId]| key.encode(&graph, path, epoch).expect("it fits");
    let run = |forwarders: &[KeyedForwarder], header: Header| {
        flood(&graph, from, header, |node, header, ingress, out| {
            forwarders[node.index()].forward(header, ingress, out)
        })
        .0
    };
    let header = encode(&paths[0].links).header(&paths[0].links);
    assert_eq!(header.fid.epoch(), epoch % EPOCHS);
    assert_eq!(run(&forwarders, header), paths[0].links);
    // Of another domain with the same graph, or of another secret.
    let other = DomainKey::new([8; 32]).encode(&graph, &paths[0].links, epoch).expect("it fits");
    assert_eq!(run(&forwarders, other.header(&paths[0].links)), []);
    // Taken up in the middle of the path, as if it came from elsewhere.
    let middle = graph.link(paths[0].links[1]).from;
    let mut out = Vec::new();
    let forwarder = &forwarders[middle.index()];
    assert!(forwarder.forward(&header, Some(paths[0].links[0]), &mut out).is_ok());
    assert_eq!(out, [paths[0].links[1]]);
    assert!(forwarder.forward(&header, None, &mut out).is_ok());
    assert_eq!(out, [], "by another way in");
    assert!(forwarder.forward(&header, Some(paths[0].links[1]), &mut out).is_ok());
    assert_eq!(out, [], "by a link of another node");
    for (changes, works) in [(0, true), (1, true), (2, false), (0, true)] {
        for forwarder in &mut forwarders {
            forwarder.set_epoch(epoch + changes);
        }
        assert_eq!(run(&forwarders, header) == paths[0].links, works, "{changes} epochs later");
        if !works {
            let refused = forwarders[from.index()].forward(&header, None, &mut out);
            assert_eq!((refused, out.len()), (Err(Refusal::Epoch), 0));
        }
    }
    let shown = format!("{key:?} {:?} {:?}", key.node_secret(from), forwarders[0]);
    assert_eq!(shown, "DomainKey(..) NodeSecret(..) KeyedForwarder(epoch 41, ..)");
}

/// What a host could do that collects the identifiers of others: OR them, so that a packet of its own reaches
/// a node to which no path was given to it.
#[test]
fn keyed_identifiers_are_of_no_use_to_another() {
    let graph = Builtin::named("Geant2012").expect("built in").network(&Defaults::default()).graph;
    let (key, tags) = (DomainKey::new([7; 32]), Tags::exact(&graph).expect("it is small"));
    let keyed: Vec<KeyedForwarder> =
        graph.node_ids().map(|node| KeyedForwarder::new(&graph, node, key.node_secret(node), 3)).collect();
    let open = forwarders(&graph, &tags);
    let node = |name: &str| graph.by_name(name).expect("a country");
    let (mine, victim) = (node("IE"), node("TR"));
    let mut router = Router::new(&graph, Costs::delay(&graph));
    let mut path = |from, to| router.shortest(from, to, 1)[0].links.clone();
    // All that leads from its neighbours to the victim, and its own way to a neighbour.
    let near = graph.link(graph.outgoing(mine)[0]).to;
    let collected = [path(mine, near), path(near, victim)];
    let or = |bits: [Header; 2]| {
        let [mut both, other] = bits.map(|header| header.to_bytes());
        both.iter_mut().zip(other).skip(2).take(31).for_each(|(a, b)| *a |= b);
        both[1] = 40;
        Header::parse(&both).expect("a header").0
    };
    let reached = |forward: Rule<'_>, header| {
        let crossed =
            flood(&graph, mine, header, |node, header, ingress, out| forward(node, header, ingress, out)).0;
        crossed.iter().any(|link| graph.link(*link).to == victim)
    };
    let with_tags = collected.clone().map(|path| tags.encode(&graph, &path).expect("it fits").header(&path));
    let with_key = collected.map(|path| key.encode(&graph, &path, 3).expect("it fits").header(&path));
    let open = |node: NodeId, header: &Header, ingress, out: &mut Vec<LinkId>| {
        open[node.index()].forward(header, ingress, out)
    };
    assert!(reached(&open, or(with_tags)), "with fixed tags it gets there");
    let keyed = |node: NodeId, header: &Header, ingress, out: &mut Vec<LinkId>| {
        keyed[node.index()].forward(header, ingress, out)
    };
    let [own, others] = with_key;
    assert!(!reached(&keyed, or([own, others])) && !reached(&keyed, or([others, own])), "in either's table");
}
