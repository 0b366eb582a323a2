//! A receiver, a cache on each of its paths and a source behind it: delays, no sockets. Answers of caches
//! must not make answers of the source look lost or late, and wrong bytes in a cache must not get a source
//! banned.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Machine as _, Output, Span, Time};
use anabranch_mmtp::id::{BLOCK_BYTES, ChunksPerBlock, ContentId};
use anabranch_mmtp::peer::{Peer, WAY_BACK_BYTES, WayBack};
use anabranch_mmtp::publisher::{ContentInfo, ContentStore, Publisher};
use anabranch_mmtp::subscriber::{Event, Input, PathConfig, PathCounters, PathId, Subscriber};
use anabranch_mmtp::tree::{Outboard, PACKET_CVS};
use anabranch_mmtp::wire::{self, Cookie, Packet, Range, RangeKind};
use anabranch_overlay::cache::{Answer, PacketCache, Policy};
use anabranch_topology::graph::NodeId;

/// The content that is sent, and its hash tree.
struct Content {
    bytes: Vec<u8>,
    tree: Outboard,
}

impl Content {
    fn of(len: usize) -> Self {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().update(b"content").finalize_xof().fill(&mut bytes);
        Self { tree: Outboard::of_bytes(&bytes), bytes }
    }

    fn data(&self, tag: u64, cut: ChunksPerBlock, chunk: u64) -> Vec<u8> {
        let id = self.tree.id();
        let (block, offset, len) = id.chunk_extent(chunk, cut).expect("it exists");
        let start = block as usize * BLOCK_BYTES + offset;
        let wire_len = id.chunk_wire_len(chunk, cut).expect("it exists");
        let mut packet = Vec::new();
        wire::emit_data(&mut packet, tag, cut, chunk, &self.bytes[start..start + len], wire_len);
        packet
    }
}

struct Shelf<'a>(&'a Content);

impl ContentStore for Shelf<'_> {
    fn info(&self, root: &[u8; 32]) -> Option<ContentInfo<'_>> {
        let id = self.0.tree.id();
        (id.root == *root).then_some(ContentInfo { id, name: b"store", collection: false })
    }
}

/// Distorts a packet that the cache, or the source, of a path sends.
type Distort<'a> = &'a dyn Fn(PathId, &mut [u8]);

/// One transfer.
struct Setup<'a> {
    len: usize,
    /// The number of paths, each with a source and a cache of its own.
    paths: usize,
    /// Round-trip times to cache and source.
    near: Span,
    far: Span,
    /// How many of a thousand chunks the caches have.
    hits: u64,
    /// How many of a thousand packets are lost before the receiver.
    losses: u64,
    /// The rate of the receiver's line: the time that a packet takes, and how many packets may wait. The rest
    /// of the round trip to the cache is delay.
    line: Option<(Span, u64)>,
    /// Distorts a chunk before the cache learns it.
    poison: Distort<'a>,
    /// `of_cache` distorts a packet that the cache sends, `of_source` one that the source sends.
    of_cache: Distort<'a>,
    of_source: Distort<'a>,
}

impl Setup<'_> {
    const fn new() -> Self {
        Self {
            len: 6_000_000,
            paths: 1,
            near: Span::from_millis(5),
            far: Span::from_millis(60),
            hits: 950,
            losses: 0,
            line: None,
            poison: &|_, _| {},
            of_cache: &|_, _| {},
            of_source: &|_, _| {},
        }
    }
}

/// The result of a transfer.
struct Outcome {
    events: Vec<Event>,
    counters: Vec<PathCounters>,
    took: Span,
    complete: bool,
    /// The number of packets that found no room before the receiver's line.
    dropped: u64,
    /// How many requests of each path forbade caches: all, once its cache is distrusted.
    forbade: Vec<u64>,
}

impl Outcome {
    fn distrusted(&self) -> Vec<(PathId, u16)> {
        let named = self.events.iter().filter_map(|event| match event {
            Event::CacheDistrusted { path, node } => Some((*path, *node)),
            _ => None,
        });
        named.collect()
    }

    fn banned(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Banned { .. })).count()
    }
}

/// Returns a number from 0 to 999 that depends on these bytes alone, so that it is the same in every run.
fn luck(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*blake3::hash(bytes).as_bytes().first_chunk().expect("of 32")) % 1_000
}

