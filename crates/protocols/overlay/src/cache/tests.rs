use std::collections::BTreeMap;

use anabranch_mmtp::id::{BLOCK_BYTES, ChunksPerBlock, SEGMENT_BLOCKS};
use anabranch_mmtp::tree::Outboard;
use proptest::prelude::*;

use super::*;

const NODE: u16 = 7;
const CUT: u8 = 14;
const HERE: WayBack = WayBack([1; _]);
const THERE: WayBack = WayBack([2; _]);
const COOKIE: Cookie = Cookie([0xc0; 16]);

fn cut() -> ChunksPerBlock {
    ChunksPerBlock::new(CUT).expect("in range")
}

/// Returns a content of `len` bytes that no other seed gives, and its hash tree.
fn content(seed: u8, len: usize) -> (Vec<u8>, Outboard) {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
    let tree = Outboard::of_bytes(&bytes);
    (bytes, tree)
}

fn data_packet(tag: u64, id: &ContentId, bytes: &[u8], chunk: u64) -> Vec<u8> {
    data_packet_of(cut(), tag, id, bytes, chunk)
}

fn data_packet_of(cut: ChunksPerBlock, tag: u64, id: &ContentId, bytes: &[u8], chunk: u64) -> Vec<u8> {
    let (block, offset, len) = id.chunk_extent(chunk, cut).expect("it exists");
    let start = block as usize * BLOCK_BYTES + offset;
    let wire_len = id.chunk_wire_len(chunk, cut).expect("it exists");
    let mut packet = Vec::new();
    wire::emit_data(&mut packet, tag, cut, chunk, &bytes[start..start + len], wire_len);
    packet
}

fn request(tag: u64, cookie: Option<&Cookie>, id: &ContentId, ranges: &[Range]) -> Vec<u8> {
    let mut packet = Vec::new();
    wire::emit_request(&mut packet, tag, cookie, true, id, ranges);
    packet
}

fn chunks(first: u64, count: u16) -> Range {
    Range { kind: RangeKind::Data(cut()), first, count }
}

/// Lets the receiver at `way_back` prove its address.
fn prove(cache: &mut PacketCache, way_back: &WayBack, id: &ContentId) {
    assert_eq!(cache.request(Time::ZERO, way_back, &request(1, None, id, &[chunks(0, 1)])), Answer::PassOn);
    let mut cookie = Vec::new();
    wire::emit_cookie(&mut cookie, 1, &COOKIE);
    cache.reply(Time::ZERO, way_back, &cookie);
}

/// Returns a cache that has seen the chunks `which` go to [`HERE`], and the page of hashes, if there is one.
fn filled(policy: Policy, which: &[u64], id: &ContentId, bytes: &[u8], tree: &Outboard) -> PacketCache {
    let mut cache = PacketCache::new(policy, 4 << 20, NodeId(u32::from(NODE)));
    prove(&mut cache, &HERE, id);
    for chunk in which {
        cache.reply(Time::ZERO, &HERE, &data_packet(1, id, bytes, *chunk));
    }
    for first in (0..tree.leaves().len()).step_by(PACKET_CVS) {
        let cvs = &tree.leaves()[first..tree.leaves().len().min(first + PACKET_CVS)];
        let mut packet = Vec::new();
        wire::emit_hashes(&mut packet, 1, 0, first as u64, cvs);
        cache.reply(Time::ZERO, &HERE, &packet);
    }
    cache
}

