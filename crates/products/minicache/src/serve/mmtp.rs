//! Serves the objects of an image by mmTP, each by its BLAKE3 name, to `anabranch get` and other receivers.
//!
//! The publisher of `anabranch_mmtp` decides what is sent; here its replies get their bytes: blocks and
//! hashes, both proven before they are sent, because a receiver bans a source for one wrong byte. One
//! thread serves one socket. What is not in the image is refused, also in peer mode: a receiver has other
//! sources.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use anabranch_algo::{Machine as _, Output, Time};
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::publisher::{self, ContentInfo, ContentStore, Publisher, Reply, ReplyBody};
use anabranch_mmtp::wire::{self, DATA_HEADER, Reason};
use anabranch_mmtp::{ChunksPerBlock, ContentId};
use anabranch_net::{
    Datagrams, Interest, Poller, RecvBuffers, RecvOutcome, SendOutcome, Udp, WakeReceiver, Waker,
};

use super::count::Count;
use super::site::{Held, Site};
use crate::disk::Disk as _;
use crate::name::Name;

/// The most replies that wait for room in the socket; further ones are lost, as packets are.
const QUEUE_MAX: usize = 4_096;
/// The bytes that one call sends.
const BUFFER_BYTES: usize = anabranch_net::udp::SEND_BYTES_MAX;

/// The objects of an image, as the publisher asks for them.
struct Contents(Arc<Site>);

impl ContentStore for Contents {
    fn info(&self, root: &[u8; 32]) -> Option<ContentInfo<'_>> {
        let found = self.0.image().table().find(&Name::Root(*root))?;
        let id = ContentId { root: *root, length: found.length };
        Some(ContentInfo { id, name: b"", collection: false })
    }
}

/// A socket and the replies that wait for it.
pub(super) struct MmtpWorker {
    site: Arc<Site>,
    udp: Udp,
    wake: WakeReceiver,
    publisher: Publisher<Contents>,
    queue: VecDeque<(Reply, Option<IpAddr>)>,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
}

impl MmtpWorker {
    /// Listens on an address. `secret` is the key of the publisher's cookies.
    pub(super) fn new(site: &Arc<Site>, address: SocketAddr, secret: [u8; 32]) -> io::Result<Self> {
        let udp = Udp::listen(address)?;
        let publisher = Publisher::new(Contents(Arc::clone(site)), secret);
        let (site, wake) = (Arc::clone(site), WakeReceiver::new()?);
        let (queue, buffer, scratch) = (VecDeque::new(), vec![0; BUFFER_BYTES], Vec::new());
        Ok(Self { site, udp, wake, publisher, queue, buffer, scratch })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.udp.local_addr()
    }

    pub(super) fn waker(&self) -> Waker {
        self.wake.waker()
    }

    /// Serves until the site is stopped.
    pub(super) fn run(mut self) -> io::Result<()> {
        let clock = self.site.clock;
        let (mut poller, mut buffers) = (Poller::new(clock), RecvBuffers::new());
        while !self.site.is_stopped() {
            let interest = if self.queue.is_empty() { Interest::Read } else { Interest::ReadWrite };
            let set = [(self.udp.as_fd(), interest), (self.wake.as_fd(), Interest::Read)];
            poller.wait(set, Time::NEVER)?;
            self.receive(clock.now(), &mut buffers)?;
            self.send();
        }
        Ok(())
    }

    fn receive(&mut self, now: Time, buffers: &mut RecvBuffers) -> io::Result<RecvOutcome> {
        let (publisher, queue) = (&mut self.publisher, &mut self.queue);
        self.udp.recv(buffers, |received| {
            for datagram in received.datagrams() {
                publisher.handle(now, (received.from.into(), datagram));
                while let Output::Send(reply) = publisher.poll(now) {
                    if queue.len() < QUEUE_MAX {
                        queue.push_back((reply, received.to_ip));
                    }
                }
            }
        })
    }

