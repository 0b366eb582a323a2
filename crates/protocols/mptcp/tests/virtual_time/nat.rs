//! Subflows whose addresses change on the way, as behind a NAT that forgets or moves them.

use std::collections::BTreeSet;

use anabranch_algo::Span;
use anabranch_mptcp::{Config, ConnectionEvent, SubflowError, TcpConfig};

use crate::network::{Faults, Network, client_address};

const MIB: usize = 1 << 20;

/// Returns two hosts on links of 10 ms and some 11 Mbit/s, of which the client joins again.
fn network(links: usize) -> Network {
    let tcp = TcpConfig { retries_max: 12, ..TcpConfig::default() };
    let config = Config { tcp, rejoin_after: Some(Span::from_secs(1)), ..Config::default() };
    let link = Faults { gap: Span::from_millis(1), queue: 50, ..Faults::none(10) };
    Network::new(config.clone(), config, &vec![link; links], 1)
}

/// Gives every port at the client's address `no` another number on the way from now on. What is sent to the
/// old number is lost.
fn move_ports(network: &mut Network, no: u8, by: u16) {
    let address = client_address(no);
    let mut known = BTreeSet::new();
    network.filter = Some(Box::new(move |from, segment| {
        let end = if from == 0 { &mut segment.source } else { &mut segment.target };
        if end.ip() != address {
            return true;
        }
        let before = end.port();
        end.set_port(if from == 0 { before - by } else { before.wrapping_add(by) });
        if from == 0 {
            known.insert(before);
        }
        known.contains(&end.port()) || from == 0
    }));
}

fn ups(network: &Network) -> usize {
    let is_up = |event: &&ConnectionEvent| matches!(event, ConnectionEvent::SubflowUp { .. });
    network.hosts[0].events.iter().filter(is_up).count()
}

#[test]
fn a_subflow_that_is_moved_is_made_again() {
    for no in [0, 1] {
        let mut network = network(2);
        network.connect(0, 8 * MIB);
        network.run(Span::from_millis(500));
        assert_eq!(ups(&network), 2);
        move_ports(&mut network, no, 20_000);
        let (before, read) = (network.now, network.hosts[0].read.len());
        network.run(Span::from_secs(2));
        let is_reset = |event: &ConnectionEvent| {
            matches!(event, ConnectionEvent::SubflowDown { error: Some(SubflowError::Reset), .. })
        };
        assert!(network.hosts[0].has(is_reset) && ups(&network) == 3, "{:?}", network.hosts[0].events);
        // One link alone carries 2.8 MB in this time.
        let moved = network.hosts[0].read.len() - read;
        assert!(moved > 3_500_000, "{moved} bytes since {before:?}");
        assert!(network.run_until_closed(Span::from_secs(60)));
        network.check().unwrap();
    }
}

#[test]
fn the_only_subflow_is_moved_and_the_connection_goes_on() {
    let mut network = network(1);
    network.connect(0, 4 * MIB);
    network.run(Span::from_millis(500));
    for by in [20_000, 30_000] {
        move_ports(&mut network, 0, by);
        network.run(Span::from_millis(500));
    }
    assert_eq!(ups(&network), 3, "{:?}", network.hosts[0].events);
    assert!(network.run_until_closed(Span::from_secs(60)));
    network.check().unwrap();
}

#[test]
fn a_peer_that_has_forgotten_the_connection_ends_it() {
    let mut network = network(1);
    network.connect(0, 64 * MIB);
    network.run(Span::from_millis(500));
    network.hosts[1] = self::network(1).hosts.into_iter().nth(1).unwrap();
    network.run(Span::from_secs(2));
    let is_over = |event: &ConnectionEvent| matches!(event, ConnectionEvent::Closed { error: Some(_) });
    assert!(network.hosts[0].has(is_over), "{:?}", network.hosts[0].events);
}

#[test]
fn moves_without_end_leave_room_for_the_next_subflow() {
    let mut network = network(2);
    network.connect(0, 25 * MIB);
    network.run(Span::from_millis(500));
    for turn in 1..14 {
        move_ports(&mut network, 1, 1_000 * turn);
        network.run(Span::from_millis(1_500));
    }
    // There are eight places at the server, and no subflow of them has ended in order.
    assert!(ups(&network) >= 10, "{}", ups(&network));
    assert!(network.run_until_closed(Span::from_secs(60)));
    network.check().unwrap();
}
