//! Classes of a domain: their paths, and the marks of their packets.

use std::net::SocketAddr;
use std::num::NonZeroU8;

use crate::simulated_domain::{
    DOMAIN, Network, ask, drain, key, last_routes, publication, publish, sent_on, subscribe_to, visits,
};
use anabranch_algo::{Span, Time};
use anabranch_overlay::client::ServiceKind;
use anabranch_overlay::domain::ClassId;
use anabranch_overlay::dscp::Dscp;
use anabranch_overlay::frame::{self, Frame};
use anabranch_overlay::message::{Body, PathsRequest, refusal};
use anabranch_topology::plan::Policy;

const CLASSES: &str = "
    [class.bulk]
    dscp = \"le\"
    [class.urgent]
    policy = \"shortest\"
    paths = 1
    dscp = \"ef\"
    [scopes]";

fn network() -> Network {
    Network::of(&DOMAIN.replace("KEY", &key().public().to_string()).replace("[scopes]", CLASSES))
}

fn number(number: u8) -> ClassId {
    ClassId(NonZeroU8::new(number).expect("a number"))
}

fn told(network: &Network) -> Vec<String> {
    last_routes(network).routes.iter().map(|route| visits(network, route)).collect()
}

#[test]
fn each_class_has_its_paths_and_keeps_to_them() {
    let of = |class: &str| {
        let mut network = network();
        publish(&mut network, "p1", publication(1, 5), key());
        network.run(Span::from_secs(1));
        let paths = network.domain.path_choice(Some(class)).expect("a class");
        subscribe_to(&mut network, "a", paths);
        network.run(Span::from_secs(1));
        let before = told(&network);
        // The receiver learns of the change before it asks again.
        network.cut("r2", "r5");
        network.run(Span::from_secs(3));
        assert!(network.manager.as_ref().expect("it").counters().pushes > 0);
        (before, told(&network))
    };
    let ways = ["a r1 r2 r5 p1", "a r1 r3 r5 p1", "a r1 r4 r5 p1"].map(str::to_owned);
    assert_eq!(of("urgent"), (vec![ways[0].clone()], vec![ways[1].clone()]));
    assert_eq!(of("bulk"), (ways.to_vec(), ways[1..].to_vec()));
}

#[test]
fn a_class_that_is_unknown_is_refused_by_name_and_by_number() {
    let mut network = network();
    network.run(Span::from_secs(1));
    let said = network.domain.path_choice(Some("fast")).expect_err("no class").to_string();
    assert_eq!(said, "the domain diamond has no class fast; it has: bulk, urgent");
    let (a, p1) = (network.node("a"), network.node("p1"));
    let mut ask_for = |class: Option<ClassId>| {
        let (port, k, policy, lease_s) = (50_000, 4, Policy::LinkDisjoint, 60);
        let request = PathsRequest { from: a, port, targets: vec![p1], k, policy, class, lease_s };
        ask(&mut network, "a", ServiceKind::Topology, Body::Paths(request))
    };
    let refused = Body::Refused { reason: refusal::UNKNOWN_CLASS };
    assert_eq!((ask_for(Some(number(3))), ask_for(Some(number(255)))), (refused.clone(), refused));
    // A message that asks for more paths gets no more than the class has.
    let mut count = |class| match ask_for(class) {
        Body::Routes(routes) => routes.routes.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!((count(None), count(Some(number(1))), count(Some(number(2)))), (3, 3, 1));
    assert_eq!(network.manager.as_ref().expect("it").watchers(), 1, "none of who was refused");
}

/// Returns the marks of frames from `a` to `p1` as r1 sends them on. The frames come with these marks, there
/// and back, in one train.
fn forwarded(network: &mut Network, marks: &[(u8, Option<u8>)]) -> Vec<Vec<(u8, Option<u8>)>> {
    let domain = network.domain.clone();
    let (a, r1) = (network.node("a"), network.node("r1"));
    let way = domain.plan(a, &[network.node("p1")], 1, Policy::Shortest, |_| true)[0].way.clone();
    let from = SocketAddr::new(domain.first_hop(&way.links).expect("a line").0, 50_000);
    let dscp = |number| Dscp::new(number).expect("one");
    let frame = |(there, back): &(u8, Option<u8>)| {
        let header = frame::marked(frame::header(&way.there, 26_227), dscp(*there));
        let Some(back) = back else { return [&header.0[..], &[7; 60]].concat() };
        // A receiver of this project marks both alike.
        let mut bytes = frame::request_header(&header, &frame::header(&way.back, 50_000)).to_vec();
        bytes[frame::HEADER_BYTES + 1] = back << 2;
        bytes.extend_from_slice(&[7; 60 - frame::HEADER_BYTES]);
        bytes
    };
    let mut bytes: Vec<u8> = marks.iter().flat_map(frame).collect();
    let stride = bytes.len() / marks.len();
    let forwarder = network.forwarders.get_mut(&r1).expect("it");
    drain(forwarder, Time::ZERO, &[]);
    let marks = |frame: &[u8]| {
        let Ok(Frame::Routed(routed)) = frame::parse(frame) else { panic!("a frame") };
        let back = routed.way_back.map(|back| frame::mark(&back.0).number());
        (frame::mark(frame).number(), back)
    };
    let sent = sent_on(forwarder, Time::ZERO, from, &mut bytes, stride);
    sent.iter().map(|(_, train)| train.chunks(stride).map(marks).collect()).collect()
}

#[test]
fn only_marks_of_the_domain_are_sent_on() {
    let (le, ef, other) = (1, 46, 48);
    let mut with = network();
    let sent = [(ef, None), (ef, None), (le, None), (other, None), (other, None), (0, None)];
    let expected = [vec![(ef, None); 2], vec![(le, None)], vec![(0, None); 2], vec![(0, None)]];
    assert_eq!(forwarded(&mut with, &sent), expected);
    let sent = [(ef, Some(ef)), (ef, Some(other)), (other, Some(le)), (other, Some(other)), (0, Some(0))];
    let expected = [(ef, Some(ef)), (ef, Some(0)), (0, Some(le)), (0, Some(0)), (0, Some(0))];
    assert_eq!(forwarded(&mut with, &sent), expected.map(|frame| vec![frame]));
    let mut without = Network::new();
    assert_eq!(forwarded(&mut without, &[(ef, None), (ef, None)]), [vec![(0, None); 2]]);
    assert_eq!(forwarded(&mut without, &[(le, Some(ef))]), [vec![(0, Some(0))]]);
}
