//! Any bytes to one end of a trunk, among calls of its world: no panic; the same outcome however the bytes
//! are cut; it holds no more than it granted; what it sends is read by the other end.
#![no_main]

use std::collections::VecDeque;

use anabranch_algo::{Span, Time};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use anabranch_proxy::trunk::frame::FrameReader;
use anabranch_proxy::trunk::{Event, GoAwayReason, Read, Reason, Settings, Side, Trunk};

/// What one end does with `pieces`: its events, and what it said at the end.
fn run<'a>(side: Side, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Event>, String) {
    let mut trunk = Trunk::new(side, Settings::default(), Time::ZERO);
    if side == Side::Client {
        for port in 1..4 {
            let destination = format!("a.example:{port}").parse().expect("a destination");
            let _ = trunk.open(destination, port == 2);
        }
        trunk.transmit(Time::ZERO, &mut VecDeque::new(), 1);
    }
    let (mut events, mut end) = (Vec::new(), String::new());
    for piece in pieces {
        if let Err(error) = trunk.receive(Time::ZERO, Bytes::copy_from_slice(piece)) {
            end = error.to_string();
            break;
        }
        events.extend(std::iter::from_fn(|| trunk.poll_event()));
    }
    events.extend(std::iter::from_fn(|| trunk.poll_event()));
    (events, end)
}

/// Works on streams between the pieces as a world does.
fn work(side: Side, bytes: &[u8]) {
    let mut trunk = Trunk::new(side, Settings::default(), Time::ZERO);
    let (mut reader, mut now) = (FrameReader::default(), Time::ZERO);
    for piece in bytes.chunks(37) {
        let stream = u32::from(piece[0] & 7);
        match piece[0] >> 3 & 7 {
            0 => drop(trunk.open("192.0.2.1:80".parse().expect("a destination"), true)),
            1 => drop(trunk.write(stream, &mut Bytes::from(vec![0; usize::from(piece[0]) * 500]))),
            2 => trunk.finish(stream),
            3 => trunk.reset(stream, Reason::Refused),
            4 => trunk.release(stream),
            5 => trunk.confirm(stream, "192.0.2.1:80".parse().expect("an address")),
            6 => while let Read::Bytes(_) = trunk.read(now, stream, 1_000) {},
            _ if piece[0] == 255 => trunk.go_away(GoAwayReason::Ends),
            _ => now += Span::from_millis(700),
        }
        let failed = trunk.receive(now, Bytes::copy_from_slice(piece)).is_err();
        while trunk.poll_event().is_some() {}
        let mut out = VecDeque::new();
        trunk.transmit(now, &mut out, 100_000);
        for mut piece in out {
            while reader.next(&mut piece).expect("what the format allows").is_some() {}
        }
        assert!(reader.is_between_frames());
        if failed {
            trunk.close();
            break;
        }
    }
}

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (is_client, cut, bytes) = input;
    let side = if is_client { Side::Client } else { Side::Server };
    let (whole, end) = run(side, std::iter::once(bytes));
    let (cut, cut_end) = run(side, bytes.chunks(usize::from(cut).max(1)));
    assert_eq!(whole, cut);
    assert_eq!(end, cut_end);
    work(side, bytes);
});
