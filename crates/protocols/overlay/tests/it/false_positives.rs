//! Frames in a domain that is too large for exact forwarding identifiers: links that match by accident never
//! make two frames of one, and never lead a frame off its way.

use std::fmt::Write as _;

use crate::simulated_domain::Network;
use anabranch_algo::SplitMix64;
use anabranch_overlay::domain::Domain;
use anabranch_overlay::forwarder::DropReason;
use anabranch_overlay::frame;
use anabranch_topology::fid::{FILTER_BITS, Header, Kind, TAG_BITS};
use anabranch_topology::graph::{LinkId, NodeId};

/// The number of forwarders in a row and in a column.
const SIDE: usize = 8;
/// The number of ways of each length.
const WAYS: usize = 400;
const PORT: u16 = 50_000;

/// Returns the file of a grid of forwarders, each with a host: 178 lines, 356 links.
fn grid() -> String {
    let forwarders: Vec<String> = (0..SIDE * SIDE).map(|n| format!("r{n}")).collect();
    let mut text = format!("name = \"grid\"\nforwarders = {forwarders:?}\n");
    text += "[rendezvous]\nnode = \"rv\"\n[topology]\nnode = \"tm\"\n";
    let mut line = |a: &str, b: &str| writeln!(text, "[[line]]\nbetween = [{a:?}, {b:?}]").expect("text");
    for (n, forwarder) in forwarders.iter().enumerate() {
        line(forwarder, &format!("h{n}"));
        if n % SIDE + 1 < SIDE {
            line(forwarder, &forwarders[n + 1]);
        }
        if let Some(below) = forwarders.get(n + SIDE) {
            line(forwarder, below);
        }
    }
    line("r0", "rv");
    line("r63", "tm");
    text
}

fn link(domain: &Domain, from: NodeId, to: NodeId) -> LinkId {
    let mut links = domain.graph.outgoing(from).iter();
    *links.find(|link| domain.graph.link(**link).to == to).expect("a line")
}

/// Returns a random way of `links` links from a host to a host, which visits no node twice.
fn way(network: &Network, rng: &mut SplitMix64, links: usize) -> Vec<LinkId> {
    let graph = &network.domain.graph;
    loop {
        let start = rng.index(SIDE * SIDE);
        let mut visited = vec![network.node(&format!("r{start}"))];
        while visited.len() + 1 < links {
            let here = *visited.last().expect("a node");
            let next = graph.outgoing(here).iter().map(|link| graph.link(*link).to);
            let next: Vec<NodeId> =
                next.filter(|node| network.domain.is_forwarder(*node) && !visited.contains(node)).collect();
            match next.len() {
                0 => break,
                choices => visited.push(next[rng.index(choices)]),
            }
        }
        if visited.len() + 1 < links {
            continue;
        }
        let host = |forwarder: NodeId| network.node(&graph.node(forwarder).name.replace('r', "h"));
        let (first, last) = (host(visited[0]), host(*visited.last().expect("a node")));
        let nodes = [&[first], &visited[..], &[last]].concat();
        return nodes.windows(2).map(|pair| link(&network.domain, pair[0], pair[1])).collect();
    }
}

/// Returns how many links that begin at the forwarders of a way match by accident, as the formula says. Those
/// of the way and of the way back do not count.
fn expected(domain: &Domain, links: &[LinkId], header: &Header) -> f64 {
    let ones = f64::from(header.fid.bits().ones());
    let chance: f64 = (0..TAG_BITS).map(|i| (ones - i as f64).max(0.0) / (FILTER_BITS - i) as f64).product();
    let beside = |link: &LinkId| domain.graph.outgoing(domain.graph.link(*link).from).len() - 2;
    links[1..].iter().map(beside).sum::<usize>() as f64 * chance
}

#[test]
fn frames_keep_to_their_way_whatever_matches_by_accident() {
    let mut network = Network::of(&grid());
    network.skip_hellos();
    let domain = network.domain.clone();
    let mut rng = SplitMix64(16);
    for length in [8, 16, 24, 28, 32] {
        let (mut strays, mut lost, mut own_ingress, mut formula, mut ways) = (0, 0, 0, 0.0, 0);
        while ways < WAYS {
            let links = way(&network, &mut rng, length);
            // The longest ways do not always fit.
            let Ok(way) = domain.way(&links) else { continue };
            assert_eq!(way.there.fid.kind(), Kind::Lipsin);
            ways += 1;
            let (from, to) = (domain.graph.link(links[0]).from, domain.graph.link(links[length - 1]).to);
            formula += expected(&domain, &links, &way.there);
            network.delivered.clear();
            let there = frame::header(&way.there, PORT);
            network.send_over(links[0], PORT, [&there.0[..], b"data"].concat());
            let crossed = network.drain();
            // The frame ends where another link matches too, and keeps to its way until then.
            assert!(links.starts_with(&crossed[..crossed.len().min(length)]), "{crossed:?} of {links:?}");
            strays += crossed.len().saturating_sub(length);
            lost += usize::from(crossed.len() < length);
            let reaches = |from, header, to| domain.origin(from, header) == Some(to);
            assert_eq!(network.delivered.len() == 1, reaches(from, &way.there, to));
            // A request arrives if its way back is good too, by the same rule.
            network.delivered.clear();
            let header = frame::request_header(&there, &frame::header(&way.back, PORT));
            network.send_over(links[0], PORT, [&header[..], b"request"].concat());
            network.drain();
            let is_good = reaches(from, &way.there, to) && reaches(to, &way.back, from);
            assert_eq!(network.delivered.len() == 1, is_good, "{length} links");
            // Counts good ways whose way back matches the line by which the answer comes.
            let mut out = Vec::new();
            let at = |link: &LinkId| domain.forwarder(domain.graph.link(*link).from);
            let several = links[1..].iter().any(|link| {
                at(link).forward(&way.back, None, &mut out).expect("it passes");
                out.len() > 1
            });
            own_ingress += usize::from(is_good && several);
        }
        println!(
            "{length} links: {strays} frames beside {ways} ways, {lost} dropped, {formula:.1} links match by \
             accident in any one table; {own_ingress} good ways back match the line that they come by"
        );
        assert_eq!(strays, 0);
        // The best of eight tables was taken.
        assert!((lost as f64) <= formula + 3.0 * formula.sqrt(), "{length}: {lost} lost, {formula}");
        assert!(own_ingress > 0 || length < 28, "{length}: the rule of the way back was not tried");
    }
}

#[test]
fn a_loop_in_a_large_domain_ends_by_the_hop_limit() {
    let mut network = Network::of(&grid());
    network.skip_hellos();
    let names = ["h0", "r0", "r1", "r9", "r8", "r0"].map(|name| network.node(name));
    let links: Vec<LinkId> = names.windows(2).map(|pair| link(&network.domain, pair[0], pair[1])).collect();
    let mut header = network.domain.way(&links).expect("it fits").there;
    // The highest hop limit that a forwarder accepts: all forwarders, the host's line, and some to spare.
    header.hop_limit = (SIDE * SIDE) as u8 + 3;
    network.send_over(links[0], PORT, [&frame::header(&header, PORT).0[..], b"round"].concat());
    let crossed = network.drain();
    assert_eq!(crossed.len(), 1 + usize::from(header.hop_limit));
    let dropped =
        network.forwarders.values().filter_map(|it| it.counters().dropped.get(&DropReason::HopLimit));
    assert_eq!(dropped.sum::<u64>(), 1);
}
