//! Operations on a receiver, its network and its sources: nothing unverified gets out, nobody honest is
//! blamed, and with one honest source left the content arrives.
#![no_main]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::LazyLock;

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Machine as _, Output, Span, Time};
use libfuzzer_sys::fuzz_target;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::publisher::{ContentInfo, ContentStore, Publisher};
use anabranch_mmtp::subscriber::{Event, Input, PathConfig, PathState, Subscriber};
use anabranch_mmtp::tree::{self, Outboard};
use anabranch_mmtp::wire::{self, Cookie, Packet, RangeKind, Reason};

/// Outputs of one drain: a request for every packet of a few large windows.
const OUTPUTS_MAX: usize = 20_000;
/// The node of all caches.
const NODE: u16 = 77;
/// Answers on their way at most; more are not made.
const WIRE_MAX: usize = 512;
/// From the end of the operations on: how long the content may take, and how often anything happens.
const PATIENCE: Span = Span::from_secs(300);
const STEPS_MAX: usize = 30_000;
/// The same where nothing has to arrive.
const STEPS_HOPELESS: usize = 300;

/// No block, one, a few, and two levels of pages.
static CONTENTS: LazyLock<Vec<(Vec<u8>, Outboard)>> = LazyLock::new(|| {
    let lens = [0, 1, 5_000, 16_384, 16_385, 40_000, 98_304, 70 * BLOCK_BYTES + 77, 130 * BLOCK_BYTES];
    lens.map(|len| {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        let tree = Outboard::of_bytes(&bytes);
        (bytes, tree)
    })
    .into()
});

#[derive(Clone, Copy)]
struct Shelf(&'static (Vec<u8>, Outboard));

impl ContentStore for Shelf {
    fn info(&self, root: &[u8; 32]) -> Option<ContentInfo<'_>> {
        let id = self.0.1.id();
        (id.root == *root).then_some(ContentInfo { id, name: b"shelf", collection: false })
    }
}

/// What a source does to its right answers once the operations are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Honest,
    Silent,
    /// Changes a bit of every body.
    Flips,
    /// Of right form, but shorter or for something else.
    Shortens,
    /// Answers everything with a cookie, and with nothing else.
    Cookies,
    Refuses(Reason),
}

struct Source {
    publisher: Publisher<Shelf>,
    secret: u8,
    manner: Manner,
    /// Something reached the receiver in its name that it had not sent.
    dirty: bool,
    refused: bool,
    banned: bool,
}

/// An answer on its way: on which path, the payload, whether it is what the source sent.
#[derive(Clone)]
struct Answer {
    path: usize,
    bytes: Vec<u8>,
    clean: bool,
}

struct World {
    now: Time,
    subscriber: Subscriber,
    shelf: Shelf,
    sources: Vec<Source>,
    /// The source of each path, and the largest answer that it carries.
    paths: Vec<(usize, usize)>,
    have: BTreeSet<u64>,
    requests: VecDeque<(usize, Vec<u8>)>,
    answers: Vec<Answer>,
    got: BTreeSet<u64>,
    /// The paths whose cache was named.
    poisoned: BTreeSet<usize>,
    complete: bool,
    wait: Time,
}

impl World {
    fn id(&self) -> ContentId {
        self.shelf.0.1.id()
    }

    fn drain(&mut self) {
        let before: Vec<u32> = self.subscriber.paths().map(|path| path.in_flight).collect();
        self.drain_after(&before);
    }

