//! Serves one UDP socket: receives requests and sends replies.
//!
//! The publisher decides what is sent. The replies wait in a bounded queue. Their bytes are read from the
//! files into a buffer, which one system call sends as many packets (UDP GSO). They wait longer while the
//! socket or the rate limit has no room. Replies of the same shape to the same receiver share a call.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};

use anabranch_algo::{Machine as _, Output, RateLimiter, Time};
use anabranch_mmtp::peer::Peer;
use anabranch_mmtp::publisher::{self, Publisher, Reply, ReplyBody};
use anabranch_mmtp::wire::{self, DATA_HEADER, Reason};
use anabranch_net::{Clock, Datagrams, Interest, Poller, RecvBuffers, RecvOutcome, SendOutcome, Udp};
use anabranch_overlay::dscp::DscpSet;
use anabranch_overlay::frame::{self, Frame};

use super::peers::Peers;
use crate::Stop;
use crate::catalog::{Catalog, READ_CHUNKS_MAX};
use crate::monitor::lock;
use crate::report::source::Stats;

/// The largest number of bytes of replies that wait for a socket. At 1 Gbit/s that is 34 ms.
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// The largest number of replies that wait for a socket, whatever their size.
const QUEUE_REPLIES_MAX: usize = 8_192;
/// The number of buffer sets that are taken from the socket before replies are sent.
const BATCHES_MAX: usize = 4;
/// The size of a send buffer, bytes: the most that one call carries.
const BUFFER_BYTES: usize = anabranch_net::udp::SEND_BYTES_MAX;

/// The state that the threads of all sockets share.
pub(crate) struct Shared {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) clock: Clock,
    pub(crate) limit: Arc<RateLimiter>,
    pub(crate) stop: Stop,
    /// The marks that answers in frames of an overlay may have; `None` if requests do not come in such
    /// frames.
    pub(crate) marks: Option<DscpSet>,
}

/// A reply in the queue, and the local address from which it is sent.
struct Waiting {
    reply: Reply,
    from_ip: Option<IpAddr>,
    bytes: usize,
}

/// Packets that are ready to be sent in one call.
struct SendBatch {
    to: Peer,
    from_ip: Option<IpAddr>,
    ect: bool,
    len: usize,
    segment: usize,
    /// The time from which the rate limit allows the batch; `None` until the limit was asked.
    due: Option<Time>,
}

/// A socket, and the replies that wait to be sent over it.
pub(crate) struct UdpWorker<'a> {
    shared: &'a Shared,
    udp: &'a Udp,
    publisher: Publisher<&'a Catalog>,
    queue: VecDeque<Waiting>,
    queued_bytes: usize,
    batch: Option<SendBatch>,
    buffer: Vec<u8>,
    peers: Peers,
    stats: Stats,
}

impl<'a> UdpWorker<'a> {
    pub(crate) fn new(shared: &'a Shared, udp: &'a Udp, secret: [u8; 32]) -> Self {
        Self {
            shared,
            udp,
            publisher: Publisher::new(&shared.catalog, secret),
            queue: VecDeque::new(),
            queued_bytes: 0,
            batch: None,
            buffer: vec![0; BUFFER_BYTES],
            peers: Peers::default(),
            stats: Stats::default(),
        }
    }

    /// Serves until it is stopped. Writes its counters to `stats` after each wait.
    pub(crate) fn run(mut self, stats: &Mutex<Stats>) -> std::io::Result<()> {
        let mut poller = Poller::new(self.shared.clock);
        let mut buffers = RecvBuffers::new();
        let (mut until, mut blocked) = (Time::NEVER, false);
        while !self.shared.stop.is_stopped() {
            let interest = if blocked { Interest::ReadWrite } else { Interest::Read };
            let stop = self.shared.stop.wake().as_fd();
            poller.wait([(self.udp.as_fd(), interest), (stop, Interest::Read)], until)?;
            let now = self.shared.clock.now();
            self.receive(now, &mut buffers)?;
            (until, blocked) = match self.send(now) {
                SendState::Idle => (Time::NEVER, false),
                SendState::Until(then) => (then, false),
                SendState::Blocked => (Time::NEVER, true),
            };
            self.stats.set(&self.publisher.counters());
            self.stats.peers = self.peers.count(now);
            lock(stats).clone_from(&self.stats);
        }
        Ok(())
    }

