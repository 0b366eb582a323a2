use proptest::prelude::*;

use super::frame::{CREDIT_MAX, Piece, encode_data_header};
use super::*;

/// Two ends, and the bytes in flight between them.
struct Pair {
    now: Time,
    ends: [Trunk; 2],
    /// The bytes in flight to the end with this index.
    pipes: [VecDeque<u8>; 2],
    events: [Vec<Event>; 2],
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

fn destination() -> Destination {
    "origin.example:443".parse().unwrap()
}

impl Pair {
    fn new() -> Self {
        Self::with(Settings::default())
    }

    fn with(settings: Settings) -> Self {
        let ends = [Side::Client, Side::Server].map(|side| Trunk::new(side, settings, Time::ZERO));
        Self { now: Time::ZERO, ends, pipes: Default::default(), events: Default::default() }
    }

    /// Moves `at_most` bytes, plus at most one frame, into the pipe.
    fn transmit(&mut self, from: usize, at_most: usize) -> usize {
        let mut out = VecDeque::new();
        let sent = self.ends[from].transmit(self.now, &mut out, at_most);
        assert_eq!(out.iter().map(Bytes::len).sum::<usize>(), sent);
        out.into_iter().for_each(|piece| self.pipes[1 - from].extend(piece));
        self.note_events();
        sent
    }

    fn deliver(&mut self, to: usize, at_most: usize) -> usize {
        let n = at_most.min(self.pipes[to].len());
        let bytes: Vec<u8> = self.pipes[to].drain(..n).collect();
        self.ends[to].receive(self.now, bytes.into()).unwrap();
        self.note_events();
        n
    }

    fn note_events(&mut self) {
        for (end, events) in self.ends.iter_mut().zip(&mut self.events) {
            events.extend(std::iter::from_fn(|| end.poll_event()));
        }
    }

    /// Runs until neither end has anything to send.
    fn settle(&mut self) {
        loop {
            let sent = self.transmit(CLIENT, 64 * 1024) + self.transmit(SERVER, 64 * 1024);
            let came = self.deliver(CLIENT, 100_000) + self.deliver(SERVER, 100_000);
            if sent + came == 0 {
                break;
            }
        }
        for (n, end) in self.ends.iter().enumerate() {
            assert!(!end.has_to_send(self.now) || end.credit == 0, "end {n}");
            let held: usize = end.streams.values().map(|s| s.received.len()).sum();
            let queued: usize = end.streams.values().map(|s| s.queued.len()).sum();
            assert_eq!((end.held, end.queued), (held, queued), "end {n}");
            assert!(end.held <= end.settings.memory as usize);
        }
    }

    fn open(&mut self) -> u32 {
        self.ends[CLIENT].open(destination(), false).unwrap()
    }

    fn write(&mut self, end: usize, stream: u32, bytes: &[u8]) -> usize {
        self.ends[end].write(stream, &mut Bytes::copy_from_slice(bytes)).unwrap()
    }

    /// Reads all bytes that can be read.
    fn read(&mut self, end: usize, stream: u32) -> Vec<u8> {
        let mut all = Vec::new();
        while let Read::Bytes(bytes) = self.ends[end].read(self.now, stream, 10_000) {
            all.extend_from_slice(&bytes);
        }
        all
    }

    fn forget_events(&mut self) {
        self.events = Default::default();
    }

