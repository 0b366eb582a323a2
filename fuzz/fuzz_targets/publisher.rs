//! Any datagrams to a source: it never amplifies towards an address that has not proven itself, keeps its
//! limits and names only what exists.
#![no_main]

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use anabranch_algo::{Machine as _, Output, Span, Time};
use libfuzzer_sys::fuzz_target;
use anabranch_mmtp::cookie::{AMPLIFICATION, EPOCH, EPOCHS_VALID};
use anabranch_mmtp::peer::header_bytes;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::publisher::{
    ContentInfo, ContentStore, Publisher, REPLY_BYTES_MAX, REPLY_PACKETS_MAX, Reply, ReplyBody,
};
use anabranch_mmtp::tree::{self, Outboard, PACKET_CVS};
use anabranch_mmtp::wire::{self, Cookie, DATA_HEADER, NUMBER_END, Packet, RANGES_MAX, Range, RangeKind};
use anabranch_mmtp::{ChunksPerBlock, ContentId};

/// Contents of no block, one, a few, and of two levels of pages.
static SHELF: LazyLock<[Outboard; 4]> = LazyLock::new(|| {
    let deep =
        (0..70).map(|block| tree::block_cv(block, &vec![7; if block == 69 { 5 } else { BLOCK_BYTES }]));
    let length = 69 * BLOCK_BYTES as u64 + 5;
    [
        Outboard::of_bytes(b""),
        Outboard::of_bytes(b"one block"),
        Outboard::of_bytes(&[7; 3 * BLOCK_BYTES]),
        Outboard::from_leaves(deep.collect(), length).expect("70 blocks"),
    ]
});

struct Shelf;

impl ContentStore for Shelf {
    fn info(&self, root: &[u8; 32]) -> Option<ContentInfo<'_>> {
        let id = SHELF.iter().map(Outboard::id).find(|id| id.root == *root)?;
        Some(ContentInfo { id, name: &[b'n'; 255], collection: id.length == 9 })
    }
}

/// A cookie that the publisher sent: where to, when.
struct Sent(IpAddr, Cookie, Time);

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn byte(&mut self) -> u8 {
        self.take().map_or(0, |[byte]| byte)
    }

    fn some(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        head
    }
}

/// A REQUEST or PROBE, mostly well formed.
fn ask(bytes: &mut Bytes<'_>, cookie: Option<&Cookie>) -> Vec<u8> {
    let mut out = Vec::new();
    let [what, ranges] = [bytes.byte(), bytes.byte()];
    if what >= 208 {
        let size = u16::from_be_bytes([bytes.byte(), bytes.byte()]);
        let most = u16::try_from(wire::PACKET_MAX).unwrap_or(u16::MAX);
        wire::emit_probe(&mut out, u64::from(what), cookie, size.clamp(wire::PADDED_MIN as u16, most));
    } else {
        let mut content = SHELF[usize::from(what) % SHELF.len()].id();
        match what / 4 {
            50 => content.root[0] ^= 1,
            51 => content.length ^= 1,
            _ => {}
        }
        let ranges: Vec<Range> =
            (0..=usize::from(ranges) % RANGES_MAX).map(|_| range(bytes, &content)).collect();
        wire::emit_request(&mut out, u64::from(what), cookie, what & 4 == 0, &content, &ranges);
    }
    out
}

fn range(bytes: &mut Bytes<'_>, content: &ContentId) -> Range {
    let [kind, first, count] = [bytes.byte(), bytes.byte(), bytes.byte()];
    let (kind, end) = match kind {
        0..16 => (RangeKind::Meta, 1),
        16..80 => (RangeKind::Hashes { level: kind % 3 }, tree::cvs(content, kind % 3)),
        _ => {
            let cut = ChunksPerBlock::new(kind % 64 + 1).expect("1 to 64");
            (RangeKind::Data(cut), content.chunks(cut))
        }
    };
    // Near the beginning, near the end, and near the end of all numbers.
    let first = match first {
        0..100 => u64::from(first),
        100..200 => (end + 50).saturating_sub(u64::from(first - 100)),
        _ => NUMBER_END - 1 - u64::from(first - 200),
    };
    let count = if count < 200 { u16::from(count) + 1 } else { u16::MAX >> (count - 200).min(15) };
    let room = u16::try_from(NUMBER_END - first).unwrap_or(u16::MAX);
    Range { kind, first, count: count.clamp(1, room) }
}

