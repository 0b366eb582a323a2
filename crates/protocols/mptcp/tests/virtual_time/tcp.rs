//! Plain TCP, one test for each mechanism.

use std::net::SocketAddr;

use anabranch_algo::Span;
use anabranch_mptcp::segment::{EcnField, Flags};
use anabranch_mptcp::{Config, ConnectionEvent, Payload, Segment, SubflowError};
use anabranch_mptcp_wire::{OptionBuffer, TcpOption};

use crate::network::{Faults, Network, PORT, client_address, server_address, transfer};

pub(crate) fn plain() -> Config {
    Config { mptcp: false, ..Config::default() }
}

#[test]
fn bytes_both_ways() {
    let network = transfer(plain(), plain(), &[Faults::none(10)], (300_000, 700_000), 1);
    assert!(!network.hosts[0].stack.is_multipath(network.hosts[0].connection.unwrap()));
}

#[test]
fn nothing_is_left_of_a_closed_connection() {
    let mut network = transfer(plain(), plain(), &[Faults::none(10)], (1, 0), 1);
    assert_eq!(network.hosts[0].stack.connection_count(), 1, "TIME-WAIT");
    network.run(Span::from_secs(61));
    for host in &network.hosts {
        assert_eq!(host.stack.connection_count(), 0);
    }
}

#[test]
fn losses_reordering_and_copies() {
    for seed in 0..40 {
        let faults = Faults { jitter: Span::from_millis(8), loss: 30, twice: 20, ..Faults::none(15) };
        transfer(plain(), plain(), &[faults], (200_000, 200_000), seed);
    }
}

#[test]
fn a_closed_window_opens_again() {
    let mut small = plain();
    small.receive_buffer_bytes = 20_000;
    let mut network = Network::new(plain(), small, &[Faults::none(5)], 3);
    network.hosts[1].reads = false;
    network.connect(100_000, 0);
    network.run(Span::from_secs(30));
    assert!(network.hosts[1].read.is_empty());
    let id = network.hosts[1].connection.unwrap();
    assert_eq!(network.hosts[1].stack.readable(id), 20_000);
    network.hosts[1].reads = true;
    let closed = network.run_until_closed(Span::from_secs(100));
    network.dump();
    network.check().unwrap();
    assert!(closed);
}

#[test]
fn without_options() {
    let mut bare = plain();
    bare.tcp.timestamps = false;
    let faults = Faults { jitter: Span::from_millis(4), loss: 20, ..Faults::none(15) };
    for seed in 0..10 {
        transfer(bare.clone(), plain(), &[faults], (100_000, 100_000), seed);
    }
}

/// Returns the segments with data that the client sent.
fn data(network: &Network) -> impl Iterator<Item = &Segment> {
    let sent = network.log.iter().filter(|(_, from, segment)| *from == 0 && !segment.payload.is_empty());
    sent.map(|(_, _, segment)| segment)
}

/// Creates a network with a log, in which the filter sees each segment.
fn watched(config: Config, filter: impl FnMut(usize, &mut Segment) -> bool + 'static) -> Network {
    let mut network = Network::new(config.clone(), config, &[Faults::none(20)], 1);
    network.keeps_log = true;
    network.filter = Some(Box::new(filter));
    network
}

fn ended(network: &Network, host: usize) -> Option<SubflowError> {
    network.hosts[host].events.iter().find_map(|event| match event {
        ConnectionEvent::Closed { error } => *error,
        _ => None,
    })
}

/// Returns a filter that loses the client's segments with data whose numbers (from 1) are in `lost`.
fn loses(lost: Vec<usize>) -> impl FnMut(usize, &mut Segment) -> bool {
    let mut count = 0;
    move |from, segment| {
        let is_data = from == 0 && !segment.payload.is_empty();
        count += usize::from(is_data);
        !(is_data && lost.contains(&count))
    }
}

