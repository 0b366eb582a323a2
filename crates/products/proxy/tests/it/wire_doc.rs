//! Tests that the code reads and writes the examples of docs/wire-proxy.md.

use std::collections::VecDeque;

use anabranch_algo::{Span, Time};
use anabranch_proxy::leg::packet::{Ack, Datagram, Frame as LegFrame, Frames, Header};
use anabranch_proxy::leg::{Leg, Mode, Protection, Settings as LegSettings};
use anabranch_proxy::trunk::frame::{Frame, FrameReader, Piece};
use anabranch_proxy::trunk::{
    Announced, Association, Event, GoAwayReason, Reason, Settings, Side, Transport, Trunk,
};
use bytes::{Bytes, BytesMut};

const DOC: &str = include_str!("../../../../../docs/wire-proxy.md");

/// Returns the bytes of the first code block after `marker`. Text after a `;` is a remark.
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
    let destination: anabranch_proxy::trunk::Destination = "a.example:443".parse().unwrap();
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
fn a_server_says_that_the_connection_is_full_and_a_client_must_not() {
    let (mut client, mut server) = (trunk(Side::Client), trunk(Side::Server));
    let second = Time::ZERO + Span::from_secs(1);
    for trunk in [&mut client, &mut server] {
        sent(trunk);
        trunk.note_blocked(Time::ZERO, true);
        trunk.note_blocked(second, true);
    }
    assert!(client.is_full(second) && sent(&mut client).is_empty(), "its own word is for itself");
    let mut full = BytesMut::new();
    Frame::Full.encode(&mut full);
    assert_eq!(sent(&mut server), full.clone().freeze());
    let mut other = trunk(Side::Client);
    let hello = sent(&mut trunk(Side::Server));
    other.receive(second, hello.clone()).unwrap();
    other.receive(second, full.clone().freeze()).unwrap();
    assert!(other.is_full(second) && !other.is_full(second + Span::from_secs(3)));
    let mut server = trunk(Side::Server);
    server.receive(second, hello).unwrap();
    assert!(server.receive(second, full.freeze()).is_err());
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
        Frame::Full,
        Frame::Load(Announced { open: 7, capacity: 1_000 }),
        Frame::AskDistance { stream: 2 },
        Frame::Distance { stream: 2, us: 20_000 },
        Frame::Server { server: "b.example:26228".parse().unwrap(), is_wanted: true },
        Frame::GoAway(GoAwayReason::Drains),
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

#[test]
fn a_leg_is_asked_for() {
    let association = Association { version: 1, port: 26_228, number: 0x1234_5678 };
    let mut out = BytesMut::new();
    [Frame::AskLeg { version: 1 }, Frame::Leg(association)].iter().for_each(|frame| frame.encode(&mut out));
    let mut shown = hex("Example of a leg");
    assert_eq!(out, shown);
    let mut reader = FrameReader::default();
    assert_eq!(reader.next(&mut shown), Ok(Some(Piece::Frame(Frame::AskLeg { version: 1 }))));
    assert_eq!(reader.next(&mut shown), Ok(Some(Piece::Frame(Frame::Leg(association)))));

    let (mut client, mut server) = (trunk(Side::Client), trunk(Side::Server));
    client.ask_leg(1);
    server.receive(Time::ZERO, sent(&mut client)).unwrap();
    assert!(std::iter::from_fn(|| server.poll_event()).any(|event| event == Event::LegAsked(1)));
    server.answer_leg(association);
    client.receive(Time::ZERO, sent(&mut server)).unwrap();
    assert!(std::iter::from_fn(|| client.poll_event()).any(|event| event == Event::Leg(association)));
}

#[test]
fn a_server_says_what_the_choice_among_servers_needs_and_a_client_must_not() {
    let (mut client, mut server) = (trunk(Side::Client), trunk(Side::Server));
    let stream = client.open("a.example:443".parse().unwrap(), false).unwrap();
    client.ask_distance(stream);
    // A stream that was given up before its OPEN was sent asks nothing.
    let given_up = client.open("a.example:443".parse().unwrap(), false).unwrap();
    client.ask_distance(given_up);
    client.reset(given_up, Reason::NoInterest);
    server.receive(Time::ZERO, sent(&mut client)).unwrap();
    assert!(server.wants_distance(stream));
    let load = Announced { open: 7, capacity: 1_000 };
    let other: anabranch_proxy::trunk::Destination = "b.example:26228".parse().unwrap();
    server.announce(load);
    server.name_server(other.clone(), true);
    let rtt = Span::from_millis(20);
    server.tell_distance(stream, rtt);
    server.tell_distance(stream, rtt);
    client.receive(Time::ZERO, sent(&mut server)).unwrap();
    let events: Vec<Event> = std::iter::from_fn(|| client.poll_event()).collect();
    let said = [Event::Load(load), Event::Server { server: other.clone(), is_wanted: true }];
    assert_eq!(events[1..3], said);
    assert_eq!(events[3..], [Event::Distance { stream, rtt }]);

    for frame in [
        Frame::Load(load),
        Frame::Distance { stream: 1, us: 1 },
        Frame::Server { server: other, is_wanted: false },
    ] {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        let mut server = trunk(Side::Server);
        server.receive(Time::ZERO, sent(&mut trunk(Side::Client))).unwrap();
        assert!(server.receive(Time::ZERO, bytes.freeze()).is_err(), "{frame:?}");
    }
    let mut unasked = BytesMut::new();
    Frame::Distance { stream, us: 1 }.encode(&mut unasked);
    assert!(client.receive(Time::ZERO, unasked.freeze()).is_err());
}

/// A server that drains serves the streams that the client opened before it knew, and does not end the trunk.
#[test]
fn streams_that_cross_the_word_of_a_drain_are_served() {
    let (mut client, mut server) = (trunk(Side::Client), trunk(Side::Server));
    server.receive(Time::ZERO, sent(&mut client)).unwrap();
    client.receive(Time::ZERO, sent(&mut server)).unwrap();
    server.go_away(GoAwayReason::Drains);
    let word = sent(&mut server);
    assert!(server.awaits_departure() && !server.takes_streams());
    client.open("a.example:443".parse().unwrap(), false).unwrap();
    server.receive(Time::ZERO, sent(&mut client)).unwrap();
    assert!(std::iter::from_fn(|| server.poll_event()).any(|event| matches!(event, Event::Opened { .. })));
    client.receive(Time::ZERO, word).unwrap();
    assert!(!client.takes_streams() && !client.awaits_departure());
    assert!(client.open("a.example:443".parse().unwrap(), false).is_err());
}

#[test]
fn packets_of_a_leg() {
    let header = Header { path: 1, association: 0x1234_5678, number: 2 };
    let ack = Ack { next: 7, delay: Span::from_micros(128), ranges: vec![(0, 1), (1, 5)] };
    let peer = "192.0.2.53:53".parse().unwrap();
    let datagram = Datagram { mode: Mode::Duplicate, flow: 1, number: 0, peer, bytes: b"data" };
    let frames = [LegFrame::Ack(ack), LegFrame::Datagram(datagram)];
    let mut out = Vec::new();
    header.encode(&mut out);
    frames.iter().for_each(|frame| frame.encode(&mut out));
    let shown = hex("Example of a plain packet");
    assert_eq!(out, shown);
    assert_eq!(Header::decode(&shown), Some(header));
    let read: Vec<_> = Frames::new(&shown[9..]).map(Result::unwrap).collect();
    assert_eq!(read, frames);

    let protection = Protection::sealed(&[7; 32], 0x1234_5678, Side::Client);
    let mut client = Leg::client(0x1234_5678, protection, LegSettings::default());
    client.add_path(Time::ZERO, "192.0.2.1:26228".parse().unwrap());
    let mut out = Vec::new();
    client.poll_transmit(Time::ZERO, &mut out).unwrap();
    assert_eq!(out, hex("Example of a sealed packet"));
}
