//! Missing packets are asked of any source that can bring them. The tests join a subscriber and real
//! publishers with 10 ms between them, and can hold answers back.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Machine as _, Output, Span, Time};
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::publisher::{ContentInfo, ContentStore, Publisher, Reply};
use anabranch_mmtp::subscriber::{DownloadId, Event, Input, PathConfig, PathId, SourceId, Subscriber};
use anabranch_mmtp::tree::{Outboard, PACKET_CVS};
use anabranch_mmtp::wire::{self, Packet, RangeKind, Reason};

/// Contents with their hash trees.
#[derive(Clone, Default)]
struct MemoryStore(Vec<(Vec<u8>, Outboard)>);

impl MemoryStore {
    fn of(contents: &[&[u8]]) -> Self {
        Self(contents.iter().map(|bytes| (bytes.to_vec(), Outboard::of_bytes(bytes))).collect())
    }

    fn get(&self, root: &[u8; 32]) -> &(Vec<u8>, Outboard) {
        self.0.iter().find(|(_, tree)| tree.id().root == *root).expect("the publisher asks for what exists")
    }

    /// Makes the packets of a reply.
    fn packets(&self, reply: Reply) -> Vec<Vec<u8>> {
        reply.body.packets(|id| &self.get(&id.root).1, |id, range| &self.get(&id.root).0[range])
    }
}

impl ContentStore for MemoryStore {
    fn info(&self, root: &[u8; 32]) -> Option<ContentInfo<'_>> {
        let (_, tree) = self.0.iter().find(|(_, tree)| tree.id().root == *root)?;
        Some(ContentInfo { id: tree.id(), name: b"", collection: false })
    }
}

/// Replaces the packets that answer a request on this path with this tag.
type Twist = Box<dyn FnMut(PathId, u64, Vec<Vec<u8>>) -> Vec<Vec<u8>>>;

struct World {
    subscriber: Subscriber,
    /// The publishers, one for each path.
    publishers: Vec<Publisher<MemoryStore>>,
    silent: BTreeSet<PathId>,
    now: Time,
    wire: VecDeque<(Time, PathId, Vec<u8>)>,
    complete: BTreeSet<DownloadId>,
    /// The chunks that were asked for: path, length of the content, and number of the chunk.
    asked: Vec<(PathId, u64, u64)>,
    twist: Twist,
}

impl World {
    fn new() -> Self {
        Self {
            subscriber: Subscriber::new(&[5; 32]),
            publishers: Vec::new(),
            silent: BTreeSet::new(),
            now: Time::ZERO,
            wire: VecDeque::new(),
            complete: BTreeSet::new(),
            asked: Vec::new(),
            twist: Box::new(|_, _, packets| packets),
        }
    }

    /// Adds a source of these contents and a path to it.
    fn source(&mut self, store: &MemoryStore, payload_max: usize) -> (SourceId, PathId) {
        let source = self.subscriber.add_source().expect("few sources");
        let control = Algorithm::by_name("reno").expect("it is there").into();
        let config = PathConfig { group: 0, uplink: None, control, payload_max, receive_buffer: 1 << 24 };
        let path = self.subscriber.add_path(source, &config).expect("few paths");
        self.publishers.push(Publisher::new(store.clone(), [3; 32]));
        (source, path)
    }

    fn add(&mut self, bytes: &[u8]) -> DownloadId {
        self.subscriber.add_download(Outboard::of_bytes(bytes).id(), false, |_| false)
    }

    /// Takes all outputs of the subscriber. Returns when it wants to be woken.
    fn drain(&mut self) -> Time {
        let home: SocketAddr = "192.0.2.1:9".parse().expect("an address");
        loop {
            match self.subscriber.poll(self.now) {
                Output::Wait(until) => return until,
                Output::Event(Event::Complete { download }) => drop(self.complete.insert(download)),
                Output::Event(_) => {}
                Output::Send(sent) => {
                    if let Ok(Packet::Request(request)) = wire::parse(&sent.bytes) {
                        for range in request.ranges.filter(|r| matches!(r.kind, RangeKind::Data(_))) {
                            let chunks = range.first..range.first + u64::from(range.count);
                            self.asked.extend(chunks.map(|n| (sent.path, request.content.length, n)));
                        }
                    }
                    let publisher = &mut self.publishers[sent.path];
                    publisher.handle(self.now, (home.into(), &sent.bytes));
                    let mut packets = Vec::new();
                    while let Output::Send(reply) = publisher.poll(self.now) {
                        packets.extend(publisher.store().packets(reply));
                    }
                    let tag = wire::peek(&sent.bytes).expect("a packet").tag;
                    for packet in (self.twist)(sent.path, tag, packets) {
                        self.wire.push_back((self.now + Span::from_millis(10), sent.path, packet));
                    }
                }
            }
        }
    }

