//! A packet cache on a forwarder: it answers a part of a request from what has passed, and passes on the
//! rest.
//!
//! It holds chunks and packets of chaining values, bounded by bytes, index included: by [`Policy`]. A DATA
//! does not name its content; the request that it answers does, and that has passed before by the same tag.
//! Receivers cut blocks into packets of different sizes, also one receiver before and after it knows what its
//! path carries. So a chunk that is not here under one cut is put together from chunks of another.
//!
//! **It never amplifies.** It answers only a request with a cookie that it has itself seen go to this way
//! back, in answer to a request from there: then the receiver is where it says it is. All else it passes on.
//!
//! **It may be poisoned.** It cannot check a chunk: its proof is for whoever has the page of hashes. It says
//! who it is in each answer (`docs/wire-mmtp.md`, "What a cache sends"). A receiver that finds a block wrong
//! asks past the caches from then on, and what the source answers to that replaces what is here.

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

/// Requests whose answers may still come: of so many it is remembered which content they are for.
pub const REQUESTS_MAX: usize = 16_384;
/// Receivers that have shown where they are: so many cookies are remembered.
pub const COOKIES_MAX: usize = 16_384;
/// No source takes a cookie that is older than this (docs/wire-mmtp.md, "Proof of address").
const COOKIE_LIFE: Span = EPOCH.times(EPOCHS_VALID as u64 + 1);
/// This part of the capacity is for chaining values, which are 1/500 of what they prove.
const HASHES_PART: usize = 32;

/// What stays when not all of it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The packets that were last used (least recently used leave first).
    Lru,
    /// Object-oriented packet caching (Y. Thomas, G. Xylomenos, C. Tsilopoulos, G. C. Polyzos,
    /// Object-oriented Packet Caching for ICN, ACM ICN 2015), with segments of contents as the objects: what
    /// is here of a segment is its beginning, without a gap, and leaves from its end.
    Opc,
    /// The same with whole contents as the objects, as in the paper: to compare. Where a receiver has several
    /// paths, a cache sees parts of a content, and hardly ever one that begins where the last one ended.
    OpcByContent,
}

/// What becomes of a packet on its way to a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It goes on as it is.
    PassOn,
    /// Some of what it asks for is here.
    Hit {
        /// What goes back: the way back and a packet, each; at most [`REPLY_PACKETS_MAX`].
        replies: Vec<Vec<u8>>,
        /// Whether they are to be sent with ECT(0) (RFC 3168).
        ect: bool,
        /// The request that goes on instead, without its way back; `None` if all was here.
        rest: Option<Vec<u8>>,
    },
}

/// What went through a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets of content and chaining values asked for that the cache was allowed to answer.
    pub asked: u64,
    /// Those of them that it had.
    pub hits: u64,
    /// Bytes of the packets that it sent.
    pub hit_bytes: u64,
    /// Packets that it took in, or put in the place of others.
    pub learnt: u64,
    /// Requests that forbade caches.
    pub forbidden: u64,
    /// Requests of receivers that have not shown where they are.
    pub unproven: u64,
}

/// Chunks of contents, by one of the policies.
enum Chunks {
    Lru(Lru<ChunkKey>),
    Opc(Opc),
}

/// A packet of chaining values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HashesKey {
    content: ContentId,
    level: u8,
    first: u64,
}

/// The cache of one forwarder.
pub struct PacketCache {
    /// As the answers name it. A node with a larger number has none.
    node: Option<u16>,
    chunks: Chunks,
    hashes: Lru<HashesKey>,
    /// The content of a request, by its tag and its way back.
    requests: BoundedMap<(u64, [u8; WAY_BACK_BYTES]), ContentId>,
    /// The cuts under which chunks have come: bit `cut - 1`.
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

/// Whom a way back leads to. In a request it has more hops left than in the answer that comes back over it.
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
    /// An empty cache of `capacity_bytes` on `node`: packets and the index of them, as far as the index grows
    /// with them. Besides there are at most [`REQUESTS_MAX`] and [`COOKIES_MAX`] entries of about 100 bytes
    /// each. A node with a number over 65,535 cannot be named in an answer, and never answers.
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

    /// What has gone through so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes that are held now, index included: at most the capacity.
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        let chunks = match &self.chunks {
            Chunks::Lru(lru) => lru.stored(),
            Chunks::Opc(opc) => opc.stored(),
        };
        chunks + self.hashes.stored()
    }

    /// An mmTP packet passes on its way to the receiver behind `way_back`: what is worth it is kept. The
    /// packet goes on as it is.
    pub fn reply(&mut self, now: Time, way_back: &WayBack, payload: &[u8]) {
        let Ok(packet) = wire::parse(payload) else { return };
        // Only what a request that passed here has asked for; the tag is the receiver's secret until it asks.
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

    /// An mmTP packet passes on its way to a source, from the receiver behind `way_back`.
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

    /// Whether `cookie` has gone to this way back, and no longer ago than a source may have forgotten it.
    fn proves(&self, now: Time, way_back: &WayBack, cookie: &Cookie) -> bool {
        let at = self.cookies.get(&(cookie.0, place(way_back)));
        at.is_some_and(|at| now.since(*at) <= COOKIE_LIFE)
    }

    /// The bytes of a chunk, from chunks of another cut, if one has all of them.
    fn recut(&mut self, key: &ChunkKey) -> Option<Vec<u8>> {
        let others = self.cuts & !bit(key.cut);
        let cuts = (1..=ChunksPerBlock::MAX.get()).filter_map(ChunksPerBlock::new);
        cuts.filter(|cut| others & bit(*cut) != 0).find_map(|cut| self.of_cut(key, cut))
    }

    /// The same, from chunks of this cut.
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

    /// Appends the packet that `range`, which is of one packet, asks for; false if it is not here.
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

/// The bit of a cut.
const fn bit(cut: ChunksPerBlock) -> u64 {
    1 << (cut.get() - 1)
}

/// How many chaining values the packet has that begins at `first`; 0 if there is none.
fn hash_count(content: &ContentId, level: u8, first: u64) -> usize {
    let end = if level < tree::levels(content) { tree::cvs(content, level) } else { 0 };
    usize::try_from(end.saturating_sub(first)).unwrap_or(usize::MAX).min(PACKET_CVS)
}

/// Adds the packets that a range asks for, each as a range. False if it asks for what does not exist, or all
/// for more than one request is answered with: the source may say so.
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

/// Adds a packet to what goes on, to the last range if it follows it: then the source divides that into the
/// same packets.
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
