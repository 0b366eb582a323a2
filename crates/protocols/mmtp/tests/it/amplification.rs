//! An address that has not proven itself gets at most three times the bytes that it sent. Both are counted as
//! the network carries them, with IP and UDP headers.

use std::net::SocketAddr;

use anabranch_algo::{Machine as _, Output, Time};
use anabranch_mmtp::cookie::AMPLIFICATION;
use anabranch_mmtp::id::{BLOCK_BYTES, ChunksPerBlock};
use anabranch_mmtp::peer::header_bytes;
use anabranch_mmtp::publisher::{ContentInfo, ContentStore, Publisher};
use anabranch_mmtp::tree::Outboard;
use anabranch_mmtp::wire::{self, RANGES_MAX, Range, RangeKind};
use proptest::collection::vec;
use proptest::prelude::*;

const V4: &str = "192.0.2.1:9";
const V6: &str = "[2001:db8::1]:9";
/// An IPv4 address as a socket of both families writes it.
const MAPPED: &str = "[::ffff:192.0.2.1]:9";

struct Offer<'a>(&'a Outboard, &'a [u8]);

impl ContentStore for Offer<'_> {
    fn info(&self, root: &[u8; 32]) -> Option<ContentInfo<'_>> {
        let id = self.0.id();
        (id.root == *root).then_some(ContentInfo { id, name: self.1, collection: false })
    }
}

/// Sends a request for `ranges`, with `padding` at its end, from `from` to a source of this many blocks.
/// Returns the bytes of the IP packets that the source sends, and those of the request.
fn exchange(from: &str, blocks: usize, name: &[u8], ranges: &[Range], padding: usize) -> (usize, usize) {
    let bytes = vec![7; blocks * BLOCK_BYTES];
    let tree = Outboard::of_bytes(&bytes);
    let from: SocketAddr = from.parse().expect("an address");
    let mut publisher = Publisher::new(Offer(&tree, name), [1; 32]);
    let mut request = Vec::new();
    wire::emit_request(&mut request, 1, None, false, &tree.id(), ranges);
    request.resize(request.len() + padding, 0);
    publisher.handle(Time::ZERO, (from.into(), &request));
    let header = header_bytes(from.ip());
    let mut sent = 0;
    while let Output::Send(reply) = publisher.poll(Time::ZERO) {
        let packets = reply.body.packets(|_| &tree, |_, range| &bytes[range]);
        sent += packets.iter().map(|packet| header + packet.len()).sum::<usize>();
    }
    (sent, header + request.len())
}

fn assert_bounded(from: &str, name: &[u8], ranges: &[Range], padding: usize) {
    let (sent, got) = exchange(from, 3, name, ranges, padding);
    assert!(sent > 0 && sent <= AMPLIFICATION * got, "{sent} bytes to {from} for {got}: {ranges:?}");
}

#[test]
fn many_small_answers_to_one_request_are_counted_with_their_headers() {
    let cut = RangeKind::Data(ChunksPerBlock::MAX);
    for from in [V4, V6, MAPPED] {
        for kind in [RangeKind::Meta, RangeKind::Hashes { level: 0 }, cut] {
            for count in [1, 2, 40, RANGES_MAX] {
                assert_bounded(from, b"", &vec![Range { kind, first: 0, count: 1 }; count], 0);
            }
        }
    }
}

#[test]
fn headers_are_those_of_the_packets_on_the_wire() {
    for (address, bytes) in [(V4, 28), (V6, 48), (MAPPED, 28)] {
        let address: SocketAddr = address.parse().expect("an address");
        assert_eq!(header_bytes(address.ip()), bytes, "{address}");
    }
}

fn a_range() -> impl Strategy<Value = Range> {
    let kind = prop_oneof![
        Just(RangeKind::Meta),
        (0_u8..3).prop_map(|level| RangeKind::Hashes { level }),
        (1_u8..=64).prop_map(|cut| RangeKind::Data(ChunksPerBlock::new(cut).expect("in range"))),
    ];
    (kind, 0_u64..50, 1_u16..80).prop_map(|(kind, first, count)| Range { kind, first, count })
}

proptest! {
    #[test]
    fn no_request_is_answered_with_more(
        from in prop_oneof![Just(V4), Just(V6), Just(MAPPED)],
        name in vec(any::<u8>(), 0..255),
        ranges in vec(a_range(), 1..=RANGES_MAX),
        padding in prop_oneof![Just(0_usize), 0..1_500_usize, 0..60_000_usize],
    ) {
        assert_bounded(from, &name, &ranges, padding);
    }
}
