//! A segment of TCP in flight.

use anabranch_mptcp::Segment;
use anabranch_mptcp::segment::{EcnField, IPV4_HEADER_BYTES, TCP_HEADER_BYTES};

/// Base of [`anabranch_sim::Packet::flow`] for data of TCP flows: path `p` of all paths of TCP flows has this
/// number plus `p`.
pub const FLOW_TCP: u32 = 1 << 30;

/// A segment in flight.
#[derive(Clone, Debug)]
pub struct TcpPacket {
    pub(super) segment: Segment,
    /// The flow.
    pub(super) flow: u32,
    /// Number of the path among all paths of TCP flows.
    pub(super) path: u32,
    /// Whether the receiver of the data is the target.
    pub(super) to_receiver: bool,
    /// Whether a bit was flipped: the checksum detects this, and the packet is ignored.
    pub(super) broken: bool,
}

impl TcpPacket {
    /// Returns a number that tells the packet from others.
    pub(super) fn fingerprint(&self) -> u64 {
        let Segment { seq, ack, .. } = self.segment;
        let numbers = u64::from(seq) << 32 | u64::from(ack);
        numbers ^ u64::from(self.path) << 1 ^ u64::from(self.to_receiver)
    }
}

impl anabranch_sim::Packet for TcpPacket {
    fn bytes(&self) -> u32 {
        let options = self.segment.options.as_bytes().len();
        (IPV4_HEADER_BYTES + TCP_HEADER_BYTES + options + self.segment.payload.len()) as u32
    }
    fn mark(&mut self) {
        if self.is_ect() {
            self.segment.ecn = EcnField::Ce;
        }
    }
    fn is_ect(&self) -> bool {
        self.segment.ecn != EcnField::NotEct
    }
    fn flow(&self) -> Option<u32> {
        (self.to_receiver && !self.segment.payload.is_empty()).then_some(FLOW_TCP | self.path)
    }
    fn flow_key(&self) -> u64 {
        1 << 62 | u64::from(self.path) << 1 | u64::from(self.to_receiver)
    }
    fn corrupt(&mut self, _bit: u64) {
        self.broken = true;
    }
}
