//! Defines which part of a flow's packets is payload.
//!
//! **Goodput** (Mbit/s) is payload in every world: the bytes that a program at the far end gets. **Shares**
//! and percentages of a link's rate count whole packets, headers included, because a flow occupies the link
//! with them. Where a world counts only payload, this layout converts it to whole packets.

use anabranch_mmtp::ChunksPerBlock;
use anabranch_mmtp::wire::DATA_HEADER;

use crate::simulation::OVERHEAD_BYTES;

/// Headers of a TCP segment: IPv4 (RFC 791) and TCP (RFC 9293), 20 bytes each, and timestamps (RFC 7323), 12
/// bytes with their padding.
const TCP_HEADER_BYTES: u64 = 20 + 20 + 12;
/// Bytes that MPTCP adds: a data sequence signal with mapping and 32-bit acknowledgement (RFC 8684, section
/// 3.3), as Linux sends it.
const MPTCP_OPTION_BYTES: u64 = 20;

/// The same with a 64-bit acknowledgement, as this project's stack sends it.
const STACK_DSS_BYTES: u64 = 28;

/// The sizes of a full data packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketLayout {
    /// Size on the wire, bytes.
    pub(crate) wire_bytes: u64,
    /// Payload, bytes; at least 1.
    pub(crate) payload_bytes: u64,
}

impl PacketLayout {
    /// Returns the layout of TCP, or of MPTCP if the flow has several paths. Packet flows of the simulator
    /// count these headers too.
    pub(crate) const fn tcp(packet_bytes: u64, paths: usize) -> Self {
        Self::with_option(packet_bytes, if paths > 1 { MPTCP_OPTION_BYTES } else { 0 })
    }

    /// Returns the layout of a full segment of this project's TCP, or of its MPTCP: a data sequence signal
    /// with numbers of 64 bits.
    pub(crate) const fn stack(packet_bytes: u64, is_mptcp: bool) -> Self {
        Self::with_option(packet_bytes, if is_mptcp { STACK_DSS_BYTES } else { 0 })
    }

    /// Returns the layout of a TCP segment with so many bytes of an option of Multipath TCP.
    const fn with_option(packet_bytes: u64, option: u64) -> Self {
        let payload_bytes = match packet_bytes.saturating_sub(TCP_HEADER_BYTES + option) {
            0 => 1,
            payload => payload,
        };
        Self { wire_bytes: packet_bytes, payload_bytes }
    }

    /// Returns the layout of mmTP over an interface that takes UDP payloads of `payload_max` bytes.
    pub(crate) fn mmtp(payload_max: usize) -> Self {
        let cut = ChunksPerBlock::fitting(payload_max.saturating_sub(DATA_HEADER));
        let chunk_bytes = cut.unwrap_or(ChunksPerBlock::MAX).chunk_bytes();
        let wire_bytes = (chunk_bytes + DATA_HEADER + OVERHEAD_BYTES) as u64;
        Self { wire_bytes, payload_bytes: chunk_bytes as u64 }
    }

    /// Returns the bytes of the whole packets that carry `payload` bytes.
    pub(crate) fn on_wire(self, payload: u64) -> u64 {
        let wire = u128::from(payload) * u128::from(self.wire_bytes) / u128::from(self.payload_bytes);
        u64::try_from(wire).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_carries_in_a_packet_of_1500_bytes() {
        let (tcp, mptcp) = (PacketLayout::tcp(1_500, 1), PacketLayout::tcp(1_500, 2));
        assert_eq!((tcp.payload_bytes, mptcp.payload_bytes), (1_448, 1_428));
        assert_eq!((tcp.on_wire(3 * 1_448), mptcp.on_wire(0)), (4_500, 0));
        assert_eq!(PacketLayout::tcp(52, 2).payload_bytes, 1);
        assert_eq!(tcp.on_wire(u64::MAX), u64::MAX);
    }

    #[test]
    fn what_the_stack_carries_in_a_packet_of_1500_bytes() {
        let (tcp, mptcp) = (PacketLayout::stack(1_500, false), PacketLayout::stack(1_500, true));
        assert_eq!((tcp.payload_bytes, mptcp.payload_bytes), (1_448, 1_420));
    }

    #[test]
    fn what_mmtp_carries_over_ethernet() {
        let mmtp = PacketLayout::mmtp(1_472);
        assert_eq!((mmtp.payload_bytes, mmtp.wire_bytes), (1_366, 1_366 + 20 + 42));
    }
}
