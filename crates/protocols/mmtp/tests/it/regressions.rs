//! Faults that fuzzing has found, each as the shortest run that shows it.

use std::net::SocketAddr;

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Machine as _, Output, Span, Time};
use anabranch_mmtp::id::{BLOCK_BYTES, ChunksPerBlock, ContentId};
use anabranch_mmtp::publisher::{ContentInfo, ContentStore, Publisher, REPLY_PACKETS_MAX, ReplyBody};
use anabranch_mmtp::subscriber::{Event, Input, PathConfig, Subscriber, Transmit};
use anabranch_mmtp::wire::{self, Cookie, Packet, Range, RangeKind, Reason};

struct MemoryStore(ContentId);

impl ContentStore for MemoryStore {
    fn info(&self, _: &[u8; 32]) -> Option<ContentInfo<'_>> {
        Some(ContentInfo { id: self.0, name: b"", collection: false })
    }
}

#[test]
fn a_refusal_counts_as_a_packet_of_the_answer() {
    let from: SocketAddr = ([192, 0, 2, 1], 9).into();
    let id = ContentId { root: [1; 32], length: 80 * BLOCK_BYTES as u64 };
    let mut publisher = Publisher::new(MemoryStore(id), [0; 32]);
    let cut = RangeKind::Data(ChunksPerBlock::MAX);
    let ranges = [Range { kind: cut, first: 0, count: 64 }, Range { kind: cut, first: 1 << 40, count: 1 }];
    let mut cookie = None;
    for _ in 0..2 {
        let mut request = Vec::new();
        wire::emit_request(&mut request, 1, cookie.as_ref(), false, &id, &ranges);
        publisher.handle(Time::ZERO, (from.into(), &request));
        let mut packets = 0;
        while let Output::Send(reply) = publisher.poll(Time::ZERO) {
            packets += if let ReplyBody::Chunks { count, .. } = reply.body { count } else { 1 };
            if let ReplyBody::Packet(bytes) = reply.body
                && let Ok(Packet::Cookie { cookie: baked, .. }) = wire::parse(&bytes)
            {
                cookie = Some(baked);
            }
        }
        assert!(packets <= REPLY_PACKETS_MAX, "{packets} packets");
    }
    assert!(cookie.is_some());
}

/// Runs a receiver of `id` with two sources. `answer` makes all answers, from the time, the path and the
/// request; they arrive 10 ms later. Returns whether the download was complete within 60 s, and how often the
/// receiver woke up.
fn run(
    id: ContentId,
    meta: bool,
    payload_max: usize,
    mut answer: impl FnMut(Time, usize, &[u8]) -> Vec<Vec<u8>>,
) -> (bool, u32) {
    let mut subscriber = Subscriber::new(&[0; 32]);
    for _ in 0..2 {
        let source = subscriber.add_source().expect("few");
        let control = Algorithm::by_name("nmcc").expect("it is there").into();
        let config = PathConfig { group: 0, uplink: None, control, payload_max, receive_buffer: 1 << 22 };
        subscriber.add_path(source, &config).expect("few");
    }
    subscriber.add_download(id, meta, |_| false);
    let (mut now, mut wire, mut wakes) = (Time::ZERO, Vec::new(), 0);
    while now < Time::ZERO + Span::from_secs(60) {
        let wait = loop {
            match subscriber.poll(now) {
                Output::Event(Event::Complete { .. }) => return (true, wakes),
                Output::Event(_) => {}
                Output::Send(Transmit { path, bytes }) => {
                    let answers = answer(now, path, &bytes).into_iter();
                    wire.extend(answers.map(|bytes| (now + Span::from_millis(10), path, bytes)));
                }
                Output::Wait(until) => break until,
            }
        };
        wakes += 1;
        if wire.first().is_some_and(|(at, ..)| *at <= wait) {
            let (at, path, bytes) = wire.remove(0);
            now = at;
            let stride = bytes.len();
            subscriber.handle(now, Input::Datagrams { path, bytes: &bytes, stride, marked: false });
        } else {
            now = wait;
        }
    }
    (false, wakes)
}