#[test]
fn what_is_here_is_answered_and_the_rest_goes_on() {
    let (bytes, tree) = content(1, 700_000);
    let id = tree.id();
    for policy in [Policy::Lru, Policy::Opc] {
        let mut cache = filled(policy, &[0, 1, 2, 3, 4], &id, &bytes, &tree);
        assert_eq!(cache.counters().learnt, 5 + 2);
        let hashes = Range { kind: RangeKind::Hashes { level: 0 }, first: 0, count: 43 };
        let meta = Range { kind: RangeKind::Meta, first: 0, count: 1 };
        let asked = request(9, Some(&COOKIE), &id, &[meta, hashes, chunks(3, 5)]);
        let Answer::Hit { replies, ect: true, rest: Some(rest) } = cache.request(Time::ZERO, &HERE, &asked)
        else {
            panic!("{policy:?}")
        };
        assert_eq!(replies.len(), 4);
        for reply in &replies {
            assert_eq!(reply[..WAY_BACK_BYTES], HERE.0);
            match wire::parse(&reply[WAY_BACK_BYTES..]) {
                Ok(Packet::Data(data)) => {
                    assert_eq!((data.tag, data.responder), (9, Some(NODE)));
                    let good = data_packet(9, &id, &bytes, data.chunk);
                    assert!((3..5).contains(&data.chunk) && data.payload == &good[DATA_HEADER..]);
                }
                Ok(Packet::Hashes(hashes)) => {
                    assert_eq!((hashes.tag, hashes.responder, hashes.level), (9, Some(NODE), 0));
                    let first = hashes.first as usize;
                    assert_eq!(hashes.cvs, &tree.leaves()[first..first + hashes.cvs.len()]);
                }
                other => panic!("{other:?}"),
            }
        }
        let Ok(Packet::Request(rest)) = wire::parse(&rest) else { panic!() };
        assert_eq!((rest.tag, rest.cookie, rest.ect, rest.content), (9, Some(COOKIE), true, id));
        assert_eq!(rest.ranges.collect::<Vec<_>>(), [meta, chunks(5, 3)]);
        let all = cache.request(Time::ZERO, &HERE, &request(10, Some(&COOKIE), &id, &[chunks(0, 5)]));
        assert!(matches!(all, Answer::Hit { rest: None, ref replies, .. } if replies.len() == 5));
    }
}

/// Chunks that came under another cut answer a request under any cut. If some of the bytes are missing, the
/// source answers.
#[test]
fn a_chunk_is_put_together_from_those_of_another_cut() {
    for (len, policy) in
        [(40_000, Policy::Lru), (40_000, Policy::Opc), (16_384, Policy::Lru), (5, Policy::Opc)]
    {
        let (bytes, tree) = content(1, len);
        let id = tree.id();
        let all: Vec<u64> = (0..id.chunks(cut())).collect();
        let mut cache = filled(policy, &all, &id, &bytes, &tree);
        for cut in (1..=64).filter_map(ChunksPerBlock::new) {
            for chunk in 0..id.chunks(cut) {
                let range = Range { kind: RangeKind::Data(cut), first: chunk, count: 1 };
                let asked = request(9, Some(&COOKIE), &id, &[range]);
                let answer = cache.request(Time::ZERO, &HERE, &asked);
                let Answer::Hit { mut replies, rest: None, .. } = answer else { panic!("{cut:?} {chunk}") };
                let mut reply = replies.pop().expect("one");
                reply.drain(..WAY_BACK_BYTES);
                let mut good = data_packet_of(cut, 9, &id, &bytes, chunk);
                wire::set_responder(&mut good, NODE);
                assert_eq!(reply, good, "{cut:?} {chunk}");
            }
        }
    }
    let (bytes, tree) = content(1, 40_000);
    let mut cache = filled(Policy::Lru, &[0, 2, 3], &tree.id(), &bytes, &tree);
    // Chunks of 1,171 bytes are here; chunks of 586 bytes that reach into others are not.
    let range = |first, count| {
        let cut = ChunksPerBlock::new(28).expect("in range");
        Range { kind: RangeKind::Data(cut), first, count }
    };
    let asked = request(9, Some(&COOKIE), &tree.id(), &[range(0, 8)]);
    let Answer::Hit { replies, rest: Some(rest), .. } = cache.request(Time::ZERO, &HERE, &asked) else {
        panic!()
    };
    let Ok(Packet::Request(rest)) = wire::parse(&rest) else { panic!() };
    assert_eq!((replies.len(), rest.ranges.collect::<Vec<_>>()), (4, vec![range(1, 3), range(7, 1)]));
}

