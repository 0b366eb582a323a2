#![no_main]
//! Datagrams of UDP that claim to have segments of Multipath TCP. Two stacks talk through datagrams, of which
//! an attacker changes bytes; and a server gets datagrams from hosts that it does not know. Nothing panics,
//! nothing is sent without end, a datagram that is read is written and read the same, and a host that has
//! proven nothing gets no more bytes than it has sent.

use std::net::SocketAddr;

use anabranch_algo::{Machine as _, Output, Span, Time};
use anabranch_mptcp::datagram::{self, UDP_HEADER_BYTES};
use anabranch_mptcp::segment::EcnField;
use anabranch_mptcp::{Config, ConnectionEvent, ConnectionId, Input, Segment, Stack};
use libfuzzer_sys::fuzz_target;

/// What either host has sent at most after one input.
const SENT_MAX: usize = 20_000;
const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 80);

/// Reads a datagram, and checks that what is written of it is read the same.
fn read(bytes: &[u8], source: SocketAddr, target: SocketAddr) -> Option<Segment> {
    let segment = datagram::parse(bytes, source, target, EcnField::NotEct).ok()?;
    assert!(datagram::is_segment(bytes));
    let mut out = Vec::new();
    datagram::emit(&segment, &mut out);
    let again = datagram::parse(&out, source, target, EcnField::NotEct).expect("what was written is read");
    assert_eq!((again.seq, again.ack, again.window), (segment.seq, segment.ack, segment.window));
    assert_eq!(again.payload, segment.payload);
    Some(segment)
}

struct World {
    now: Time,
    stacks: [Stack; 2],
    ids: [Option<ConnectionId>; 2],
    /// The last datagram of each host.
    last: [Option<(Vec<u8>, SocketAddr, SocketAddr)>; 2],
}

impl World {
    /// Hands a datagram to a host, if it has a segment.
    fn hand(&mut self, to: usize, bytes: &[u8], source: SocketAddr, target: SocketAddr) {
        if let Some(segment) = read(bytes, source, target) {
            self.stacks[to].handle(self.now, Input::Segment(&segment));
        }
    }

    /// Everything that either sends arrives at once, until both wait.
    fn settle(&mut self) {
        let (mut count, mut waits) = (0, [false; 2]);
        while waits != [true; 2] {
            for from in 0..2 {
                match self.stacks[from].poll(self.now) {
                    Output::Send(segment) => {
                        count += 1;
                        assert!(count < SENT_MAX, "a storm");
                        let mut bytes = Vec::new();
                        datagram::emit(&segment, &mut bytes);
                        self.hand(1 - from, &bytes, segment.source, segment.target);
                        self.last[from] = Some((bytes, segment.source, segment.target));
                        waits = [false; 2];
                    }
                    Output::Event((id, event)) => {
                        if let ConnectionEvent::Established { .. } = event {
                            self.ids[from].get_or_insert(id);
                        }
                    }
                    Output::Wait(_) => waits[from] = true,
                }
            }
        }
    }
}

/// A host that the server does not know sends one datagram. All that it gets is shorter.
fn stranger(bytes: &[u8], seed: u8) {
    let mut config = Config::default();
    config.tcp.mtu_bytes -= UDP_HEADER_BYTES;
    let mut server = Stack::new(config, [seed; 32]);
    server.listen(SERVER.1);
    let source = SocketAddr::from(([192, 0, 2, 1], 1_000));
    let Some(segment) = read(bytes, source, SocketAddr::from(SERVER)) else { return };
    let mut now = Time::ZERO + Span::from_secs(9);
    server.handle(now, Input::Segment(&segment));
    let mut sent = Vec::new();
    for _ in 0..SENT_MAX {
        match server.poll(now) {
            Output::Send(segment) => datagram::emit(&segment, &mut sent),
            Output::Event(_) => {}
            Output::Wait(Time::NEVER) => break,
            Output::Wait(at) => now = at,
        }
    }
    assert!(sent.len() <= bytes.len(), "{} bytes for {}, flags {:?}", sent.len(), bytes.len(), segment.flags);
}

fuzz_target!(|bytes: &[u8]| {
    let [kind, rest @ ..] = bytes else { return };
    stranger(rest, *kind);
    let mut padded = rest.to_vec();
    padded.resize(datagram::SYN_BYTES.max(padded.len()), 0);
    padded[0] = datagram::MARK;
    stranger(&padded, *kind);
    let config = Config { checksums: kind & 1 != 0, mptcp: kind & 2 == 0, ..Config::default() };
    let stacks = [1, 2].map(|seed| Stack::new(config.clone(), [seed; 32]));
    let now = Time::ZERO + Span::from_secs(9);
    let mut world = World { now, stacks, ids: [None; 2], last: [None, None] };
    world.stacks[1].listen(SERVER.1);
    world.ids[0] = world.stacks[0].connect(now, [10, 0, 0, 1].into(), SERVER.into());
    for chunk in rest.chunks(16) {
        world.settle();
        for (at, id) in world.ids.into_iter().enumerate() {
            if let Some(id) = id {
                world.stacks[at].write(id, &chunk[..chunk.len().min(9)]);
                world.stacks[at].read(id, &mut [0; 64]);
            }
        }
        world.settle();
        let [which, cut, change @ ..] = chunk else { break };
        let from = usize::from(which & 1);
        if let Some((mut datagram, source, target)) = world.last[from].clone() {
            for pair in change.chunks_exact(2) {
                let at = usize::from(pair[0]) % datagram.len();
                datagram[at] ^= pair[1];
            }
            if which & 2 != 0 {
                datagram.truncate(usize::from(*cut));
            }
            world.hand(1 - from, &datagram, source, target);
        }
        world.settle();
        world.now += Span::from_millis(u64::from(which / 4) * 10);
    }
    for id in world.ids.into_iter().enumerate().filter_map(|(at, id)| Some((at, id?))) {
        world.stacks[id.0].finish(id.1);
    }
    world.settle();
});
