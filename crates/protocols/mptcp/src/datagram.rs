//! A segment in a datagram of UDP, for hosts and paths without Multipath TCP.
//!
//! The addresses and ports of a subflow are those of UDP, so the TCP header needs none: in their place it has
//! a mark that tells such a datagram from others at the same port. Everything else is as in TCP (RFC 9293
//! section 3.1). UDP's checksum covers the datagram, so TCP's is 0 and is not looked at.
//!
//! | bytes | field |
//! | --- | --- |
//! | 1 | [`MARK`] |
//! | 3 | 0, not looked at |
//! | 16 to 56 | the TCP header from the sequence number on, with its options; checksum and urgent pointer 0 |
//! | the rest | data; in a SYN: padding |
//!
//! **No amplification.** A SYN is padded to [`SYN_BYTES`], so that a path which cannot carry such a datagram
//! is not used, and a host does not answer a SYN of less than [`SYN_BYTES_MIN`]. The answers to one SYN, with
//! their repetitions, are fewer bytes than that if `retries_max` is at most 12. Everything else that a host
//! sends to an address that has proven nothing is one reset, which is no longer than its cause.

use std::net::SocketAddr;

use anabranch_mptcp_wire::{OptionBuffer, TcpHeader};

use crate::payload::Payload;
use crate::segment::{EcnField, Flags, Segment, SegmentError, TCP_HEADER_BYTES};

/// The first byte of a datagram with a segment.
pub const MARK: u8 = 0x51;
/// The bytes of the UDP header, which the MTU of a subflow must leave room for.
pub const UDP_HEADER_BYTES: u16 = 8;
/// The bytes of a datagram with a SYN. With the headers of IPv6 and UDP the packet has 1,400 bytes.
pub const SYN_BYTES: usize = 1_352;
/// The fewest bytes of a datagram with a SYN that is answered.
pub const SYN_BYTES_MIN: usize = 1_200;

/// Returns whether a datagram claims to have a segment.
#[must_use]
pub fn is_segment(datagram: &[u8]) -> bool {
    datagram.first() == Some(&MARK)
}

/// Appends a segment to `out` as the payload of a datagram.
pub fn emit(segment: &Segment, out: &mut Vec<u8>) {
    let start = out.len();
    segment.emit_tcp((u16::from_be_bytes([MARK, 0]), 0), out);
    if is_first(segment.flags) {
        out.resize(start + SYN_BYTES, 0);
    }
}

/// Returns whether these flags are those of a segment that begins a subflow.
const fn is_first(flags: Flags) -> bool {
    flags.has(Flags::SYN) && !flags.has(Flags::ACK)
}

/// Reads a segment from the payload of a datagram that came from `source` to `target` with this ECN field.
///
/// # Errors
/// If the payload has no whole segment, or if it is a SYN of less than [`SYN_BYTES_MIN`].
pub fn parse(
    datagram: &[u8],
    source: SocketAddr,
    target: SocketAddr,
    ecn: EcnField,
) -> Result<Segment, SegmentError> {
    let header = TcpHeader::read(datagram).map_err(|_| SegmentError::Truncated)?;
    let options = datagram.get(TCP_HEADER_BYTES..header.header_bytes).ok_or(SegmentError::Truncated)?;
    let data = datagram.get(header.header_bytes..).ok_or(SegmentError::Truncated)?;
    let is_short = is_first(header.flags) && datagram.len() < SYN_BYTES_MIN;
    if !is_segment(datagram) || is_short {
        return Err(SegmentError::Truncated);
    }
    // A SYN has no data, only padding.
    let data = if header.flags.has(Flags::SYN) { &[] } else { data };
    Ok(Segment {
        source,
        target,
        seq: header.seq,
        ack: header.ack,
        flags: header.flags,
        window: header.window,
        ecn,
        options: OptionBuffer::from_wire(options).ok_or(SegmentError::Truncated)?,
        payload: Payload::copy_of(data),
    })
}

#[cfg(test)]
mod tests {
    use anabranch_mptcp_wire::TcpOption;

    use super::*;

    fn segment(flags: Flags, data: &[u8]) -> Segment {
        let mut options = OptionBuffer::default();
        options.push(&TcpOption::Mss(1_352));
        Segment {
            source: "192.0.2.1:1000".parse().unwrap(),
            target: "192.0.2.2:26228".parse().unwrap(),
            seq: 7,
            ack: 9,
            flags,
            window: 500,
            ecn: EcnField::NotEct,
            options,
            payload: Payload::copy_of(data),
        }
    }

    fn read(datagram: &[u8]) -> Result<Segment, SegmentError> {
        let Segment { source, target, ecn, .. } = segment(Flags::ACK, &[]);
        parse(datagram, source, target, ecn)
    }

    #[test]
    fn what_is_written_is_read_and_a_syn_is_long() {
        for (flags, data) in
            [(Flags::ACK, &b"data"[..]), (Flags::SYN, &[]), (Flags::SYN.and(Flags::ACK), &[])]
        {
            let (sent, mut out) = (segment(flags, data), vec![1, 2, 3]);
            emit(&sent, &mut out);
            let datagram = &out[3..];
            assert_eq!(read(datagram), Ok(sent));
            assert_eq!(datagram.len() == SYN_BYTES, flags == Flags::SYN);
            assert!(is_segment(datagram) && datagram[18..20] == [0, 0]);
        }
    }

    #[test]
    fn a_datagram_that_is_cut_has_another_mark_or_asks_for_more_than_it_brings_is_dropped() {
        let mut out = Vec::new();
        emit(&segment(Flags::SYN, &[]), &mut out);
        assert!(read(&out[..SYN_BYTES_MIN]).is_ok());
        assert_eq!(read(&out[..SYN_BYTES_MIN - 1]), Err(SegmentError::Truncated));
        let mut out = Vec::new();
        emit(&segment(Flags::ACK, &[]), &mut out);
        for len in 0..out.len() {
            assert_eq!(read(&out[..len]), Err(SegmentError::Truncated));
        }
        out[0] = 0x41;
        assert_eq!(read(&out), Err(SegmentError::Truncated));
    }
}
