//! Joins a subscriber and publishers by a plain loop, without loss.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Machine as _, Output, Span, Time};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::publisher::{ContentInfo, ContentStore, Publisher};
use anabranch_mmtp::subscriber::{BLOCKS_OPEN_MAX, Event, Input, PathConfig, Subscriber};
use anabranch_mmtp::tree::Outboard;

struct MemoryStore<'a> {
    bytes: &'a [u8],
    tree: &'a Outboard,
}

impl ContentStore for MemoryStore<'_> {
    fn info(&self, root: &[u8; 32]) -> Option<ContentInfo<'_>> {
        let id = self.tree.id();
        (id.root == *root).then_some(ContentInfo { id, name: b"store", collection: false })
    }
}

/// Fetches `bytes` from `sources` sources at 10 ms RTT. Returns the bytes that arrived, when they were
/// complete, and the subscriber.
fn fetch(bytes: &[u8], sources: usize) -> (Vec<u8>, Time, Subscriber) {
    fetch_with(bytes, sources, |_, _| {})
}

/// Fetches `bytes` as [`fetch`] does. `each` is called before each round of the subscriber's outputs and may
/// use the subscriber.
fn fetch_with(
    bytes: &[u8],
    sources: usize,
    mut each: impl FnMut(&mut Subscriber, u32),
) -> (Vec<u8>, Time, Subscriber) {
    let tree = Outboard::of_bytes(bytes);
    let id: ContentId = tree.id();
    let home: SocketAddr = "192.0.2.1:9".parse().expect("an address");
    let mut publishers: Vec<_> =
        (0..sources).map(|_| Publisher::new(MemoryStore { bytes, tree: &tree }, [3; 32])).collect();
    let mut subscriber = Subscriber::new(&[5; 32]);
    for _ in 0..sources {
        let source = subscriber.add_source().expect("few sources");
        let control = Algorithm::by_name("nmcc").expect("it is there").into();
        let config =
            PathConfig { group: 0, uplink: None, control, payload_max: 1_472, receive_buffer: 1 << 22 };
        subscriber.add_path(source, &config).expect("few paths");
    }
    let download = subscriber.add_download(id, true, |_| false);
    let (mut now, mut arrived) = (Time::ZERO, BTreeMap::new());
    let mut wires: VecDeque<(Time, usize, bool, Vec<u8>)> = VecDeque::new();
    let mut complete = None;
    for _ in 0..200_000 {
        each(&mut subscriber, download);
        let wait = loop {
            match subscriber.poll(now) {
                Output::Wait(until) => break until,
                Output::Send(t) => wires.push_back((now + Span::from_millis(5), t.path, true, t.bytes)),
                Output::Event(Event::Block { block, bytes, .. }) => {
                    assert!(arrived.insert(block, bytes).is_none(), "block {block} came twice");
                }
                Output::Event(Event::Complete { download: o }) => {
                    assert_eq!(o, download);
                    complete = Some(now);
                }
                Output::Event(_) => {}
            }
        };
        if complete.is_some() {
            break;
        }
        match wires.pop_front() {
            Some((at, path, up, bytes)) => {
                now = now.max(at);
                if up {
                    publishers[path].handle(now, (home.into(), &bytes));
                    while let Output::Send(reply) = publishers[path].poll(now) {
                        let store = publishers[path].store();
                        for packet in reply.body.packets(|_| store.tree, |_, range| &store.bytes[range]) {
                            wires.push_back((now + Span::from_millis(5), path, false, packet));
                        }
                    }
                } else {
                    let stride = bytes.len();
                    subscriber.handle(now, Input::Datagrams { path, bytes: &bytes, stride, marked: false });
                }
            }
            None => now = now.max(wait),
        }
    }
    let complete = complete.expect("it ends");
    (arrived.into_values().flatten().collect(), complete, subscriber)
}

fn sample(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(b"sample").finalize_xof().fill(&mut bytes);
    bytes
}

#[test]
fn sizes_and_sources() {
    for len in [0, 1, 1_170, 1_171, 1_172, 16_383, 16_384, 16_385, 100_000, 1 << 20, (1 << 20) + 1, 5_000_000]
    {
        for sources in [1, 3] {
            let bytes = sample(len);
            let (got, ..) = fetch(&bytes, sources);
            assert!(got == bytes, "{len} bytes from {sources} sources");
        }
    }
}