    /// Runs until `end` returns true, for a minute at most. Returns whether it did.
    fn run_until(&mut self, mut end: impl FnMut(&Self) -> bool) -> bool {
        let limit = self.now + Span::from_secs(60);
        loop {
            let wait = self.drain();
            if end(self) {
                return true;
            }
            match self.wire.front() {
                Some((at, ..)) if *at <= wait => {
                    let (at, path, bytes) = self.wire.pop_front().expect("it was there");
                    self.now = self.now.max(at);
                    if !self.silent.contains(&path) {
                        let (stride, marked) = (bytes.len(), false);
                        self.subscriber
                            .handle(self.now, Input::Datagrams { path, bytes: &bytes, stride, marked });
                    }
                }
                _ => self.now = self.now.max(wait),
            }
            if self.now > limit {
                return false;
            }
        }
    }

    fn window(&self, path: PathId) -> u32 {
        self.subscriber.paths().nth(path).expect("a path").cwnd
    }
}

fn sample(name: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(name).finalize_xof().fill(&mut bytes);
    bytes
}

#[test]
fn all_that_is_late_elsewhere_is_asked_again_though_one_request_has_no_room_for_it() {
    const BLOCKS: u64 = 40;
    let (first, second) = (sample(b"first", 40_000_000), sample(b"second", BLOCKS as usize * BLOCK_BYTES));
    let store = MemoryStore::of(&[&first, &second]);
    let mut world = World::new();
    for _ in 0..2 {
        // A block is one chunk, so that a few blocks fill a request.
        world.source(&store, 65_507);
    }
    let warm_up = world.add(&first);
    assert!(world.run_until(|world| world.complete.contains(&warm_up)));
    assert!((0..2).all(|path| world.window(path) >= 2 * BLOCKS as u32), "windows with room for all");
    let before = world.subscriber.redundant();
    world.asked.clear();
    world.add(&second);
    world.drain();
    let chunks: BTreeSet<u64> = world.asked.iter().map(|(_, _, chunk)| *chunk).collect();
    let silent = world.asked[0].0;
    assert!(chunks.len() as u64 == BLOCKS && world.asked.iter().all(|(path, ..)| *path == silent));
    world.asked.clear();
    world.silent.insert(silent);
    let timeouts = |world: &World| world.subscriber.paths().nth(silent).expect("a path").counters.timeouts;
    assert_eq!(timeouts(&world), 0);
    let all = |world: &World| {
        let elsewhere = world.asked.iter().filter(|(path, ..)| *path != silent);
        elsewhere.map(|(_, _, chunk)| *chunk).collect::<BTreeSet<u64>>().len() as u64
    };
    assert!(world.run_until(|world| all(world) > 0), "the other path helps");
    assert_eq!((all(&world), timeouts(&world)), (BLOCKS, 0), "with everything, at once");
    let hashes = BLOCKS.div_ceil(PACKET_CVS as u64);
    assert_eq!(world.subscriber.redundant() - before, BLOCKS + hashes, "each packet counts once");
}

#[test]
fn what_one_source_lacks_does_not_keep_it_from_what_it_has() {
    let warm_up = sample(b"warm up", 30_000_000);
    let (a, b) = (sample(b"a", 60 * BLOCK_BYTES), sample(b"b", 3 * BLOCK_BYTES));
    let mut world = World::new();
    let (_, first) = world.source(&MemoryStore::of(&[&warm_up, &a, &b]), 1_472);
    let download = world.add(&warm_up);
    assert!(world.run_until(|world| world.complete.contains(&download)));
    assert!(world.window(first) > 1_000, "a window with room for both");
    let (a, b) = (world.add(&a), (world.add(&b), b));
    world.drain();
    assert!(world.asked.iter().any(|(_, length, _)| *length == b.1.len() as u64), "both are asked for");
    // Everything is given up at once, that of A first: more than 256 packets.
    world.subscriber.handle(world.now, Input::Down { path: first });
    let (second, _) = world.source(&MemoryStore::of(&[&b.1]), 1_472);
    world.subscriber.mark_unavailable(second, a);
    assert!(world.run_until(|world| world.complete.contains(&b.0)), "the second source has it");
}