#[test]
fn who_has_not_shown_where_it_is_gets_nothing() {
    let (bytes, tree) = content(1, 100_000);
    let id = tree.id();
    let mut cache = filled(Policy::Lru, &[0, 1, 2], &id, &bytes, &tree);
    let with = |cookie: Option<&Cookie>| request(9, cookie, &id, &[chunks(0, 3)]);
    let late = Time::ZERO + COOKIE_LIFE + Span::from_nanos(1);
    let none = [
        (HERE, with(None), Time::ZERO),
        (HERE, with(Some(&Cookie([1; 16]))), Time::ZERO),
        (THERE, with(Some(&COOKIE)), Time::ZERO),
        (HERE, with(Some(&COOKIE)), late),
    ];
    for (way_back, packet, now) in none {
        assert_eq!(cache.request(now, &way_back, &packet), Answer::PassOn);
    }
    // A cookie that does not answer a request from there proves nothing: a sender of such cookies could aim
    // the cache at others.
    let mut cookie = Vec::new();
    wire::emit_cookie(&mut cookie, 77, &COOKIE);
    cache.reply(Time::ZERO, &THERE, &cookie);
    assert_eq!(cache.request(Time::ZERO, &THERE, &with(Some(&COOKIE))), Answer::PassOn);
    assert_eq!(cache.counters().unproven, 1 + 4 + 1);
    // A request that forbids caches is not answered, and neither is a packet that no cache may answer.
    let mut forbidden = with(Some(&COOKIE));
    wire::set_no_caches(&mut forbidden);
    assert_eq!(cache.request(Time::ZERO, &HERE, &forbidden), Answer::PassOn);
    let mut probe = Vec::new();
    wire::emit_probe(&mut probe, 9, Some(&COOKIE), 1_400);
    let beyond = request(9, Some(&COOKIE), &id, &[chunks(0, 3), chunks(1 << 40, 1)]);
    let too_much = request(9, Some(&COOKIE), &id, &[chunks(0, 3), chunks(0, 62)]);
    for packet in [&probe[..], &beyond, &too_much, b"", &[1; 40]] {
        assert_eq!(cache.request(Time::ZERO, &HERE, packet), Answer::PassOn);
    }
    assert!(matches!(cache.request(Time::ZERO, &HERE, &with(Some(&COOKIE))), Answer::Hit { rest: None, .. }));
    // A node with this number cannot be named in an answer.
    let mut nameless = PacketCache::new(Policy::Lru, 1 << 20, NodeId(65_536));
    prove(&mut nameless, &HERE, &id);
    nameless.reply(Time::ZERO, &HERE, &data_packet(1, &id, &bytes, 0));
    assert_eq!(nameless.request(Time::ZERO, &HERE, &with(Some(&COOKIE))), Answer::PassOn);
}

#[test]
fn what_nobody_asked_for_is_not_learnt() {
    let (bytes, tree) = content(1, 100_000);
    let id = tree.id();
    let mut cache = filled(Policy::Lru, &[], &id, &bytes, &tree);
    let learnt = cache.counters().learnt;
    let mut packet = data_packet(1, &id, &bytes, 0);
    cache.reply(Time::ZERO, &THERE, &packet);
    cache.reply(Time::ZERO, &HERE, &data_packet(2, &id, &bytes, 0));
    cache.reply(Time::ZERO, &HERE, &packet[..packet.len() - 1]);
    packet.truncate(0);
    wire::emit_data(&mut packet, 1, cut(), 1 << 30, &[0; 100], 100);
    cache.reply(Time::ZERO, &HERE, &packet);
    assert_eq!(cache.counters().learnt, learnt);
}