    /// Drains; `before` is what was pending when the receiver was last told something.
    fn drain_after(&mut self, before: &[u32]) {
        for outputs in 0.. {
            assert!(outputs < OUTPUTS_MAX, "a drain ends");
            match self.subscriber.poll(self.now) {
                Output::Wait(until) => {
                    assert!(until > self.now);
                    self.wait = until;
                    break;
                }
                Output::Send(transmit) => {
                    let state = self.subscriber.paths().nth(transmit.path).expect("a path").state;
                    assert!(
                        !matches!(state, PathState::Down | PathState::Closed),
                        "sent on a path that is {state:?}"
                    );
                    assert!(matches!(
                        wire::parse(&transmit.bytes),
                        Ok(Packet::Request(_) | Packet::Probe { .. })
                    ));
                    self.requests.push_back((transmit.path, transmit.bytes));
                }
                Output::Event(event) => self.event(event),
            }
        }
        for (path, before) in self.subscriber.paths().zip(before) {
            // A window that shrinks leaves more pending than it has; one probe may come on top.
            assert!(path.in_flight <= (path.cwnd + 1).max(before + 1), "{path:?}, {before} before");
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Block { download, block, bytes, cv } => {
                assert_eq!(download, 0);
                let start = block as usize * BLOCK_BYTES;
                assert!(self.shelf.0.0[start..start + self.id().block_len(block)] == bytes, "block {block}");
                let leaves = self.shelf.0.1.leaves();
                let right = leaves.get(block as usize).copied().unwrap_or(self.id().root);
                assert_eq!(cv, right);
                assert!(!self.have.contains(&block) && self.got.insert(block), "block {block} twice");
            }
            Event::Complete { download } => {
                assert!(download == 0 && !std::mem::replace(&mut self.complete, true));
                assert_eq!((self.have.len() + self.got.len()) as u64, self.id().blocks());
                assert!(self.subscriber.is_idle());
            }
            Event::Banned { source, .. } => {
                let source = &mut self.sources[usize::from(source)];
                assert!(source.dirty, "an honest source was banned");
                assert!(!std::mem::replace(&mut source.banned, true));
            }
            Event::Refused { source, .. } => {
                let source = &self.sources[usize::from(source)];
                assert!(source.refused || source.dirty);
            }
            Event::CacheDistrusted { path, node } => {
                assert!(node == NODE && self.poisoned.insert(path), "named twice, or not the one");
            }
            Event::Meta { .. } | Event::Path { .. } | Event::Groups { .. } => {}
        }
    }

    fn handle(&mut self, input: Input<'_>) {
        let before: Vec<u32> = self.subscriber.paths().map(|path| path.in_flight).collect();
        self.subscriber.handle(self.now, input);
        self.drain_after(&before);
    }

    fn advance(&mut self, to: Time) {
        self.now = self.now.max(to);
        self.drain();
    }

    /// What the source of `path` says to `request`.
    fn serve(&mut self, path: usize, request: &[u8]) -> Vec<Vec<u8>> {
        let home: SocketAddr = ([192, 0, 2, 1], 9).into();
        let (source, mtu) = self.paths[path];
        let (bytes, tree) = self.shelf.0;
        let publisher = &mut self.sources[source].publisher;
        let mut out = Vec::new();
        publisher.handle(self.now, (home.into(), request));
        while let Output::Send(reply) = publisher.poll(self.now) {
            out.extend(reply.body.packets(|_| tree, |_, range| &bytes[range]));
        }
        out.retain(|packet| packet.len() <= mtu);
        out
    }

    fn deliver(&mut self, answer: &Answer, marked: bool) {
        let Answer { path, bytes, clean } = answer;
        self.sources[self.paths[*path].0].dirty |= !clean;
        self.handle(Input::Datagrams { path: *path, bytes, stride: bytes.len(), marked });
    }
}

/// A well-formed lie in answer to `request`.
fn lie(request: &[u8], how: u8, id: ContentId) -> Option<Vec<u8>> {
    let Ok(Packet::Request(request)) = wire::parse(request) else { return None };
    let (tag, range) = (request.tag, request.ranges.last()?);
    let mut out = Vec::new();
    match (how % 8, range.kind) {
        (0, _) => wire::emit_cookie(&mut out, tag, &Cookie([how; 16])),
        (1, _) => {
            let another = ContentId { root: [how; 32], ..id };
            wire::emit_meta(&mut out, tag, &another, true, b"another");
        }
        (2, _) => wire::emit_hashes(&mut out, tag, how / 8 % 2, 0, &[[how; 32]; 2]),
        (_, RangeKind::Data(cut)) => {
            let n = range.first + u64::from(how / 8) % u64::from(range.count);
            let len = id.chunk_wire_len(n, cut)?;
            let len = if how % 8 < 6 { len } else { len.div_ceil(2) };
            wire::emit_data(&mut out, tag, cut, n, &vec![how; len], len);
        }
        (_, RangeKind::Hashes { level }) => {
            let left = tree::cvs(&id, level).saturating_sub(range.first).min(tree::PACKET_CVS as u64);
            let count = if how % 8 < 6 { left } else { left.div_ceil(2) };
            wire::emit_hashes(&mut out, tag, level, range.first, &vec![[how; 32]; count as usize]);
        }
        (_, RangeKind::Meta) => return None,
    }
    Some(out)
}

