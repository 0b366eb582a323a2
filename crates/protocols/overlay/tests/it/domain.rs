//! Members of a whole domain, also when some of them are gone.

use crate::simulated_domain::{
    NAME, Network, ask, drain, key, last_routes, publication, publish, sent_on, subscribe, visits,
};
use anabranch_algo::{Machine as _, Output, Span, Time};
use anabranch_mmtp::id::{ChunksPerBlock, ContentId};
use anabranch_mmtp::peer::Peer;
use anabranch_mmtp::wire::{self, Range, RangeKind};
use anabranch_overlay::cache::{PacketCache, Policy as CachePolicy};
use anabranch_overlay::call::{Call, Reach};
use anabranch_overlay::client::{Event, Registered, ServiceKind};
use anabranch_overlay::domain::Service;
use anabranch_overlay::forwarder::DropReason;
use anabranch_overlay::frame;
use anabranch_overlay::message::{Body, LinkReport, LinkState, Message, PathsRequest, Wanted, refusal};
use anabranch_overlay::publication::{Rejection, ScopeKey};
use anabranch_overlay::rendezvous::Rendezvous;
use anabranch_overlay::topology_manager::{Outgoing, TopologyManager};
use anabranch_topology::graph::{LinkId, NodeId};
use anabranch_topology::plan::Policy;

