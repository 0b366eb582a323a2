//! A source: answers requests from the contents that it has, and remembers nothing about the receivers.
//!
//! A request carries everything that its replies need. So any number of publishers may answer for one
//! content, one may be restarted in the middle of a transfer, and a flood of requests costs time but no
//! memory. The bytes that a publisher may send to an address that has not proven itself are limited
//! ([`crate::cookie`]).
//!
//! Replies name bytes ([`ReplyBody::Chunks`]) instead of carrying them. The caller reads the bytes straight
//! into its send buffer, many chunks per system call; a simulator need not read them at all.

use std::collections::VecDeque;

use anabranch_algo::{Machine, Output, Time};

use crate::cookie::{AMPLIFICATION, CookieKey};
use crate::id::{BLOCK_BYTES, ChunksPerBlock, ContentId};
use crate::peer::Peer;
use crate::tree::{self, Outboard};
use crate::wire::{self, Packet, ParseError, Range, RangeKind, Reason, Request};

/// The most packets that answer one request. A request for more is answered only up to this number.
pub const REPLY_PACKETS_MAX: u32 = 64;
/// The most bytes of UDP payload that answer one request.
pub const REPLY_BYTES_MAX: usize = 256 * 1024;
/// The largest UDP payload that a probe may ask for: a block with its header, and a little more.
pub const PROBE_BYTES_MAX: u16 = BLOCK_BYTES as u16 + 64;

/// The facts that a publisher can tell about a content that it has.
#[derive(Clone, Copy, Debug)]
pub struct ContentInfo<'a> {
    /// The content.
    pub id: ContentId,
    /// The file name, as a hint for the receiver; at most [`wire::NAME_MAX`] bytes.
    pub name: &'a [u8],
    /// Whether the content is the manifest of a collection.
    pub collection: bool,
}

/// The contents that a publisher offers.
pub trait ContentStore {
    /// Returns the facts about the content with this root, if it is offered.
    fn info(&self, root: &[u8; 32]) -> Option<ContentInfo<'_>>;
}

impl<T: ContentStore + ?Sized> ContentStore for &T {
    fn info(&self, root: &[u8; 32]) -> Option<ContentInfo<'_>> {
        (**self).info(root)
    }
}

/// One packet, or several of the same kind, to one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The receiver that asked.
    pub to: Peer,
    /// Whether to send with ECT(0) (RFC 3168), so that the network can mark packets instead of dropping them.
    pub ect: bool,
    /// The packet or packets.
    pub body: ReplyBody,
}

/// The packet or packets of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyBody {
    /// One finished packet.
    Packet(Vec<u8>),
    /// `count` DATA packets with the chunks from `first` on of `content`, at the cut `cut`. Each is
    /// [`wire::data_header`] and the chunk's bytes, in a full block padded with zeros to the chunk length.
    Chunks {
        /// The request's tag.
        tag: u64,
        /// The content.
        content: ContentId,
        /// The number of packets that a block is divided into.
        cut: ChunksPerBlock,
        /// The number of the first chunk.
        first: u64,
        /// The number of chunks; the last of them exists.
        count: u32,
    },
    /// One HASHES packet with the chaining values `first .. first + count` of `level`.
    Hashes {
        /// The request's tag.
        tag: u64,
        /// The content.
        content: ContentId,
        /// The level of the tree; level 0 lists the blocks.
        level: u8,
        /// The number of the first value.
        first: u64,
        /// The number of values, at most [`tree::PACKET_CVS`].
        count: usize,
    },
}

impl ReplyBody {
    /// Makes the packets from contents in memory. `tree` returns the hash tree of a content, `read` a range
    /// of its bytes. This is for tests and simulations; a server sends bytes as it reads them.
    ///
    /// # Panics
    /// If `tree` returns the tree of another content.
    pub fn packets<'a, B: AsRef<[u8]>>(
        self,
        tree: impl FnOnce(&ContentId) -> &'a Outboard,
        mut read: impl FnMut(&ContentId, std::ops::Range<usize>) -> B,
    ) -> Vec<Vec<u8>> {
        match self {
            Self::Packet(packet) => vec![packet],
            Self::Hashes { tag, content, level, first, count } => {
                let mut packet = Vec::new();
                let cvs = tree(&content).cvs(level, first, count).expect("a publisher names what exists");
                wire::emit_hashes(&mut packet, tag, level, first, cvs);
                vec![packet]
            }
            Self::Chunks { tag, content, cut, first, count } => {
                let packet = |chunk| {
                    let extent = content.chunk_extent(chunk, cut).zip(content.chunk_wire_len(chunk, cut));
                    let ((block, offset, len), wire_len) = extent.expect("a publisher names what exists");
                    let start = block as usize * BLOCK_BYTES + offset;
                    let mut packet = Vec::with_capacity(wire::DATA_HEADER + wire_len);
                    let bytes = read(&content, start..start + len);
                    wire::emit_data(&mut packet, tag, cut, chunk, bytes.as_ref(), wire_len);
                    packet
                };
                (first..first + u64::from(count)).map(packet).collect()
            }
        }
    }
}