#[test]
fn what_a_source_refuses_while_it_is_lost_is_asked_of_another() {
    let (a, b) = (sample(b"a", 3 * BLOCK_BYTES), sample(b"b", 60 * BLOCK_BYTES));
    let mut world = World::new();
    let warm_up = sample(b"warm up", BLOCK_BYTES);
    let (first, path) = world.source(&MemoryStore::of(&[&warm_up, &a, &b]), 1_472);
    let warm_up = world.add(&warm_up);
    assert!(world.run_until(|world| world.complete.contains(&warm_up)));
    let refused = world.add(&a);
    world.drain();
    // The packets in flight are lost, and then the source says that it does not have the content, before
    // anything else happens.
    world.wire.clear();
    world.subscriber.mark_unavailable(first, refused);
    let overtakes = world.add(&b);
    assert!(world.run_until(|world| world.complete.contains(&overtakes)), "the first source goes on");
    let timeouts = world.subscriber.paths().nth(path).expect("a path").counters.timeouts;
    assert_eq!(timeouts, 0, "the loss was seen by what overtook it");
    let (_, second) = world.source(&MemoryStore::of(&[&a]), 1_472);
    assert!(world.run_until(|world| world.complete.contains(&refused)), "and the second has the other");
    assert!(world.asked.iter().any(|(path, length, _)| (*path, *length) == (second, a.len() as u64)));
    assert_eq!(world.subscriber.check(), Ok(()));
}

/// Makes a refusal that says to come back in ten seconds.
fn busy(tag: u64) -> Vec<u8> {
    let mut packet = Vec::new();
    wire::emit_refuse(&mut packet, tag, Reason::Busy, 10_000);
    packet
}

#[test]
fn what_a_busy_source_was_to_send_is_asked_of_another_at_once() {
    let content = sample(b"content", 40 * BLOCK_BYTES);
    let store = MemoryStore::of(&[&content]);
    let mut world = World::new();
    let (_, first) = world.source(&store, 1_472);
    world.source(&store, 1_472);
    // The source sends a few packets, so that a block is begun, and nothing more for ten seconds.
    world.twist = Box::new(move |path, tag, mut packets| {
        if path == first {
            packets.truncate(3);
            packets.push(busy(tag));
        }
        packets
    });
    let download = world.add(&content);
    assert!(world.run_until(|world| world.complete.contains(&download)), "the second source has it all");
    assert!(world.now < Time::ZERO + Span::from_millis(400), "nobody waits for the first: {:?}", world.now);
    assert_eq!(world.subscriber.check(), Ok(()));
}

#[test]
fn what_is_lost_on_a_path_to_a_busy_source_is_asked_of_another() {
    let (warm_up, content) = (sample(b"warm up", 10_000_000), sample(b"content", 200 * BLOCK_BYTES));
    let store = MemoryStore::of(&[&warm_up, &content]);
    let mut world = World::new();
    let (_, first) = world.source(&store, 1_472);
    world.source(&store, 1_472);
    let download = world.add(&warm_up);
    assert!(world.run_until(|world| world.complete.contains(&download)));
    // Of the requests on this path, the first is lost and the second is refused. The answers to later ones
    // show the loss.
    let mut requests = 0;
    world.twist = Box::new(move |path, tag, packets| {
        if path != first {
            return packets;
        }
        requests += 1;
        match requests {
            1 => Vec::new(),
            2 => vec![busy(tag)],
            _ => packets,
        }
    });
    let begun = world.now;
    let download = world.add(&content);
    assert!(world.run_until(|world| world.complete.contains(&download)));
    let took = world.now.since(begun);
    assert!(took < Span::from_secs(1), "the second source brings it: {took:?}");
    assert_eq!(world.subscriber.check(), Ok(()));
}

#[test]
fn a_source_that_was_busy_and_is_the_only_one_is_asked_again() {
    let content = sample(b"content", 40 * BLOCK_BYTES);
    let mut world = World::new();
    world.source(&MemoryStore::of(&[&content]), 1_472);
    let mut refusals = 2;
    world.twist = Box::new(move |_, tag, packets| {
        if refusals == 0 {
            return packets;
        }
        refusals -= 1;
        vec![busy(tag)]
    });
    let download = world.add(&content);
    assert!(world.run_until(|world| world.complete.contains(&download)));
    assert!(world.now > Time::ZERO + Span::from_secs(10), "not before it said: {:?}", world.now);
}
