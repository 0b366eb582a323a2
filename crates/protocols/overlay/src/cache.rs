//! A packet cache on a forwarder: it answers a part of a request with packets that have passed, and passes on
//! the rest.
//!
//! It holds chunks and packets of chaining values. Their bytes, index included, are bounded; the [`Policy`]
//! decides which of them stay. A DATA packet does not name its content; the request that it answers does, and
//! that request has passed before with the same tag. Receivers cut blocks into packets of different sizes,
//! and one receiver changes the size once it knows the largest packet of its path. So a chunk that the cache
//! does not have under one cut is put together from chunks of another.
//!
//! **It never amplifies.** The cache answers only a request whose cookie it has itself seen go to this way
//! back, in answer to a request from there: this proves that the receiver is where it says it is. It passes
//! on all other requests.
//!
//! **It may be poisoned.** The cache cannot check a chunk, because only the receiver has the page of hashes.
//! It names itself in each answer (`docs/wire-mmtp.md`, "What a cache sends"). A receiver that finds a block
//! wrong asks past the caches from then on, and the answers of the source replace the chunks in the cache.

mod bounded;
mod key;
mod lru;
mod opc;
#[cfg(test)]
mod tests;

use anabranch_algo::{Span, Time};
use anabranch_mmtp::cookie::{EPOCH, EPOCHS_VALID};
use anabranch_mmtp::peer::{WAY_BACK_BYTES, WayBack};
use anabranch_mmtp::publisher::{REPLY_BYTES_MAX, REPLY_PACKETS_MAX};
use anabranch_mmtp::tree::{self, PACKET_CVS};
use anabranch_mmtp::wire::{self, Cookie, DATA_HEADER, Packet, Range, RangeKind, Request};
use anabranch_mmtp::{ChunksPerBlock, ContentId};
use anabranch_topology::graph::NodeId;

use crate::frame;
use bounded::BoundedMap;
use key::ChunkKey;
use lru::Lru;
use opc::Opc;

/// The most requests whose contents are remembered, because answers to them may still come.
pub const REQUESTS_MAX: usize = 16_384;
/// The most cookies that are remembered, each of which proves the address of a receiver.
pub const COOKIES_MAX: usize = 16_384;
/// The longest life of a cookie: no source accepts an older one (docs/wire-mmtp.md, "Proof of address").
const COOKIE_LIFE: Span = EPOCH.times(EPOCHS_VALID as u64 + 1);
/// Chaining values get one part in this many of the capacity. They are 1/500 of the content that they prove.
const HASHES_PART: usize = 32;

/// The rule by which packets stay when not all can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The packets that were used last stay: the least recently used leave first.
    Lru,
    /// Object-oriented packet caching (Y. Thomas, G. Xylomenos, C. Tsilopoulos, G. C. Polyzos,
    /// Object-oriented Packet Caching for ICN, ACM ICN 2015), with segments of contents as the objects: the
    /// cache holds the beginning of a segment, without a gap, and removes chunks from its end.
    Opc,
    /// Object-oriented packet caching with whole contents as the objects, as in the paper, for comparison. If
    /// a receiver has several paths, a cache sees parts of a content, and hardly ever one that begins where
    /// the last one ended.
    OpcByContent,
}

/// What happens to a packet on its way to a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The packet goes on as it is.
    PassOn,
    /// The cache has some of the packets that the request asks for.
    Hit {
        /// The frames that go back, each a way back and a packet; at most [`REPLY_PACKETS_MAX`].
        replies: Vec<Vec<u8>>,
        /// Whether the replies are to be sent with ECT(0) (RFC 3168).
        ect: bool,
        /// The request that goes on instead, without its way back; `None` if the cache had everything.
        rest: Option<Vec<u8>>,
    },
}

/// Counts the packets and requests at a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets of content and chaining values asked for that the cache was allowed to answer.
    pub asked: u64,
    /// How many of the packets asked for the cache had.
    pub hits: u64,
    /// Bytes of the packets that the cache sent.
    pub hit_bytes: u64,
    /// Packets that the cache stored, as new ones or in the place of others.
    pub learnt: u64,
    /// Requests that forbade caches.
    pub forbidden: u64,
    /// Requests of receivers that have not proven their address.
    pub unproven: u64,
}