/// Packets and bytes that a reply puts on the wire.
fn size(reply: &Reply, asked: Option<u64>) -> (u32, usize) {
    match &reply.body {
        ReplyBody::Packet(bytes) => {
            let packet = wire::parse(bytes).expect("a publisher sends packets");
            assert!(asked.is_some_and(|tag| tag == packet.tag()));
            assert!(matches!(
                packet,
                Packet::Cookie { .. } | Packet::Meta(_) | Packet::Refuse { .. } | Packet::Padded { .. }
            ));
            (1, bytes.len())
        }
        ReplyBody::Chunks { tag, content, cut, first, count } => {
            assert!(Some(*tag) == asked && *count > 0);
            assert!(SHELF.iter().any(|tree| tree.id() == *content));
            let chunks = *first..*first + u64::from(*count);
            let lens = chunks.map(|n| content.chunk_wire_len(n, *cut).expect("every chunk exists"));
            (*count, lens.map(|len| DATA_HEADER + len).sum())
        }
        ReplyBody::Hashes { tag, content, level, first, count } => {
            assert!(Some(*tag) == asked && (1..=PACKET_CVS).contains(count));
            let tree = SHELF.iter().find(|tree| tree.id() == *content).expect("it is on the shelf");
            let cvs = tree.cvs(*level, *first, *count).expect("they exist");
            assert_eq!(cvs.len(), *count);
            (1, DATA_HEADER + 32 * count)
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = Bytes(bytes);
    let mut publisher = Publisher::new(Shelf, [1; 32]);
    let mut now = Time::ZERO;
    let mut sent: VecDeque<Sent> = VecDeque::new();
    while let Some([operation, who]) = bytes.take() {
        let from: SocketAddr = match who % 4 {
            0 => ([192, 0, 2, 1], 9).into(),
            1 => ([192, 0, 2, 1], 10).into(),
            2 => ([192, 0, 2, 2], 9).into(),
            _ => ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 9).into(),
        };
        let any = Cookie([who; 16]);
        let cookie = match who / 4 % 4 {
            0 => None,
            1 => Some(&any),
            _ => sent.get(usize::from(who / 16)).map(|Sent(_, cookie, _)| cookie),
        };
        let mut datagram = match operation % 8 {
            0 => {
                let len = usize::from(bytes.byte()) * 8;
                bytes.some(len).to_vec()
            }
            1 => {
                now = now + Span::from_secs(u64::from(bytes.byte()) * 60);
                continue;
            }
            _ => ask(&mut bytes, cookie),
        };
        if operation & 8 != 0 {
            datagram.resize(datagram.len() + 5 * usize::from(bytes.byte()), 0);
        }
        if operation & 16 != 0 {
            for _ in 0..bytes.byte() % 4 {
                let at = usize::from(bytes.byte());
                let change = bytes.byte();
                if let Some(byte) = datagram.get_mut(at) {
                    *byte ^= change;
                }
            }
        }
        if operation & 32 != 0 {
            datagram.truncate(usize::from(bytes.byte()));
        }

        let presented = match wire::parse(&datagram) {
            Ok(Packet::Request(request)) => request.cookie,
            Ok(Packet::Probe { cookie, .. }) => cookie,
            _ => None,
        };
        // The model knows no secret: a cookie is right if it was sent to this address and is not too old.
        let ages: Vec<Span> = sent
            .iter()
            .filter(|Sent(ip, cookie, _)| *ip == from.ip() && Some(*cookie) == presented)
            .map(|Sent(_, _, at)| now.since(*at))
            .collect();
        let proven = ages.iter().any(|age| *age < EPOCH.times(u64::from(EPOCHS_VALID) + 1));
        let fresh = ages.iter().any(|age| *age <= EPOCH.times(u64::from(EPOCHS_VALID)));

        let before = publisher.counters();
        let asked = wire::peek(&datagram).map(|prefix| prefix.tag);
        publisher.handle(now, (from.into(), &datagram));
        let (mut packets, mut total) = (0, 0);
        loop {
            let reply = match publisher.poll(now) {
                Output::Send(reply) => reply,
                Output::Event(never) => match never {},
                Output::Wait(until) => break assert_eq!(until, Time::NEVER),
            };
            assert_eq!(reply.to.address, from);
            let (count, len) = size(&reply, asked);
            (packets, total) = (packets + count, total + len);
            if let ReplyBody::Packet(packet) = &reply.body
                && let Ok(Packet::Cookie { cookie, .. }) = wire::parse(packet)
            {
                sent.push_front(Sent(from.ip(), cookie, now));
                sent.truncate(16);
            }
        }
        assert!(packets <= REPLY_PACKETS_MAX, "{packets} packets");
        assert!(total <= REPLY_BYTES_MAX, "{total} bytes");
        let after = publisher.counters();
        if !proven {
            let header = header_bytes(from.ip());
            let (sent, got) = (packets as usize * header + total, header + datagram.len());
            assert!(sent <= AMPLIFICATION * got, "{sent} bytes for {got}");
        }
        if fresh {
            assert_eq!(after.unproven, before.unproven, "a fresh cookie is taken");
        }
    }
});
