//! Any packets past a forwarder's cache: it answers only who has shown where it is and does not forbid it,
//! with what was asked for and has passed, within the limits of a source; what it does not answer goes on.
#![no_main]

use std::collections::BTreeMap;

use anabranch_algo::{Span, Time};
use libfuzzer_sys::fuzz_target;
use anabranch_mmtp::cookie::{EPOCH, EPOCHS_VALID};
use anabranch_mmtp::peer::{WAY_BACK_BYTES, WayBack};
use anabranch_mmtp::publisher::{REPLY_BYTES_MAX, REPLY_PACKETS_MAX};
use anabranch_mmtp::tree::{self, PACKET_CVS};
use anabranch_mmtp::wire::{self, Cookie, Packet, Range, RangeKind};
use anabranch_mmtp::{ChunksPerBlock, ContentId};
use anabranch_overlay::cache::{Answer, PacketCache, Policy};
use anabranch_topology::graph::NodeId;

const NODE: u16 = 300;
const CAPACITY: usize = 60_000;

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }
}

impl Iterator for Bytes<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
}

fn content(n: u8) -> ContentId {
    let length = [0, 9, 50_000, 70 << 20][usize::from(n % 4)];
    ContentId { root: [n % 4; 32], length }
}

fn cut(n: u8) -> ChunksPerBlock {
    ChunksPerBlock::new([1, 12, 64][usize::from(n % 3)]).expect("in range")
}

fn range(bytes: &mut Bytes<'_>) -> Range {
    let [kind, first, count] = [0; 3].map(|_| bytes.byte());
    let kind = match kind % 8 {
        0 => RangeKind::Meta,
        1 | 2 => RangeKind::Hashes { level: kind / 8 % 3 },
        _ => RangeKind::Data(cut(kind / 8)),
    };
    // Near the beginning, near the end of a segment, and near the end of all numbers.
    let first = match first {
        0..200 => u64::from(first) % 70,
        200..250 => 64 * u64::from(first) - 40,
        _ => wire::NUMBER_END - 1 - u64::from(first - 250),
    };
    let count = if count > 250 { u16::MAX } else { u16::from(count % 40) + 1 };
    let room = u16::try_from(wire::NUMBER_END - first).unwrap_or(u16::MAX);
    Range { kind, first, count: count.min(room) }
}

/// One packet that a range asks for: kind, first, count.
type Item = (RangeKind, u64, u16);

/// The packets that ranges ask for, at most 200.
fn items(ranges: impl Iterator<Item = Range>) -> Vec<Item> {
    let one = |range: Range| {
        let end = range.first + u64::from(range.count);
        let (step, single) = match range.kind {
            RangeKind::Data(_) => (1, 1),
            RangeKind::Hashes { .. } => (PACKET_CVS, PACKET_CVS as u64),
            RangeKind::Meta => (usize::from(range.count), u64::from(range.count)),
        };
        let starts = (range.first..end).step_by(step);
        starts.map(move |first| (range.kind, first, (end - first).min(single) as u16)).take(200)
    };
    let mut items: Vec<Item> = ranges.flat_map(one).take(200).collect();
    items.sort_unstable_by_key(|(kind, first, count)| (format!("{kind:?}"), *first, *count));
    items
}

/// The payload of a chunk or of chaining values, at some version of it: what is right, nobody on the way
/// knows.
fn payload(len: usize, first: u64, version: u8) -> Vec<u8> {
    vec![first as u8 ^ version; len]
}

/// What passed of each item of a content.
type Passed = BTreeMap<(ContentId, u8, u8, u64), Vec<u8>>;

