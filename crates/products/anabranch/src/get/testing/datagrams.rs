//! UDP in a simulated world: sources behind links with a rate, a queue and loss.

use std::net::SocketAddr;
use std::rc::Rc;

use anabranch_algo::{Span, Time};

use super::rng::Rng;
use super::sim_source::SimSource;
use crate::get::world::{Arrival, OpenSocket, SocketId};

/// The rate of each link, bytes a second; `QUEUE` is the longest wait in the queue at its far end.
const RATE_BYTES: u64 = 2_000_000;
const QUEUE: Span = Span::from_millis(150);

/// A datagram under way to this host.
struct Packet {
    at: Time,
    socket: SocketId,
    bytes: Vec<u8>,
}

/// A UDP socket.
#[derive(Clone, Copy)]
pub(super) struct SimSocket {
    pub(super) link: usize,
    /// The number of the source at its other end.
    source: usize,
}

/// All sockets, and the datagrams under way to them.
pub(super) struct Datagrams {
    /// The sources by their numbers; `None` if no source listens there.
    sources: Vec<Option<SimSource>>,
    /// The sockets by their numbers; `None` is a free number.
    sockets: Vec<Option<SimSocket>>,
    packets: Vec<Packet>,
    /// The time until which each link is busy with packets.
    sending: Vec<Time>,
}

impl Datagrams {
    pub(super) fn new(sources: &[bool], content: &Rc<Vec<u8>>, links: usize) -> Self {
        let source = |is_there: &bool| is_there.then(|| SimSource::new(content));
        let sources = sources.iter().map(source).collect();
        Self { sources, sockets: Vec::new(), packets: Vec::new(), sending: vec![Time::ZERO; links] }
    }

    /// Returns the time at which the next packet arrives.
    pub(super) fn next(&self) -> Time {
        self.packets.iter().map(|packet| packet.at).fold(Time::NEVER, Time::min)
    }

    /// Drops all packets under way over a link that is gone.
    pub(super) fn lose(&mut self, link: usize) {
        let sockets = &self.sockets;
        self.packets.retain(|packet| sockets[packet.socket].is_some_and(|socket| socket.link != link));
    }

    pub(super) fn open(&mut self, link: usize, peer: SocketAddr) -> OpenSocket {
        let id = self.sockets.iter().position(Option::is_none).unwrap_or(self.sockets.len());
        if id == self.sockets.len() {
            self.sockets.push(None);
        }
        self.sockets[id] = Some(SimSocket { link, source: usize::from(peer.port()) - 1 });
        OpenSocket { id, port: 40_000, payload_max: 1_472, receive_buffer: 4 << 20 }
    }

    pub(super) fn close(&mut self, socket: SocketId) {
        self.sockets[socket] = None;
        self.packets.retain(|packet| packet.socket != socket);
    }

    pub(super) fn socket(&self, socket: SocketId) -> Option<SimSocket> {
        self.sockets[socket]
    }

    /// Sends a datagram over a link that is up. Returns whether it was sent without an error.
    pub(super) fn send(&mut self, now: Time, socket: SocketId, bytes: &[u8], rng: &mut Rng) -> bool {
        let Some(SimSocket { link, source }) = self.sockets[socket] else { return true };
        let Some(source) = &mut self.sources[source] else { return rng.one_in(2) };
        let there = now + Span::from_millis(10 + 25 * link as u64);
        let from = SocketAddr::from(([192, 0, 2, link as u8], 1_000 + socket as u16));
        for bytes in source.answer(there, from, bytes) {
            let starts = self.sending[link].max(there);
            if starts.since(there) > QUEUE || rng.one_in(200) {
                continue;
            }
            let lasts = Span::from_nanos(bytes.len() as u64 * 1_000_000_000 / RATE_BYTES);
            self.sending[link] = starts + lasts;
            let at = starts + lasts + Span::from_millis(10 + 25 * link as u64);
            self.packets.push(Packet { at, socket, bytes });
        }
        true
    }

    /// Hands over the packets that have arrived, and counts their bytes by link.
    pub(super) fn receive(
        &mut self,
        now: Time,
        came: &mut [u64],
        each: &mut dyn FnMut(SocketId, Arrival<'_>),
    ) {
        self.packets.sort_by_key(|packet| packet.at);
        let due = self.packets.partition_point(|packet| packet.at <= now);
        for Packet { socket, bytes, .. } in self.packets.drain(..due) {
            if let Some(SimSocket { link, .. }) = self.sockets[socket] {
                came[link] += bytes.len() as u64;
            }
            each(socket, Arrival::Datagrams { bytes: &bytes, stride: bytes.len(), marked: false });
        }
    }
}