/// The chunks of contents, stored by one of the policies.
enum Chunks {
    Lru(Lru<ChunkKey>),
    Opc(Opc),
}

/// The key of a packet of chaining values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HashesKey {
    content: ContentId,
    level: u8,
    first: u64,
}

/// The cache of one forwarder.
pub struct PacketCache {
    /// The node as answers name it; `None` for a node whose number is too large.
    node: Option<u16>,
    chunks: Chunks,
    hashes: Lru<HashesKey>,
    /// The contents of requests, by tag and way back.
    requests: BoundedMap<(u64, [u8; WAY_BACK_BYTES]), ContentId>,
    /// The cuts under which chunks have come: bit `cut - 1` stands for a cut.
    cuts: u64,
    /// When a cookie last went to a way back.
    cookies: BoundedMap<([u8; 16], [u8; WAY_BACK_BYTES]), Time>,
    counters: Counters,
}

impl Chunks {
    fn get(&mut self, key: &ChunkKey) -> Option<&[u8]> {
        match self {
            Self::Lru(lru) => lru.get(key),
            Self::Opc(opc) => opc.get(key),
        }
    }

    fn insert(&mut self, key: ChunkKey, payload: &[u8]) -> bool {
        match self {
            Self::Lru(lru) => lru.insert(key, payload),
            Self::Opc(opc) => opc.insert(&key, payload),
        }
    }
}

/// Returns a way back without its hop limit, so that it identifies the receiver: in a request the way back
/// has more hops left than in the answer that returns over it.
fn place(way_back: &WayBack) -> [u8; WAY_BACK_BYTES] {
    let mut place = way_back.0;
    frame::set_hop_limit(&mut place, 0);
    place
}

impl std::fmt::Debug for PacketCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PacketCache({} bytes)", self.stored_bytes())
    }
}

impl PacketCache {
    /// Creates an empty cache of `capacity_bytes` on `node`. The capacity covers the packets and the part of
    /// the index that grows with them. Besides, there are at most [`REQUESTS_MAX`] and [`COOKIES_MAX`]
    /// entries of about 100 bytes each. A node with a number over 65,535 cannot be named in an answer, so it
    /// never answers.
    #[must_use]
    pub fn new(policy: Policy, capacity_bytes: usize, node: NodeId) -> Self {
        let of_hashes = capacity_bytes / HASHES_PART;
        let of_chunks = capacity_bytes - of_hashes;
        Self {
            node: u16::try_from(node.0).ok(),
            chunks: match policy {
                Policy::Lru => Chunks::Lru(Lru::new(of_chunks)),
                Policy::Opc => Chunks::Opc(Opc::of_segments(of_chunks)),
                Policy::OpcByContent => Chunks::Opc(Opc::of_contents(of_chunks)),
            },
            hashes: Lru::new(of_hashes),
            requests: BoundedMap::new(REQUESTS_MAX),
            cuts: 0,
            cookies: BoundedMap::new(COOKIES_MAX),
            counters: Counters::default(),
        }
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the bytes that are held now, index included: at most the capacity.
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        let chunks = match &self.chunks {
            Chunks::Lru(lru) => lru.stored(),
            Chunks::Opc(opc) => opc.stored(),
        };
        chunks + self.hashes.stored()
    }