fn reason(n: u8) -> Reason {
    Reason::from_code(n % 7)
}

fn manner(n: u8) -> Manner {
    match n % 8 {
        0..3 => Manner::Honest,
        3 => Manner::Silent,
        4 => Manner::Flips,
        5 => Manner::Shortens,
        6 => Manner::Cookies,
        _ => Manner::Refuses(reason(n / 8)),
    }
}

fn begin(head: &[u8; 8]) -> World {
    let [content, sources, paths, have, m0, m1, m2, local] = *head;
    let shelf = Shelf(&CONTENTS[usize::from(content) % CONTENTS.len()]);
    let id = shelf.0.1.id();
    let mut subscriber = Subscriber::new(&[content; 32]);
    let mut world_sources = Vec::new();
    for m in &[m0, m1, m2][..usize::from(sources) % 3 + 1] {
        subscriber.add_source().expect("few sources");
        world_sources.push(Source {
            publisher: Publisher::new(shelf, [0; 32]),
            secret: 0,
            manner: manner(*m),
            dirty: false,
            refused: false,
            banned: false,
        });
    }
    let mut world_paths = Vec::new();
    for p in 0..world_sources.len() + usize::from(paths) % 3 {
        let source = p % world_sources.len();
        let control = Algorithm::by_name(if local & 1 == 0 { "nmcc" } else { "reno" }).expect("there").into();
        let payload_max = [600, 1_252, 1_472, 17_000][usize::from(local) / 2 % 4];
        let receive_buffer = if local & 8 == 0 { 1 << 22 } else { 4_096 };
        let group = if local & 16 == 0 { 0 } else { p as u32 };
        // The uplink is not known, the same for all paths, or another one for each.
        let uplink = [None, Some(0), None, Some(p as u32)][usize::from(local) / 32 % 4];
        let config = PathConfig { group, uplink, control, payload_max, receive_buffer };
        subscriber.add_path(source as u8, &config).expect("few paths");
        world_paths.push((source, usize::MAX));
    }
    // Of a large content mostly little is missing.
    let large = id.blocks() > 64 && have % 8 != 0;
    let there = |block: u64| {
        if large { (block + u64::from(have)) % 16 != 0 } else { have >> (block % 8) & 1 == 1 }
    };
    let have = (0..id.blocks()).filter(|block| there(*block)).collect();
    let download = subscriber.add_download(id, local & 32 == 0, there);
    assert_eq!(download, 0);
    World {
        now: Time::ZERO,
        subscriber,
        shelf,
        sources: world_sources,
        paths: world_paths,
        have,
        requests: VecDeque::new(),
        answers: Vec::new(),
        got: BTreeSet::new(),
        poisoned: BTreeSet::new(),
        complete: false,
        wait: Time::ZERO,
    }
}

