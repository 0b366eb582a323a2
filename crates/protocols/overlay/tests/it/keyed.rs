//! A domain with keyed forwarding identifiers: its members work as with open ones, and only its services can
//! make identifiers that lead anywhere but to the services.

use crate::simulated_domain::{
    DOMAIN, DOMAIN_KEY, Network, SINCE_1970, key, last_routes, publication, publish, subscribe, visits,
};
use anabranch_algo::{Machine as _, Output, Span, SplitMix64};
use anabranch_mmtp::peer::{Peer, WayBack};
use anabranch_overlay::client::Event;
use anabranch_overlay::forwarder::DropReason;
use anabranch_overlay::frame::{self, HEADER_BYTES};
use anabranch_overlay::message::{Body, Message, Route};
use anabranch_overlay::rendezvous::shared::{Input, SharedRendezvous};
use anabranch_topology::fid::{FID_BYTES, FILTER_BITS, Header, Kind};
use anabranch_topology::graph::LinkId;
use anabranch_topology::plan::Policy;

/// The epoch of the domain below.
const EPOCH: Span = Span::from_secs(60);
/// The port at which publishers listen for requests, and the port of receivers for the answers.
const PORT: u16 = 26_227;
const OWN_PORT: u16 = 40_001;

/// Returns the diamond with a publisher, and a receiver that knows its paths.
fn network() -> Network {
    let file = DOMAIN.replace("KEY", &key().public().to_string());
    let mut network = Network::of(&format!("identifiers = \"keyed\"\nepoch_s = 60\n{file}"));
    publish(&mut network, "p1", publication(1, 5), key());
    network.run(Span::from_secs(1));
    subscribe(&mut network, "a", Policy::LinkDisjoint);
    network.run(Span::from_secs(1));
    network
}

/// Sends a request with this header from the host `a`. Returns where it came out, and its bytes there.
fn send(network: &mut Network, first: LinkId, header: &[u8]) -> Vec<(String, Vec<u8>)> {
    network.delivered.clear();
    network.send_over(first, OWN_PORT, [header, b"request"].concat());
    network.run(Span::from_millis(100));
    let name = |node| network.domain.graph.node(node).name.clone();
    network.delivered.iter().map(|(node, _, bytes)| (name(*node), bytes.clone())).collect()
}

fn first(network: &Network, route: &Route) -> LinkId {
    network.domain.links_at(network.node("a"), &route.places).expect("a way")[0]
}

fn request(route: &Route) -> [u8; 2 * HEADER_BYTES] {
    frame::request_header(&frame::header(&route.there, PORT), &frame::header(&route.back, OWN_PORT))
}

fn dropped(network: &Network, why: DropReason) -> u64 {
    network.forwarders.values().filter_map(|forwarder| forwarder.counters().dropped.get(&why)).sum()
}

#[test]
fn requests_and_answers_go_their_ways() {
    let mut network = network();
    let routes = last_routes(&network).routes;
    let told: Vec<String> = routes.iter().map(|route| visits(&network, route)).collect();
    assert_eq!(told, ["a r1 r2 r5 p1", "a r1 r3 r5 p1", "a r1 r4 r5 p1"]);
    for route in &routes {
        assert!([route.there, route.back].iter().all(|header| header.fid.kind() == Kind::Keyed));
        let first = first(&network, route);
        let came = send(&mut network, first, &request(route));
        let [(at, bytes)] = &came[..] else { panic!("{came:?}") };
        assert_eq!(at, "p1");
        // The answer has the way back in front.
        let answer = [&bytes[HEADER_BYTES..2 * HEADER_BYTES], b"answer"].concat();
        let p1 = network.node("p1");
        let line = network.domain.graph.outgoing(p1)[0];
        network.delivered.clear();
        network.send_over(line, PORT, answer);
        network.run(Span::from_millis(100));
        let [(node, port, _)] = network.delivered[..] else { panic!("an answer") };
        assert_eq!((node, port), (network.node("a"), OWN_PORT));
    }
    let all = DropReason::ALL.map(|why| dropped(&network, why));
    assert_eq!(all, [0; DropReason::ALL.len()], "nothing was dropped");
}

/// Returns a header with a random identifier of `bits` bits and this hop limit; all else is as in `like`.
fn random(random: &mut SplitMix64, bits: u32, hop_limit: u8, like: &Header) -> Header {
    let mut fid = [0; FID_BYTES];
    let mut ones = 0;
    while ones < bits {
        let bit = random.index(FILTER_BITS);
        ones += u32::from(fid[bit / 8] >> (bit % 8) & 1 == 0);
        fid[bit / 8] |= 1 << (bit % 8);
    }
    fid[FID_BYTES - 1] = like.fid.to_bytes()[FID_BYTES - 1];
    Header::parse(&[&[Kind::Keyed as u8, hop_limit], &fid[..]].concat()).expect("a header").0
}