    /// Asserts that nothing is left of any stream.
    fn assert_empty(&self) {
        for end in &self.ends {
            assert!(end.streams.is_empty(), "{:?}", end.streams);
            assert_eq!((end.open_streams, end.held, end.queued, end.grown), (0, 0, 0, 0));
        }
    }
}

#[test]
fn the_first_flight_has_destination_and_bytes_and_both_directions_end_alone() {
    let mut pair = Pair::new();
    let stream = pair.open();
    pair.write(CLIENT, stream, b"GET / HTTP/1.1\r\n\r\n");
    pair.ends[CLIENT].finish(stream);
    pair.transmit(CLIENT, 1_000);
    pair.deliver(SERVER, usize::MAX);
    let opened = Event::Opened { stream, destination: destination(), wants_reply: false };
    assert_eq!(pair.events[SERVER], [Event::Hello(Transport::Tcp), opened, Event::Readable(stream)]);
    assert_eq!(pair.read(SERVER, stream), b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(pair.ends[SERVER].read(pair.now, stream, 1), Read::End);
    assert_eq!(pair.ends[SERVER].open_streams(), 1);

    pair.write(SERVER, stream, b"200");
    pair.settle();
    assert_eq!(pair.read(CLIENT, stream), b"200");
    assert_eq!(pair.ends[CLIENT].read(pair.now, stream, 1), Read::Empty);
    pair.ends[SERVER].finish(stream);
    // The stream is released before its end was sent.
    pair.ends[SERVER].release(stream);
    pair.settle();
    assert!(pair.events[CLIENT].contains(&Event::Readable(stream)));
    assert_eq!(pair.ends[CLIENT].read(pair.now, stream, 1), Read::End);
    assert_eq!(pair.ends[CLIENT].open_streams(), 0);
    pair.ends[CLIENT].release(stream);
    pair.assert_empty();
}

#[test]
fn who_asks_for_a_reply_gets_one() {
    let mut pair = Pair::new();
    let stream = pair.ends[CLIENT].open(destination(), true).unwrap();
    pair.settle();
    let address = "[2001:db8::1]:443".parse().unwrap();
    pair.ends[SERVER].confirm(stream, address);
    pair.ends[SERVER].confirm(stream, address);
    pair.settle();
    let is_connected = |event: &&Event| **event == Event::Connected { stream, address };
    assert_eq!(pair.events[CLIENT].iter().filter(is_connected).count(), 1);
}

#[test]
fn an_idle_stream_is_small() {
    // The box has the state and the allocator's overhead; the map's nodes are at worst half full.
    let in_map = 2 * (size_of::<u32>() + size_of::<Box<Stream>>());
    let all = size_of::<Stream>() + 16 + in_map;
    assert!(all <= STREAM_STATE_BYTES, "{all}");
    let mut pair = Pair::new();
    let stream = pair.open();
    pair.write(CLIENT, stream, &[1; 20_000]);
    pair.settle();
    pair.read(SERVER, stream);
    pair.settle();
    for end in &pair.ends {
        let state = &end.streams[&stream];
        assert!(state.received.is_empty() && state.queued.is_empty(), "what is empty holds no buffer");
    }
}

#[test]
fn who_does_not_read_gets_no_more_than_the_window() {
    let mut pair = Pair::new();
    let (stuck, fine) = (pair.open(), pair.open());
    pair.settle();
    let mut written = 0;
    for _ in 0..100 {
        written += pair.write(CLIENT, stuck, &[1; 100_000]);
        pair.settle();
    }
    assert_eq!(written, STREAM_CREDIT_MIN as usize);
    assert_eq!(pair.ends[CLIENT].room(stuck), Ok(0));
    assert_eq!(pair.write(CLIENT, fine, &[2; 100_000]), 100_000, "others are not held up");
    pair.settle();
    assert_eq!(pair.read(SERVER, fine).len(), 100_000);
    pair.forget_events();
    assert_eq!(pair.read(SERVER, stuck).len(), written);
    pair.settle();
    assert!(pair.events[CLIENT].contains(&Event::Writable(stuck)));
}

#[test]
fn all_streams_together_hold_no_more_than_the_memory() {
    let mut pair = Pair::with(Settings { memory: TRUNK_CREDIT_MIN, ..Settings::default() });
    let streams: Vec<u32> = (0..40).map(|_| pair.open()).collect();
    pair.settle();
    for stream in &streams {
        pair.write(CLIENT, *stream, &[1; 200_000]);
        pair.settle();
    }
    assert_eq!(pair.ends[SERVER].held, TRUNK_CREDIT_MIN as usize);
    // A stream that is reset returns its part of the memory.
    pair.ends[SERVER].reset(streams[0], Reason::NoInterest);
    pair.settle();
    assert_eq!(pair.ends[SERVER].held, TRUNK_CREDIT_MIN as usize);
    // Control frames are not held up, and reading lets all streams continue.
    pair.now += Span::from_secs(30);
    assert_eq!(pair.transmit(CLIENT, usize::MAX), 16, "a ping");
    pair.settle();
    assert_eq!(pair.ends[CLIENT].unanswered(pair.now), Span::ZERO);
    let mut read = 0;
    for _ in 0..10 {
        read += streams[1..].iter().map(|stream| pair.read(SERVER, *stream).len()).sum::<usize>();
        pair.settle();
    }
    assert_eq!(read, 39 * 200_000);
}

#[test]
fn what_waits_to_be_sent_is_limited() {
    let mut pair = Pair::new();
    let streams: Vec<u32> = (0..100).map(|_| pair.open()).collect();
    let taken: Vec<usize> = streams.iter().map(|s| pair.write(CLIENT, *s, &[1; 1_000_000])).collect();
    assert_eq!(taken[..16], [STREAM_QUEUE_MAX; 16]);
    assert_eq!(taken[16..], [STREAM_QUEUE_MIN; 84], "each has its part, however much others have");
    pair.ends[CLIENT].streams.values_mut().for_each(|s| s.awaits_room = true);
    pair.settle();
    assert_eq!(pair.ends[CLIENT].queued, 0);
    assert!(streams[16..].iter().all(|s| pair.events[CLIENT].contains(&Event::Writable(*s))));
}

#[test]
fn a_window_grows_where_it_is_used_up_within_two_round_trips() {
    for (rtt_ms, rounds, grows) in [(100, 1, true), (100, 3, false)] {
        let mut pair = Pair::new();
        pair.transmit(CLIENT, 1);
        pair.transmit(SERVER, 1);
        pair.now += Span::from_millis(rtt_ms);
        pair.settle();
        assert_eq!(pair.ends[SERVER].rtt(), Some(Span::from_millis(rtt_ms)));
        let stream = pair.open();
        for _ in 0..20 {
            while pair.write(CLIENT, stream, &[1; 1_000_000]) > 0 {
                pair.transmit(CLIENT, usize::MAX);
            }
            pair.deliver(SERVER, usize::MAX);
            pair.now += Span::from_millis(rtt_ms * rounds);
            pair.read(SERVER, stream);
            pair.settle();
        }
        let window = pair.ends[SERVER].streams[&stream].window;
        assert_eq!(window, if grows { stream::WINDOW_MAX } else { STREAM_CREDIT_MIN });
        pair.ends[SERVER].reset(stream, Reason::NoInterest);
        pair.ends[SERVER].release(stream);
        assert_eq!(pair.ends[SERVER].grown, 0);
    }
}

#[test]
fn short_exchanges_do_not_wait_behind_a_download_and_the_download_goes_on() {
    let mut pair = Pair::new();
    let bulk = pair.open();
    pair.settle();
    let (mut bulk_read, mut latest) = (0, 0);
    for round in 0..200 {
        while pair.write(SERVER, bulk, &[0; 100_000]) > 0 {}
        let short = pair.open();
        pair.transmit(CLIENT, 1);
        pair.deliver(SERVER, usize::MAX);
        pair.write(SERVER, short, &[1; 1_000]);
        pair.ends[SERVER].finish(short);
        // The connection takes 64 KiB in each round.
        pair.transmit(SERVER, 64 * 1024);
        pair.deliver(CLIENT, usize::MAX);
        let is_here = pair.read(CLIENT, short).len() == 1_000;
        latest = if is_here { latest } else { round };
        bulk_read += pair.read(CLIENT, bulk).len();
        for end in &mut pair.ends {
            end.release(short);
        }
    }
    assert_eq!(latest, 0, "each short answer comes in the round in which it was made");
    assert!(bulk_read > 200 * 40_000, "{bulk_read}");
}

#[test]
fn a_reset_ends_both_directions_and_says_why() {
    let mut pair = Pair::new();
    let stream = pair.open();
    pair.write(CLIENT, stream, &[1; 1_000]);
    pair.settle();
    pair.ends[SERVER].reset(stream, Reason::Refused);
    pair.write(CLIENT, stream, &[1; 1_000]);
    pair.settle();
    assert!(pair.events[CLIENT].contains(&Event::Reset { stream, reason: Reason::Refused }));
    assert_eq!(pair.ends[CLIENT].read(pair.now, stream, 1), Read::Reset(Reason::Refused));
    assert_eq!(pair.ends[CLIENT].room(stream), Err(Reason::Refused));
    pair.ends.iter_mut().for_each(|end| end.release(stream));
    pair.assert_empty();

    // The other side never learns of a stream that was reset before it was announced.
    let stream = pair.open();
    pair.ends[CLIENT].release(stream);
    pair.forget_events();
    pair.settle();
    assert_eq!(pair.events[SERVER], []);
    pair.assert_empty();

    // A reset after the last bytes does not remove bytes that arrived.
    let stream = pair.open();
    pair.settle();
    pair.write(SERVER, stream, b"whole");
    pair.ends[SERVER].finish(stream);
    pair.ends[SERVER].release(stream);
    pair.settle();
    assert!(pair.events[CLIENT].contains(&Event::Reset { stream, reason: Reason::NoInterest }));
    assert_eq!(pair.read(CLIENT, stream), b"whole");
    assert_eq!(pair.ends[CLIENT].read(pair.now, stream, 1), Read::End);
    pair.ends[CLIENT].release(stream);
    pair.assert_empty();
}

#[test]
fn streams_beyond_the_limit_are_refused_and_a_flood_of_them_ends_the_trunk() {
    let mut pair = Pair::new();
    pair.settle();
    let max = pair.ends[CLIENT].streams_max();
    assert_eq!(max, 4_096);
    (0..max).for_each(|_| {
        pair.open();
    });
    assert_eq!(pair.ends[CLIENT].open(destination(), false), Err(OpenError::TooManyStreams));
    pair.settle();
    let mut more = BytesMut::new();
    for stream in max + 1..=max + 20_000 {
        Frame::Open { stream, destination: destination(), wants_reply: false }.encode(&mut more);
    }
    let server = &mut pair.ends[SERVER];
    assert_eq!(server.receive(pair.now, more.freeze()), Err(ProtocolError::TooManyRefused));
    assert_eq!(server.streams.len(), max as usize);
    assert!(server.controls.len() <= server.controls_max());
    let mut out = VecDeque::new();
    server.transmit(pair.now, &mut out, usize::MAX);
    let mut goaway = BytesMut::new();
    Frame::GoAway(GoAwayReason::Protocol).encode(&mut goaway);
    assert!(out[0].starts_with(&goaway));
}

#[test]
fn rules_that_are_broken_end_the_trunk() {
    let hello = |side| {
        let mut trunk = Trunk::new(side, Settings::default(), Time::ZERO);
        let mut out = VecDeque::new();
        trunk.transmit(Time::ZERO, &mut out, 1);
        out[0].slice(..24)
    };
    let open =
        |stream| Frame::Open { stream, destination: "192.0.2.1:1".parse().unwrap(), wants_reply: false };
    let bytes = |frames: &[Frame]| {
        let mut out = BytesMut::new();
        frames.iter().for_each(|frame| frame.encode(&mut out));
        out
    };
    let data = |stream, len: u16, is_last| {
        let mut out = BytesMut::new();
        encode_data_header(stream, len, is_last, &mut out);
        out.resize(8 + usize::from(len), 0);
        out
    };
    let full: Vec<u8> = (0..5).flat_map(|_| data(1, 65_535, false)).collect();
    let address = "192.0.2.1:1".parse().unwrap();
    let credit = |stream| Frame::Credit { stream, bytes: CREDIT_MAX - 1_000 };
    let cases = [
        (Side::Client, bytes(&[open(1)]), ProtocolError::Unasked(frame::OPEN)),
        (Side::Client, data(1, 0, false), ProtocolError::Stream(frame::DATA, 1)),
        (Side::Server, bytes(&[open(2), open(1)]), ProtocolError::Stream(frame::OPEN, 1)),
        (Side::Server, bytes(&[open(2), open(2)]), ProtocolError::Stream(frame::OPEN, 2)),
        (Side::Server, data(1, 1, false), ProtocolError::Stream(frame::DATA, 1)),
        (Side::Server, [&bytes(&[open(1)])[..], &full].concat()[..].into(), ProtocolError::NoCredit),
        (
            Side::Server,
            [bytes(&[open(1)]), data(1, 1, true), data(1, 1, false)].concat()[..].into(),
            ProtocolError::AfterEnd,
        ),
        (
            Side::Server,
            bytes(&[open(1), Frame::Opened { stream: 1, address }]),
            ProtocolError::Unasked(frame::OPENED),
        ),
        (Side::Server, bytes(&[credit(0), credit(0)]), ProtocolError::CreditOverflow),
        (Side::Server, bytes(&[open(1), credit(1), credit(1)]), ProtocolError::CreditOverflow),
        (
            Side::Server,
            bytes(&[Frame::Reset { stream: 1, reason: Reason::Busy }]),
            ProtocolError::Stream(frame::RESET, 1),
        ),
        (Side::Server, hello(Side::Client)[..].into(), ProtocolError::Hello),
    ];
    for (side, bytes, error) in cases {
        let mut trunk = Trunk::new(side, Settings::default(), Time::ZERO);
        if error != ProtocolError::Hello {
            let first = trunk.receive(Time::ZERO, bytes.clone().freeze());
            assert_eq!(first, Err(ProtocolError::Hello), "HELLO comes first: {error}");
        }
        let mut trunk = Trunk::new(side, Settings::default(), Time::ZERO);
        trunk.receive(Time::ZERO, hello(Side::Server)).unwrap();
        assert_eq!(trunk.receive(Time::ZERO, bytes.freeze()), Err(error));
        let mut out = VecDeque::new();
        trunk.transmit(Time::ZERO, &mut out, usize::MAX);
        trunk.close();
        assert!(!trunk.takes_streams());
    }
}

#[test]
fn who_goes_away_takes_no_new_streams_and_what_is_open_goes_on() {
    let mut pair = Pair::new();
    let stream = pair.open();
    pair.settle();
    pair.ends[SERVER].go_away(GoAwayReason::TooManyTrunks);
    let late = pair.open();
    pair.settle();
    assert!(pair.events[CLIENT].contains(&Event::GoAway(GoAwayReason::TooManyTrunks)));
    assert!(pair.events[CLIENT].contains(&Event::Reset { stream: late, reason: Reason::Busy }));
    assert_eq!(pair.ends[CLIENT].open(destination(), false), Err(OpenError::Closing));
    pair.write(CLIENT, stream, b"on");
    pair.settle();
    assert_eq!(pair.read(SERVER, stream), b"on");
    pair.ends[CLIENT].close();
    pair.note_events();
    assert!(pair.events[CLIENT].contains(&Event::Reset { stream, reason: Reason::TrunkGone }));
    assert_eq!(pair.ends[CLIENT].read(pair.now, stream, 1), Read::Reset(Reason::TrunkGone));
}

#[test]
fn a_dead_peer_is_found_out() {
    let mut pair = Pair::new();
    pair.settle();
    let stream = pair.open();
    pair.write(CLIENT, stream, b"hello?");
    pair.transmit(CLIENT, usize::MAX);
    assert_eq!(pair.ends[CLIENT].deadline(true), Time::ZERO + Span::from_millis(500));
    pair.now += Span::from_millis(500);
    assert!(pair.transmit(CLIENT, usize::MAX) == 16, "a ping");
    pair.now += Span::from_secs(2);
    assert!(pair.ends[CLIENT].unanswered(pair.now) > Span::from_secs(2));
    let dead_at = pair.ends[CLIENT].deadline(true);
    assert_eq!(dead_at, Time::ZERO + Span::from_secs(120));
    assert!(pair.ends[CLIENT].is_dead(dead_at) && !pair.ends[CLIENT].is_dead(pair.now));
}

/// Returns the byte at this position of a stream's direction.
fn pattern(end: usize, stream: u32, at: usize) -> u8 {
    (at.wrapping_mul(31) + at / 251 + stream as usize * 7 + end * 101) as u8
}

#[derive(Clone, Debug)]
enum Op {
    Open,
    Write(usize, usize, usize),
    Read(usize, usize, usize),
    Finish(usize, usize),
    Reset(usize, usize),
    Release(usize, usize),
    Transmit(usize, usize),
    Deliver(usize, usize),
    Wait(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let end = 0..2_usize;
    let op = prop_oneof![
        2 => Just(Op::Open),
        6 => (end.clone(), 0..8_usize, 0..300_000_usize).prop_map(|(e, s, n)| Op::Write(e, s, n)),
        6 => (end.clone(), 0..8_usize, 1..400_000_usize).prop_map(|(e, s, n)| Op::Read(e, s, n)),
        1 => (end.clone(), 0..8_usize).prop_map(|(e, s)| Op::Finish(e, s)),
        1 => (end.clone(), 0..8_usize).prop_map(|(e, s)| Op::Reset(e, s)),
        1 => (end.clone(), 0..8_usize).prop_map(|(e, s)| Op::Release(e, s)),
        8 => (end.clone(), 1..200_000_usize).prop_map(|(e, n)| Op::Transmit(e, n)),
        8 => (end, prop_oneof![1..30_usize, 1..200_000_usize]).prop_map(|(e, n)| Op::Deliver(e, n)),
        1 => (1..3_000_u64).prop_map(Op::Wait),
    ];
    prop::collection::vec(op, 1..200)
}

/// The test's record of one end of a stream.
#[derive(Clone, Copy, Default)]
struct Known {
    written: usize,
    read: usize,
    is_finished: bool,
    is_over: bool,
}

struct Model {
    pair: Pair,
    known: BTreeMap<u32, [Known; 2]>,
}

impl Model {
    fn number(&self, nth: usize) -> Option<u32> {
        let count = self.known.len();
        (count > 0).then(|| (count - nth % count.min(8)) as u32)
    }

    fn read(&mut self, end: usize, stream: u32, mut at_most: usize) {
        let known = self.known.get_mut(&stream).unwrap();
        while at_most > 0 && !known[end].is_over {
            let Read::Bytes(bytes) = self.pair.ends[end].read(self.pair.now, stream, at_most) else { break };
            at_most -= bytes.len();
            for byte in bytes {
                assert_eq!(byte, pattern(1 - end, stream, known[end].read), "stream {stream}");
                known[end].read += 1;
            }
            assert!(known[end].read <= known[1 - end].written);
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Open => {
                let stream = self.pair.open();
                self.known.insert(stream, Default::default());
            }
            Op::Write(end, nth, len) => {
                let Some(stream) = self.number(nth) else { return };
                let known = &mut self.known.get_mut(&stream).unwrap()[end];
                let bytes: Vec<u8> = (0..len).map(|n| pattern(end, stream, known.written + n)).collect();
                let taken = self.pair.ends[end].write(stream, &mut bytes.into()).unwrap_or(0);
                known.written += taken;
            }
            Op::Read(end, nth, len) => {
                if let Some(stream) = self.number(nth) {
                    self.read(end, stream, len);
                }
            }
            Op::Finish(end, nth) => {
                let Some(stream) = self.number(nth) else { return };
                // The server only knows streams whose OPEN has arrived.
                if self.pair.ends[end].streams.contains_key(&stream) {
                    self.pair.ends[end].finish(stream);
                    self.known.get_mut(&stream).unwrap()[end].is_finished = true;
                }
            }
            Op::Reset(end, nth) => {
                let Some(stream) = self.number(nth) else { return };
                self.pair.ends[end].reset(stream, Reason::NoInterest);
            }
            Op::Release(end, nth) => {
                let Some(stream) = self.number(nth) else { return };
                if self.pair.ends[end].streams.contains_key(&stream) {
                    self.pair.ends[end].release(stream);
                    self.known.get_mut(&stream).unwrap()[end].is_over = true;
                }
            }
            Op::Transmit(end, len) => {
                self.pair.transmit(end, len);
            }
            Op::Deliver(end, len) => {
                self.pair.deliver(end, len);
            }
            Op::Wait(millis) => self.pair.now += Span::from_millis(millis),
        }
        for end in &self.pair.ends {
            assert!(end.held <= end.settings.memory as usize);
            assert!(end.controls.len() <= end.controls_max());
            for stream in end.streams.values() {
                assert!(stream.received.len() <= stream.window as usize, "no more than its credit");
                assert!(stream.queued.len() <= STREAM_QUEUE_MAX);
            }
        }
    }
}

/// A stream that was reset after all its bytes had arrived is released before they were read.
#[test]
fn what_nobody_reads_any_more_is_not_held() {
    let mut pair = Pair::new();
    let stream = pair.open();
    pair.write(CLIENT, stream, &[7; 40_000]);
    pair.ends[CLIENT].finish(stream);
    pair.settle();
    pair.ends[CLIENT].reset(stream, Reason::NoInterest);
    pair.settle();
    assert_eq!(pair.ends[SERVER].held, 40_000);
    pair.ends[SERVER].release(stream);
    pair.settle();
    assert_eq!(pair.ends[SERVER].held, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_bytes_arrive_in_order_whatever_happens(ops in ops()) {
        let mut model = Model { pair: Pair::new(), known: BTreeMap::new() };
        ops.into_iter().for_each(|op| model.step(op));
        // All streams are read and finished now; each that was not reset arrives to its end.
        for _ in 0..40 {
            model.pair.settle();
            let numbers: Vec<u32> = model.known.keys().copied().collect();
            for stream in numbers {
                (0..2).for_each(|end| model.read(end, stream, usize::MAX));
            }
        }
        for (stream, known) in model.known.clone() {
            let ends = &model.pair.ends;
            let is_whole = |end: usize| {
                ends[end].streams.get(&stream).is_some_and(|s| s.reset.is_none() && !s.is_released)
            };
            if is_whole(0) && is_whole(1) {
                for end in 0..2 {
                    prop_assert_eq!(known[end].read, known[1 - end].written, "stream {}", stream);
                    let end_read = model.pair.ends[end].read(model.pair.now, stream, 1);
                    let expected = if known[1 - end].is_finished { Read::End } else { Read::Empty };
                    prop_assert_eq!(end_read, expected);
                }
            }
        }
        for stream in model.known.keys() {
            model.pair.ends.iter_mut().for_each(|end| end.finish(*stream));
            model.pair.ends.iter_mut().for_each(|end| end.release(*stream));
        }
        model.pair.settle();
        model.pair.assert_empty();
    }

    #[test]
    fn no_bytes_make_it_panic(side in prop::bool::ANY, bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let side = if side { Side::Client } else { Side::Server };
        let mut trunk = Trunk::new(side, Settings::default(), Time::ZERO);
        let _ = trunk.receive(Time::ZERO, bytes.into());
        trunk.transmit(Time::ZERO, &mut VecDeque::new(), usize::MAX);
    }
}

#[test]
fn a_reader_of_frames_agrees_with_what_is_sent() {
    let mut pair = Pair::new();
    let stream = pair.open();
    pair.write(CLIENT, stream, &[7; 40_000]);
    pair.ends[CLIENT].finish(stream);
    pair.transmit(CLIENT, usize::MAX);
    let mut bytes = Bytes::from(pair.pipes[SERVER].iter().copied().collect::<Vec<u8>>());
    let (mut reader, mut data, mut last) = (FrameReader::default(), 0, false);
    while let Some(piece) = reader.next(&mut bytes).unwrap() {
        if let Piece::Data { bytes, is_last, .. } = piece {
            assert!(bytes.len() <= frame::DATA_BYTES_MAX && !last);
            data += bytes.len();
            last = is_last;
        }
    }
    assert!(data == 40_000 && last && reader.is_between_frames());
}
