//! The first SYN over several paths: a connection begins although its first path is dead or slow.

use anabranch_algo::Span;
use anabranch_mptcp::segment::Flags;
use anabranch_mptcp::{Config, ConnectionEvent};

use crate::network::{Faults, Network, client_address};
use crate::tcp::plain;

/// Runs until the client is connected, and returns how long that took.
fn begin(network: &mut Network) -> Span {
    let (begun, end) = (network.now, network.now + Span::from_secs(20));
    network.connect(300_000, 300_000);
    while !network.hosts[0].has(|event| matches!(event, ConnectionEvent::Established { .. })) {
        assert!(network.step(end), "no connection");
    }
    network.now.since(begun)
}

#[test]
fn a_connection_begins_on_the_second_path_when_the_first_is_dead() {
    for config in [Config::default(), plain()] {
        let links = [Faults { is_cut: true, ..Faults::none(10) }, Faults::none(20)];
        let mut network = Network::new(config.clone(), config.clone(), &links, 1);
        assert_eq!(begin(&mut network), Span::from_millis(250 + 40));
        network.links.get_mut(&client_address(0)).unwrap().is_cut = false;
        assert!(network.run_until_closed(Span::from_secs(30)));
        network.check().unwrap();
        assert_eq!(network.hosts[0].stack.is_multipath(network.hosts[0].connection.unwrap()), config.mptcp);
    }
}

#[test]
fn the_dead_path_joins_when_it_lives_again() {
    let links = [Faults { is_cut: true, ..Faults::none(10) }, Faults::none(20)];
    let mut network = Network::new(Config::default(), Config::default(), &links, 1);
    network.hosts[0].finishes = false;
    begin(&mut network);
    network.links.get_mut(&client_address(0)).unwrap().is_cut = false;
    network.run(Span::from_secs(3));
    let is_first = |event: &ConnectionEvent| match event {
        ConnectionEvent::SubflowUp { local, .. } => local.ip() == client_address(0),
        _ => false,
    };
    assert!(network.hosts[0].has(is_first), "{:?}", network.hosts[0].events);
}

#[test]
fn only_one_attempt_becomes_a_connection() {
    // The second path answers 250 + 40 ms after the begin, the first path 2 · `first_ms` after it.
    for (first_ms, is_raced) in [(200, true), (135, true), (20, false)] {
        let links = [Faults::none(first_ms), Faults::none(20)];
        let mut network = Network::new(Config::default(), Config::default(), &links, 1);
        network.keeps_log = true;
        let took = begin(&mut network);
        assert_eq!(took, Span::from_millis((2 * first_ms).min(290)));
        assert!(network.run_until_closed(Span::from_secs(30)));
        network.check().unwrap();
        let established = |event: &&ConnectionEvent| matches!(event, ConnectionEvent::Established { .. });
        assert_eq!(network.hosts[1].events.iter().filter(established).count(), 1);
        network.run(Span::from_secs(100));
        assert_eq!(network.hosts[1].stack.connection_count(), 0);
        // The attempt that lost is reset as soon as it is answered.
        let resets = network.log.iter().filter(|(_, host, segment)| {
            *host == 0 && segment.flags.has(Flags::RST) && segment.payload.is_empty()
        });
        assert_eq!(resets.count() > 0, is_raced);
    }
}

#[test]
fn an_address_for_backups_is_tried_last_and_stays_one() {
    let links = [Faults { is_cut: true, ..Faults::none(10) }, Faults::none(10), Faults::none(10)];
    let mut network = Network::new(Config::default(), Config::default(), &links, 1);
    let own = |no| anabranch_mptcp::LocalAddress::new(client_address(no));
    let now = network.now;
    network.hosts[0].stack.add_address(now, anabranch_mptcp::LocalAddress { backup: true, ..own(1) });
    assert_eq!(begin(&mut network), Span::from_millis(250 + 20));
    let is_third = |event: &ConnectionEvent| match event {
        ConnectionEvent::SubflowUp { local, .. } => local.ip() == client_address(2),
        _ => false,
    };
    assert!(network.hosts[0].has(is_third));
}
