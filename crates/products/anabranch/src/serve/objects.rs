//! Serves the objects of any store by mmTP, each by its BLAKE3 name.
//!
//! The publisher of `anabranch_mmtp` decides what is sent; here its replies get their bytes: blocks and
//! hashes, which the store has verified, because a receiver bans a source for one wrong byte. One thread
//! serves one socket. What the store does not have is refused: a receiver has other sources.
//!
//! [`Serve`](super::Serve) is for files and directories that are hashed at its start; this is for caches,
//! whose objects come and go.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anabranch_algo::{Machine as _, Output, Time};
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::publisher::{self, ContentInfo, ContentStore, Publisher, Reply, ReplyBody};
use anabranch_mmtp::tree::ChainingValue;
use anabranch_mmtp::wire::{self, DATA_HEADER, Reason};
use anabranch_mmtp::{ChunksPerBlock, ContentId};
use anabranch_net::{
    Clock, Datagrams, Interest, Poller, RecvBuffers, RecvOutcome, SendOutcome, Udp, WakeReceiver, Waker,
};

/// The most replies that wait for room in the socket; further ones are lost, as packets are.
const QUEUE_MAX: usize = 4_096;
/// The bytes that one call sends.
const BUFFER_BYTES: usize = anabranch_net::udp::SEND_BYTES_MAX;

/// A store whose objects are served.
pub trait Objects: Send + Sync + 'static {
    /// Returns the object with this root, if it is there.
    fn find(&self, root: &[u8; 32]) -> Option<ContentId>;

    /// Returns hashes of an object's tree, within one page; `None` if they cannot be had.
    fn hashes(&self, content: &ContentId, level: u8, first: u64, count: usize) -> Option<Vec<ChainingValue>>;

    /// Fills `out` with these bytes of an object, compared with their hashes; `None` if they cannot be had.
    fn read(&self, content: &ContentId, range: Range<u64>, out: &mut Vec<u8>) -> Option<()>;

    /// Returns whether a host is answered at all.
    fn answers(&self, host: IpAddr) -> bool {
        let _ = host;
        true
    }

    /// Hears that packets were sent, of so many bytes together.
    fn sent(&self, packets: u64, bytes: u64);
}

/// A store as the publisher asks it.
struct Contents<O>(Arc<O>);

impl<O: Objects> ContentStore for Contents<O> {
    fn info(&self, root: &[u8; 32]) -> Option<ContentInfo<'_>> {
        let id = self.0.find(root)?;
        Some(ContentInfo { id, name: b"", collection: false })
    }
}

/// A running server of objects. It ends when it is dropped.
pub struct ObjectServer {
    address: SocketAddr,
    waker: Waker,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl ObjectServer {
    /// Serves the objects of a store on a UDP address.
    ///
    /// # Errors
    /// If the address cannot be bound, or the system has no thread, descriptor or random number left.
    pub fn start(objects: Arc<impl Objects>, address: SocketAddr) -> io::Result<Self> {
        let secret = crate::secret().map_err(io::Error::other)?;
        let (udp, wake) = (Udp::listen(address)?, WakeReceiver::new()?);
        let (address, waker, stop) = (udp.local_addr(), wake.waker(), Arc::new(AtomicBool::new(false)));
        let publisher = Publisher::new(Contents(Arc::clone(&objects)), secret);
        let (queue, buffer, bytes) = (VecDeque::new(), vec![0; BUFFER_BYTES], Vec::new());
        let worker = Worker { objects, udp, wake, stop: Arc::clone(&stop), publisher, queue, buffer, bytes };
        let thread = thread::Builder::new().name("udp".into()).spawn(move || worker.run())?;
        Ok(Self { address, waker, stop, thread: Some(thread) })
    }

    /// Returns the address that the server listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for ObjectServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectServer").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A socket and the replies that wait for it.
struct Worker<O: Objects> {
    objects: Arc<O>,
    udp: Udp,
    wake: WakeReceiver,
    stop: Arc<AtomicBool>,
    publisher: Publisher<Contents<O>>,
    queue: VecDeque<(Reply, Option<IpAddr>)>,
    buffer: Vec<u8>,
    /// The bytes of consecutive chunks.
    bytes: Vec<u8>,
}

impl<O: Objects> Worker<O> {
    fn run(mut self) -> io::Result<()> {
        let clock = Clock::start();
        let (mut poller, mut buffers) = (Poller::new(clock), RecvBuffers::new());
        while !self.stop.load(Ordering::SeqCst) {
            let interest = if self.queue.is_empty() { Interest::Read } else { Interest::ReadWrite };
            let set = [(self.udp.as_fd(), interest), (self.wake.as_fd(), Interest::Read)];
            poller.wait(set, Time::NEVER)?;
            self.receive(clock.now(), &mut buffers)?;
            self.send();
        }
        Ok(())
    }

    fn receive(&mut self, now: Time, buffers: &mut RecvBuffers) -> io::Result<RecvOutcome> {
        let (publisher, queue, objects) = (&mut self.publisher, &mut self.queue, &self.objects);
        self.udp.recv(buffers, |received| {
            if !objects.answers(received.from.ip()) {
                return;
            }
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
                SendOutcome::Sent => self.objects.sent(len.div_ceil(segment) as u64, len as u64),
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
                let hashes = self.objects.hashes(content, *level, *first, *count)?;
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
        let place = |chunk| {
            let (block, offset, len) = content.chunk_extent(chunk, cut)?;
            let start = block * BLOCK_BYTES as u64 + offset as u64;
            Some(start..start + len as u64)
        };
        let range = place(first)?.start..place(first + u64::from(count) - 1)?.end;
        self.objects.read(content, range.clone(), &mut self.bytes)?;
        let mut used = 0;
        for chunk in first..first + u64::from(count) {
            let its = place(chunk)?;
            let wire_len = content.chunk_wire_len(chunk, cut)?;
            let packet = self.buffer.get_mut(used..used + DATA_HEADER + wire_len)?;
            let (header, payload) = packet.split_at_mut(DATA_HEADER);
            header.copy_from_slice(&wire::data_header(tag, cut, chunk));
            let data =
                self.bytes.get((its.start - range.start) as usize..(its.end - range.start) as usize)?;
            payload[..data.len()].copy_from_slice(data);
            payload[data.len()..].fill(0);
            used += packet.len();
        }
        Some(used)
    }
}