/// Returns a cache that has seen `setup.hits` of a thousand chunks go to another receiver.
fn warm(setup: &Setup<'_>, path: PathId, content: &Content) -> PacketCache {
    let mut cache = PacketCache::new(Policy::Lru, 64 << 20, NodeId(100 + path as u32));
    let (other, id) = (WayBack([0xee; _]), content.tree.id());
    let mut request = Vec::new();
    let range = Range { kind: RangeKind::Meta, first: 0, count: 1 };
    wire::emit_request(&mut request, 1, None, false, &id, &[range]);
    assert_eq!(cache.request(Time::ZERO, &other, &request), Answer::PassOn);
    // The cut of a path whose size is known. Chunks that are asked for earlier are put together from these.
    let cut = ChunksPerBlock::new(12).expect("in range");
    for chunk in 0..id.chunks(cut) {
        if luck(&[&[path as u8], &chunk.to_be_bytes()[..]].concat()) < setup.hits {
            let mut packet = content.data(1, cut, chunk);
            (setup.poison)(path, &mut packet);
            cache.reply(Time::ZERO, &other, &packet);
        }
    }
    for first in (0..content.tree.leaves().len()).step_by(PACKET_CVS) {
        let end = content.tree.leaves().len().min(first + PACKET_CVS);
        let mut packet = Vec::new();
        wire::emit_hashes(&mut packet, 1, 0, first as u64, &content.tree.leaves()[first..end]);
        (setup.poison)(path, &mut packet);
        cache.reply(Time::ZERO, &other, &packet);
    }
    cache
}

/// The place where a packet of a path arrives.
enum At {
    Cache,
    Source,
    CacheBack,
    Receiver,
}

/// Packets under way, by the time when they arrive; at one time, in the order in which they left.
#[derive(Default)]
struct Wires {
    packets: BTreeMap<(Time, u64), (PathId, At, Vec<u8>)>,
    sent: u64,
}

impl Wires {
    fn send(&mut self, at: Time, path: PathId, to: At, bytes: Vec<u8>) {
        self.sent += 1;
        self.packets.insert((at, self.sent), (path, to, bytes));
    }
}

fn run(setup: &Setup<'_>) -> Outcome {
    let content = Content::of(setup.len);
    let id: ContentId = content.tree.id();
    let mut subscriber = Subscriber::new(&[5; 32]);
    let mut caches: Vec<_> = (0..setup.paths).map(|path| warm(setup, path, &content)).collect();
    let mut sources: Vec<_> = (0..setup.paths).map(|_| Publisher::new(Shelf(&content), [3; 32])).collect();
    for _ in 0..setup.paths {
        let source = subscriber.add_source().expect("few sources");
        let control = Algorithm::by_name("nmcc").expect("it is there").into();
        let config =
            PathConfig { group: 0, uplink: None, control, payload_max: 1_434, receive_buffer: 1 << 22 };
        subscriber.add_path(source, &config).expect("few paths");
    }
    let download = subscriber.add_download(id, true, |_| false);
    let address: SocketAddr = ([192, 0, 2, 1], 9).into();
    let way_back = |path: PathId| WayBack([path as u8 + 1; WAY_BACK_BYTES]);
    let (to_cache, to_source) = (setup.near.over(2), (setup.far - setup.near).over(2));
    let (mut now, mut wires, mut events) = (Time::ZERO, Wires::default(), Vec::new());
    let (mut line_free, mut dropped) = (Time::ZERO, 0);
    let mut to_receiver = move |now: Time| match setup.line {
        None => Some(now + to_cache),
        Some((each, room)) => {
            line_free = line_free.max(now);
            let fits = line_free.since(now).as_nanos() <= each.as_nanos() * room;
            line_free = if fits { line_free + each } else { line_free };
            fits.then_some(line_free + to_cache)
        }
    };
    let (mut forbade, mut distrusted) = (vec![0; setup.paths], vec![false; setup.paths]);
    let mut here = vec![false; id.blocks() as usize];
    let complete = loop {
        let wait = loop {
            match subscriber.poll(now) {
                Output::Wait(until) => break until,
                Output::Send(transmit) => {
                    if let Ok(Packet::Request(request)) = wire::parse(&transmit.bytes) {
                        assert_eq!(request.no_caches, distrusted[transmit.path]);
                        forbade[transmit.path] += u64::from(distrusted[transmit.path]);
                    }
                    wires.send(now + to_cache, transmit.path, At::Cache, transmit.bytes);
                }
                Output::Event(Event::Block { block, bytes, .. }) => {
                    let start = block as usize * BLOCK_BYTES;
                    assert!(bytes == content.bytes[start..(start + BLOCK_BYTES).min(setup.len)]);
                    assert!(!std::mem::replace(&mut here[block as usize], true), "twice");
                }
                Output::Event(event) => {
                    if let Event::CacheDistrusted { path, .. } = event {
                        distrusted[path] = true;
                    }
                    events.push(event);
                }
            }
        };
        if wires.sent.is_multiple_of(64) {
            assert_eq!(subscriber.check(), Ok(()));
        }
        if subscriber.is_idle() {
            break true;
        }
        let due = wires.packets.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at);
        if wait < due {
            now = wait;
        }
        if now >= Time::ZERO + Span::from_secs(60) || wait.min(due) == Time::NEVER {
            break false;
        }
        if wait < due {
            continue;
        }
        let Some(((at, number), (path, to, mut bytes))) = wires.packets.pop_first() else { continue };
        now = at;
        match to {
            At::Cache => match caches[path].request(now, &way_back(path), &bytes) {
                Answer::PassOn => wires.send(now + to_source, path, At::Source, bytes),
                Answer::Hit { replies, rest, .. } => {
                    for mut reply in replies {
                        assert_eq!(reply[..WAY_BACK_BYTES], way_back(path).0);
                        reply.drain(..WAY_BACK_BYTES);
                        (setup.of_cache)(path, &mut reply);
                        match to_receiver(now) {
                            Some(at) => wires.send(at, path, At::Receiver, reply),
                            None => dropped += 1,
                        }
                    }
                    if let Some(rest) = rest {
                        wires.send(now + to_source, path, At::Source, rest);
                    }
                }
            },
            At::Source => {
                let from = Peer { address, way_back: Some(way_back(path)) };
                sources[path].handle(now, (from, &bytes));
                while let Output::Send(reply) = sources[path].poll(now) {
                    for mut packet in reply.body.packets(|_| &content.tree, |_, range| &content.bytes[range])
                    {
                        (setup.of_source)(path, &mut packet);
                        wires.send(now + to_source, path, At::CacheBack, packet);
                    }
                }
            }
            At::CacheBack => {
                caches[path].reply(now, &way_back(path), &bytes);
                match to_receiver(now) {
                    Some(at) => wires.send(at, path, At::Receiver, bytes),
                    None => dropped += 1,
                }
            }
            At::Receiver => {
                if luck(&number.to_be_bytes()) >= setup.losses {
                    let stride = bytes.len();
                    subscriber.handle(now, Input::Datagrams { path, bytes: &bytes, stride, marked: false });
                }
                bytes.clear();
            }
        }
    };
    assert_eq!(complete, here.iter().all(|here| *here));
    assert_eq!(subscriber.is_wanted(download, 0), !complete && !here[0]);
    let counters = subscriber.paths().map(|path| path.counters).collect();
    Outcome { events, counters, took: now.since(Time::ZERO), complete, dropped, forbade }
}