    fn receive(&mut self, now: Time, buffers: &mut RecvBuffers) -> std::io::Result<()> {
        for _ in 0..BATCHES_MAX {
            let udp = self.udp;
            let outcome = udp.recv(buffers, |received| {
                self.peers.see(now, received.from.ip());
                for datagram in received.datagrams() {
                    self.datagram(now, received.from, received.to_ip, datagram);
                }
            })?;
            if !matches!(outcome, RecvOutcome::Received { more: true }) {
                break;
            }
        }
        Ok(())
    }

    fn datagram(&mut self, now: Time, from: SocketAddr, to_ip: Option<IpAddr>, bytes: &[u8]) {
        let malformed = self.publisher.counters().malformed;
        let (from, bytes) = match bytes.first() {
            Some(&frame::FRAME) if self.shared.marks.is_some() => match frame::parse(bytes) {
                Ok(Frame::Routed(routed)) if routed.way_back.is_some() => {
                    (Peer { address: from, way_back: routed.way_back }, routed.payload)
                }
                // A hello is for forwarders, and a frame without a way back is no request.
                _ => return *self.stats.malformed.entry("frame").or_default() += 1,
            },
            _ => (from.into(), bytes),
        };
        self.publisher.handle(now, (from, bytes));
        while let Output::Send(reply) = self.publisher.poll(now) {
            self.enqueue(reply, to_ip);
        }
        if self.publisher.counters().malformed > malformed
            && let Err(why) = wire::parse(bytes)
        {
            *self.stats.malformed.entry(why.name()).or_default() += 1;
        }
    }

    fn enqueue(&mut self, reply: Reply, from_ip: Option<IpAddr>) {
        let prefix = reply.to.prefix().len();
        let bytes = match &reply.body {
            ReplyBody::Packet(packet) => prefix + packet.len(),
            ReplyBody::Chunks { cut, count, .. } => {
                *count as usize * (prefix + DATA_HEADER + cut.chunk_bytes())
            }
            ReplyBody::Hashes { count, .. } => prefix + DATA_HEADER + count * 32,
        };
        let room = self.shared.limit.queue_bytes(QUEUE_BYTES_MAX);
        // One reply always fits: the publisher bounds its size.
        if self.queue.len() >= QUEUE_REPLIES_MAX
            || (self.queued_bytes > 0 && self.queued_bytes + bytes > room)
        {
            self.stats.dropped += 1;
            return;
        }
        self.queued_bytes += bytes;
        self.queue.push_back(Waiting { reply, from_ip, bytes });
    }

    /// Sends the replies in the queue, as far as the socket and the rate limit allow.
    fn send(&mut self, now: Time) -> SendState {
        loop {
            let Some(mut batch) = self.batch.take().or_else(|| self.prepare()) else {
                return SendState::Idle;
            };
            let due = *batch.due.get_or_insert_with(|| self.shared.limit.reserve(now, batch.len));
            if due > now {
                self.batch = Some(batch);
                return SendState::Until(due);
            }
            // The sender of the frame may not be a forwarder, which would have checked its mark, so it is
            // checked here.
            let marks = self.shared.marks.unwrap_or_default();
            let outcome = self.udp.send(&Datagrams {
                to: Some(batch.to.address),
                from_ip: batch.from_ip,
                bytes: &self.buffer[..batch.len],
                segment: (batch.len > batch.segment).then_some(batch.segment),
                ecn: batch.ect,
                dscp: marks.only(frame::mark(batch.to.prefix())).number(),
            });
            match outcome {
                SendOutcome::Sent => {
                    self.stats.sent_bytes += batch.len as u64;
                    self.stats.sent_packets += batch.len.div_ceil(batch.segment) as u64;
                }
                SendOutcome::WouldBlock => {
                    self.batch = Some(batch);
                    return SendState::Blocked;
                }
                // The receiver searches for a size that fits, or is gone, so nothing is to be done here.
                SendOutcome::TooBig | SendOutcome::IcmpError(_) | SendOutcome::Other(_) => {
                    self.stats.unsent += 1;
                }
            }
        }
    }