#[test]
fn a_name_leads_to_all_its_publishers_over_all_ways() {
    let mut network = Network::new();
    publish(&mut network, "p1", publication(1, 5), key());
    publish(&mut network, "p2", publication(1, 5), key());
    network.run(Span::from_secs(1));
    let published = [Registered::Published(NAME.into())];
    assert!(network.publishers.values().all(|(_, events)| *events == published));
    subscribe(&mut network, "a", Policy::LinkDisjoint);
    network.run(Span::from_secs(1));
    let events = network.events("a");
    let [Event::Found(found), Event::Routes(routes)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((found.hosts.len(), found.outdated, &*found.file_name), (2, 0, "trailer.mkv"));
    let mut told: Vec<String> = routes.routes.iter().map(|route| visits(&network, route)).collect();
    told.sort();
    assert_eq!(
        told,
        [
            "a r1 r2 r5 p1",
            "a r1 r2 r5 p2",
            "a r1 r3 r5 p1",
            "a r1 r3 r5 p2",
            "a r1 r4 r5 p1",
            "a r1 r4 r5 p2"
        ]
    );
    assert!(routes.routes.iter().all(|route| route.group == 0));
    let delay = routes.routes[0].delay.as_nanos() / 1_000_000;
    assert_eq!(delay, 12, "as measured: 1 + 5 + 5 + 1 ms");
}

#[test]
fn who_has_died_is_left_out_within_two_seconds() {
    let mut network = Network::new();
    publish(&mut network, "p1", publication(1, 5), key());
    subscribe(&mut network, "a", Policy::Shortest);
    network.run(Span::from_secs(3));
    // The receiver asked before anything was published.
    subscribe(&mut network, "a", Policy::Shortest);
    network.run(Span::from_secs(3));
    assert_eq!(last_routes(&network).routes.len(), 3);
    let r2 = network.node("r2");
    network.forwarders.remove(&r2);
    let died = network.now;
    network.run(Span::from_secs(2));
    let (at, event) = network.receivers[&network.node("a")].1.last().expect("an event").clone();
    let Event::Routes(routes) = event else { panic!("{event:?}") };
    assert_eq!((routes.routes.len(), routes.revision), (2, 1));
    assert!(routes.routes.iter().all(|route| !visits(&network, route).contains("r2")));
    let took = at.since(died);
    assert!(took < Span::from_millis(1_100), "{took:?}");
    network.start(r2);
    network.run(Span::from_secs(2));
    assert_eq!(last_routes(&network).routes.len(), 3, "it is back");
}

/// Hosts do not report their lines: the neighbours of a forwarder that has died report it.
#[test]
fn a_forwarder_that_has_died_is_left_out_between_hosts_too() {
    let key_line = key().public().to_string();
    let lines = [("a", "r1"), ("r1", "p1"), ("r1", "r2"), ("a", "r3"), ("r3", "r2"), ("r2", "p1")];
    let lines = lines.iter().chain(&[("r2", "p2"), ("r2", "rv"), ("r2", "tm")]);
    let lines: String = lines.map(|(a, b)| format!("[[line]]\nbetween = [\"{a}\", \"{b}\"]\n")).collect();
    let mut network = Network::of(&format!(
        "name = \"kite\"\nforwarders = [\"r1\", \"r2\", \"r3\"]\nrendezvous.node = \"rv\"\n\
         topology.node = \"tm\"\nscopes.films = \"{key_line}\"\n{lines}"
    ));
    publish(&mut network, "p1", publication(1, 5), key());
    network.run(Span::from_secs(1));
    subscribe(&mut network, "a", Policy::LinkDisjoint);
    network.run(Span::from_secs(1));
    let visited = |network: &Network| {
        let routes = last_routes(network).routes;
        routes.iter().map(|route| visits(network, route)).collect::<Vec<_>>()
    };
    assert_eq!(visited(&network), ["a r1 p1", "a r3 r2 p1"]);
    let manager = |network: &Network| network.manager.as_ref().map(TopologyManager::reporters);
    let r1 = network.node("r1");
    network.forwarders.remove(&r1);
    network.run(Span::from_millis(1_100));
    assert_eq!((visited(&network), manager(&network)), (vec!["a r3 r2 p1".into()], Some(2)));
    network.start(r1);
    network.run(Span::from_secs(2));
    assert_eq!((visited(&network).len(), manager(&network)), (2, Some(3)));
}

#[test]
fn a_line_that_is_cut_is_left_out() {
    let mut network = Network::new();
    publish(&mut network, "p1", publication(1, 5), key());
    network.run(Span::from_secs(1));
    subscribe(&mut network, "a", Policy::Shortest);
    network.run(Span::from_secs(1));
    let down = |network: &mut Network, from| {
        let answer = ask(network, "p2", ServiceKind::Topology, Body::Lines { from });
        let Body::Down(down) = answer else { panic!("{answer:?}") };
        (down.forwarders, down.known, down.lines)
    };
    assert_eq!(down(&mut network, 0), (5, 0, Vec::new()));
    network.cut("r3", "r5");
    network.run(Span::from_secs(2));
    let (graph, ends) = (&network.domain.graph, (network.node("r3"), network.node("r5")));
    let between = |link: &LinkId| (graph.link(*link).from, graph.link(*link).to) == ends;
    let cut = network.domain.line(graph.link_ids().find(between).expect("a link"));
    assert_eq!(down(&mut network, 0), (5, 1, vec![cut]));
    assert_eq!(down(&mut network, cut + 1), (5, 0, Vec::new()), "lines before are not asked for");
    let routes = last_routes(&network);
    assert!(routes.routes.len() == 2 && routes.routes.iter().all(|it| !visits(&network, it).contains("r3")));
    // Both ends flap ten times: the state at the end counts.
    for _ in 0..10 {
        network.cut.clear();
        network.run(Span::from_millis(900));
        network.cut("r3", "r5");
        network.run(Span::from_millis(900));
    }
    network.cut.clear();
    network.run(Span::from_secs(2));
    assert_eq!(last_routes(&network).routes.len(), 3);
}

#[test]
fn services_may_die_and_come_back() {
    let mut network = Network::new();
    network.rendezvous = None;
    publish(&mut network, "p1", publication(1, 5), key());
    subscribe(&mut network, "a", Policy::Shortest);
    network.run(Span::from_secs(10));
    assert_eq!(network.events("a"), [&Event::Silent(ServiceKind::Rendezvous)]);
    assert_eq!(network.publishers[&network.node("p1")].1, [Registered::Silent]);
    network.rendezvous = Some(Rendezvous::new(network.domain.clone()));
    network.run(Span::from_secs(3));
    assert_eq!(
        network.publishers[&network.node("p1")].1,
        [Registered::Silent, Registered::Published(NAME.into())]
    );
    subscribe(&mut network, "a", Policy::Shortest);
    network.run(Span::from_secs(1));
    assert_eq!(last_routes(&network).routes.len(), 3);
    // A manager that starts anew knows nothing; the receiver asks again, and forwarders report again.
    network.manager = Some(TopologyManager::new(network.domain.clone()));
    let r2 = network.node("r2");
    network.forwarders.remove(&r2);
    network.run(Span::from_secs(15));
    assert_eq!(last_routes(&network).routes.len(), 2);
    assert_eq!(network.manager.as_ref().map(TopologyManager::reporters), Some(4));
}

#[test]
fn the_newest_of_different_contents_counts() {
    let mut network = Network::new();
    publish(&mut network, "p1", publication(1, 5), key());
    publish(&mut network, "p2", publication(2, 6), key());
    network.run(Span::from_secs(1));
    subscribe(&mut network, "a", Policy::Shortest);
    network.run(Span::from_secs(1));
    let Event::Found(found) = network.events("a")[0] else { panic!("it is found") };
    assert_eq!(
        (found.content.root, &found.hosts[..], found.outdated),
        ([2; 32], &[(network.node("p2"), 26_227)][..], 1)
    );
    // The publisher of the older content learns of it when it publishes again, and when its content is the
    // newest again.
    network.run(Span::from_secs(25));
    let told = |network: &Network, host: &str| network.publishers[&network.node(host)].1.clone();
    let published = || Registered::Published(NAME.into());
    assert_eq!(told(&network, "p1"), [published(), Registered::Outdated(NAME.into())]);
    assert_eq!(told(&network, "p2"), [published()]);
    let (p2, now) = (network.node("p2"), network.now);
    network.publishers.get_mut(&p2).expect("it").0.withdraw(now);
    network.run(Span::from_secs(25));
    assert_eq!(told(&network, "p1"), [published(), Registered::Outdated(NAME.into()), published()]);
}

/// Returns a node as a service sees it.
fn peer(network: &Network, node: &str, service: Service) -> Peer {
    let reach = Reach::new(&network.domain, network.node(node), service);
    let message = Message { call: 0, body: Body::Published };
    let sent = Call::new(&message, 40_000, network.now).poll(network.now, &reach).expect("a frame");
    let Ok(frame::Frame::Routed(routed)) = frame::parse(&sent.frame) else { panic!("a frame") };
    Peer { address: ([10, 0, 0, 1], 7_700).into(), way_back: routed.way_back }
}

/// Lets a manager do all work that is due. Returns the calls that it pushes to, and when it wants to be asked
/// again.
fn turn(manager: &mut TopologyManager, now: Time) -> (Vec<u64>, Time) {
    let mut pushed = Vec::new();
    loop {
        match manager.poll(now) {
            Output::Send(Outgoing::Push { frame, .. }) => {
                let Ok(frame::Frame::Routed(routed)) = frame::parse(&frame) else { panic!("a frame") };
                pushed.push(Message::parse(routed.payload).expect("a message").call);
            }
            Output::Send(Outgoing::Answer { .. }) | Output::Event(_) => {}
            Output::Wait(until) => return (pushed, until),
        }
    }
}

/// Returns a host's question for three paths to each of the targets, of whose changes it wants to learn.
fn question(from: NodeId, targets: Vec<NodeId>, call: u64) -> Vec<u8> {
    let policy = Policy::LinkDisjoint;
    let request = PathsRequest { from, port: 40_000, targets, k: 3, policy, class: None, lease_s: 60 };
    Message { call, body: Body::Paths(request) }.to_bytes()
}

#[test]
fn a_host_that_asks_without_end_delays_the_others_by_one_question() {
    let network = Network::new();
    let topology = network.domain.topology;
    let mut manager = TopologyManager::new(network.domain.clone());
    let [a, p1, p2] = ["a", "p1", "p2"].map(|name| network.node(name));
    let (from_a, from_p1) = (peer(&network, "a", topology), peer(&network, "p1", topology));
    let mut now = network.now;
    // Returns the questions that are answered before a call's, in the order of their turns.
    let mut before = |now: &mut Time, calls: std::ops::Range<u64>, own: u64| {
        for call in calls {
            manager.handle(*now, (from_a, &question(a, vec![p1, p2], call)));
        }
        manager.handle(*now, (from_p1, &question(p1, vec![a], own)));
        let mut answered = Vec::new();
        loop {
            match manager.poll(*now) {
                Output::Send(Outgoing::Answer { message, .. }) => {
                    answered.push(Message::parse(&message).expect("a message").call);
                }
                Output::Send(_) | Output::Event(_) => {}
                Output::Wait(_) if answered.contains(&own) => {
                    return (answered.len() - 1, manager.counters());
                }
                Output::Wait(until) => *now = until,
            }
        }
    };
    let (first, counters) = before(&mut now, 0..1_000, 5_000);
    assert!(first <= 1, "{first}");
    assert_eq!(counters.dropped, 1_000 - 8, "who gets no answer asks again");
    // Its seven questions are still there; more of them come between the other host's questions.
    for round in 1..20 {
        let (between, _) = before(&mut now, 1_000 * round..1_000 * round + 10, 5_000 + round);
        assert!(between <= 2, "{between}");
    }
}

#[test]
fn many_receivers_are_told_in_turns() {
    let network = Network::new();
    let topology = network.domain.topology;
    let mut manager = TopologyManager::new(network.domain.clone());
    let mut now = network.now;
    let targets = vec![network.node("p1")];
    let (a, from_a) = (network.node("a"), peer(&network, "a", topology));
    for call in 0..60 {
        manager.handle(now, (from_a, &question(a, targets.clone(), call)));
        turn(&mut manager, now);
    }
    assert_eq!((turn(&mut manager, now).0, manager.watchers()), (Vec::new(), 60));
    let r2 = network.node("r2");
    let report = |up: bool, sequence: u64| {
        let links = network.domain.graph.outgoing(r2).iter();
        let links = links.map(|link| LinkReport { link: *link, up, delay: None }).collect();
        let state = LinkState { node: r2, started_ms: 1, sequence, links };
        Message { call: 1, body: Body::LinkState(state) }.to_bytes()
    };
    for (up, sequence) in [(false, 1), (true, 2)] {
        manager.handle(now, (peer(&network, "r2", topology), &report(up, sequence)));
        let (began, mut told) = (now, Vec::new());
        loop {
            let (pushed, until) = turn(&mut manager, now);
            assert!(pushed.len() <= 8, "{} in one turn", pushed.len());
            told.extend(pushed);
            assert!(until > now && (told.len() == 60 || until < now + Span::from_millis(1)), "it goes on");
            if told.len() == 60 {
                break;
            }
            now = until;
        }
        told.sort_unstable();
        assert_eq!(told, (0..60).collect::<Vec<_>>(), "each once");
        assert!(now.since(began) < Span::from_millis(50), "{:?}", now.since(began));
        for call in 0..60 {
            let ack = Message { call, body: Body::RoutesAck { revision: sequence as u32 } };
            manager.handle(now, (from_a, &ack.to_bytes()));
        }
        let (early, again) = turn(&mut manager, now);
        let (late, until) = turn(&mut manager, again);
        assert!(early.is_empty() && late.is_empty(), "all have acknowledged");
        assert!(until > again + Span::from_secs(1), "{until:?}");
        now = again;
    }
    // The leases end.
    turn(&mut manager, network.now + Span::from_secs(61));
    let mut later = network.now + Span::from_secs(61);
    for _ in 0..10 {
        later += Span::from_millis(1);
        turn(&mut manager, later);
    }
    assert_eq!(manager.watchers(), 0);
}

#[test]
fn who_does_not_own_a_scope_cannot_publish() {
    let mut network = Network::new();
    publish(&mut network, "p1", publication(1, 5), ScopeKey::new([8; 32]).expect("a key"));
    network.run(Span::from_secs(1));
    let refused = Registered::Refused(NAME.into(), refusal::of(Rejection::Signature));
    assert_eq!(network.publishers[&network.node("p1")].1, [refused]);
    subscribe(&mut network, "a", Policy::Shortest);
    network.run(Span::from_secs(1));
    assert_eq!(network.events("a"), [&Event::Unknown]);
}

#[test]
fn what_is_withdrawn_is_gone() {
    let mut network = Network::new();
    publish(&mut network, "p1", publication(1, 5), key());
    network.run(Span::from_secs(70));
    let (now, p1) = (network.now, network.node("p1"));
    let registration = &mut network.publishers.get_mut(&p1).expect("it").0;
    registration.withdraw(now);
    assert!(!registration.is_over());
    network.run(Span::from_millis(200));
    assert!(network.publishers[&p1].0.is_over());
    subscribe(&mut network, "a", Policy::Shortest);
    network.run(Span::from_secs(1));
    assert_eq!(network.events("a"), [&Event::Unknown]);
}

#[test]
fn a_host_cannot_speak_for_a_forwarder() {
    let mut network = Network::new();
    network.run(Span::from_secs(1));
    let r2 = network.node("r2");
    let links = network.domain.graph.outgoing(r2).iter();
    let links = links.map(|link| LinkReport { link: *link, up: false, delay: None });
    let state = LinkState { node: r2, started_ms: u64::MAX, sequence: 1, links: links.collect() };
    let answer = ask(&mut network, "a", ServiceKind::Topology, Body::LinkState(state));
    assert_eq!(answer, Body::Refused { reason: refusal::OTHER_NODE });
    let link = network.domain.graph.outgoing(r2)[0];
    assert!(network.manager.as_ref().expect("it").is_up(link));
}

#[test]
fn services_refuse_what_is_for_others() {
    let mut network = Network::new();
    let lookup = Body::Lookup(Wanted::Name(NAME.parse().expect("a name")));
    let answer = ask(&mut network, "a", ServiceKind::Topology, lookup);
    assert_eq!(answer, Body::Refused { reason: refusal::NOT_HERE });
}

#[test]
fn a_reply_cannot_be_led_to_somebody_else() {
    let mut network = Network::new();
    network.run(Span::from_secs(1));
    let (a, p1, p2) = (network.node("a"), network.node("p1"), network.node("p2"));
    let domain = network.domain.clone();
    let way = |from, to| domain.plan(from, &[to], 1, Policy::Shortest, |_| true)[0].way.clone();
    let (there, victim) = (way(a, p1), way(p1, p2));
    let there_header = frame::header(&there.there, 26_227);
    let sent = |network: &mut Network, back: &anabranch_topology::fid::Header| {
        let header = frame::request_header(&there_header, &frame::header(back, 50_000));
        network.delivered.clear();
        network.send_over(there.links[0], 50_000, [&header[..], b"request"].concat());
        network.run(Span::from_secs(1));
        network.delivered.len()
    };
    assert_eq!(sent(&mut network, &there.back), 1, "its own way back");
    assert_eq!(sent(&mut network, &victim.there), 0, "that of another");
    // By this way back the reply would go to both: the host that asked, and the victim.
    let mut both = way(p1, a).links;
    both.extend(&victim.links);
    both.sort_unstable();
    both.dedup();
    let both = network.domain.way(&both).expect("it fits").there;
    assert_eq!(sent(&mut network, &both), 0, "to two");
    let dropped =
        |drop| network.forwarders.values().filter_map(|it| it.counters().dropped.get(&drop)).sum::<u64>();
    assert_eq!(dropped(DropReason::WayBack), 2);
}

#[test]
fn no_frame_becomes_two() {
    let mut network = Network::new();
    network.run(Span::from_secs(1));
    let (a, p1, p2) = (network.node("a"), network.node("p1"), network.node("p2"));
    let domain = network.domain.clone();
    let way = |to| domain.plan(a, &[to], 1, Policy::Shortest, |_| true)[0].way.links.clone();
    let mut both = way(p1);
    let first = both[0];
    both.extend(way(p2));
    both.sort_unstable();
    both.dedup();
    let mut header = domain.way(&both).expect("it fits").there;
    let mut sent = |hop_limit| {
        header.hop_limit = hop_limit;
        let before: u64 = network.forwarders.values().map(|it| it.counters().forwarded).sum();
        network.send_over(first, 50_000, [&frame::header(&header, 50_000).0[..], b"x"].concat());
        network.run(Span::from_secs(1));
        network.forwarders.values().map(|it| it.counters().forwarded).sum::<u64>() - before
    };
    assert_eq!(sent(6), 2, "as far as r5, where it would branch");
    assert_eq!(sent(255), 0, "more hops than there are");
    let forged = network.forwarders.values().filter_map(|it| it.counters().dropped.get(&DropReason::Forged));
    assert_eq!(forged.sum::<u64>(), 2);
}

#[test]
fn what_a_forwarder_drops() {
    let mut network = Network::new();
    let (a, r1) = (network.node("a"), network.node("r1"));
    let way = network.domain.plan(a, &[network.node("p1")], 1, Policy::Shortest, |_| true)[0].way.clone();
    let from = network.domain.first_hop(&way.links).expect("a line").0;
    let from = std::net::SocketAddr::new(from, 50_000);
    let good = [&frame::header(&way.there, 26_227).0[..], b"x"].concat();
    let mut full = good.clone();
    full[6..38].fill(0xff);
    let forwarder = network.forwarders.get_mut(&r1).expect("it");
    // The forwarder sends its first hellos.
    drain(forwarder, Time::ZERO, &[]);
    let mut dropped = |from, bytes: &[u8]| {
        let before = forwarder.counters().dropped.clone();
        let steps = sent_on(forwarder, Time::ZERO, from, &mut bytes.to_vec(), bytes.len()).len();
        let after = forwarder.counters().dropped.iter();
        let changed = after.filter(|(drop, count)| before.get(drop).is_none_or(|before| before != *count));
        changed.map(|(drop, _)| *drop).next().ok_or(steps)
    };
    assert_eq!(dropped(from, &good), Err(1), "sent on once");
    assert_eq!(dropped(([192, 0, 2, 1], 50_000).into(), &good), Ok(DropReason::Stranger));
    assert_eq!(dropped(from, &good[..20]), Ok(DropReason::Malformed));
    assert_eq!(dropped(from, &full), Ok(DropReason::Forged), "all ones");
    let spent = [&good[..5], &[0], &good[6..]].concat();
    assert_eq!(dropped(from, &spent), Ok(DropReason::HopLimit));
    let mut nowhere = good.clone();
    nowhere[6..38].fill(0);
    assert_eq!(dropped(from, &nowhere), Ok(DropReason::NoLink));
    // The frame goes from p1 to a, and is seen at r1: it is for a port of the host a at which the system
    // listens.
    let back = [&frame::header(&way.back, 53).0[..], b"x"].concat();
    let r2 = network.domain.graph.outgoing(r1).iter().map(|link| network.domain.address_there(*link));
    let r2 = r2.filter(|(_, port)| port.is_some()).map(|(ip, _)| std::net::SocketAddr::new(ip, 7_700)).next();
    assert_eq!(dropped(r2.expect("a neighbour"), &back), Ok(DropReason::Port));
}

#[test]
fn frames_of_a_train_that_go_the_same_way_are_looked_at_once() {
    let mut network = Network::new();
    let (a, r1) = (network.node("a"), network.node("r1"));
    let ways: Vec<_> = network
        .domain
        .plan(a, &[network.node("p1")], 2, Policy::Shortest, |_| true)
        .into_iter()
        .map(|found| found.way)
        .collect();
    let from = network.domain.first_hop(&ways[0].links).expect("a line").0;
    let from = std::net::SocketAddr::new(from, 50_000);
    let frame = |way: usize, n: u8| [&frame::header(&ways[way].there, 26_227).0[..], &[n; 10]].concat();
    let mut bytes = [frame(0, 0), frame(0, 1), frame(1, 2), frame(0, 3), frame(0, 4)].concat();
    // The last frame may be shorter.
    bytes.truncate(bytes.len() - 5);
    let before = bytes.clone();
    let forwarder = network.forwarders.get_mut(&r1).expect("it");
    drain(forwarder, Time::ZERO, &[]);
    let sent = sent_on(forwarder, Time::ZERO, from, &mut bytes, 48);
    let trains: Vec<_> = sent.into_iter().map(|(_, train)| train).collect();
    assert_eq!(trains.iter().map(Vec::len).collect::<Vec<_>>(), [96, 48, 91]);
    // Only the hop limit has changed: it is one less.
    let expected = before.chunks(48).flat_map(|frame| [&frame[..5], &[frame[5] - 1], &frame[6..]].concat());
    assert_eq!(trains.concat(), expected.collect::<Vec<u8>>());
    let counters = forwarder.counters();
    assert_eq!((counters.forwarded, counters.forwarded_bytes), (5, bytes.len() as u64));
    bytes[5] = 0;
    bytes[53] = 0;
    assert_eq!(sent_on(forwarder, Time::ZERO, from, &mut bytes, 48).len(), 2);
    assert_eq!(forwarder.counters().dropped.get(&DropReason::HopLimit), Some(&2));
}

#[test]
fn a_cache_looks_into_each_frame_of_a_train() {
    let mut network = Network::new();
    let (a, r1) = (network.node("a"), network.node("r1"));
    let domain = network.domain.clone();
    let way = domain.plan(a, &[network.node("p1")], 1, Policy::Shortest, |_| true)[0].way.clone();
    let forwarder = network.forwarders.remove(&r1).expect("it");
    let mut forwarder = forwarder.with_cache(PacketCache::new(CachePolicy::Lru, 1 << 20, r1));
    let content = ContentId { root: [1; 32], length: 1_000_000 };
    let cut = ChunksPerBlock::new(16).expect("in range");
    let back = frame::header(&way.back, 50_000);
    let mut request = frame::request_header(&frame::header(&way.there, 26_227), &back).to_vec();
    let range = Range { kind: RangeKind::Data(cut), first: 0, count: 3 };
    wire::emit_request(&mut request, 5, None, false, &content, &[range]);
    let (ip, _) = domain.first_hop(&way.links).expect("a line");
    let stride = request.len();
    drain(&mut forwarder, Time::ZERO, &[]);
    sent_on(&mut forwarder, Time::ZERO, (ip, 50_000).into(), &mut request, stride);
    let reply = |chunk| {
        let mut frame = back.0.to_vec();
        let length = content.chunk_wire_len(chunk, cut).expect("it exists");
        wire::emit_data(&mut frame, 5, cut, chunk, &vec![7; length], length);
        frame
    };
    let mut train = [reply(0), reply(1), reply(2)].concat();
    let (from, stride) = (domain.address_there(way.links[1]), train.len() / 3);
    let from = (from.0, from.1.expect("a forwarder")).into();
    let sent = sent_on(&mut forwarder, Time::ZERO, from, &mut train, stride);
    let sent: Vec<_> = sent.iter().map(|(_, train)| train.len()).collect();
    assert_eq!(sent, [3 * stride], "in one piece");
    assert_eq!(forwarder.cache().expect("it").counters().learnt, 3);
}

#[test]
fn a_loop_ends_by_the_hop_limit() {
    let mut network = Network::new();
    network.run(Span::from_secs(1));
    let a = network.node("a");
    let names = ["a", "r1", "r2", "r5", "r3", "r1"].map(|name| network.node(name));
    let graph = &network.domain.graph;
    let link = |pair: &[NodeId]| {
        graph.outgoing(pair[0]).iter().copied().find(|link| graph.link(*link).to == pair[1]).expect("a line")
    };
    let links: Vec<_> = names.windows(2).map(link).collect();
    let header = network.domain.way(&links).expect("it fits").there;
    let before: u64 = network.forwarders.values().map(|it| it.counters().forwarded).sum();
    network.send_over(links[0], 50_000, [&frame::header(&header, 50_000).0[..], b"round"].concat());
    network.run(Span::from_secs(2));
    let after: u64 = network.forwarders.values().map(|it| it.counters().forwarded).sum();
    assert!((1..=2 * u64::from(header.hop_limit)).contains(&(after - before)), "{} sent", after - before);
    let dropped =
        network.forwarders.values().filter_map(|it| it.counters().dropped.get(&DropReason::HopLimit));
    assert_eq!(dropped.sum::<u64>(), 1);
    assert_eq!(network.node("a"), a);
}

/// A host sends twenty times the limit of its line, and in a second run is sent as much. The limit passes,
/// and the forwarder at the end of the line counts the rest.
#[test]
fn a_line_with_a_limit_carries_no_more() {
    let file = crate::simulated_domain::DOMAIN.replace("KEY", &key().public().to_string());
    let limited =
        file.replacen("between = [\"a\", \"r1\"]\n", "between = [\"a\", \"r1\"]\nlimit_mbit = 8\n", 1);
    assert_ne!(limited, file);
    for (from, to, counts) in [("a", "p1", "r1"), ("p1", "a", "r1")] {
        let mut network = Network::of(&limited);
        let (from, to, counts) = (network.node(from), network.node(to), network.node(counts));
        let way = network.domain.plan(from, &[to], 1, Policy::Shortest, |_| true).remove(0).way;
        let frame = [&frame::header(&way.there, 9_000).0[..], &[7; 1_000]].concat();
        for _ in 0..2_000 {
            (0..20).for_each(|_| network.send_over(way.links[0], 9_000, frame.clone()));
            network.run(Span::from_millis(1));
        }
        // Frames that are under way arrive, too.
        network.run(Span::from_millis(100));
        let came = network.delivered.len() * frame.len();
        // Frames arrive for two seconds, 1 or 11 ms after they were sent: that pause allows as much.
        assert!((1_990_000..=2_011_000).contains(&came), "{came} bytes in two seconds");
        let dropped = network.forwarders[&counts].counters().dropped[&DropReason::RateLimit];
        assert_eq!(network.delivered.len() as u64 + dropped, 40_000);
        let mut others = network.forwarders.iter().filter(|(node, _)| **node != counts);
        assert!(others.all(|(_, other)| other.counters().dropped.is_empty()));
    }
}