/// Hides that answers of caches come from caches: then the receiver has one estimator for all answers.
fn hide(_: PathId, packet: &mut [u8]) {
    packet[2] &= !1;
    packet[13..15].fill(0);
}

fn is_data(packet: &[u8]) -> bool {
    matches!(wire::parse(packet), Ok(Packet::Data(_)))
}

#[test]
fn hits_make_no_miss_look_lost() {
    for (near, far) in [(5, 60), (5, 600), (50, 900)] {
        let (near, far) = (Span::from_millis(near), Span::from_millis(far));
        let setup = Setup { near, far, ..Setup::new() };
        let apart = run(&setup);
        let together = run(&Setup { of_cache: &hide, ..Setup { near, far, ..Setup::new() } });
        assert!(apart.complete, "{near:?} {far:?}");
        let (a, t) = (apart.counters[0], together.counters[0]);
        println!(
            "{near:?} {far:?}: lost {} late {} timeouts {} in {:?}, together {} {} {} in {:?}",
            a.lost, a.late, a.timeouts, apart.took, t.lost, t.late, t.timeouts, together.took
        );
        // Until the size of the path is known, a packet is put together from two, each of which is there in
        // 95 % of cases.
        assert!(a.cached * 100 > a.packets * 90 && t.cached == 0, "{a:?}");
        assert_eq!((a.lost, a.late, a.timeouts), (0, 0, 0), "{near:?} {far:?}");
        assert!(t.late > 50, "what it takes for lost arrives: {t:?}");
        assert!(apart.took < together.took);
    }
}

#[test]
fn what_is_lost_behind_a_cache_is_found() {
    for hits in [500, 950, 1_000] {
        let outcome = run(&Setup { losses: 10, hits, ..Setup::new() });
        let path = outcome.counters[0];
        println!("{hits}: {path:?} in {:?}", outcome.took);
        assert!(outcome.complete && path.lost > 20 && path.late * 20 < path.lost, "{path:?}");
        assert!(path.timeouts <= 2, "{path:?}");
    }
}