fn operate(world: &mut World, operation: u8, x: u8, y: u8) {
    let path = usize::from(x) % world.paths.len();
    let at = (!world.answers.is_empty()).then(|| usize::from(x) % world.answers.len().max(1));
    match operation % 24 {
        0 => world.advance(world.now + Span::from_millis(u64::from(x))),
        1 => world.advance(world.now + Span::from_micros(u64::from(x) * 256 + u64::from(y))),
        2 if world.wait < Time::ZERO + Span::from_secs(1_000) => world.advance(world.wait),
        2 => world.advance(world.now + Span::from_secs(u64::from(x))),
        // Requests are answered, lost, answered by a lie or refused.
        3..7 => {
            for _ in 0..=y % 16 {
                let Some((path, request)) = world.requests.pop_front() else { break };
                if world.answers.len() < WIRE_MAX {
                    let packets = world.serve(path, &request);
                    world.answers.extend(packets.into_iter().map(|bytes| Answer {
                        path,
                        bytes,
                        clean: true,
                    }));
                }
            }
        }
        7 if y & 1 == 1 => {
            // A cache answers, rightly or not. Where it may not, its source is to blame for it.
            if let Some((path, request)) = world.requests.pop_front()
                && let Ok(Packet::Request(asked)) = wire::parse(&request)
            {
                for mut bytes in world.serve(path, &request) {
                    let mut clean = true;
                    if matches!(wire::parse(&bytes), Ok(Packet::Data(_) | Packet::Hashes(_))) {
                        wire::set_responder(&mut bytes, NODE);
                        if y & 2 != 0 {
                            let last = bytes.len() - 1;
                            bytes[last] ^= 1;
                            clean = !asked.no_caches;
                        }
                    }
                    if world.answers.len() < WIRE_MAX {
                        world.answers.push(Answer { path, bytes, clean });
                    }
                }
            }
        }
        7 => drop(world.requests.pop_front()),
        8 => {
            if let Some((path, request)) = world.requests.pop_front()
                && let Some(bytes) = lie(&request, y, world.id())
            {
                world.answers.push(Answer { path, bytes, clean: false });
            }
        }
        9 => {
            if let Some((path, request)) = world.requests.pop_front()
                && let Ok(Packet::Request(request)) = wire::parse(&request)
            {
                let mut bytes = Vec::new();
                wire::emit_refuse(&mut bytes, request.tag, reason(y), u16::from(x) * 50);
                world.sources[world.paths[path].0].refused |= reason(y) != Reason::Busy;
                world.answers.push(Answer { path, bytes, clean: true });
            }
        }
        // Answers arrive, in order or not, once or twice, or not at all, whole or not.
        10..13 => {
            for answer in world.answers.drain(..world.answers.len().min(usize::from(x))).collect::<Vec<_>>() {
                world.deliver(&answer, false);
            }
        }
        13 => {
            // Several at once, as a socket with GRO hands them over.
            let Some(first) = world.answers.first().cloned() else { return };
            let same = |a: &&Answer| a.path == first.path && a.bytes.len() == first.bytes.len() && a.clean;
            let count = world.answers.iter().take_while(same).count();
            let bytes: Vec<u8> = world.answers.drain(..count).flat_map(|answer| answer.bytes).collect();
            let marked = y & 1 == 1;
            if count > 0 {
                world.handle(Input::Datagrams {
                    path: first.path,
                    bytes: &bytes,
                    stride: first.bytes.len(),
                    marked,
                });
            }
        }
        14 => {
            if let Some(at) = at {
                let answer = world.answers.remove(at);
                world.deliver(&answer, y & 1 == 1);
            }
        }
        15 => {
            if let Some(at) = at {
                let answer = world.answers[at].clone();
                world.deliver(&answer, false);
            }
        }
        16 => drop(at.map(|at| world.answers.remove(at))),
        17 => {
            if let Some(at) = at {
                let answer = &mut world.answers[at];
                answer.clean = false;
                let len = answer.bytes.len();
                let place = if y & 4 == 0 { usize::from(y) % len } else { len - 1 - usize::from(y) % len };
                match y % 4 {
                    0 | 1 => answer.bytes[place] ^= 1 << (x % 8),
                    2 => answer.bytes.truncate(place.max(1)),
                    _ => answer.bytes.resize(len + usize::from(x), y),
                }
            }
        }
        18 => {
            let bytes: Vec<u8> = (0..x).map(|i| if i % 32 == 0 { 1 } else { i.wrapping_mul(y) }).collect();
            world.sources[world.paths[path].0].dirty = true;
            world.handle(Input::Datagrams {
                path,
                bytes: &bytes,
                stride: usize::from(y),
                marked: y & 1 == 1,
            });
        }
        19 => world.handle(Input::Unreachable { path }),
        20 => world.handle(Input::Down { path }),
        21 => world.handle(Input::Up { path }),
        22 => {
            // Restarted: it knows its old cookies no more.
            let source = world.paths[path].0;
            let source = &mut world.sources[source];
            source.secret = source.secret.wrapping_add(1);
            source.publisher = Publisher::new(world.shelf, [source.secret; 32]);
        }
        // Not under what the smallest IPv6 MTU leaves: packets of hashes have one size.
        _ => world.paths[path].1 = [usize::MAX, 1_300, 1_252, 1_200][usize::from(y) % 4],
    }
}

