//! Subflows that come and go in the middle of a transfer: addresses, priorities, path managers.

use std::net::{IpAddr, SocketAddr};

use anabranch_algo::{Span, Time};
use anabranch_mptcp::{Config, ConnectionEvent, LocalAddress, PathManager, SchedulerKind};
use anabranch_mptcp_wire::{Join, MptcpOption};

use crate::attacks::with_join;
use crate::network::{Faults, Network, PORT, client_address, server_address};

const MIB: usize = 1 << 20;

/// Creates two hosts and links without faults, with a log. Each round trip of 20 ms brings at most 400,000
/// bytes.
fn network(config: Config, links: usize) -> Network {
    let config = Config { receive_buffer_bytes: 400_000, ..config };
    let server = Config { receive_buffer_bytes: 400_000, ..Config::default() };
    let mut network = Network::new(config, server, &vec![Faults::none(10); links], 1);
    network.keeps_log = true;
    network
}

fn ups(network: &Network, host: usize) -> usize {
    let is_up = |event: &&ConnectionEvent| matches!(event, ConnectionEvent::SubflowUp { .. });
    network.hosts[host].events.iter().filter(is_up).count()
}

/// Returns the bytes that a host has sent since `from` over the link of one of the client's addresses.
fn carried(network: &Network, host: usize, address: IpAddr, from: Time) -> usize {
    let of_link = network.log.iter().filter(|(at, sender, segment)| {
        let client = if host == 0 { segment.source } else { segment.target };
        *at >= from && *sender == host && client.ip() == address
    });
    of_link.map(|(_, _, segment)| segment.payload.len()).sum()
}

/// Returns how many segments a host has sent that have an option which `wanted` selects.
fn told(network: &Network, host: usize, wanted: impl Fn(MptcpOption<'_>) -> bool) -> usize {
    let those = network
        .log
        .iter()
        .filter(|(_, sender, segment)| *sender == host && segment.options.iter().mptcp().any(&wanted));
    those.count()
}

fn finish(network: &mut Network) {
    let closed = network.run_until_closed(Span::from_secs(60));
    network.check().unwrap();
    assert!(closed);
}

#[test]
fn joins_that_fail_leave_nothing_behind() {
    let mut network = network(Config::default(), 2);
    network.links.get_mut(&client_address(1)).unwrap().is_cut = true;
    network.hosts[0].finishes = false;
    network.connect(100, 0);
    network.run(Span::from_secs(900));
    let joins = told(&network, 0, |option| matches!(option, MptcpOption::Join(Join::Syn { .. })));
    assert!(joins > 40, "{joins}");
    // One is the first subflow, the other is the join that is being tried.
    assert_eq!(network.hosts[0].stack.subflow_count(), 2);
}

#[test]
fn two_ends_whose_join_was_refused_may_join_again() {
    let mut network = network(Config::default(), 2);
    network.filter = Some(Box::new(|_, segment| {
        segment.options = with_join(segment, |join| match join {
            Join::Ack { .. } => Join::Ack { hmac: [7; 20] },
            join => join,
        });
        true
    }));
    network.hosts[0].finishes = false;
    network.connect(100, 0);
    network.run(Span::from_secs(1));
    let is_join = |option| matches!(option, MptcpOption::Join(Join::Syn { .. }));
    let mut sent = network.log.iter().rev();
    let syn = sent.find(|(_, _, segment)| segment.options.iter().mptcp().any(is_join)).unwrap().2.clone();
    let is_answer = |option: MptcpOption<'_>| matches!(option, MptcpOption::Join(Join::SynAck { .. }));
    let before = told(&network, 1, is_answer);
    network.inject(1, &syn);
    assert_eq!(told(&network, 1, is_answer), before + 1);
}

#[test]
fn a_path_becomes_backup_and_ceases_to_be_one() {
    for loses_first in [false, true] {
        let mut network = network(Config::default(), 2);
        let mut lost = false;
        network.filter = Some(Box::new(move |_, segment| {
            let is_prio = |option| matches!(option, MptcpOption::Prio { .. });
            let loses = loses_first && !lost && segment.options.iter().mptcp().any(is_prio);
            lost |= loses;
            !loses
        }));
        network.connect(40 * MIB, 40 * MIB);
        network.run(Span::from_millis(400));
        let (first, id) = (client_address(0), network.hosts[0].connection.unwrap());
        for backup in [true, false].into_iter().take(if loses_first { 1 } else { 2 }) {
            let now = network.now;
            assert_eq!(network.hosts[0].stack.set_backup(now, id, first, backup), 1);
            network.run(Span::from_millis(if loses_first { 1_200 } else { 100 }));
            let from = network.now;
            network.run(Span::from_millis(200));
            for host in 0..2 {
                let (on_first, on_other) =
                    (carried(&network, host, first, from), carried(&network, host, client_address(1), from));
                // With a backup, the other path carries all data. Without one, both have the same round trip
                // and the first wins.
                assert_eq!((on_first == 0, on_other > 0), (backup, backup), "host {host}");
            }
        }
        finish(&mut network);
        assert!(told(&network, 0, |option| matches!(option, MptcpOption::Prio { .. })) >= 2);
    }
}

#[test]
fn this_end_gets_an_address_and_loses_the_first() {
    let mut network = network(Config::default(), 2);
    let (first, second) = (client_address(0), client_address(1));
    let now = network.now;
    network.hosts[0].stack.remove_address(now, second);
    network.connect(8 * MIB, 8 * MIB);
    network.run(Span::from_millis(150));
    assert_eq!(ups(&network, 0), 1);
    let now = network.now;
    network.hosts[0].stack.add_address(now, LocalAddress::new(second));
    network.run(Span::from_millis(100));
    assert_eq!((ups(&network, 0), ups(&network, 1)), (2, 2));
    let now = network.now;
    network.hosts[0].stack.remove_address(now, first);
    network.run(Span::from_millis(100));
    network.links.get_mut(&first).unwrap().is_cut = true;
    let from = network.now;
    finish(&mut network);
    assert_eq!((carried(&network, 0, first, from), carried(&network, 1, first, from)), (0, 0));
    let removed = |option: MptcpOption<'_>| match option {
        MptcpOption::RemoveAddr(removed) => removed.address_ids == [0],
        _ => false,
    };
    assert!(told(&network, 0, removed) > 0);
}