/// The line holds some 520 packets, 431 of them in its queue. Its drops are found a round trip to the source
/// later, which is several round trips to the cache: the window must not double all that time.
#[test]
fn slow_start_ends_soon_after_the_cache_has_filled_the_line() {
    for far in [60, 300] {
        let line = Some((Span::from_micros(114), 431));
        let (near, far) = (Span::from_millis(10), Span::from_millis(far));
        let setup = Setup { near, far, line, hits: 1_000, len: 20_000_000, ..Setup::new() };
        let outcome = run(&setup);
        let path = outcome.counters[0];
        println!("{far:?}: {} dropped, {path:?} in {:?}", outcome.dropped, outcome.took);
        assert!(outcome.complete && path.cached * 100 > path.packets * 99, "{path:?}");
        assert!(outcome.dropped > 50, "the line was full");
        assert!(outcome.dropped < 2 * 520, "{far:?}: {}", outcome.dropped);
        assert_eq!((path.late, path.timeouts), (0, 0));
    }
}

#[test]
fn a_cache_makes_it_faster() {
    let cold = run(&Setup { hits: 0, ..Setup::new() });
    let warm = run(&Setup::new());
    println!("{:?} {:?}", cold.took, warm.took);
    assert!(warm.took.times(2) < cold.took, "{:?} {:?}", warm.took, cold.took);
}

#[test]
fn a_poisoned_chunk_names_the_cache_and_bans_no_source() {
    let poison = |_: PathId, packet: &mut [u8]| {
        if let Ok(Packet::Data(data)) = wire::parse(packet)
            && data.chunk == 2_000
        {
            packet[30] ^= 1;
        }
    };
    for paths in [1, 3] {
        let outcome = run(&Setup { hits: 1_000, paths, poison: &poison, ..Setup::new() });
        assert!(outcome.complete && outcome.banned() == 0);
        let named = outcome.distrusted();
        assert!((1..=paths).contains(&named.len()), "{named:?}");
        assert!(named.iter().all(|(path, node)| *node == 100 + *path as u16), "{named:?}");
        // The caches of other paths go on answering.
        for path in 0..paths {
            assert!(outcome.forbade[path] == 0 || named.contains(&(path, 100 + path as u16)));
        }
        assert!(paths > 1 || outcome.forbade[0] > 0);
    }
}

#[test]
fn a_poisoned_page_names_the_cache_and_bans_no_source() {
    let poison = |_: PathId, packet: &mut [u8]| {
        if let Ok(Packet::Hashes(_)) = wire::parse(packet) {
            packet[30] ^= 1;
        }
    };
    let outcome = run(&Setup { poison: &poison, paths: 2, ..Setup::new() });
    assert!(outcome.complete && outcome.banned() == 0);
    let named = outcome.distrusted();
    assert!(!named.is_empty() && named.iter().all(|(path, node)| *node == 100 + *path as u16), "{named:?}");
}

#[test]
fn a_source_that_lies_behind_a_cache_is_found_out() {
    let wrong = |path: PathId, packet: &mut [u8]| {
        if path == 0 && is_data(packet) {
            packet[30] ^= 1;
        }
    };
    // One source also calls itself a cache.
    let disguised = |path: PathId, packet: &mut [u8]| {
        wrong(path, packet);
        if path == 0 && is_data(packet) {
            wire::set_responder(packet, 9);
        }
    };
    for (of_source, named, hits) in [(&wrong as Distort<'_>, 100, 950), (&disguised, 9, 0)] {
        let outcome = run(&Setup { of_source, hits, paths: 2, ..Setup::new() });
        assert!(outcome.complete);
        let banned = |event: &&Event| matches!(event, Event::Banned { source: 0, .. });
        assert_eq!((outcome.banned(), outcome.events.iter().filter(banned).count()), (1, 1));
        assert_eq!(outcome.distrusted(), [(0, named)], "the cache is in doubt first");
    }
}

#[test]
fn without_a_proof_nothing_comes_from_the_cache() {
    let mut cookies = 0;
    let content = Content::of(100_000);
    let mut cache = warm(&Setup::new(), 0, &content);
    let cut = ChunksPerBlock::new(12).expect("in range");
    for cookie in [None, Some(Cookie([0; 16])), Some(Cookie([9; 16]))] {
        let mut request = Vec::new();
        let range = Range { kind: RangeKind::Data(cut), first: 0, count: 3 };
        wire::emit_request(&mut request, 5, cookie.as_ref(), true, &content.tree.id(), &[range]);
        assert_eq!(cache.request(Time::ZERO, &WayBack([0xee; _]), &request), Answer::PassOn);
        cookies += 1;
    }
    assert_eq!(cookies, 3);
}
