//! A line of a forwarder: where it leads, what goes over it, and how much may.

use std::net::{IpAddr, SocketAddr};

use anabranch_algo::Time;
use anabranch_topology::graph::{LinkId, NodeId};

use super::counters::{Counters, DropReason};
use super::neighbour::Neighbour;
use super::policer::Policer;

/// Ports of hosts below this are not sent to: services of the system listen there.
pub const HOST_PORT_MIN: u16 = 1_024;

/// Where a frame is sent: from which of the forwarder's addresses, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The forwarder's address on the line.
    pub from: IpAddr,
    /// The other end.
    pub to: SocketAddr,
}

/// Frames one after the other, which go the same way.
#[derive(Clone, Copy)]
pub(super) struct Train<'a> {
    pub(super) bytes: &'a [u8],
    /// Bytes of each, of which only the last may have fewer.
    pub(super) stride: usize,
}

impl<'a> Train<'a> {
    /// Of one frame.
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
    /// The link that frames come by.
    pub(super) ingress: LinkId,
    pub(super) hop_ip: (IpAddr, IpAddr),
    /// Of a forwarder at the other end; a host has none: frames say which.
    pub(super) port: Option<u16>,
    pub(super) there: NodeId,
    pub(super) neighbour: Option<Neighbour>,
    pub(super) sent: (u64, u64),
    /// Of what is sent over it.
    pub(super) out: Option<Policer>,
    /// Of what comes over it, if a host is at its other end: a forwarder there has looked at it.
    pub(super) into: Option<Policer>,
}

/// How much of these passes a limit, if there is one; the rest is counted.
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
    /// Frames are to be sent over it: how many bytes of them are.
    pub(super) fn send(&mut self, now: Time, train: Train<'_>, counters: &mut Counters) -> usize {
        let bytes = police(&mut self.out, now, train, counters);
        self.count(bytes.div_ceil(train.stride), bytes, counters);
        bytes
    }

    /// Frames are sent over it.
    const fn count(&mut self, frames: usize, bytes: usize, counters: &mut Counters) {
        self.sent = (self.sent.0 + frames as u64, self.sent.1 + bytes as u64);
        counters.forwarded += frames as u64;
        counters.forwarded_bytes += bytes as u64;
    }

    /// Where a frame for a port of the node at its end is sent.
    pub(super) fn hop(&self, port: u16) -> Option<Hop> {
        let port = match self.port {
            Some(port) => port,
            None if port >= HOST_PORT_MIN => port,
            None => return None,
        };
        Some(Hop { from: self.hop_ip.0, to: SocketAddr::new(self.hop_ip.1, port) })
    }
}