/// The counters of a publisher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests and probes that were understood.
    pub requests: u64,
    /// Requests and probes from addresses that had not proven themselves.
    pub unproven: u64,
    /// Requests that were refused because the content is not offered.
    pub unknown: u64,
    /// Requests that asked for chunks or hashes that do not exist.
    pub bad: u64,
    /// Packets that were dropped because they could not be parsed.
    pub malformed: u64,
    /// Well-formed packets that no receiver sends, such as replies of another source or reflected traffic.
    pub unexpected: u64,
}

/// The state machine of a source.
pub struct Publisher<L> {
    store: L,
    cookie_key: CookieKey,
    out: VecDeque<Reply>,
    counters: Counters,
}

impl<L: ContentStore> Publisher<L> {
    /// Creates a publisher of the contents in `store`. Publishers that share `secret` accept each other's
    /// cookies.
    pub const fn new(store: L, secret: [u8; 32]) -> Self {
        Self { store, cookie_key: CookieKey::new(secret), out: VecDeque::new(), counters: COUNTERS_ZERO }
    }

    /// Returns the counters.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the contents that the publisher offers.
    pub const fn store(&self) -> &L {
        &self.store
    }

    fn datagram(&mut self, now: Time, from: Peer, bytes: &[u8]) {
        match wire::parse(bytes) {
            Ok(Packet::Request(request)) => self.request(now, from, bytes.len(), &request),
            Ok(Packet::Probe { tag, cookie, size }) => {
                self.counters.requests += 1;
                let proven = cookie.is_some_and(|c| self.cookie_key.check(now, &from, &c));
                if proven && size <= PROBE_BYTES_MAX {
                    let mut packet = Vec::new();
                    wire::emit_padded(&mut packet, tag, size);
                    self.out.push_back(Reply { to: from, ect: false, body: ReplyBody::Packet(packet) });
                } else if !proven {
                    self.counters.unproven += 1;
                    self.cookie(now, from, tag);
                }
            }
            Ok(_) => self.counters.unexpected += 1,
            Err(why) => {
                self.counters.malformed += 1;
                if let (ParseError::Version(_), Some(peek)) = (why, wire::peek(bytes))
                    && peek.expects_reply
                {
                    self.refuse(from, peek.tag, Reason::Version, bytes.len());
                }
            }
        }
    }

    fn request(&mut self, now: Time, from: Peer, len: usize, request: &Request<'_>) {
        self.counters.requests += 1;
        let tag = request.tag;
        let Some(id) =
            self.store.info(&request.content.root).map(|o| o.id).filter(|id| *id == request.content)
        else {
            self.counters.unknown += 1;
            return self.refuse(from, tag, Reason::Unknown, len);
        };
        let mut budget = ReplyBudget { bytes: REPLY_BYTES_MAX, packets: REPLY_PACKETS_MAX, header: 0 };
        if !request.cookie.is_some_and(|c| self.cookie_key.check(now, &from, &c)) {
            self.counters.unproven += 1;
            budget.header = from.header_bytes();
            budget.bytes = AMPLIFICATION * (len + budget.header);
            if budget.spend(wire::COOKIE_PACKET) {
                self.cookie(now, from, tag);
            }
        }
        for range in request.ranges {
            if !self.range(from, request, id, range, &mut budget) {
                self.counters.bad += 1;
                if budget.spend(REFUSE_PACKET) {
                    self.refuse(from, tag, Reason::BadRequest, len);
                }
                return;
            }
        }
    }

