//! Reads the link, IP and TCP headers of a frame.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use anabranch_mptcp_wire::tcp::Flags;
use anabranch_mptcp_wire::tcp::{TCP_HEADER_BYTES, TcpHeader, TcpHeaderError};

use crate::capture::Frame;

/// The link types that can be read: <https://www.tcpdump.org/linktypes.html>.
mod link {
    pub(super) const NULL: i32 = 0;
    pub(super) const ETHERNET: i32 = 1;
    pub(super) const PPP: i32 = 9;
    /// LINKTYPE_RAW is 101; tcpdump of some systems writes DLT_RAW, 12 or 14.
    pub(super) const RAW: [i32; 3] = [101, 12, 14];
    pub(super) const LOOP: i32 = 108;
    pub(super) const SLL: i32 = 113;
    pub(super) const IPV4: i32 = 228;
    pub(super) const IPV6: i32 = 229;
    pub(super) const SLL2: i32 = 276;
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// The tags of VLANs (802.1Q, 802.1ad and their predecessor).
const ETHERTYPES_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const ETHERTYPE_PPPOE: u16 = 0x8864;
/// The most tags before a packet.
const TAGS_MAX: usize = 8;
const IP_TCP: u8 = 6;
/// The extension headers of IPv6 that are skipped: hop by hop, routing, destination.
const IPV6_EXTENSIONS: [u8; 3] = [0, 43, 60];
const IPV6_FRAGMENT: u8 = 44;
const IPV6_EXTENSIONS_MAX: usize = 8;

/// A TCP segment as it was captured.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The sender's address and port.
    pub from: SocketAddr,
    /// The receiver's address and port.
    pub to: SocketAddr,
    /// The first sequence number.
    pub seq: u32,
    /// The next sequence number that the sender expects, if [`Flags::ACK`] is set.
    pub ack: u32,
    /// The flags.
    pub flags: Flags,
    /// The receive window as it is on the wire, not scaled.
    pub window: u16,
    /// The length of the TCP header on the wire with all its options, bytes.
    pub header_bytes: u8,
    /// The options that were captured.
    pub options: &'a [u8],
    /// The length of the payload on the wire, bytes. It follows from the headers, so a snap length does not
    /// change it.
    pub payload_bytes: u32,
    /// The captured part of the payload.
    pub payload: &'a [u8],
}

impl Segment<'_> {
    /// Returns whether all of `flags` are set.
    #[must_use]
    pub const fn has(&self, flags: Flags) -> bool {
        self.flags.has(flags)
    }
}

/// The reason why a frame has no segment to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// The link type is unknown.
    LinkType(i32),
    /// The frame carries no IP packet, or one with another protocol than TCP.
    NotTcp,
    /// The frame carries a fragment of an IP packet, which segments of Multipath TCP never are.
    Fragment,
    /// The captured bytes end within the headers: the snap length is too short.
    CutOff,
    /// A header contradicts itself.
    Malformed,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Finds the TCP segment of a frame.
///
/// # Errors
/// If the frame has no TCP segment that can be read; [`Skip`] says why.
pub fn segment<'a>(frame: &Frame<'a>) -> Result<Segment<'a>, Skip> {
    let packet = network(frame)?;
    let wire_bytes =
        frame.wire_bytes as usize - (frame.bytes.len() - packet.len()).min(frame.wire_bytes as usize);
    match packet.first().ok_or(Skip::CutOff)? >> 4 {
        4 => ipv4(packet, wire_bytes),
        6 => ipv6(packet, wire_bytes),
        _ => Err(Skip::NotTcp),
    }
}

/// Returns the bytes after the link's header, if they are an IP packet.
fn network<'a>(frame: &Frame<'a>) -> Result<&'a [u8], Skip> {
    let bytes = frame.bytes;
    let after = |count: usize| bytes.get(count..).ok_or(Skip::CutOff);
    match frame.link_type {
        link::ETHERNET => ethertype(u16_at(bytes, 12).ok_or(Skip::CutOff)?, after(14)?),
        link::SLL => ethertype(u16_at(bytes, 14).ok_or(Skip::CutOff)?, after(16)?),
        link::SLL2 => ethertype(u16_at(bytes, 0).ok_or(Skip::CutOff)?, after(20)?),
        // The family is a number of the system that captured; the packet itself says which version of IP it
        // is.
        link::NULL | link::LOOP => after(4),
        link::IPV4 | link::IPV6 => Ok(bytes),
        link::PPP => {
            // The address and control bytes of HDLC may precede the protocol.
            let skipped = if bytes.starts_with(&[0xff, 0x03]) { 2 } else { 0 };
            ppp(bytes.get(skipped..).ok_or(Skip::CutOff)?)
        }
        other if link::RAW.contains(&other) => Ok(bytes),
        other => Err(Skip::LinkType(other)),
    }
}

