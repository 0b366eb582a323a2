//! One TCP segment with its addresses (RFC 9293 section 3.1), read from and written as an IP packet.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use anabranch_mptcp_wire::Flags;
pub use anabranch_mptcp_wire::tcp::TCP_HEADER_BYTES;
use anabranch_mptcp_wire::{InternetChecksum, OptionBuffer, TcpHeader};

use crate::payload::Payload;

/// Bytes of an IPv4 header without options.
pub const IPV4_HEADER_BYTES: usize = 20;
/// Bytes of an IPv6 header.
pub const IPV6_HEADER_BYTES: usize = 40;
/// TCP's protocol number in IP.
const TCP: u8 = 6;
const HOP_LIMIT: u8 = 64;

/// The ECN field of the IP header (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcnField {
    /// Not ECN-capable.
    #[default]
    NotEct,
    /// ECN-capable, ECT(1).
    Ect1,
    /// ECN-capable, ECT(0).
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl EcnField {
    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }
    const fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0,
            Self::Ect1 => 1,
            Self::Ect0 => 2,
            Self::Ce => 3,
        }
    }
}

/// A TCP segment with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The sender's address and port.
    pub source: SocketAddr,
    /// The receiver's address and port, of the same family as `source`.
    pub target: SocketAddr,
    /// The sequence number.
    pub seq: u32,
    /// The acknowledgement number, which counts only with [`Flags::ACK`].
    pub ack: u32,
    /// The flags.
    pub flags: Flags,
    /// The window as it is on the wire, not scaled.
    pub window: u16,
    /// The ECN field of the IP header.
    pub ecn: EcnField,
    /// The TCP options.
    pub options: OptionBuffer,
    /// The data.
    pub payload: Payload,
}

/// The reason why a packet is not read as a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// The packet ends too early, or a length in it is wrong.
    Truncated,
    /// The packet is neither IPv4 nor IPv6.
    IpVersion(u8),
    /// The packet carries another protocol than TCP, or has IPv6 extension headers.
    Protocol(u8),
    /// The packet is a fragment of an IPv4 packet.
    Fragment,
    /// The checksum of the IPv4 header is wrong.
    HeaderChecksum,
    /// TCP's checksum is wrong.
    Checksum,
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(f, "the packet ends before its headers do"),
            Self::IpVersion(version) => write!(f, "there is no IP version {version}"),
            Self::Protocol(protocol) => write!(f, "protocol {protocol} is not TCP"),
            Self::Fragment => write!(f, "a fragment"),
            Self::HeaderChecksum => write!(f, "wrong checksum of the IPv4 header"),
            Self::Checksum => write!(f, "wrong checksum"),
        }
    }
}

impl std::error::Error for SegmentError {}

fn be16(bytes: &[u8], at: usize) -> Result<u16, SegmentError> {
    let two = bytes.get(at..at + 2).and_then(|two| two.try_into().ok());
    two.map(u16::from_be_bytes).ok_or(SegmentError::Truncated)
}

fn be32(bytes: &[u8], at: usize) -> Result<u32, SegmentError> {
    Ok(u32::from(be16(bytes, at)?) << 16 | u32::from(be16(bytes, at + 2)?))
}

/// The IP header of a packet, and the bytes that follow the header.
struct IpHeader<'a> {
    source: IpAddr,
    target: IpAddr,
    ecn: EcnField,
    body: &'a [u8],
}

impl<'a> IpHeader<'a> {
    fn parse(packet: &'a [u8]) -> Result<Self, SegmentError> {
        match packet.first().ok_or(SegmentError::Truncated)? >> 4 {
            4 => Self::parse_v4(packet),
            6 => Self::parse_v6(packet),
            version => Err(SegmentError::IpVersion(version)),
        }
    }

    fn parse_v4(packet: &'a [u8]) -> Result<Self, SegmentError> {
        let fixed: &[u8; IPV4_HEADER_BYTES] = packet.first_chunk().ok_or(SegmentError::Truncated)?;
        let (header_bytes, total) = (usize::from(fixed[0] & 15) * 4, usize::from(be16(packet, 2)?));
        let header = packet.get(..header_bytes).ok_or(SegmentError::Truncated)?;
        if header_bytes < IPV4_HEADER_BYTES {
            return Err(SegmentError::Truncated);
        }
        let mut checksum = InternetChecksum::default();
        checksum.add(header);
        if checksum.finish() != 0 {
            return Err(SegmentError::HeaderChecksum);
        }
        // Masks all bits but "don't fragment".
        if be16(packet, 6)? & 0xbfff != 0 {
            return Err(SegmentError::Fragment);
        }
        if fixed[9] != TCP {
            return Err(SegmentError::Protocol(fixed[9]));
        }
        Ok(Self {
            source: Ipv4Addr::from(be32(packet, 12)?).into(),
            target: Ipv4Addr::from(be32(packet, 16)?).into(),
            ecn: EcnField::from_bits(fixed[1]),
            body: packet.get(header_bytes..total).ok_or(SegmentError::Truncated)?,
        })
    }