/// A host that makes identifiers up reaches no other host. With more bits than the hop limit allows, they go
/// nowhere; with as many, the chance for one tag is 1.9 in 100,000 here.
#[test]
fn made_up_identifiers_lead_nowhere() {
    let mut network = network();
    let route = last_routes(&network).routes[0].clone();
    let line = first(&network, &route);
    let mut seed = SplitMix64(7);
    // Rounds are short, so that all of them end before the epoch does.
    let arrives = |network: &mut Network, header: &[u8]| {
        network.delivered.clear();
        network.send_over(line, OWN_PORT, [header, b"request"].concat());
        network.run(Span::from_millis(15));
        !network.delivered.is_empty()
    };
    for (bits, hop_limit, why) in
        [(124, 5, "too many"), (124, 8, "too many"), (31, 8, "one too many"), (124, 26, "no such way")]
    {
        let before = dropped(&network, DropReason::Forged);
        for _ in 0..250 {
            let header = random(&mut seed, bits, hop_limit, &route.there);
            assert!(!arrives(&mut network, &frame::header(&header, PORT).0), "{why}");
            // The identifier is no way back either.
            let back =
                frame::request_header(&frame::header(&route.there, PORT), &frame::header(&header, OWN_PORT));
            assert!(!arrives(&mut network, &back), "{why}");
        }
        assert_eq!(dropped(&network, DropReason::Forged) - before, 500, "{why}");
    }
    let passed = (0..1_500).filter(|_| {
        let header = random(&mut seed, 30, 8, &route.there);
        arrives(&mut network, &frame::header(&header, PORT).0)
    });
    assert_eq!(passed.count(), 0);
}

/// A host that knows the file can make open identifiers. They lead to the services, as every host needs, and
/// nowhere else.
#[test]
fn open_identifiers_lead_to_services_only() {
    let mut network = network();
    let domain = network.domain.clone();
    let a = network.node("a");
    let to = |name: &str| domain.plan(a, &[network.node(name)], 1, Policy::Shortest, |_| true)[0].way.clone();
    let (services, hosts) = (["rv", "tm"].map(to), ["p1", "p2"].map(to));
    for (way, port) in services.iter().zip([domain.rendezvous.port, domain.topology.port]) {
        let before = dropped(&network, DropReason::Unkeyed);
        send(&mut network, way.links[0], &frame::header(&way.there, port).0);
        assert_eq!(dropped(&network, DropReason::Unkeyed), before, "it is for a service");
        send(&mut network, way.links[0], &frame::header(&way.there, port + 1).0);
        assert_eq!(dropped(&network, DropReason::Unkeyed), before + 1, "another port of its host");
    }
    for way in &hosts {
        let before = dropped(&network, DropReason::Unkeyed);
        assert_eq!(send(&mut network, way.links[0], &frame::header(&way.there, PORT).0), []);
        assert_eq!(dropped(&network, DropReason::Unkeyed), before + 1);
    }
    // The answer to this request would go by an open way back.
    let route = last_routes(&network).routes[0].clone();
    let header =
        frame::request_header(&frame::header(&route.there, PORT), &frame::header(&hosts[0].back, OWN_PORT));
    let first = first(&network, &route);
    assert_eq!(send(&mut network, first, &header), []);
    assert_eq!(dropped(&network, DropReason::WayBack), 1);
}