/// From here on every source does what is its manner. If one is honest, the content arrives.
fn finish(world: &mut World) {
    let honest = |source: &Source| source.manner == Manner::Honest && !source.dirty && !source.refused;
    let hopeful = world.sources.iter().any(honest);
    for path in 0..world.paths.len() {
        if honest(&world.sources[world.paths[path].0]) {
            world.handle(Input::Up { path });
        }
    }
    world.answers.clear();
    // What was asked and not answered is lost.
    world.requests.clear();
    let start = world.now;
    let mut wire: BTreeMap<(Time, usize), (usize, Vec<u8>)> = BTreeMap::new();
    let (mut events, mut sent) = (0, 0);
    world.advance(world.now);
    while !world.complete {
        events += 1;
        let steps_max = if hopeful { STEPS_MAX } else { STEPS_HOPELESS };
        if events == steps_max || world.now.since(start) > PATIENCE {
            let sources: Vec<_> =
                world.sources.iter().map(|s| (s.manner, s.dirty, s.refused, s.banned)).collect();
            let paths: Vec<_> = world.subscriber.paths().collect();
            assert!(
                !hopeful,
                "incomplete after {events} steps, {:?}: {} blocks left, {sources:?}, {paths:#?}",
                world.now.since(start),
                world.subscriber.blocks_left(0),
            );
            return;
        }
        while let Some((path, request)) = world.requests.pop_front() {
            let rtt = Span::from_millis([10, 25, 60, 3, 11][path % 5]);
            let manner = world.sources[world.paths[path].0].manner;
            let answers = match manner {
                Manner::Silent => Vec::new(),
                Manner::Honest => world.serve(path, &request),
                Manner::Flips => {
                    let mut packets = world.serve(path, &request);
                    for last in packets.iter_mut().filter_map(|packet| packet.get_mut(40)) {
                        *last ^= 1;
                    }
                    packets
                }
                Manner::Shortens => {
                    [1, 2, 6].iter().filter_map(|how| lie(&request, *how, world.id())).collect()
                }
                Manner::Cookies => lie(&request, 0, world.id()).into_iter().collect(),
                Manner::Refuses(reason) => {
                    let mut out = Vec::new();
                    let tag = wire::peek(&request).expect("a packet").tag;
                    wire::emit_refuse(&mut out, tag, reason, 20);
                    vec![out]
                }
            };
            let source = &mut world.sources[world.paths[path].0];
            source.refused |= matches!(manner, Manner::Refuses(reason) if reason != Reason::Busy);
            source.dirty |= !matches!(manner, Manner::Honest | Manner::Silent | Manner::Refuses(_));
            for answer in answers {
                sent += 1;
                wire.insert((world.now + rtt, sent), (path, answer));
            }
        }
        let next = wire.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at);
        if next <= world.wait && next < Time::NEVER {
            let Some((_, (path, bytes))) = wire.pop_first() else { return };
            world.now = world.now.max(next);
            world.handle(Input::Datagrams { path, bytes: &bytes, stride: bytes.len(), marked: false });
        } else if world.wait < Time::NEVER {
            world.advance(world.wait);
        } else {
            assert!(!hopeful, "waits for nothing: {:#?}", world.subscriber.paths().collect::<Vec<_>>());
            return;
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((head, rest)) = bytes.split_first_chunk::<8>() else { return };
    let mut world = begin(head);
    world.drain();
    for &[operation, x, y] in rest.as_chunks::<3>().0.iter().take(400) {
        operate(&mut world, operation, x, y);
    }
    finish(&mut world);
});
