//! The examples of docs/wire-proxy.md are what the code reads and writes.

use std::collections::VecDeque;

use algo::Time;
use bytes::{Bytes, BytesMut};
use proxy::trunk::frame::{Frame, FrameReader, Piece};
use proxy::trunk::{Event, GoAwayReason, Reason, Settings, Side, Transport, Trunk};

const DOC: &str = include_str!("../../../docs/wire-proxy.md");

/// The bytes of the first code block after `marker`; what follows a `;` is remark.
fn hex(marker: &str) -> Bytes {
    let (_, rest) = DOC.split_once(marker).unwrap_or_else(|| panic!("no {marker:?} in the document"));
    let (_, rest) = rest.split_once("```text\n").expect("a block");
    let block = rest.split_once("```").expect("its end").0;
    let digits: String = block.lines().map(|line| line.split(';').next().unwrap_or("")).collect();
    let digits: Vec<u8> = digits.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let (pairs, rest) = digits.as_chunks::<2>();
    assert!(rest.is_empty(), "{marker}");
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.iter().map(byte).collect()
}

fn trunk(side: Side) -> Trunk {
    Trunk::new(side, Settings { transport: Transport::Mptcp, ..Settings::default() }, Time::ZERO)
}

fn sent(trunk: &mut Trunk) -> Bytes {
    let mut out = VecDeque::new();
    trunk.transmit(Time::ZERO, &mut out, usize::MAX);
    Bytes::from(out.into_iter().flatten().collect::<Vec<u8>>())
}

#[test]
fn a_first_flight_and_its_answer() {
    let (mut client, mut server) = (trunk(Side::Client), trunk(Side::Server));
    let destination: proxy::trunk::Destination = "a.example:443".parse().unwrap();
    let stream = client.open(destination.clone(), true).unwrap();
    client.write(stream, &mut Bytes::from_static(b"hi")).unwrap();
    client.finish(stream);
    let flight = sent(&mut client);
    assert_eq!(flight, hex("Example first flight"));

    server.receive(Time::ZERO, flight).unwrap();
    let events: Vec<Event> = std::iter::from_fn(|| server.poll_event()).collect();
    let opened = Event::Opened { stream, destination, wants_reply: true };
    assert_eq!(events, [Event::Hello(Transport::Mptcp), opened, Event::Readable(stream)]);
    server.confirm(stream, "192.0.2.1:443".parse().unwrap());
    server.write(stream, &mut Bytes::from_static(b"bye!")).unwrap();
    server.finish(stream);
    let answer = sent(&mut server);
    assert_eq!(answer, hex("Example answer"));
    client.receive(Time::ZERO, answer).unwrap();
    assert_eq!(client.open_streams(), 0);
}

#[test]
fn other_frames() {
    let destination = "[2001:db8::1]:80".parse().unwrap();
    let frames = [
        Frame::Open { stream: 2, destination, wants_reply: false },
        Frame::Credit { stream: 2, bytes: 64 << 10 },
        Frame::Credit { stream: 0, bytes: 8 << 20 },
        Frame::Reset { stream: 2, reason: Reason::Refused },
        Frame::GoAway(GoAwayReason::TooManyTrunks),
    ];
    let mut out = BytesMut::new();
    frames.iter().for_each(|frame| frame.encode(&mut out));
    let mut shown = hex("Example of other frames");
    assert_eq!(out, shown);
    let mut reader = FrameReader::default();
    for frame in frames {
        assert_eq!(reader.next(&mut shown), Ok(Some(Piece::Frame(frame))));
    }
    assert!(reader.is_between_frames());
}