fn ppp(bytes: &[u8]) -> Result<&[u8], Skip> {
    match u16_at(bytes, 0).ok_or(Skip::CutOff)? {
        0x0021 | 0x0057 => bytes.get(2..).ok_or(Skip::CutOff),
        // The protocol may be compressed to one byte, which is odd then.
        short if [0x21, 0x57].contains(&(short >> 8)) => bytes.get(1..).ok_or(Skip::CutOff),
        _ => Err(Skip::NotTcp),
    }
}

fn ethertype(mut kind: u16, mut rest: &[u8]) -> Result<&[u8], Skip> {
    for _ in 0..TAGS_MAX {
        if !ETHERTYPES_VLAN.contains(&kind) {
            break;
        }
        kind = u16_at(rest, 2).ok_or(Skip::CutOff)?;
        rest = rest.get(4..).ok_or(Skip::CutOff)?;
    }
    match kind {
        ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => Ok(rest),
        ETHERTYPE_PPPOE => ppp(rest.get(6..).ok_or(Skip::CutOff)?),
        _ => Err(Skip::NotTcp),
    }
}

fn ipv4(packet: &[u8], wire_bytes: usize) -> Result<Segment<'_>, Skip> {
    let header = packet.get(..20).ok_or(Skip::CutOff)?;
    if header[9] != IP_TCP {
        return Err(Skip::NotTcp);
    }
    let header_bytes = usize::from(header[0] & 15) * 4;
    if header_bytes < 20 {
        return Err(Skip::Malformed);
    }
    if u16_at(header, 6).ok_or(Skip::CutOff)? & 0x3fff != 0 {
        return Err(Skip::Fragment);
    }
    // Senders leave the length 0 if the network card will cut up the packet.
    let total = match u16_at(header, 2).ok_or(Skip::CutOff)? {
        0 => wire_bytes,
        bytes => usize::from(bytes),
    };
    let address = |at: usize| Ok(IpAddr::V4(Ipv4Addr::from(u32_at(header, at).ok_or(Skip::CutOff)?)));
    let segment_bytes = total.checked_sub(header_bytes).ok_or(Skip::Malformed)?;
    tcp(address(12)?, address(16)?, packet.get(header_bytes..).ok_or(Skip::CutOff)?, segment_bytes)
}

fn ipv6(packet: &[u8], wire_bytes: usize) -> Result<Segment<'_>, Skip> {
    let header = packet.get(..40).ok_or(Skip::CutOff)?;
    let payload_bytes = match u16_at(header, 4).ok_or(Skip::CutOff)? {
        0 => wire_bytes.saturating_sub(40),
        bytes => usize::from(bytes),
    };
    let address = |at: usize| {
        let octets: [u8; 16] = header.get(at..at + 16).and_then(|b| b.try_into().ok()).ok_or(Skip::CutOff)?;
        Ok(IpAddr::V6(Ipv6Addr::from(octets)))
    };
    let (mut next, mut at) = (header[6], 40);
    for _ in 0..IPV6_EXTENSIONS_MAX {
        if next == IPV6_FRAGMENT {
            return Err(Skip::Fragment);
        }
        if !IPV6_EXTENSIONS.contains(&next) {
            break;
        }
        let extension = packet.get(at..at + 2).ok_or(Skip::CutOff)?;
        next = extension[0];
        at += usize::from(extension[1]) * 8 + 8;
    }
    if next != IP_TCP {
        return Err(Skip::NotTcp);
    }
    let segment_bytes = (payload_bytes + 40).checked_sub(at).ok_or(Skip::Malformed)?;
    tcp(address(8)?, address(24)?, packet.get(at..).ok_or(Skip::CutOff)?, segment_bytes)
}

fn tcp(from: IpAddr, to: IpAddr, bytes: &[u8], segment_bytes: usize) -> Result<Segment<'_>, Skip> {
    let header = TcpHeader::read(bytes).map_err(|error| match error {
        TcpHeaderError::CutOff => Skip::CutOff,
        TcpHeaderError::Length => Skip::Malformed,
    })?;
    let header_bytes = header.header_bytes;
    let payload_bytes = segment_bytes.checked_sub(header_bytes).ok_or(Skip::Malformed)?;
    // A frame may be longer than its packet: Ethernet fills it up to 60 bytes.
    let captured = bytes.get(..segment_bytes).unwrap_or(bytes);
    let options_end = header_bytes.min(captured.len());
    Ok(Segment {
        from: SocketAddr::new(from, header.source_port),
        to: SocketAddr::new(to, header.target_port),
        seq: header.seq,
        ack: header.ack,
        flags: header.flags,
        window: header.window,
        header_bytes: header_bytes as u8,
        options: captured.get(TCP_HEADER_BYTES..options_end).unwrap_or_default(),
        payload_bytes: payload_bytes as u32,
        payload: captured.get(header_bytes..).unwrap_or_default(),
    })
}
