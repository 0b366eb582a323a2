//! The share of a link's rate that a transfer uses, over links with a rate and a queue.

use anabranch_algo::Span;
use anabranch_mptcp::Config;

use crate::network::{Faults, Network};

/// Bytes of data in a segment of 1,500 bytes on these links.
const PAYLOAD: f64 = 1_420.0;

/// Returns a link of `mbit` Mbit/s with this round trip and a queue of one bandwidth-delay product.
fn link(mbit: u64, rtt_ms: u64) -> Faults {
    let gap = Span::from_nanos(1_500 * 8 * 1_000 / mbit);
    let queue = rtt_ms * 1_000_000 / gap.as_nanos();
    Faults { gap, queue, ..Faults::none(rtt_ms / 2) }
}

/// Returns the data rate of an upload from its begin to its last byte, Mbit/s.
fn upload(bytes: usize, links: &[Faults]) -> f64 {
    let mut network = Network::new(Config::default(), Config::default(), links, 1);
    network.connect(bytes, 0);
    let (begun, end) = (network.now, network.now + Span::from_secs(60));
    while network.hosts[1].read.len() < bytes {
        assert!(network.step(end), "{} of {bytes} have arrived", network.hosts[1].read.len());
    }
    bytes as f64 * 8.0 / network.now.since(begun).as_nanos() as f64 * 1e3
}

#[test]
fn two_equal_links_are_used() {
    let rate = upload(100_000_000, &[link(100, 20), link(100, 20)]);
    assert!(rate > 0.95 * 200.0 * PAYLOAD / 1_500.0, "{rate:.0} Mbit/s");
}

#[test]
fn a_bad_link_beside_a_good_one_does_no_harm() {
    let rate = upload(50_000_000, &[link(100, 20), link(20, 80)]);
    assert!(rate > 100.0 * PAYLOAD / 1_500.0, "{rate:.0} Mbit/s");
}
