//! A line of a forwarder: its other end, its counters and its rate limits.

use std::net::{IpAddr, SocketAddr};

use anabranch_algo::Time;
use anabranch_topology::graph::{LinkId, NodeId};

use super::counters::{Counters, DropReason};
use super::neighbour::Neighbour;
use super::policer::Policer;

/// The lowest port of a host to which frames are sent: services of the system listen below it.
pub const HOST_PORT_MIN: u16 = 1_024;

/// The addresses between which a frame is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The forwarder's address on the line.
    pub from: IpAddr,
    /// The address and port of the other end.
    pub to: SocketAddr,
}

/// Frames one after the other that take the same way.
#[derive(Clone, Copy)]
pub(super) struct Train<'a> {
    pub(super) bytes: &'a [u8],
    /// The bytes of a frame; only the last frame may have fewer.
    pub(super) stride: usize,
}

impl<'a> Train<'a> {
    /// Returns a train of one frame.
    pub(super) const fn one(bytes: &'a [u8]) -> Self {
        Self { bytes, stride: if bytes.is_empty() { 1 } else { bytes.len() } }
    }

    pub(super) fn frames(self) -> std::slice::Chunks<'a, u8> {
        self.bytes.chunks(self.stride)
    }
}

#[derive(Debug)]
pub(super) struct Line {
    pub(super) link: LinkId,
    /// The link by which frames arrive.
    pub(super) ingress: LinkId,
    pub(super) hop_ip: (IpAddr, IpAddr),
    /// The port of a forwarder at the other end; `None` for a host, where each frame names the port.
    pub(super) port: Option<u16>,
    pub(super) there: NodeId,
    pub(super) neighbour: Option<Neighbour>,
    pub(super) sent: (u64, u64),
    /// Limits the frames sent over the line.
    pub(super) out: Option<Policer>,
    /// Limits the frames that arrive over the line, if a host is at the other end. A forwarder there has
    /// limited them already.
    pub(super) into: Option<Policer>,
}

/// Returns how many bytes of a train pass a limit, if there is one. The frames that do not pass are counted.
pub(super) fn police(
    policer: &mut Option<Policer>,
    now: Time,
    train: Train<'_>,
    counters: &mut Counters,
) -> usize {
    let Some(policer) = policer else { return train.bytes.len() };
    let passed = policer.take(now, train.bytes.len(), train.stride);
    let dropped = (train.bytes.len() - passed).div_ceil(train.stride);
    if dropped > 0 {
        *counters.dropped.entry(DropReason::RateLimit).or_default() += dropped as u64;
    }
    passed
}

impl Line {
    /// Returns how many bytes of a train may be sent over the line, and counts them.
    pub(super) fn send(&mut self, now: Time, train: Train<'_>, counters: &mut Counters) -> usize {
        let bytes = police(&mut self.out, now, train, counters);
        self.count(bytes.div_ceil(train.stride), bytes, counters);
        bytes
    }

    /// Counts frames that are sent over the line.
    const fn count(&mut self, frames: usize, bytes: usize, counters: &mut Counters) {
        self.sent = (self.sent.0 + frames as u64, self.sent.1 + bytes as u64);
        counters.forwarded += frames as u64;
        counters.forwarded_bytes += bytes as u64;
    }

    /// Returns the addresses for a frame to `port` of the node at the other end; `None` if nothing is sent to
    /// that port.
    pub(super) fn hop(&self, port: u16) -> Option<Hop> {
        let port = match self.port {
            Some(port) => port,
            None if port >= HOST_PORT_MIN => port,
            None => return None,
        };
        Some(Hop { from: self.hop_ip.0, to: SocketAddr::new(self.hop_ip.1, port) })
    }
}
