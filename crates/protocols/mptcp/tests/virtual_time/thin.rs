//! Thin streams: a small message now and then. The stream is late if a message waits on a path that is slower
//! than it seems.

use anabranch_algo::Span;
use anabranch_mptcp::{Config, TailLoss};

use crate::network::{Faults, Network, client_address};

const MESSAGE: usize = 200;
const EVERY: Span = Span::from_millis(40);
const STEP: Span = Span::from_millis(5);

/// Returns a connection whose client writes nothing yet.
fn open(config: Config, links: &[Faults]) -> Network {
    let mut network = Network::new(config.clone(), config, links, 1);
    network.hosts[0].finishes = false;
    network.connect(0, 0);
    network.run(Span::from_millis(100));
    network
}

/// Has the client write `count` messages, and returns the longest time that one of them took.
fn longest_wait(network: &mut Network, count: usize) -> Span {
    let (begun, before) = (network.now, network.hosts[0].to_write);
    let (mut read, mut longest) = (0, Span::ZERO);
    while read < count {
        let ago = network.now.since(begun);
        let due = (ago.as_nanos() / EVERY.as_nanos()) as usize + 1;
        network.hosts[0].to_write = before + due.min(count) * MESSAGE;
        network.run(STEP);
        let done = (network.hosts[1].read.len() - before) / MESSAGE;
        for nth in read..done {
            longest = longest.max(network.now.since(begun + EVERY.times(nth as u64)));
        }
        read = done;
        assert!(ago < Span::from_secs(120), "{read} of {count} messages");
    }
    longest
}

/// The first SYN on the slow path goes unanswered so long that it is repeated, so it gives no round trip
/// without timestamps.
#[test]
fn a_path_whose_handshake_took_seconds_gets_no_message_of_a_thin_stream() {
    for timestamps in [true, false] {
        for tail_loss in [TailLoss::Off, TailLoss::Overtake] {
            let mut config = Config::default();
            (config.tcp.timestamps, config.tcp.tail_loss) = (timestamps, tail_loss);
            let mut network = open(config, &[Faults::none(10), Faults::none(1_300)]);
            let longest = longest_wait(&mut network, 400);
            let client = network.hosts[0].connection.expect("connected");
            assert_eq!(network.hosts[0].stack.subflows(client).count(), 2);
            assert!(longest <= Span::from_millis(15), "{longest}, timestamps: {timestamps}, {tail_loss:?}");
        }
    }
}

/// Returns how long a message waits at most when the path with the shortest round trip has become slow while
/// the stream rested, so that its measured round trip says nothing any more.
fn steps_up(tail_loss: TailLoss) -> (Span, Network) {
    let mut config = Config::default();
    config.tcp.tail_loss = tail_loss;
    let mut network = open(config, &[Faults::none(20), Faults::none(25)]);
    assert!(longest_wait(&mut network, 20) <= Span::from_millis(30));
    network.links.get_mut(&client_address(0)).unwrap().delay = Span::from_secs(2);
    (longest_wait(&mut network, 200), network)
}

#[test]
fn a_path_that_has_become_slow_delays_a_thin_stream_by_little_more_than_its_old_round_trip() {
    let ((alternate, _), (overtake, mut network)) =
        (steps_up(TailLoss::AlternatePath), steps_up(TailLoss::Overtake));
    // A round trip of 40 ms and its deviation, with a delayed acknowledgement, and then the other path.
    assert!(overtake <= Span::from_millis(180) && alternate > overtake, "{overtake}, {alternate}");
    // Later messages know better, and little is sent on the slow path in vain.
    network.keeps_log = true;
    let later = longest_wait(&mut network, 200);
    assert!(later <= Span::from_millis(30), "{later}");
    let is_slow = |segment: &anabranch_mptcp::Segment| segment.source.ip() == client_address(0);
    let sent = network.log.iter().filter(|(_, host, segment)| *host == 0 && !segment.payload.is_empty());
    let (slow, fast): (Vec<_>, Vec<_>) = sent.partition(|(.., segment)| is_slow(segment));
    assert!(slow.len() <= fast.len() / 20, "{} and {}", slow.len(), fast.len());
}

/// The window of the fast path is full, so minRTT sends on the slow one. When there is room
/// again, the fast path overtakes.
#[test]
fn the_fast_path_overtakes_what_was_sent_on_the_slow_one() {
    let wait = |tail_loss| {
        let mut config = Config::default();
        config.tcp.tail_loss = tail_loss;
        let mut network = open(config, &[Faults::none(10), Faults::none(400)]);
        network.run(Span::from_secs(3));
        network.hosts[0].to_write = 20 * 1_420;
        let begun = network.now;
        while network.hosts[1].read.len() < network.hosts[0].to_write {
            assert!(network.step(begun + Span::from_secs(30)));
        }
        network.now.since(begun)
    };
    // The window has room for ten of the twenty segments: a second round on the fast path takes 30 ms in all.
    let (off, overtake) = (wait(TailLoss::AlternatePath), wait(TailLoss::Overtake));
    assert!(off >= Span::from_millis(400), "{off}");
    assert!(overtake <= Span::from_millis(35), "{overtake}");
}