#[test]
fn the_sources_answer_takes_the_place_of_a_poisoned_one() {
    let (bytes, tree) = content(1, 100_000);
    let id = tree.id();
    for policy in [Policy::Lru, Policy::Opc] {
        let mut poison = bytes.clone();
        poison[0] ^= 1;
        let mut cache = filled(policy, &[0, 1, 2], &id, &poison, &tree);
        let stored = cache.stored_bytes();
        // The receiver asks past the cache.
        let mut past = request(8, Some(&COOKIE), &id, &[chunks(0, 1)]);
        wire::set_no_caches(&mut past);
        assert_eq!(cache.request(Time::ZERO, &HERE, &past), Answer::PassOn);
        cache.reply(Time::ZERO, &HERE, &data_packet(8, &id, &bytes, 0));
        assert_eq!(cache.stored_bytes(), stored);
        let answer = cache.request(Time::ZERO, &HERE, &request(9, Some(&COOKIE), &id, &[chunks(0, 3)]));
        let Answer::Hit { replies, rest: None, .. } = answer else { panic!() };
        assert_eq!(replies[0][WAY_BACK_BYTES + DATA_HEADER..], data_packet(9, &id, &bytes, 0)[DATA_HEADER..]);
    }
}

#[test]
fn a_bounded_map_forgets_the_oldest() {
    let mut map = BoundedMap::new(2);
    for (key, value) in [(1, 'a'), (2, 'b'), (1, 'c'), (3, 'd')] {
        map.insert(key, value);
    }
    assert_eq!([1, 2, 3].map(|key| map.get(&key).copied()), [None, Some('b'), Some('d')]);
}

/// Returns a key of a small world: two contents whose chunks are numbered under a cut of 1.
fn key(content: u8, chunk: u64) -> ChunkKey {
    let id = ContentId { root: [content; 32], length: 1 << 30 };
    ChunkKey { content: id, cut: ChunksPerBlock::new(1).expect("in range"), chunk }
}

/// Returns the bytes of a chunk, in one of several versions.
fn some_bytes(key: &ChunkKey, version: u8) -> Vec<u8> {
    vec![key.content.root[0] ^ key.chunk as u8 ^ version; 100 + key.chunk as usize % 7]
}

proptest! {
    #[test]
    fn opc_keeps_runs_from_the_first_chunk_on(
        capacity in 0_usize..9_000,
        by_segment: bool,
        // Bursts of consecutive chunks, as a receiver asks for them.
        bursts in prop::collection::vec((any::<bool>(), 1_u8..3, 0_u64..200, 1_u64..30, 0_u8..2), 1..120),
    ) {
        let mut opc = if by_segment { Opc::of_segments(capacity) } else { Opc::of_contents(capacity) };
        let mut model: BTreeMap<ChunkKey, Vec<u8>> = BTreeMap::new();
        let per_object = if by_segment { SEGMENT_BLOCKS } else { 1 << 40 };
        for (asks, content, first, count, version) in bursts {
            for chunk in first..first + count {
                let (key, object, before) = (key(content, chunk), chunk / per_object, opc.by_use());
                let is_it = |run: &&(u8, u64, usize)| (run.0, run.1) == (content, object);
                let here = before.iter().find(is_it).map_or(0, |run| run.2 as u64);
                if asks {
                    // A hit is a chunk of the run with the right bytes. Its object is then the last to lose a
                    // chunk.
                    let hit = opc.get(&key).map(<[u8]>::to_vec);
                    prop_assert_eq!(hit.is_some(), chunk % per_object < here);
                    prop_assert_eq!(hit.as_ref(), model.get(&key).filter(|_| hit.is_some()));
                    if hit.is_some() {
                        prop_assert!(opc.by_use().last().is_some_and(|run| is_it(&run)));
                    } else {
                        prop_assert_eq!(opc.by_use(), before);
                    }
                } else {
                    let bytes = some_bytes(&key, version);
                    let took = opc.insert(&key, &bytes);
                    let after = opc.by_use();
                    let len = after.iter().find(is_it).map_or(0, |run| run.2 as u64);
                    if took {
                        model.insert(key, bytes);
                        let next = chunk % per_object == here;
                        prop_assert!(next || chunk % per_object < here);
                        prop_assert_eq!(len, here + u64::from(next));
                    } else {
                        prop_assert_eq!(len, here);
                    }
                    // Other objects lose their ends, in this order, and no object changes its position.
                    let others = |runs: &[(u8, u64, usize)]| -> Vec<_> {
                        runs.iter().filter(|run| !is_it(run)).copied().collect()
                    };
                    let (before, after) = (others(&before), others(&after));
                    let gone = before.len() - after.len();
                    for (i, (a, b)) in before[gone..].iter().zip(&after).enumerate() {
                        prop_assert!((a.0, a.1) == (b.0, b.1) && (a.2 == b.2 || (i == 0 && a.2 > b.2)));
                    }
                }
                opc.check();
                prop_assert!(opc.stored() <= capacity);
            }
        }
    }

    #[test]
    fn lru_keeps_what_was_used_last(
        capacity in 0_usize..4_000,
        steps in prop::collection::vec((any::<bool>(), 0_u64..40, 0_u8..2), 1..300),
    ) {
        let mut lru = Lru::new(capacity);
        // The keys by use, the last one first, with their bytes.
        let mut model: Vec<(u64, Vec<u8>)> = Vec::new();
        for (asks, chunk, version) in steps {
            let at = model.iter().position(|(key, _)| *key == chunk);
            if asks {
                let bytes = lru.get(&chunk).map(<[u8]>::to_vec);
                prop_assert_eq!(bytes.as_ref(), at.map(|at| &model[at].1));
                if let Some(at) = at {
                    let used = model.remove(at);
                    model.insert(0, used);
                }
            } else {
                let bytes = some_bytes(&key(1, chunk), version);
                let new = at.is_none_or(|at| model[at].1 != bytes);
                if let Some(at) = at {
                    model.remove(at);
                }
                let fits = bytes.len() + 192 <= capacity;
                if fits {
                    model.insert(0, (chunk, bytes.clone()));
                }
                prop_assert_eq!(lru.insert(chunk, &bytes), new && fits);
                let size = |model: &[(u64, Vec<u8>)]| -> usize {
                    model.iter().map(|(_, bytes)| bytes.len() + 192).sum()
                };
                while size(&model) > capacity {
                    model.pop();
                }
                prop_assert_eq!(lru.stored(), size(&model));
            }
            lru.check();
        }
    }

    #[test]
    fn any_bytes(
        requests in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..120)), 0..40),
    ) {
        let mut cache = PacketCache::new(Policy::Opc, 10_000, NodeId(1));
        for (asks, mut bytes) in requests {
            if let [version, kind, ..] = &mut bytes[..] {
                (*version, *kind) = (1, *kind % 9);
            }
            if asks {
                prop_assert_eq!(cache.request(Time::ZERO, &HERE, &bytes), Answer::PassOn);
            } else {
                cache.reply(Time::ZERO, &HERE, &bytes);
            }
        }
    }
}