#[test]
fn identifiers_of_another_epoch_are_dropped_and_counted() {
    let mut network = network();
    let old = last_routes(&network).routes[0].clone();
    let first = first(&network, &old);
    let at_p1 = |came: Vec<(String, Vec<u8>)>| came.len() == 1 && came[0].0 == "p1";
    // One epoch later the old identifiers are still valid. By then the receiver has new ones of the same
    // ways, unasked.
    network.run(EPOCH);
    assert!(at_p1(send(&mut network, first, &request(&old))));
    let new = last_routes(&network).routes[0].clone();
    assert!(new.places == old.places && new.there != old.there && new.back != old.back);
    assert_eq!(new.there.fid.epoch(), (old.there.fid.epoch() + 1) % 32);
    network.run(EPOCH);
    assert_eq!(dropped(&network, DropReason::Epoch), 0);
    assert_eq!(send(&mut network, first, &request(&old)), []);
    assert_eq!(dropped(&network, DropReason::Epoch), 1);
    let new = last_routes(&network).routes[0].clone();
    assert!(at_p1(send(&mut network, first, &request(&new))));
    // The header there is new, the way back is old.
    let mixed = frame::request_header(&frame::header(&new.there, PORT), &frame::header(&old.back, OWN_PORT));
    assert_eq!(send(&mut network, first, &mixed), []);
    assert_eq!(dropped(&network, DropReason::Epoch), 2);
    // An identifier of today cannot be used in 32 epochs, when the number of its epoch is the same again.
    network.run(Span::from_nanos(29 * EPOCH.as_nanos()));
    assert_eq!(send(&mut network, first, &request(&old)), []);
    network.run(EPOCH);
    assert_eq!(last_routes(&network).routes[0].there.fid.epoch(), old.there.fid.epoch());
    assert_eq!(send(&mut network, first, &request(&old)), []);
}

/// Without a topology manager, receivers go on for an epoch at least.
#[test]
fn without_a_topology_manager_paths_last_for_an_epoch() {
    let mut network = network();
    network.manager = None;
    let route = last_routes(&network).routes[0].clone();
    let first = first(&network, &route);
    network.run(EPOCH);
    assert_eq!(send(&mut network, first, &request(&route)).len(), 1);
    network.manager = Some(crate::simulated_domain::manager(&network.domain));
    network.run(EPOCH + EPOCH);
    let new = last_routes(&network).routes[0].clone();
    assert_eq!(send(&mut network, first, &request(&new)).len(), 1);
    let silent = network.events("a").iter().filter(|event| matches!(event, Event::Silent(_))).count();
    assert_eq!(silent, 1);
}

/// Another host has seen the identifiers of `a`, and combines them with its own.
#[test]
fn identifiers_of_others_lead_nowhere() {
    let mut network = network();
    subscribe(&mut network, "p2", Policy::Shortest);
    network.run(Span::from_secs(1));
    let its = network.receivers[&network.node("p2")].1.iter().rev().find_map(|(_, event)| match event {
        Event::Routes(routes) => Some(routes.routes[0].clone()),
        _ => None,
    });
    let (its, others) = (its.expect("routes"), last_routes(&network).routes);
    let p2 = network.node("p2");
    let line = network.domain.graph.outgoing(p2)[0];
    let or = |a: &Header, b: &Header| {
        let (mut both, other) = (a.to_bytes(), b.to_bytes());
        both.iter_mut().zip(other).skip(2).take(31).for_each(|(a, b)| *a |= b);
        Header::parse(&both).expect("a header").0
    };
    for other in &others {
        for header in [other.there, other.back, or(&its.there, &other.back), or(&other.back, &its.there)] {
            let WayBack(header) = frame::header(&header, OWN_PORT);
            network.delivered.clear();
            network.send_over(line, OWN_PORT, [&header[..], b"unasked"].concat());
            network.run(Span::from_millis(100));
            let p1 = network.node("p1");
            assert!(network.delivered.iter().all(|(node, ..)| *node == p1), "no further than its own way");
        }
    }
}

/// A rendezvous answers with keyed identifiers, also one that shares its state with others.
#[test]
fn a_rendezvous_answers_with_keyed_identifiers() {
    let network = network();
    let domain = &network.domain;
    let to_rendezvous =
        domain.plan(network.node("a"), &[domain.rendezvous.node], 1, Policy::Shortest, |_| true);
    let way_back = Some(frame::header(&to_rendezvous[0].way.back, OWN_PORT));
    let from = Peer { address: ([127, 0, 0, 1], 7_700).into(), way_back };
    let mut machine = SharedRendezvous::new(domain.clone()).with_key(DOMAIN_KEY);
    let (now, asked) = (network.now + SINCE_1970, Message { call: 7, body: Body::Lines { from: 0 } });
    machine.handle(now, Input::Message(from, &asked.to_bytes()));
    let Output::Send(answer) = machine.poll(now) else { panic!("an answer") };
    let (back, port) = answer.to.way_back.as_ref().and_then(frame::fields).expect("a way back");
    assert_eq!((back.fid.kind(), port), (Kind::Keyed, OWN_PORT));
    // A way back that leads nowhere gets no answer.
    let lost = Peer { way_back: Some(frame::header(&to_rendezvous[0].way.there, OWN_PORT)), ..from };
    machine.handle(now, Input::Message(lost, &asked.to_bytes()));
    assert!(matches!(machine.poll(now), Output::Wait(_)));
}