#[test]
fn a_short_object_takes_two_round_trips_at_most() {
    let (_, at, _) = fetch(&sample(10_000), 1);
    assert!(at <= Time::ZERO + Span::from_millis(22), "{at:?}");
}

#[test]
fn nothing_is_lost_or_sent_twice_on_a_clean_path() {
    let (_, _, subscriber) = fetch(&sample(3_000_000), 1);
    for path in subscriber.paths() {
        assert_eq!(path.counters.lost, 0);
        assert_eq!(path.counters.stray, 0);
        assert_eq!(path.counters.bytes_duplicate, 0);
        assert_eq!(path.counters.timeouts, 0);
        assert!(path.chunk_bytes == 1_366, "the packet size was found: {}", path.chunk_bytes);
    }
}

/// Fetches from one path and from a source that reserves blocks and delivers them whole. With `wrong`, one of
/// its blocks is wrong.
fn lent(len: usize, wrong: bool) -> (u64, Subscriber) {
    let bytes = sample(len);
    let (mut mirror, mut brought, mut held) = (None, 0, VecDeque::new());
    let (got, _, subscriber) = fetch_with(&bytes, 1, |subscriber, download| {
        let source = *mirror.get_or_insert_with(|| subscriber.add_source().expect("few sources"));
        if held.is_empty() {
            held.extend(subscriber.reserve(source, download, 100, 10_000_000).into_iter().flatten());
        }
        // Every fourth block is released, so that it can be reserved again or asked for on the path.
        if brought % 4 == 3 && held.len() > 1 {
            let last = held.pop_back().expect("more than one");
            subscriber.release(download, last..last + 1);
        }
        if let Some(block) = held.pop_front() {
            assert!(subscriber.is_wanted(download, block));
            let start = block as usize * BLOCK_BYTES;
            let mut copy = bytes[start..(start + BLOCK_BYTES).min(len)].to_vec();
            copy[0] ^= u8::from(wrong && brought == 5);
            assert!(!subscriber.insert_block(source, download, block, &copy[1..]), "too short");
            assert!(subscriber.insert_block(source, download, block, &copy));
            assert!(!subscriber.insert_block(source, download, block, &copy) || wrong, "twice");
            brought += 1;
        }
    });
    assert!(got == bytes);
    (brought, subscriber)
}

#[test]
fn what_is_lent_comes_whole_and_is_verified() {
    for len in [100_000, 3_000_000, 20_000_001] {
        let (brought, subscriber) = lent(len, false);
        assert!(
            brought > 0 && subscriber.paths().all(|path| path.counters.bytes < len as u64),
            "{len}: both"
        );
    }
}

#[test]
fn who_delivers_a_wrong_block_can_reserve_no_more() {
    let (brought, _) = lent(5_000_000, true);
    assert!((6..240).contains(&brought), "{brought} blocks before it was found out");
}

#[test]
fn what_comes_unlent_is_taken_too_and_counted_once() {
    // A server without ranges sends the whole file, whatever other sources have been asked for.
    let bytes = sample(6_000_000);
    let blocks = bytes.len().div_ceil(BLOCK_BYTES) as u64;
    let (mut whole, mut next) = (None, 0);
    let (got, _, subscriber) = fetch_with(&bytes, 2, |subscriber, download| {
        let source = *whole.get_or_insert_with(|| subscriber.add_source().expect("few sources"));
        if next < blocks {
            let start = next as usize * BLOCK_BYTES;
            let end = (start + BLOCK_BYTES).min(bytes.len());
            subscriber.insert_block(source, download, next, &bytes[start..end]);
            next += 1;
        }
    });
    assert!(got == bytes && subscriber.is_idle());
}

#[test]
fn leaves_that_are_known_spare_the_pages() {
    let bytes = sample(10_000_000);
    let tree = Outboard::of_bytes(&bytes);
    let mut subscriber = Subscriber::new(&[1; 32]);
    let source = subscriber.add_source().expect("the first");
    let download = subscriber.add_download(tree.id(), false, |_| false);
    assert!(!subscriber.set_leaves(download, vec![[0; 32]; tree.leaves().len()]), "of another content");
    assert!(subscriber.set_leaves(download, tree.leaves().to_vec()));
    let mut here = 0;
    while let Some(blocks) = subscriber.reserve(source, download, 100, 1) {
        for block in blocks {
            let start = block as usize * BLOCK_BYTES;
            let end = (start + BLOCK_BYTES).min(bytes.len());
            assert!(subscriber.insert_block(source, download, block, &bytes[start..end]));
        }
        while let Output::Event(event) = subscriber.poll(Time::ZERO) {
            here += u64::from(matches!(event, Event::Block { .. }));
        }
    }
    assert!(subscriber.is_idle() && here == tree.id().blocks());
}