    /// Sends what waits, as far as the socket has room.
    fn send(&mut self) {
        while let Some((reply, from_ip)) = self.queue.pop_front() {
            let Some((len, segment, rest)) = self.fill(&reply) else {
                if let ReplyBody::Chunks { tag, .. } | ReplyBody::Hashes { tag, .. } = reply.body {
                    self.queue.push_front((publisher::refusal(reply.to, tag, Reason::Changed), from_ip));
                }
                continue;
            };
            let outcome = self.udp.send(&Datagrams {
                to: Some(reply.to.address),
                from_ip,
                bytes: &self.buffer[..len],
                segment: (len > segment).then_some(segment),
                ecn: reply.ect,
                dscp: 0,
            });
            match outcome {
                SendOutcome::WouldBlock => {
                    self.queue.push_front((reply, from_ip));
                    return;
                }
                SendOutcome::Sent => {
                    self.site.counters.add(Count::MmtpPackets, len.div_ceil(segment) as u64);
                    self.site.counters.add(Count::MmtpBytes, len as u64);
                }
                // The receiver searches for a size that fits, or is gone.
                SendOutcome::TooBig | SendOutcome::IcmpError(_) | SendOutcome::Other(_) => {}
            }
            if let Some(rest) = rest {
                self.queue.push_front((Reply { body: rest, ..reply }, from_ip));
            }
        }
    }

    /// Fills the buffer from a reply. Returns the bytes of all packets and of one, and what of the reply is
    /// left; `None` if its bytes cannot be had.
    fn fill(&mut self, reply: &Reply) -> Option<(usize, usize, Option<ReplyBody>)> {
        match &reply.body {
            ReplyBody::Packet(packet) => {
                self.buffer[..packet.len()].copy_from_slice(packet);
                Some((packet.len(), packet.len(), None))
            }
            ReplyBody::Hashes { tag, content, level, first, count } => {
                let held = self.hold(content)?;
                let hashes = held.proof.hashes(self.site.image().disk(), *level, *first, *count).ok()?;
                let mut packet = Vec::new();
                wire::emit_hashes(&mut packet, *tag, *level, *first, &hashes);
                self.buffer[..packet.len()].copy_from_slice(&packet);
                Some((packet.len(), packet.len(), None))
            }
            ReplyBody::Chunks { tag, content, cut, first, count } => {
                let segment = DATA_HEADER + cut.chunk_bytes();
                let some = (*count).min(self.udp.max_segments(segment) as u32);
                let len = self.fill_chunks(*tag, content, *cut, *first, some)?;
                let rest = (some < *count).then(|| ReplyBody::Chunks {
                    tag: *tag,
                    content: *content,
                    cut: *cut,
                    first: first + u64::from(some),
                    count: count - some,
                });
                Some((len, segment.min(len), rest))
            }
        }
    }

    /// Fills the buffer with packets of consecutive chunks; returns their bytes.
    fn fill_chunks(
        &mut self,
        tag: u64,
        content: &ContentId,
        cut: ChunksPerBlock,
        first: u64,
        count: u32,
    ) -> Option<usize> {
        let held = self.hold(content)?;
        let place = |chunk| {
            let (block, offset, len) = content.chunk_extent(chunk, cut)?;
            let start = block * BLOCK_BYTES as u64 + offset as u64;
            Some(start..start + len as u64)
        };
        let range = place(first)?.start..place(first + u64::from(count) - 1)?.end;
        self.site.prove(&held, range.clone(), &mut self.scratch).ok()?;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.site.image().disk().read_at(held.proof.place(range.start), &mut bytes).ok()?;
        let mut used = 0;
        for chunk in first..first + u64::from(count) {
            let its = place(chunk)?;
            let wire_len = content.chunk_wire_len(chunk, cut)?;
            let packet = self.buffer.get_mut(used..used + DATA_HEADER + wire_len)?;
            let (header, payload) = packet.split_at_mut(DATA_HEADER);
            header.copy_from_slice(&wire::data_header(tag, cut, chunk));
            let data = bytes.get((its.start - range.start) as usize..(its.end - range.start) as usize)?;
            payload[..data.len()].copy_from_slice(data);
            payload[data.len()..].fill(0);
            used += packet.len();
        }
        self.site.image().table().count_bytes(held.slot, range.end - range.start);
        Some(used)
    }

    fn hold(&self, content: &ContentId) -> Option<Held> {
        self.site.hold(&Name::Root(content.root)).filter(|held| held.entry.id == *content)
    }
}
