//! Plain TCP: each mechanism.

use anabranch_algo::Span;
use anabranch_mptcp::Config;

use crate::network::{Faults, Network, transfer};

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
