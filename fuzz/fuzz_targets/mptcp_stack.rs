#![no_main]
//! Two stacks between which an attacker sits who sees everything: what he makes of segments is handed to
//! either. Nothing panics, nothing is sent without end; a packet that is read is written and read the same.

use std::net::SocketAddr;

use anabranch_algo::{Machine as _, Output, Span, Time};
use anabranch_mptcp::segment::Flags;
use anabranch_mptcp::{Config, ConnectionEvent, ConnectionId, Input, Segment, Stack};
use anabranch_mptcp_wire::OptionBuffer;
use libfuzzer_sys::fuzz_target;

/// What either host has sent at most after one input.
const SENT_MAX: usize = 20_000;

struct World {
    now: Time,
    stacks: [Stack; 2],
    ids: [Option<ConnectionId>; 2],
    sent: Vec<(usize, Segment)>,
}

impl World {
    /// Everything that either sends arrives at once, until both wait.
    fn settle(&mut self) {
        let mut count = 0;
        let mut waits = [false; 2];
        while waits != [true; 2] {
            for from in 0..2 {
                match self.stacks[from].poll(self.now) {
                    Output::Send(segment) => {
                        count += 1;
                        assert!(count < SENT_MAX, "a storm");
                        self.stacks[1 - from].handle(self.now, Input::Segment(&segment));
                        if self.sent.len() < 200 {
                            self.sent.push((from, segment));
                        }
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

/// A segment with fields that the bytes name changed.
fn forge(segment: &Segment, bytes: &[u8]) -> Segment {
    let mut forged = segment.clone();
    let word = |at: usize| bytes.get(at..at + 2).map_or(0, |two| u16::from_be_bytes([two[0], two[1]]));
    match bytes.first().map_or(0, |byte| byte % 8) {
        0 => forged.seq = forged.seq.wrapping_add(u32::from(word(1))),
        1 => forged.seq = forged.seq.wrapping_sub(u32::from(word(1))),
        2 => forged.ack = forged.ack.wrapping_add(u32::from(word(1))),
        3 => forged.flags = Flags(bytes.get(1).copied().unwrap_or(0)),
        4 => forged.window = word(1),
        5 => forged.payload = bytes.to_vec().into(),
        6 => {
            let len = bytes.len().min(40);
            forged.options = OptionBuffer::from_wire(&bytes[..len]).unwrap_or_default();
        }
        _ => {
            let mut options = forged.options.as_bytes().to_vec();
            for pair in bytes[1..].chunks_exact(2) {
                if let Some(byte) = options.get_mut(usize::from(pair[0])) {
                    *byte = pair[1];
                }
            }
            forged.options = OptionBuffer::from_wire(&options).unwrap_or_default();
        }
    }
    forged
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(segment) = Segment::parse(bytes) {
        let mut out = Vec::new();
        segment.emit(&mut out);
        let again = Segment::parse(&out).expect("what was written is read");
        // What is sent has no reserved bits, and options that fill whole words.
        assert_eq!((again.seq, again.ack, again.payload), (segment.seq, segment.ack, segment.payload));
    }
    let [kind, rest @ ..] = bytes else { return };
    let config = Config { checksums: kind & 1 != 0, mptcp: kind & 2 == 0, ..Config::default() };
    let stacks = [1, 2].map(|seed| Stack::new(config.clone(), [seed; 32]));
    let mut world = World { now: Time::ZERO + Span::from_secs(9), stacks, ids: [None; 2], sent: Vec::new() };
    world.stacks[1].listen(80);
    let remote = SocketAddr::from(([10, 0, 0, 2], 80));
    world.ids[0] = world.stacks[0].connect(world.now, [10, 0, 0, 1].into(), remote);
    for chunk in rest.chunks(24) {
        world.settle();
        for (at, id) in world.ids.into_iter().enumerate() {
            if let Some(id) = id {
                world.stacks[at].write(id, &chunk[..chunk.len().min(9)]);
                world.stacks[at].read(id, &mut [0; 64]);
            }
        }
        world.settle();
        let [which, step, change @ ..] = chunk else { break };
        if let Some((from, segment)) = world.sent.get(usize::from(*which) % world.sent.len().max(1)) {
            let forged = forge(segment, change);
            let to = if step & 1 == 0 { 1 - *from } else { *from };
            world.stacks[to].handle(world.now, Input::Segment(&forged));
        }
        world.settle();
        world.now += Span::from_millis(u64::from(step / 2) * 10);
    }
    for id in world.ids.into_iter().enumerate().filter_map(|(at, id)| Some((at, id?))) {
        world.stacks[id.0].finish(id.1);
    }
    world.settle();
});