#[test]
fn a_connection_outlives_its_only_address_for_a_while() {
    let mut network = network(Config::default(), 2);
    let (first, second) = (client_address(0), client_address(1));
    let now = network.now;
    network.hosts[0].stack.remove_address(now, second);
    network.connect(4 * MIB, 4 * MIB);
    network.run(Span::from_millis(150));
    let now = network.now;
    network.hosts[0].stack.remove_address(now, first);
    network.links.get_mut(&first).unwrap().is_cut = true;
    network.run(Span::from_secs(5));
    assert!(!network.hosts[0].is_closed && ups(&network, 0) == 1);
    let now = network.now;
    network.hosts[0].stack.add_address(now, LocalAddress::new(second));
    finish(&mut network);
    assert_eq!(ups(&network, 0), 2);
    assert!(told(&network, 0, |option| matches!(option, MptcpOption::RemoveAddr(_))) > 0);
}

#[test]
fn the_peer_gets_an_address_and_loses_it() {
    let mut network = network(Config::default(), 1);
    let other = IpAddr::from([10, 9, 1, 2]);
    network.connect(16 * MIB, 16 * MIB);
    network.run(Span::from_millis(150));
    let now = network.now;
    network.hosts[1].stack.add_address(now, LocalAddress { announce: true, ..LocalAddress::new(other) });
    network.run(Span::from_millis(100));
    let is_other = |event: &ConnectionEvent| match event {
        ConnectionEvent::SubflowUp { remote, .. } => *remote == SocketAddr::new(other, PORT),
        _ => false,
    };
    assert!(network.hosts[0].has(is_other), "{:?}", network.hosts[0].events);
    let now = network.now;
    network.hosts[1].stack.remove_address(now, other);
    network.run(Span::from_millis(100));
    for host in &network.hosts {
        let ends = |event: &ConnectionEvent| matches!(event, ConnectionEvent::SubflowDown { .. });
        assert!(host.has(ends), "{:?}", host.events);
    }
    finish(&mut network);
    // The client has not made the subflow again.
    assert_eq!(ups(&network, 0), 2);
}

#[test]
fn the_path_manager_backup_uses_other_paths_when_the_first_dies() {
    let config = Config { path_manager: PathManager::Backup, ..Config::default() };
    let mut network = network(config, 2);
    let (first, second) = (client_address(0), client_address(1));
    network.connect(8 * MIB, 8 * MIB);
    network.run(Span::from_millis(400));
    let begun = Time::ZERO;
    assert_eq!(ups(&network, 0), 2);
    for host in 0..2 {
        let (on_first, on_other) =
            (carried(&network, host, first, begun), carried(&network, host, second, begun));
        assert!(on_first > MIB / 4 && on_other == 0, "host {host}: {on_first}, {on_other}");
    }
    network.links.get_mut(&first).unwrap().is_cut = true;
    finish(&mut network);
    assert!(carried(&network, 1, second, begun) > MIB);
}

#[test]
fn the_number_of_subflows_between_two_addresses_changes_at_run_time() {
    let (scheduler, path_manager) = (SchedulerKind::RoundRobin, PathManager::Ndiffports(2));
    let config = Config { scheduler, path_manager, ..Config::default() };
    let mut network = network(config, 1);
    network.connect(16 * MIB, 0);
    network.run(Span::from_millis(200));
    assert_eq!(ups(&network, 0), 2);
    let id = network.hosts[0].connection.unwrap();
    network.hosts[0].stack.set_path_manager(id, PathManager::Ndiffports(4));
    network.run(Span::from_millis(100));
    assert_eq!(ups(&network, 0), 4, "{:?}", network.hosts[0].events);
    finish(&mut network);
    let used = network.log.iter().filter(|(_, host, segment)| *host == 0 && !segment.payload.is_empty());
    let mut ports: Vec<_> = used.map(|(_, _, segment)| segment.source).collect();
    ports.sort();
    ports.dedup();
    assert_eq!(ports.len(), 4);
    assert_eq!(network.log[0].2.target, SocketAddr::new(server_address(), PORT));
}