    fn parse_v6(packet: &'a [u8]) -> Result<Self, SegmentError> {
        let fixed: &[u8; IPV6_HEADER_BYTES] = packet.first_chunk().ok_or(SegmentError::Truncated)?;
        if fixed[6] != TCP {
            return Err(SegmentError::Protocol(fixed[6]));
        }
        let address = |at: usize| -> Result<IpAddr, SegmentError> {
            let octets: Option<[u8; 16]> = packet.get(at..at + 16).and_then(|octets| octets.try_into().ok());
            octets.map(|octets| Ipv6Addr::from(octets).into()).ok_or(SegmentError::Truncated)
        };
        let end = IPV6_HEADER_BYTES + usize::from(be16(packet, 4)?);
        Ok(Self {
            source: address(8)?,
            target: address(24)?,
            ecn: EcnField::from_bits(fixed[1] >> 4),
            body: packet.get(IPV6_HEADER_BYTES..end).ok_or(SegmentError::Truncated)?,
        })
    }
}

/// Returns the checksum of the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1).
fn pseudo_header(source: IpAddr, target: IpAddr, bytes: usize) -> InternetChecksum {
    let mut checksum = InternetChecksum::default();
    for address in [source, target] {
        match address {
            IpAddr::V4(address) => checksum.add(&address.octets()),
            IpAddr::V6(address) => checksum.add(&address.octets()),
        }
    }
    checksum.add(&(bytes as u32).to_be_bytes());
    checksum.add(&[0, TCP]);
    checksum
}

impl Segment {
    /// Reads an IP packet.
    ///
    /// # Errors
    /// If `packet` is not an intact TCP segment; the error says why.
    pub fn parse(packet: &[u8]) -> Result<Self, SegmentError> {
        let IpHeader { source, target, ecn, body } = IpHeader::parse(packet)?;
        let header = TcpHeader::read(body).map_err(|_| SegmentError::Truncated)?;
        let header_bytes = header.header_bytes;
        let options = body.get(TCP_HEADER_BYTES..header_bytes).ok_or(SegmentError::Truncated)?;
        let data = body.get(header_bytes..).ok_or(SegmentError::Truncated)?;
        let mut checksum = pseudo_header(source, target, body.len());
        checksum.add(body);
        if checksum.finish() != 0 {
            return Err(SegmentError::Checksum);
        }
        Ok(Self {
            source: SocketAddr::new(source, header.source_port),
            target: SocketAddr::new(target, header.target_port),
            seq: header.seq,
            ack: header.ack,
            flags: header.flags,
            window: header.window,
            ecn,
            options: OptionBuffer::from_wire(options).ok_or(SegmentError::Truncated)?,
            payload: Payload::copy_of(data),
        })
    }

    /// Appends the segment to `out` as an IP packet that must not be fragmented.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let tcp_bytes = TCP_HEADER_BYTES + self.options.as_bytes().len() + self.payload.len();
        self.emit_ip(tcp_bytes, out);
        let start = out.len();
        self.emit_tcp((self.source.port(), self.target.port()), out);
        let mut checksum = pseudo_header(self.source.ip(), self.target.ip(), tcp_bytes);
        checksum.add(&out[start..]);
        out[start + 16..start + 18].copy_from_slice(&checksum.finish().to_be_bytes());
    }

    /// Appends the TCP header with these ports, and no checksum, the options and the data.
    pub(crate) fn emit_tcp(&self, (source_port, target_port): (u16, u16), out: &mut Vec<u8>) {
        let options = self.options.as_bytes();
        let header = TcpHeader {
            source_port,
            target_port,
            seq: self.seq,
            ack: self.ack,
            header_bytes: TCP_HEADER_BYTES + options.len(),
            flags: self.flags,
            window: self.window,
            checksum: 0,
        };
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(options);
        out.extend_from_slice(self.payload.as_bytes());
    }

    fn emit_ip(&self, tcp_bytes: usize, out: &mut Vec<u8>) {
        let start = out.len();
        match (self.source.ip(), self.target.ip()) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                let total = (IPV4_HEADER_BYTES + tcp_bytes) as u16;
                out.extend_from_slice(&[0x45, self.ecn.bits()]);
                out.extend_from_slice(&total.to_be_bytes());
                // Identification (useless without fragments: RFC 6864), then "don't fragment".
                out.extend_from_slice(&[0, 0, 0x40, 0, HOP_LIMIT, TCP, 0, 0]);
                out.extend_from_slice(&source.octets());
                out.extend_from_slice(&target.octets());
                let mut checksum = InternetChecksum::default();
                checksum.add(&out[start..]);
                out[start + 10..start + 12].copy_from_slice(&checksum.finish().to_be_bytes());
            }
            (source, target) => {
                let octets = |address: IpAddr| match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                };
                out.extend_from_slice(&[0x60, self.ecn.bits() << 4, 0, 0]);
                out.extend_from_slice(&(tcp_bytes as u16).to_be_bytes());
                out.extend_from_slice(&[TCP, HOP_LIMIT]);
                out.extend_from_slice(&octets(source));
                out.extend_from_slice(&octets(target));
            }
        }
    }

    /// Returns how many sequence numbers the segment takes: one for each byte, one for SYN and one for FIN.
    #[must_use]
    pub fn sequence_len(&self) -> u64 {
        let flags = [Flags::SYN, Flags::FIN].into_iter().filter(|flag| self.flags.has(*flag)).count();
        (self.payload.len() + flags) as u64
    }
}