/// Returns the answers of an honest source of `bytes`, which are one block. It sends no cookie.
fn honest(id: &ContentId, bytes: &[u8], request: &[u8]) -> Vec<Vec<u8>> {
    let Ok(Packet::Request(request)) = wire::parse(request) else { return Vec::new() };
    let mut out = Vec::new();
    for range in request.ranges {
        for n in range.first..range.first + u64::from(range.count) {
            let mut packet = Vec::new();
            match range.kind {
                RangeKind::Data(cut) => {
                    let (_, offset, len) = id.chunk_extent(n, cut).expect("it exists");
                    wire::emit_data(&mut packet, request.tag, cut, n, &bytes[offset..offset + len], len);
                }
                _ => wire::emit_meta(&mut packet, request.tag, id, false, b""),
            }
            out.push(packet);
        }
    }
    out
}

/// Corrupts a packet: shortens a chunk, or changes the content of a META.
fn misfit(packet: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match wire::parse(packet).expect("it is right so far") {
        Packet::Data(data) => {
            let payload = &data.payload[..data.payload.len() / 2];
            wire::emit_data(&mut out, data.tag, data.cut, data.chunk, payload, payload.len());
        }
        Packet::Meta(meta) => {
            wire::emit_meta(&mut out, meta.tag, &ContentId { root: [9; 32], ..meta.content }, false, b"");
        }
        other => panic!("{other:?}"),
    }
    out
}

#[test]
fn answers_of_the_wrong_form_are_asked_again_of_others() {
    let bytes = [3; 9_000];
    let id = ContentId::of(&bytes);
    for meta in [false, true] {
        let (complete, _) = run(id, meta, 1_472, |_, path, request| {
            let right = honest(&id, &bytes, request);
            if path == 0 { right.iter().map(|packet| misfit(packet)).collect() } else { right }
        });
        assert!(complete, "meta {meta}");
    }
}

#[test]
fn a_source_that_never_takes_its_own_cookies_is_left() {
    let bytes = [3; 9_000];
    let id = ContentId::of(&bytes);
    let (complete, wakes) = run(id, true, 1_472, |_, path, request| {
        let tag = wire::peek(request).expect("a packet").tag;
        let mut cookie = Vec::new();
        wire::emit_cookie(&mut cookie, tag, &Cookie([tag as u8; 16]));
        if path == 0 { vec![cookie] } else { honest(&id, &bytes, request) }
    });
    assert!(complete && wakes < 1_000, "{wakes} wakes");
}

#[test]
fn sources_that_fall_silent_do_not_keep_the_receiver_busy() {
    let bytes = [3; 9_000];
    let id = ContentId::of(&bytes);
    // A cookie makes probes of packet sizes due. No other request is answered.
    let (complete, wakes) = run(id, true, 1_472, |now, _, request| {
        let mut cookie = Vec::new();
        wire::emit_cookie(&mut cookie, wire::peek(request).expect("a packet").tag, &Cookie([1; 16]));
        if now == Time::ZERO { vec![cookie] } else { Vec::new() }
    });
    assert!(!complete && wakes < 1_000, "{wakes} wakes in a minute");
}

#[test]
fn a_refusal_told_again_and_again_does_not_put_off_the_timeout() {
    let mut subscriber = Subscriber::new(&[0; 32]);
    let source = subscriber.add_source().expect("the first");
    let control = Algorithm::by_name("nmcc").expect("it is there").into();
    let config = PathConfig { group: 0, uplink: None, control, payload_max: 1_472, receive_buffer: 1 << 22 };
    subscriber.add_path(source, &config).expect("the first");
    subscriber.add_download(ContentId::of(&[3; 9_000]), true, |_| false);
    let mut last = None;
    for step in 0..100 {
        let now = Time::ZERO + Span::from_millis(50 * step);
        while let output @ (Output::Event(_) | Output::Send(_)) = subscriber.poll(now) {
            if let Output::Send(Transmit { bytes, .. }) = output
                && step == 0
            {
                last = Some(wire::peek(&bytes).expect("a packet").tag);
            }
        }
        // The first of several requests is never answered, and the last one always with the same refusal.
        let mut refusal = Vec::new();
        wire::emit_refuse(&mut refusal, last.expect("a request"), Reason::Busy, 100);
        let stride = refusal.len();
        subscriber.handle(now, Input::Datagrams { path: 0, bytes: &refusal, stride, marked: false });
    }
    let timeouts = subscriber.paths().next().expect("the path").counters.timeouts;
    assert!(timeouts > 0, "{timeouts} timeouts in 5 s");
}