    /// Learns from an mmTP packet that passes on its way to the receiver behind `way_back`. The packet goes
    /// on as it is.
    pub fn reply(&mut self, now: Time, way_back: &WayBack, payload: &[u8]) {
        let Ok(packet) = wire::parse(payload) else { return };
        // Learn only packets that a request which passed here has asked for: the tag is the receiver's secret
        // until it asks.
        let Some(content) = self.requests.get(&(packet.tag(), place(way_back))).copied() else { return };
        let learnt = match packet {
            Packet::Data(data) => {
                let is_one = content.chunk_wire_len(data.chunk, data.cut) == Some(data.payload.len());
                let key = ChunkKey { content, cut: data.cut, chunk: data.chunk };
                let is_new = is_one && self.chunks.insert(key, data.payload);
                self.cuts |= if is_new { bit(data.cut) } else { 0 };
                is_new
            }
            Packet::Hashes(hashes) => {
                let is_one = hash_count(&content, hashes.level, hashes.first) == hashes.cvs.len();
                let key = HashesKey { content, level: hashes.level, first: hashes.first };
                is_one && self.hashes.insert(key, hashes.cvs.as_flattened())
            }
            Packet::Cookie { cookie: Cookie(cookie), .. } => {
                self.cookies.insert((cookie, place(way_back)), now);
                false
            }
            _ => false,
        };
        self.counters.learnt += u64::from(learnt);
    }

    /// Answers an mmTP packet that passes on its way to a source, from the receiver behind `way_back`, as far
    /// as the cache can.
    pub fn request(&mut self, now: Time, way_back: &WayBack, payload: &[u8]) -> Answer {
        let Ok(Packet::Request(request)) = wire::parse(payload) else { return Answer::PassOn };
        let answer = self.answer(now, way_back, &request);
        if !matches!(answer, Answer::Hit { rest: None, .. }) {
            self.requests.insert((request.tag, place(way_back)), request.content);
        }
        answer
    }

    fn answer(&mut self, now: Time, way_back: &WayBack, request: &Request<'_>) -> Answer {
        if request.no_caches {
            self.counters.forbidden += 1;
            return Answer::PassOn;
        }
        let (Some(node), Some(cookie)) =
            (self.node, request.cookie.filter(|c| self.proves(now, way_back, c)))
        else {
            self.counters.unproven += 1;
            return Answer::PassOn;
        };
        let mut asked = Vec::new();
        let mut bytes = 0;
        for range in request.ranges {
            if !expand(&request.content, range, &mut asked, &mut bytes) {
                return Answer::PassOn;
            }
        }
        let (mut replies, mut rest) = (Vec::new(), Vec::<Range>::new());
        for range in asked {
            let mut packet = way_back.0.to_vec();
            if self.emit(&mut packet, request, range) {
                wire::set_responder(&mut packet[WAY_BACK_BYTES..], node);
                self.counters.hit_bytes += (packet.len() - WAY_BACK_BYTES) as u64;
                replies.push(packet);
            } else {
                add(&mut rest, range);
            }
        }
        self.counters.hits += replies.len() as u64;
        if replies.is_empty() {
            return Answer::PassOn;
        }
        let rest = (!rest.is_empty()).then(|| {
            let mut packet = Vec::new();
            wire::emit_request(&mut packet, request.tag, Some(&cookie), request.ect, &request.content, &rest);
            packet
        });
        Answer::Hit { replies, ect: request.ect, rest }
    }

    /// Whether `cookie` has gone to this way back, so recently that a source may still accept it.
    fn proves(&self, now: Time, way_back: &WayBack, cookie: &Cookie) -> bool {
        let at = self.cookies.get(&(cookie.0, place(way_back)));
        at.is_some_and(|at| now.since(*at) <= COOKIE_LIFE)
    }

    /// Returns the bytes of a chunk, put together from chunks of another cut, if one cut has all of them.
    fn recut(&mut self, key: &ChunkKey) -> Option<Vec<u8>> {
        let others = self.cuts & !bit(key.cut);
        let cuts = (1..=ChunksPerBlock::MAX.get()).filter_map(ChunksPerBlock::new);
        cuts.filter(|cut| others & bit(*cut) != 0).find_map(|cut| self.of_cut(key, cut))
    }

    /// Returns the bytes of a chunk, put together from chunks of this cut, if all of them are here.
    fn of_cut(&mut self, key: &ChunkKey, cut: ChunksPerBlock) -> Option<Vec<u8>> {
        let content = key.content;
        let (block, start, len) = content.chunk_extent(key.chunk, key.cut)?;
        let (end, mut bytes) = (start + len, Vec::with_capacity(len));
        while start + bytes.len() < end {
            let at = start + bytes.len();
            let within = (at / cut.chunk_bytes()) as u64;
            let chunk = block * u64::from(cut.get()) + within;
            let (_, first, len) = content.chunk_extent(chunk, cut)?;
            let payload = self.chunks.get(&ChunkKey { content, cut, chunk })?;
            bytes.extend_from_slice(payload.get(at - first..len.min(end - first))?);
        }
        Some(bytes)
    }