    /// Fills the send buffer from the front of the queue. Returns `None` if the queue is empty.
    fn prepare(&mut self) -> Option<SendBatch> {
        loop {
            let Waiting { reply, from_ip, bytes } = self.queue.pop_front()?;
            self.queued_bytes -= bytes;
            let (to, ect) = (reply.to, reply.ect);
            let mut packet = to.prefix().to_vec();
            let prefix = packet.len();
            match reply.body {
                ReplyBody::Packet(bytes) => packet.extend_from_slice(&bytes),
                ReplyBody::Hashes { tag, content, level, first, count } => {
                    let cvs = self.shared.catalog.find(&content.root);
                    let cvs = cvs.and_then(|o| self.shared.catalog.outboard(o).cvs(level, first, count));
                    if let Some(cvs) = cvs {
                        wire::emit_hashes(&mut packet, tag, level, first, cvs);
                    }
                }
                ReplyBody::Chunks { .. } => {
                    self.queued_bytes += bytes;
                    self.queue.push_front(Waiting { reply, from_ip, bytes });
                    match self.gather() {
                        Some(batch) => return Some(batch),
                        None => continue,
                    }
                }
            }
            let len = packet.len();
            if len > prefix && len <= BUFFER_BYTES {
                self.buffer[..len].copy_from_slice(&packet);
                return Some(SendBatch { to, from_ip, ect, len, segment: len, due: None });
            }
        }
    }

    /// Refuses the request at the front, whose content cannot be read: tells its receiver once, and drops all
    /// other replies to it.
    fn refuse(&mut self, to: Peer, from_ip: Option<IpAddr>, asked: u64, reason: Reason) {
        self.stats.changed += 1;
        let answers = |waiting: &Waiting| {
            let ReplyBody::Chunks { tag, .. } = waiting.reply.body else { return false };
            waiting.reply.to == to && tag == asked
        };
        // All replies to one request were put into the queue one after the other.
        while let Some(gone) = self.queue.front().filter(|front| answers(front)) {
            self.queued_bytes -= gone.bytes;
            self.queue.pop_front();
        }
        self.enqueue(publisher::refusal(to, asked, reason), from_ip);
    }

    /// Gathers chunks from the front of the queue into the buffer, of as many replies as go to the same
    /// receiver in the same shape. Returns `None` if the first cannot be read; it is then dropped.
    fn gather(&mut self) -> Option<SendBatch> {
        let front = self.queue.front()?;
        let (to, from_ip, ect) = (front.reply.to, front.from_ip, front.reply.ect);
        let ReplyBody::Chunks { cut, .. } = front.reply.body else { return None };
        let prefix = to.prefix();
        let header = prefix.len() + DATA_HEADER;
        let segment = header + cut.chunk_bytes();
        let most = self.shared.limit.batch_bytes().min(BUFFER_BYTES) / segment;
        let mut room = most.clamp(1, self.udp.max_segments(segment));
        let mut len = 0;
        while room > 0 && len % segment == 0 {
            let Some(front) = self.queue.front_mut() else { break };
            let same = front.reply.to == to && front.from_ip == from_ip && front.reply.ect == ect;
            let ReplyBody::Chunks { tag, content, cut: its_cut, first, count } = &mut front.reply.body else {
                break;
            };
            if !same || *its_cut != cut {
                break;
            }
            let some = room.min(*count as usize).min(READ_CHUNKS_MAX);
            let catalog = &self.shared.catalog;
            let read = catalog
                .find(&content.root)
                .map(|o| catalog.read_chunks(o, cut, *first, some, header, &mut self.buffer[len..]));
            let Some(Ok(used)) = read else {
                let is_final = read.is_none_or(|read| read.is_err_and(|error| error.is_final()));
                let reason = if is_final { Reason::Changed } else { Reason::Busy };
                let tag = *tag;
                self.refuse(to, from_ip, tag, reason);
                break;
            };
            for (n, slot) in (*first..).zip(self.buffer[len..len + used].chunks_mut(segment)) {
                slot[..prefix.len()].copy_from_slice(prefix);
                slot[prefix.len()..header].copy_from_slice(&wire::data_header(*tag, cut, n));
            }
            len += used;
            room -= some;
            *first += some as u64;
            *count -= some as u32;
            let left = *count as usize * segment;
            self.queued_bytes -= front.bytes - left;
            front.bytes = left;
            if left == 0 {
                self.queue.pop_front();
            }
        }
        (len > 0).then_some(SendBatch { to, from_ip, ect, len, segment: segment.min(len), due: None })
    }
}

/// The event for which sending waits.
enum SendState {
    /// A request: the queue is empty.
    Idle,
    /// The time from which the rate limit allows the next batch.
    Until(Time),
    /// Room in the socket's buffer.
    Blocked,
}