#[test]
fn one_loss_is_repaired_in_a_round_trip() {
    let mut network = watched(plain(), loses(vec![4]));
    network.connect(40_000, 0);
    let begun = network.now;
    assert!(network.run_until_closed(Span::from_secs(9)));
    network.check().unwrap();
    // SYN, three windows (10, then as acknowledged) and the FIN: no timeout of 200 ms is among them.
    assert!(network.now.since(begun) < Span::from_millis(260), "{}", network.now.since(begun));
    assert_eq!(data(&network).count(), 40_000_usize.div_ceil(1448) + 1);
}

#[test]
fn a_retransmission_that_is_lost_is_found_by_what_was_sent_after_it() {
    // The filter loses the fourth segment and its first retransmission.
    let mut network = Network::new(plain(), plain(), &[Faults::none(20)], 1);
    network.keeps_log = true;
    let (mut first, mut copies) = (None, 0);
    network.filter = Some(Box::new(move |from, segment| {
        if from != 0 || segment.payload.is_empty() {
            return true;
        }
        let first = *first.get_or_insert(segment.seq);
        let is_it = segment.seq == first.wrapping_add(3 * 1448);
        copies += u32::from(is_it);
        !(is_it && copies <= 2)
    }));
    network.connect(400_000, 0);
    let begun = network.now;
    assert!(network.run_until_closed(Span::from_secs(9)));
    network.check().unwrap();
    let first = data(&network).next().unwrap().seq;
    let copies = network.log.iter().filter(|(_, from, segment)| {
        *from == 0 && segment.seq == first.wrapping_add(3 * 1448) && !segment.payload.is_empty()
    });
    // The segment leaves with the window, then a round trip later, then a round trip and the reordering
    // window (an eighth of one) after that, because the segment that was sent right behind it has arrived.
    let times: Vec<_> = copies.map(|(at, ..)| at.since(begun).as_millis()).collect();
    assert_eq!(times, [40, 80, 125]);
}

#[test]
fn marks_are_echoed_until_the_window_was_reduced() {
    let mut config = plain();
    config.tcp.ecn = true;
    let mut count = 0;
    let mut network = watched(config, move |from, segment| {
        let is_data = from == 0 && !segment.payload.is_empty();
        count += u32::from(is_data);
        if is_data && count == 5 {
            assert_eq!(segment.ecn, EcnField::Ect0);
            segment.ecn = EcnField::Ce;
        }
        true
    });
    network.connect(200_000, 0);
    assert!(network.run_until_closed(Span::from_secs(9)));
    network.check().unwrap();
    let flags = |from: usize, flag: Flags| {
        let those = network.log.iter().filter(move |(_, sender, segment)| {
            *sender == from && segment.flags.has(flag) && !segment.flags.has(Flags::SYN)
        });
        those.count()
    };
    assert!(flags(1, Flags::ECE) > 0 && flags(1, Flags::ECE) < 40, "{}", flags(1, Flags::ECE));
    assert_eq!(flags(0, Flags::CWR), 1);
}

#[test]
fn a_lost_syn_is_repeated_after_a_second() {
    for lost in 0..2 {
        let mut seen = [0; 2];
        let mut network = watched(plain(), move |from, segment| {
            let is_first = segment.flags.has(Flags::SYN) && seen[from] == 0;
            seen[from] += u32::from(segment.flags.has(Flags::SYN));
            !(is_first && from == lost)
        });
        network.connect(1, 1);
        let begun = network.now;
        assert!(network.run_until_closed(Span::from_secs(9)));
        network.check().unwrap();
        let took = network.now.since(begun);
        assert!(took > Span::from_secs(1) && took < Span::from_millis(1_300), "{took}");
    }
}

#[test]
fn a_peer_that_is_gone_is_given_up() {
    let mut network = Network::new(plain(), plain(), &[Faults::none(10)], 1);
    network.connect(3_000_000, 0);
    network.run(Span::from_millis(80));
    network.links.get_mut(&client_address(0)).unwrap().is_cut = true;
    network.run(Span::from_secs(120));
    assert_eq!(ended(&network, 0), Some(SubflowError::TimedOut));
}

