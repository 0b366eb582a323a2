//! Recovery of a sender: wrong timeouts are undone, and a fast recovery neither falls silent nor bursts.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use anabranch_algo::{Span, Time};
use anabranch_mptcp::{Config, Segment};

use crate::network::{Faults, Network, client_address};
use crate::tcp::plain;

/// Returns a network in the middle of a transfer of the client, on a path of 40 ms. The window has grown to
/// the size of the receive buffer of 200,000 bytes.
fn busy(client: Config) -> Network {
    let server = Config { receive_buffer_bytes: 200_000, ..client.clone() };
    let link = Faults { gap: Span::from_nanos(200_000), ..Faults::none(20) };
    let mut network = Network::new(client, server, &[link], 1);
    network.keeps_log = true;
    network.connect(8_000_000, 0);
    network.run(Span::from_millis(700));
    network
}

/// Returns the segments with data that the client has sent since `from`.
fn data(network: &Network, from: Time) -> impl Iterator<Item = &(Time, usize, Segment)> {
    let sent = network.log.iter().filter(move |(at, host, _)| *at >= from && *host == 0);
    sent.filter(|(_, _, segment)| !segment.payload.is_empty())
}

/// Returns how many segments with data the client has sent again.
fn repeated(network: &Network) -> usize {
    let mut seen = BTreeSet::new();
    data(network, Time::ZERO).filter(|(_, _, segment)| !seen.insert(segment.seq)).count()
}

#[test]
fn a_round_trip_that_steps_up_costs_no_window() {
    for timestamps in [true, false] {
        let mut config = plain();
        config.tcp.timestamps = timestamps;
        let mut network = busy(config);
        assert_eq!(repeated(&network), 0);
        // The round trip is 640 ms instead of 40: longer than the timeout of 200 ms and twice that.
        let from = network.now;
        network.links.get_mut(&client_address(0)).unwrap().delay = Span::from_millis(320);
        network.run(Span::from_secs(3));
        // These are the probe, the timeouts, and the segments that slow start sends before the undo.
        let again = repeated(&network);
        assert!((1..=10).contains(&again), "{again} sent again, timestamps: {timestamps}");
        // The whole window of 200,000 bytes is in use in each of the last round trips.
        let bytes: usize = data(&network, from + Span::from_millis(1_700))
            .map(|(_, _, segment)| segment.payload.len())
            .sum();
        assert!(bytes > 350_000, "{bytes} in two round trips, timestamps: {timestamps}");
        assert!(network.run_until_closed(Span::from_secs(60)));
        network.check().unwrap();
    }
}

#[test]
fn a_timeout_that_was_right_stays() {
    for timestamps in [true, false] {
        let mut config = plain();
        config.tcp.timestamps = timestamps;
        let mut network = busy(config);
        // A window is lost, and the probe for it.
        let loses = Rc::new(Cell::new(true));
        let lost = Rc::clone(&loses);
        network.filter = Some(Box::new(move |host, _| !(host == 0 && lost.get())));
        network.run(Span::from_millis(250));
        loses.set(false);
        let from = network.now;
        network.run(Span::from_secs(3));
        // Slow start begins at one segment, whose acknowledgement is delayed; a window is about 140 segments.
        let first = data(&network, from).next().unwrap().0;
        let begin = data(&network, from).filter(|(at, ..)| at.since(first) < Span::from_millis(130));
        let count = begin.count();
        assert!((2..=12).contains(&count), "{count}");
        assert!(network.run_until_closed(Span::from_secs(60)));
        network.check().unwrap();
    }
}

#[test]
fn many_losses_in_a_window_are_repaired_without_a_burst() {
    let mut network = busy(plain());
    let from = network.now;
    // Of the next 140 segments, which is about a window, 90 are lost.
    let mut count = 0;
    network.filter = Some(Box::new(move |host, segment| {
        let is_data = host == 0 && !segment.payload.is_empty();
        count += usize::from(is_data);
        !(is_data && (20..110).contains(&count))
    }));
    assert!(network.run_until_closed(Span::from_secs(60)));
    network.check().unwrap();
    let (mut seen, mut at_once) = (BTreeSet::new(), BTreeMap::<Time, usize>::new());
    for (at, _, segment) in data(&network, from) {
        if !seen.insert(segment.seq) {
            *at_once.entry(*at).or_default() += 1;
        }
    }
    let (most, all): (_, usize) = (at_once.values().max(), at_once.values().sum());
    // Each acknowledgement is for one segment or two, and may release one segment more than that.
    assert!(most <= Some(&3), "{most:?} of {all} at once");
    assert_eq!(all, 90);
}