/// A chunk, put together from what passed of each other cut, byte for byte; at the end the zeros of the wire.
fn of_other_cuts(passed: &Passed, id: &ContentId, cut: ChunksPerBlock, chunk: u64) -> Vec<Vec<u8>> {
    let Some((block, start, len)) = id.chunk_extent(chunk, cut) else { return Vec::new() };
    let byte = |other: ChunksPerBlock, at: usize| {
        let within = at / other.chunk_bytes();
        let number = block * u64::from(other.get()) + within as u64;
        passed.get(&(*id, 0, other.get(), number))?.get(at - within * other.chunk_bytes()).copied()
    };
    let whole = |other| {
        let mut bytes = (start..start + len).map(|at| byte(other, at)).collect::<Option<Vec<u8>>>()?;
        bytes.resize(id.chunk_wire_len(chunk, cut)?, 0);
        Some(bytes)
    };
    (0..3).map(self::cut).filter(|other| *other != cut).filter_map(whole).collect()
}

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = Bytes(bytes);
    let policy = [Policy::Lru, Policy::Opc, Policy::OpcByContent][usize::from(bytes.byte() % 3)];
    let mut cache = PacketCache::new(policy, CAPACITY, NodeId(u32::from(NODE)));
    let mut now = Time::ZERO;
    // Requests that went on: their content; cookies that were sent; what passed of each item.
    let mut requests: BTreeMap<(u64, u8), ContentId> = BTreeMap::new();
    let mut cookies: BTreeMap<(u8, u8), Time> = BTreeMap::new();
    let mut passed = Passed::new();
    while let Some(operation) = bytes.next() {
        let who = bytes.byte() % 3;
        let way_back = WayBack([who; WAY_BACK_BYTES]);
        let tag = u64::from(bytes.byte() % 8);
        match operation % 8 {
            0 => {
                now = now + Span::from_secs(u64::from(bytes.byte()) * 30);
            }
            1 => {
                let cookie = bytes.byte() % 4;
                let mut packet = Vec::new();
                wire::emit_cookie(&mut packet, tag, &Cookie([cookie; 16]));
                cache.reply(now, &way_back, &packet);
                if requests.contains_key(&(tag, who)) {
                    cookies.insert((cookie, who), now);
                }
            }
            2 => {
                let len = usize::from(bytes.byte());
                let packet: Vec<u8> = bytes.by_ref().take(len).collect();
                if matches!(wire::parse(&packet), Err(_) | Ok(Packet::Meta(_) | Packet::Probe { .. })) {
                    assert_eq!(cache.request(now, &way_back, &packet), Answer::PassOn);
                    cache.reply(now, &way_back, &packet);
                }
            }
            3 | 4 => {
                let [first, version, which] = [0; 3].map(|_| bytes.byte());
                let first = if first > 250 { u64::MAX >> 8 } else { u64::from(first) % 70 };
                let Some(id) = requests.get(&(tag, who)).copied() else { continue };
                let mut packet = Vec::new();
                let key = if which % 4 == 0 {
                    let level = which / 4 % 3;
                    let end = if level < tree::levels(&id) { tree::cvs(&id, level) } else { 0 };
                    let count = end.saturating_sub(first).min(PACKET_CVS as u64) as usize;
                    let wrong = usize::from(version > 240);
                    let cvs = payload(32 * (count + wrong).clamp(1, PACKET_CVS), first, version);
                    wire::emit_hashes(&mut packet, tag, level, first, cvs.as_chunks().0);
                    (count * 32 == cvs.len()).then_some(((id, 0x80 | level, 0, first), cvs))
                } else {
                    let cut = cut(which / 4);
                    let len = id.chunk_wire_len(first, cut);
                    let sent = payload(len.unwrap_or(100) - usize::from(version > 240), first, version);
                    if sent.is_empty() {
                        continue;
                    }
                    wire::emit_data(&mut packet, tag, cut, first, &sent, sent.len());
                    (len == Some(sent.len())).then_some(((id, 0, cut.get(), first), sent))
                };
                if first < 1 << 40 && version % 2 == 1 {
                    // As if another cache had sent it.
                    wire::set_responder(&mut packet, 9);
                }
                cache.reply(now, &way_back, &packet);
                if let Some((key, sent)) = key {
                    passed.insert(key, sent);
                }
            }
            _ => {
                let [id, cookie, flags, count] = [0; 4].map(|_| bytes.byte());
                let id = content(id);
                let ranges: Vec<Range> = (0..=count % 6).map(|_| range(&mut bytes)).collect();
                let proof = (flags & 3 != 0).then_some(Cookie([cookie % 4; 16]));
                let mut packet = Vec::new();
                wire::emit_request(&mut packet, tag, proof.as_ref(), flags & 4 != 0, &id, &ranges);
                if flags & 8 != 0 {
                    wire::set_no_caches(&mut packet);
                }
                let answer = cache.request(now, &way_back, &packet);
                let Answer::Hit { replies, ect, rest } = answer else {
                    requests.insert((tag, who), id);
                    continue;
                };
                let sent_at = cookies.get(&(cookie % 4, who)).expect("it was sent there");
                assert!(now.since(*sent_at) <= EPOCH.times(u64::from(EPOCHS_VALID) + 1));
                assert!(proof.is_some() && flags & 8 == 0 && ect == (flags & 4 != 0));
                assert!(!replies.is_empty() && replies.len() <= REPLY_PACKETS_MAX as usize);
                assert!(
                    replies.iter().map(|reply| reply.len() - WAY_BACK_BYTES).sum::<usize>()
                        <= REPLY_BYTES_MAX
                );
                let mut answered = Vec::new();
                for reply in &replies {
                    assert_eq!(reply[..WAY_BACK_BYTES], way_back.0);
                    let (key, got, item) = match wire::parse(&reply[WAY_BACK_BYTES..]) {
                        Ok(Packet::Data(data)) => {
                            assert_eq!((data.tag, data.responder), (tag, Some(NODE)));
                            let item = Range { kind: RangeKind::Data(data.cut), first: data.chunk, count: 1 };
                            ((id, 0, data.cut.get(), data.chunk), data.payload, item)
                        }
                        Ok(Packet::Hashes(hashes)) => {
                            assert_eq!((hashes.tag, hashes.responder), (tag, Some(NODE)));
                            let kind = RangeKind::Hashes { level: hashes.level };
                            let item = Range { kind, first: hashes.first, count: hashes.cvs.len() as u16 };
                            ((id, 0x80 | hashes.level, 0, hashes.first), hashes.cvs.as_flattened(), item)
                        }
                        other => panic!("{other:?}"),
                    };
                    let of_others = match item.kind {
                        RangeKind::Data(cut) => of_other_cuts(&passed, &id, cut, item.first),
                        _ => Vec::new(),
                    };
                    let mut known = passed.get(&key).into_iter().chain(&of_others);
                    match policy {
                        Policy::Lru => assert!(known.any(|known| known == got), "it has passed like that"),
                        _ => assert!(known.next().is_some(), "it has passed"),
                    }
                    answered.push(item);
                }
                if let Some(rest) = rest {
                    requests.insert((tag, who), id);
                    let Ok(Packet::Request(rest)) = wire::parse(&rest) else { panic!("a request") };
                    assert_eq!((rest.tag, rest.cookie, rest.ect), (tag, proof, ect));
                    assert!(rest.content == id && !rest.no_caches);
                    answered.extend(rest.ranges);
                }
                assert_eq!(items(answered.into_iter()), items(ranges.into_iter()));
            }
        }
        assert!(cache.stored_bytes() <= CAPACITY);
    }
});