/// The rules of the paper, one by one.
#[test]
fn opc_by_hand() {
    let size = |chunks: u64| -> usize { (0..chunks).map(|i| some_bytes(&key(1, i), 0).len() + 32).sum() };
    // Room for two objects of three chunks each, and a few bytes.
    let mut opc = Opc::of_segments(2 * (192 + size(3)) + 40);
    let put = |opc: &mut Opc, chunk: u64| opc.insert(&key(1, chunk), &some_bytes(&key(1, chunk), 0));
    assert!(!put(&mut opc, 1), "not the first");
    assert!(put(&mut opc, 0) && !put(&mut opc, 2) && put(&mut opc, 1) && put(&mut opc, 2));
    assert!(!put(&mut opc, 1), "it is here");
    for chunk in 0..3 {
        assert!(put(&mut opc, SEGMENT_BLOCKS + chunk));
    }
    assert_eq!(opc.by_use(), [(1, 0, 3), (1, 1, 3)], "a chunk that comes in is no use of its object");
    assert!(!put(&mut opc, 3), "an object makes no room for itself");
    assert!(opc.get(&key(1, 1)).is_some() && opc.get(&key(1, 7)).is_none());
    assert_eq!(opc.by_use(), [(1, 1, 3), (1, 0, 3)], "a hit is");
    assert!(put(&mut opc, 3));
    assert_eq!(opc.by_use(), [(1, 1, 2), (1, 0, 4)], "from the end of the other");
    assert!(put(&mut opc, 2 * SEGMENT_BLOCKS));
    assert_eq!(opc.by_use(), [(1, 0, 4), (1, 2, 1)]);
    opc.check();
}