    /// Appends the packet that `range`, which is of one packet, asks for. Returns `false` if the cache does
    /// not have the packet.
    fn emit(&mut self, out: &mut Vec<u8>, request: &Request<'_>, range: Range) -> bool {
        let (content, tag) = (request.content, request.tag);
        match range.kind {
            RangeKind::Data(cut) => {
                self.counters.asked += 1;
                let key = ChunkKey { content, cut, chunk: range.first };
                if let Some(payload) = self.chunks.get(&key) {
                    wire::emit_data(out, tag, cut, range.first, payload, payload.len());
                    return true;
                }
                let Some(payload) = self.recut(&key) else { return false };
                let wire_len = content.chunk_wire_len(range.first, cut).unwrap_or(payload.len());
                wire::emit_data(out, tag, cut, range.first, &payload, wire_len);
                true
            }
            RangeKind::Hashes { level } => {
                self.counters.asked += 1;
                let cvs = self.hashes.get(&HashesKey { content, level, first: range.first });
                let Some((cvs, [])) = cvs.map(<[u8]>::as_chunks::<32>) else { return false };
                if cvs.len() != usize::from(range.count) {
                    return false;
                }
                wire::emit_hashes(out, tag, level, range.first, cvs);
                true
            }
            RangeKind::Meta => false,
        }
    }
}

/// Returns the bit of a cut in `cuts`.
const fn bit(cut: ChunksPerBlock) -> u64 {
    1 << (cut.get() - 1)
}

/// Returns how many chaining values the packet that begins at `first` has; 0 if there is no such packet.
fn hash_count(content: &ContentId, level: u8, first: u64) -> usize {
    let end = if level < tree::levels(content) { tree::cvs(content, level) } else { 0 };
    usize::try_from(end.saturating_sub(first)).unwrap_or(usize::MAX).min(PACKET_CVS)
}

/// Adds the packets that a range asks for, each as a range. Returns `false` if the range asks for packets
/// that do not exist, or all ranges together for more than one request is answered with: the source may say
/// so.
fn expand(content: &ContentId, range: Range, to: &mut Vec<Range>, bytes: &mut usize) -> bool {
    let end = range.first.saturating_add(u64::from(range.count));
    let mut push = |first: u64, count: u16, len: usize| {
        to.push(Range { first, count, ..range });
        *bytes += DATA_HEADER + len;
        to.len() <= REPLY_PACKETS_MAX as usize && *bytes <= REPLY_BYTES_MAX
    };
    match range.kind {
        RangeKind::Meta => push(range.first, range.count, 0),
        RangeKind::Data(cut) => {
            let last = content.chunk_extent(end.saturating_sub(1), cut);
            last.is_some() && (range.first..end).all(|chunk| push(chunk, 1, cut.chunk_bytes()))
        }
        RangeKind::Hashes { level } => {
            if level >= tree::levels(content) || end > tree::cvs(content, level) {
                return false;
            }
            (range.first..end).step_by(PACKET_CVS).all(|first| {
                let count = (end - first).min(PACKET_CVS as u64) as u16;
                push(first, count, usize::from(count) * 32)
            })
        }
    }
}

/// Adds a packet to the ranges that go on. It joins the last range if it follows that range and the source
/// will divide the longer one into the same packets.
fn add(rest: &mut Vec<Range>, packet: Range) {
    let last = rest.last_mut().filter(|last| {
        let divides = match last.kind {
            RangeKind::Data(_) => true,
            RangeKind::Hashes { .. } => usize::from(last.count).is_multiple_of(PACKET_CVS),
            RangeKind::Meta => false,
        };
        divides && last.kind == packet.kind && last.first + u64::from(last.count) == packet.first
    });
    match last {
        Some(last) => last.count += packet.count,
        None => rest.push(packet),
    }
}
