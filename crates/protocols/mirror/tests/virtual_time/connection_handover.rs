//! Tests of connections that end after a number of answers, with two of them over one link. The simulation
//! has packets, a queue, the slow start of each new TCP connection, and a simulated clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use anabranch_algo::{Machine as _, Output, Rate, Span, Time};
use anabranch_mirror::file_scheduler::{Command, FileScheduler, FileSpec, Input};

const PACKET_BYTES: u64 = 1_500;
const PAYLOAD_BYTES: u64 = 1_448;
/// The packets that a server may have in flight on a new TCP connection (RFC 6928).
const FIRST_FLIGHT: u64 = 10;
/// The length of each file in bytes.
const FILE_BYTES: u64 = 10_000;
/// The packets of an answer.
const PACKETS: u64 = FILE_BYTES.div_ceil(PAYLOAD_BYTES);

/// The server's end of a connection.
#[derive(Default)]
struct Pipe {
    /// The number of answers on the current TCP connection.
    nth: u64,
    /// The packets to send: the request, the number of its answer, and how many packets of that answer
    /// follow.
    out: VecDeque<(u64, u64, u64)>,
    window: u64,
    flying: u64,
    /// Whether the last answer was sent, so that the next request opens another TCP connection.
    ended: bool,
    connections: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Request { pipe: usize, fetch: u64 },
    Packet { pipe: usize, fetch: u64, nth: u64, behind: u64 },
    Ack { pipe: usize, connection: u64 },
}

struct Observed {
    at: Time,
    /// The longest time that a packet waited for the link, after the first second.
    most_waited: Span,
    connections: u64,
}

/// Fetches `count` files from a server that ends TCP connections after `limit` answers.
fn run(count: usize, limit: u64, rate: Rate, rtt: Span) -> Observed {
    let mut machine = FileScheduler::new(&vec![FileSpec { bytes: FILE_BYTES, servers: vec![0] }; count], 64);
    let first = machine.add_connection(0).expect("a connection");
    assert_eq!(machine.add_second_connection(first), Some(1));
    assert_eq!(machine.add_second_connection(first), None, "two at most");
    let half = Span::from_nanos(rtt.as_nanos() / 2);
    let mut pipes = [Pipe { ended: true, ..Pipe::default() }, Pipe { ended: true, ..Pipe::default() }];
    let mut events: BinaryHeap<Reverse<(Time, u64, What)>> = BinaryHeap::new();
    let mut order = 0;
    let mut put = |events: &mut BinaryHeap<_>, at: Time, what: What| {
        order += 1;
        events.push(Reverse((at, order, what)));
    };
    let (mut now, mut busy_until, mut most_waited) = (Time::ZERO, Time::ZERO, Span::ZERO);
    let mut asked = [0_u64; 2];
    while machine.remaining() > 0 {
        let until = loop {
            match machine.poll(now) {
                Output::Wait(until) => break until,
                Output::Send(Command::Fetch { connection, fetch, .. }) => {
                    let pipe = &mut pipes[connection];
                    let mut at = now + half;
                    if std::mem::take(&mut pipe.ended) {
                        assert!(pipe.out.is_empty(), "nothing is asked that the connection does not answer");
                        *pipe = Pipe {
                            window: FIRST_FLIGHT,
                            connections: pipe.connections + 1,
                            ..Pipe::default()
                        };
                        asked[connection] = 0;
                        at += rtt;
                    }
                    asked[connection] += 1;
                    assert!(
                        asked[connection] <= limit,
                        "nothing is asked that the connection does not answer"
                    );
                    put(&mut events, at, What::Request { pipe: connection, fetch });
                }
                Output::Send(Command::Cancel { .. }) => panic!("nothing is given up"),
                Output::Event(_) => {}
            }
        };
        let next = events.peek().map_or(Time::NEVER, |Reverse((at, ..))| *at);
        if until < next {
            now = until;
            continue;
        }
        let Some(Reverse((at, _, what))) = events.pop() else { panic!("nothing will happen") };
        now = at;
        let pipe = match what {
            What::Request { pipe, fetch } => {
                pipes[pipe].nth += 1;
                let nth = pipes[pipe].nth;
                pipes[pipe].out.extend((0..PACKETS).rev().map(|behind| (fetch, nth, behind)));
                pipe
            }
            What::Ack { pipe, connection } => {
                if connection != pipes[pipe].connections {
                    continue;
                }
                // Slow start, as long as the window is what limits the sender.
                let this = &mut pipes[pipe];
                this.window += u64::from(this.window < 2 * this.flying);
                this.flying = this.flying.saturating_sub(1);
                pipe
            }
            What::Packet { pipe, fetch, nth, behind } => {
                let connection = pipes[pipe].connections;
                let bytes = if behind == 0 { FILE_BYTES % PAYLOAD_BYTES } else { PAYLOAD_BYTES };
                if behind == PACKETS - 1 {
                    machine.handle(now, Input::Head { fetch, nth, last: nth == limit });
                }
                machine.handle(now, Input::Bytes { fetch, bytes });
                if behind == 0 {
                    pipes[pipe].ended = nth == limit;
                    machine.handle(now, Input::Done { fetch, valid: true });
                }
                put(&mut events, now + half, What::Ack { pipe, connection });
                continue;
            }
        };
        while pipes[pipe].flying < pipes[pipe].window {
            let Some((fetch, nth, behind)) = pipes[pipe].out.pop_front() else { break };
            pipes[pipe].flying += 1;
            if now >= Time::ZERO + Span::from_secs(1) {
                most_waited = most_waited.max(busy_until.max(now).since(now));
            }
            busy_until = busy_until.max(now) + rate.time_for(PACKET_BYTES);
            put(&mut events, busy_until + half, What::Packet { pipe, fetch, nth, behind });
        }
    }
    Observed { at: now, most_waited, connections: pipes.iter().map(|pipe| pipe.connections).sum() }
}

#[test]
fn a_successor_takes_over_and_the_link_stays_full() {
    let (rate, rtt) = (Rate::from_bytes(12_500_000), Span::from_millis(50));
    let seen = run(10_000, 1_000, rate, rtt);
    let took = seen.at.since(Time::ZERO);
    // The time for all packets; the first TCP connection's slow start adds to it.
    let full = rate.time_for(10_000 * PACKETS * PACKET_BYTES);
    assert!(took < full + Span::from_millis(600), "{took:?} of {full:?}");
    // A new TCP connection would take a growing queue for a full link.
    assert!(seen.most_waited < Span::from_millis(25), "{:?}", seen.most_waited);
    assert!((10..=12).contains(&seen.connections), "{}", seen.connections);
}