    /// Answers one range as far as `budget` allows. Returns `false` if the range does not exist.
    fn range(
        &mut self,
        to: Peer,
        request: &Request<'_>,
        id: ContentId,
        range: Range,
        budget: &mut ReplyBudget,
    ) -> bool {
        let (tag, ect) = (request.tag, request.ect);
        match range.kind {
            RangeKind::Meta => {
                let mut packet = Vec::new();
                if let Some(info) = self.store.info(&id.root) {
                    wire::emit_meta(&mut packet, tag, &id, info.collection, info.name);
                }
                if budget.spend(packet.len()) {
                    self.out.push_back(Reply { to, ect, body: ReplyBody::Packet(packet) });
                }
                true
            }
            RangeKind::Data(cut) => {
                let Some(end) = range.first.checked_add(u64::from(range.count)) else { return false };
                if id.chunk_extent(range.first, cut).is_none() || id.chunk_extent(end - 1, cut).is_none() {
                    return false;
                }
                let packet = wire::DATA_HEADER + cut.chunk_bytes();
                let count = (0..u32::from(range.count)).take_while(|_| budget.spend(packet)).count();
                if count > 0 {
                    let count = u32::try_from(count).unwrap_or(REPLY_PACKETS_MAX);
                    let body = ReplyBody::Chunks { tag, content: id, cut, first: range.first, count };
                    self.out.push_back(Reply { to, ect, body });
                }
                true
            }
            RangeKind::Hashes { level } => {
                let Some(end) = range.first.checked_add(u64::from(range.count)) else { return false };
                if level >= tree::levels(&id) || end > tree::cvs(&id, level) {
                    return false;
                }
                let mut first = range.first;
                while first < end {
                    let count = usize::try_from(end - first).unwrap_or(usize::MAX).min(tree::PACKET_CVS);
                    if !budget.spend(wire::DATA_HEADER + count * 32) {
                        break;
                    }
                    self.out.push_back(Reply {
                        to,
                        ect,
                        body: ReplyBody::Hashes { tag, content: id, level, first, count },
                    });
                    first += count as u64;
                }
                true
            }
        }
    }

    fn cookie(&mut self, now: Time, to: Peer, tag: u64) {
        let mut packet = Vec::new();
        wire::emit_cookie(&mut packet, tag, &self.cookie_key.issue(now, &to));
        self.out.push_back(Reply { to, ect: false, body: ReplyBody::Packet(packet) });
    }

    /// Sends a refusal, unless it would be longer than the packet that it answers.
    fn refuse(&mut self, to: Peer, tag: u64, reason: Reason, len: usize) {
        let mut packet = Vec::new();
        wire::emit_refuse(&mut packet, tag, reason, 0);
        if packet.len() <= len {
            self.out.push_back(Reply { to, ect: false, body: ReplyBody::Packet(packet) });
        }
    }
}

/// Makes a REFUSE for a request that the caller could not serve after all, because the file changed or a read
/// failed.
#[must_use]
pub fn refusal(to: Peer, tag: u64, reason: Reason) -> Reply {
    let mut packet = Vec::new();
    wire::emit_refuse(&mut packet, tag, reason, 0);
    Reply { to, ect: false, body: ReplyBody::Packet(packet) }
}

impl<L: ContentStore> Machine for Publisher<L> {
    /// A packet, and the receiver that sent it.
    type Input<'a> = (Peer, &'a [u8]);
    type Transmit = Reply;
    type Event = std::convert::Infallible;

    fn handle(&mut self, now: Time, (from, bytes): Self::Input<'_>) {
        debug_assert!(self.out.is_empty(), "drain poll() before the next handle()");
        self.datagram(now, from, bytes);
    }

    fn poll(&mut self, _now: Time) -> Output<Reply, Self::Event> {
        self.out.pop_front().map_or(Output::Wait(Time::NEVER), Output::Send)
    }
}

/// The length of a REFUSE packet in bytes.
const REFUSE_PACKET: usize = wire::PREFIX + 4;

const COUNTERS_ZERO: Counters =
    Counters { requests: 0, unproven: 0, unknown: 0, bad: 0, malformed: 0, unexpected: 0 };

/// The bytes and packets that may still answer one request.
struct ReplyBudget {
    bytes: usize,
    packets: u32,
    /// The bytes that each packet counts besides its payload. If many small packets answer one request, their
    /// headers are most of the bytes on the network.
    header: usize,
}

impl ReplyBudget {
    fn spend(&mut self, payload: usize) -> bool {
        let bytes = payload + self.header;
        if self.packets == 0 || self.bytes < bytes {
            return false;
        }
        self.packets -= 1;
        self.bytes -= bytes;
        true
    }
}