#[test]
fn nothing_is_asked_from_beyond_the_horizon() {
    let bytes = sample(10_000_000);
    let blocks = ContentId::of(&bytes).blocks();
    let (mut next, mut mirror) = (0, None);
    let (got, ..) = fetch_with(&bytes, 2, |subscriber, download| {
        let source = *mirror.get_or_insert_with(|| subscriber.add_source().expect("few sources"));
        // A reader in order moves the horizon in this way.
        let before = next + 100;
        while next < blocks && !subscriber.is_wanted(download, next) {
            next += 1;
        }
        if next == blocks {
            return;
        }
        assert!((before..blocks).all(|block| subscriber.is_wanted(download, block)));
        subscriber.set_horizon(download, next + 100);
        assert!(subscriber.blocks_unrequested(download) <= 100);
        if next + 100 < blocks {
            let start = (next + 100) as usize * BLOCK_BYTES;
            let end = (start + BLOCK_BYTES).min(bytes.len());
            assert!(!subscriber.insert_block(source, download, next + 100, &bytes[start..end]), "too early");
        }
        if let Some(reserved) = subscriber.reserve(source, download, 1_000, 1) {
            assert!(reserved.end <= next + 100);
            subscriber.release(download, reserved);
        }
    });
    assert!(got == bytes);
}

#[test]
fn no_more_is_lent_than_may_wait_for_hashes_while_no_path_answers() {
    let bytes = sample(60_000_000);
    let mut subscriber = Subscriber::new(&[1; 32]);
    let source = subscriber.add_source().expect("the first");
    let download = subscriber.add_download(ContentId::of(&bytes), false, |_| false);
    let mut lent = Vec::new();
    while let Some(blocks) = subscriber.reserve(source, download, 300, 1_000_000_000) {
        lent.push(blocks);
    }
    assert_eq!(lent.iter().map(|blocks| blocks.end - blocks.start).sum::<u64>(), BLOCKS_OPEN_MAX as u64);
    // The reservations fit, so that no block is dropped when it comes.
    for block in lent.into_iter().flatten() {
        let start = block as usize * BLOCK_BYTES;
        assert!(subscriber.insert_block(source, download, block, &bytes[start..start + BLOCK_BYTES]));
    }
    assert!(subscriber.is_full());
    assert_eq!(subscriber.abandon(download).len(), BLOCKS_OPEN_MAX);
}

#[test]
fn what_is_abandoned_gives_back_what_came_and_is_not_verified() {
    let bytes = sample(3_000_000);
    let id = ContentId::of(&bytes);
    let mut subscriber = Subscriber::new(&[1; 32]);
    let sources = [0; 2].map(|_| subscriber.add_source().expect("few sources"));
    let download = subscriber.add_download(id, false, |block| block < 10);
    let block_of = |block: u64| {
        let start = block as usize * BLOCK_BYTES;
        &bytes[start..(start + BLOCK_BYTES).min(bytes.len())]
    };
    // No source has the hashes.
    let reserved = subscriber.reserve(sources[1], download, 20, 1).expect("some");
    for block in reserved.clone() {
        assert!(subscriber.insert_block(sources[1], download, block, block_of(block)));
    }
    assert!(subscriber.insert_block(sources[0], download, id.blocks() - 1, block_of(id.blocks() - 1)));
    let held = subscriber.abandon(download);
    assert_eq!(held.len() as u64, reserved.end - reserved.start + 1);
    for (source, block, held) in &held {
        assert!(held == block_of(*block) && *source == sources[usize::from(reserved.contains(block))]);
    }
    assert!(subscriber.is_idle() && subscriber.abandon(download).is_empty());
    assert!(subscriber.reserve(sources[0], download, 1, 1).is_none());
    assert!(matches!(subscriber.poll(Time::ZERO), Output::Wait(_)));
}