#[test]
fn silence_is_probed_for_if_asked() {
    let mut config = plain();
    config.tcp.keepalive = Some(Span::from_secs(20));
    for is_cut in [false, true] {
        let mut network = Network::new(config.clone(), plain(), &[Faults::none(10)], 1);
        network.hosts[0].finishes = false;
        network.connect(10, 0);
        network.run(Span::from_secs(1));
        network.links.get_mut(&client_address(0)).unwrap().is_cut = is_cut;
        network.run(Span::from_secs(300));
        assert_eq!(ended(&network, 0), is_cut.then_some(SubflowError::TimedOut));
    }
}

#[test]
fn a_closed_port_refuses() {
    let mut network = Network::new(plain(), plain(), &[Faults::none(10)], 1);
    let remote = SocketAddr::new(server_address(), PORT + 1);
    network.hosts[0].connection = network.hosts[0].stack.connect(network.now, client_address(0), remote);
    network.run(Span::from_secs(1));
    assert_eq!(ended(&network, 0), Some(SubflowError::Refused));
}

#[test]
fn segments_fit_the_smaller_mtu() {
    let mut small = plain();
    small.tcp.mtu_bytes = 576;
    let mut network = Network::new(plain(), small, &[Faults::none(10)], 1);
    network.keeps_log = true;
    network.connect(20_000, 0);
    assert!(network.run_until_closed(Span::from_secs(9)));
    // A packet of 576 bytes, without two headers of 20 bytes and timestamps of 12.
    assert_eq!(data(&network).map(|segment| segment.payload.len()).max(), Some(524));
}

#[test]
fn acknowledgements_are_delayed_and_two_segments_share_one() {
    let mut network = watched(plain(), |_, _| true);
    network.connect(1_000_000, 0);
    assert!(network.run_until_closed(Span::from_secs(9)));
    let acks = network.log.iter().filter(|(_, from, _)| *from == 1).count();
    let segments = data(&network).count();
    assert!(acks > segments / 2 && acks < segments * 6 / 10, "{acks} for {segments}");
}

#[test]
fn initial_numbers_differ_by_pair_and_by_time() {
    let mut seen = Vec::new();
    for _ in 0..3 {
        let mut network = watched(plain(), |_, _| true);
        for _ in 0..2 {
            let remote = SocketAddr::new(server_address(), PORT);
            network.hosts[0].stack.connect(network.now, client_address(0), remote);
            network.run(Span::from_millis(100));
        }
        let syns = network.log.iter().filter(|(_, from, segment)| *from == 0 && segment.flags == Flags::SYN);
        seen.push(syns.map(|(_, _, segment)| segment.seq).collect::<Vec<_>>());
    }
    // The same secret, pair and time give the same number (RFC 6528 section 3); another pair gives a distant
    // one.
    assert!(seen.iter().all(|numbers| *numbers == seen[0] && numbers.len() == 2));
    assert!(seen[0][0].abs_diff(seen[0][1]) > 1_000_000);
}

#[test]
fn an_old_duplicate_is_dropped_by_its_timestamp() {
    let mut network = watched(plain(), |_, _| true);
    network.connect(2_900_000, 0);
    network.run(Span::from_millis(200));
    let mut old = data(&network).last().unwrap().clone();
    // The number is within the window, but from another life of the sequence numbers.
    old.seq = old.seq.wrapping_add(30_000);
    let written = old.options.iter().flatten().next().unwrap();
    let TcpOption::Timestamps { value, echo } = written else { panic!("{written:?}") };
    old.options = OptionBuffer::default();
    old.options.push(&TcpOption::Timestamps { value: value.wrapping_sub(1_000_000), echo });
    old.payload = Payload::copy_of(&[0; 1000]);
    network.inject(1, &old);
    assert!(network.run_until_closed(Span::from_secs(60)));
    network.check().unwrap();
}
