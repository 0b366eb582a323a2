//! The format of a leg's packets; `docs/wire-proxy.md` defines it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch_algo::Span;

use super::mode::Mode;
use crate::trunk::{Destination, Host};

/// The version of the format.
pub const VERSION: u16 = 1;
/// The number of bytes before the frames.
pub const HEADER_BYTES: usize = 9;
/// The number of bytes of the authentication tag after the frames.
pub const TAG_BYTES: usize = 16;
/// The most bytes of a packet: an Ethernet frame's 1,500 less the headers of IPv6 and UDP.
pub const PACKET_BYTES_MAX: usize = 1_500 - 40 - 8;
/// The most bytes of a packet's frames.
pub const FRAMES_BYTES_MAX: usize = PACKET_BYTES_MAX - HEADER_BYTES - TAG_BYTES;
/// The most paths of a leg, whose numbers have four bits.
pub const PATHS_MAX: usize = 16;
/// The most ranges of an acknowledgement.
pub const ACK_RANGES_MAX: usize = 32;

/// The upper half of the first byte of each packet of a leg.
const KIND: u8 = 0x40;
/// The unit of the delay in an acknowledgement.
const DELAY_UNIT: Span = Span::from_micros(8);

const PADDING: u8 = 0;
const PROBE: u8 = 1;
const ACK: u8 = 2;
const CHALLENGE: u8 = 3;
const RESPONSE: u8 = 4;
/// The type of a DATAGRAM frame, to which the number of the mode is added.
const DATAGRAM: u8 = 0x10;

const KIND_IPV4: u8 = 1;
const KIND_IPV6: u8 = 2;
const KIND_NAME: u8 = 3;
/// The bytes of a DATAGRAM frame without peer and payload: type, flow, number, length.
const DATAGRAM_FIXED_BYTES: usize = 1 + 3 + 3 + 2;

/// The unencrypted header before the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The number of the path.
    pub path: u8,
    /// The number of the association.
    pub association: u32,
    /// The lowest 32 bits of the packet's number.
    pub number: u32,
}

impl Header {
    /// Appends the header to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(KIND | self.path & 0xf);
        out.extend_from_slice(&self.association.to_be_bytes());
        out.extend_from_slice(&self.number.to_be_bytes());
    }

    /// Reads the header. Returns `None` if the bytes are no packet of a leg.
    #[must_use]
    pub fn decode(packet: &[u8]) -> Option<Self> {
        let [first, a0, a1, a2, a3, n0, n1, n2, n3] = *packet.first_chunk()?;
        let (association, number) =
            (u32::from_be_bytes([a0, a1, a2, a3]), u32::from_be_bytes([n0, n1, n2, n3]));
        (first & 0xf0 == KIND).then_some(Self { path: first & 0xf, association, number })
    }
}

/// The report of the packets of a path that have arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// One more than the highest number that arrived; its lowest 32 bits.
    pub next: u32,
    /// The time since the packet with the highest number arrived. In a packet it has units of 8 µs.
    pub delay: Span,
    /// The packets from the highest number down: pairs of how many are missing and how many arrived.
    pub ranges: Vec<(u16, u16)>,
}

/// A part of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Asks for an answer. From the client it has the rank of the path; a lower one is better.
    Probe(u8),
    /// Reports the packets that have arrived on this path.
    Ack(Ack),
    /// Asks the host at the address to which it is sent to return these bytes.
    Challenge([u8; 8]),
    /// Returns the bytes of a challenge.
    Response([u8; 8]),
    /// Carries a datagram of a program.
    Datagram(Datagram<'a>),
}

/// A datagram of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// How the flow's datagrams are spread over paths.
    pub mode: Mode,
    /// The number of the flow, which has 24 bits.
    pub flow: u32,
    /// The lowest 24 bits of the datagram's number in its flow and direction.
    pub number: u32,
    /// The destination from the client, the sender from the server.
    pub peer: Destination,
    /// The payload.
    pub bytes: &'a [u8],
}

/// Returns the number of bytes of a peer's address.
fn peer_bytes(peer: &Destination) -> usize {
    match peer.host() {
        Host::Ip(IpAddr::V4(_)) => 1 + 4 + 2,
        Host::Ip(IpAddr::V6(_)) => 1 + 16 + 2,
        Host::Name(name) => 1 + 1 + name.len() + 2,
    }
}

/// Returns the number of bytes of a DATAGRAM frame with `payload` bytes of payload.
#[must_use]
pub fn datagram_bytes(peer: &Destination, payload: usize) -> usize {
    DATAGRAM_FIXED_BYTES + peer_bytes(peer) + payload
}

impl Ack {
    /// Returns the number of bytes of the frame.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        1 + 4 + 2 + 1 + 4 * self.ranges.len()
    }
}

impl Frame<'_> {
    /// Appends the frame to `out`. Of an acknowledgement, at most [`ACK_RANGES_MAX`] ranges are written. A
    /// payload must fit into a packet.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Probe(rank) => out.extend_from_slice(&[PROBE, *rank]),
            Self::Ack(ack) => {
                out.push(ACK);
                out.extend_from_slice(&ack.next.to_be_bytes());
                let delay = ack.delay.as_nanos() / DELAY_UNIT.as_nanos();
                out.extend_from_slice(&u16::try_from(delay).unwrap_or(u16::MAX).to_be_bytes());
                out.push(ack.ranges.len().min(ACK_RANGES_MAX) as u8);
                for (skip, there) in ack.ranges.iter().take(ACK_RANGES_MAX) {
                    out.extend_from_slice(&skip.to_be_bytes());
                    out.extend_from_slice(&there.to_be_bytes());
                }
            }
            Self::Challenge(bytes) => {
                out.push(CHALLENGE);
                out.extend_from_slice(bytes);
            }
            Self::Response(bytes) => {
                out.push(RESPONSE);
                out.extend_from_slice(bytes);
            }
            Self::Datagram(datagram) => datagram.encode(out),
        }
    }
}

impl Datagram<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(DATAGRAM | self.mode as u8);
        out.extend_from_slice(&self.flow.to_be_bytes()[1..]);
        out.extend_from_slice(&self.number.to_be_bytes()[1..]);
        match self.peer.host() {
            Host::Ip(IpAddr::V4(ip)) => {
                out.push(KIND_IPV4);
                out.extend_from_slice(&ip.octets());
            }
            Host::Ip(IpAddr::V6(ip)) => {
                out.push(KIND_IPV6);
                out.extend_from_slice(&ip.octets());
            }
            Host::Name(name) => {
                out.push(KIND_NAME);
                // A name has at most 255 bytes.
                out.push(name.len() as u8);
                out.extend_from_slice(name.as_bytes());
            }
        }
        out.extend_from_slice(&self.peer.port().to_be_bytes());
        let len = u16::try_from(self.bytes.len()).unwrap_or(0);
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(&self.bytes[..usize::from(len)]);
    }
}

/// The error that bytes violate the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Reads the frames of a packet one by one.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a>(&'a [u8]);

impl<'a> Frames<'a> {
    /// Creates a reader of the frames in these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn take_u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn take_u24(&mut self) -> Option<u32> {
        self.take().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    fn take_slice(&mut self, len: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(first)
    }

    fn take_peer(&mut self) -> Option<Destination> {
        let [kind] = self.take()?;
        match kind {
            KIND_IPV4 => {
                let ip: Ipv4Addr = self.take::<4>()?.into();
                Destination::from_ip(ip.into(), self.take_u16()?).ok()
            }
            KIND_IPV6 => {
                let ip: Ipv6Addr = self.take::<16>()?.into();
                Destination::from_ip(ip.into(), self.take_u16()?).ok()
            }
            KIND_NAME => {
                let [len] = self.take()?;
                let name = self.take_slice(len.into())?;
                Destination::from_name(name, self.take_u16()?).ok()
            }
            _ => None,
        }
    }

    fn take_ack(&mut self) -> Option<Ack> {
        let next = u32::from_be_bytes(self.take()?);
        let delay = DELAY_UNIT.times(self.take_u16()?.into());
        let [count] = self.take()?;
        if usize::from(count) > ACK_RANGES_MAX {
            return None;
        }
        let mut ranges = Vec::with_capacity(count.into());
        for _ in 0..count {
            ranges.push((self.take_u16()?, self.take_u16()?));
        }
        Some(Ack { next, delay, ranges })
    }

    fn take_frame(&mut self, kind: u8) -> Option<Frame<'a>> {
        Some(match kind {
            PROBE => {
                let [rank] = self.take()?;
                Frame::Probe(rank)
            }
            ACK => Frame::Ack(self.take_ack()?),
            CHALLENGE => Frame::Challenge(self.take()?),
            RESPONSE => Frame::Response(self.take()?),
            kind if kind & 0xf0 == DATAGRAM => {
                let mode = Mode::from_number(kind & 0xf)?;
                let (flow, number) = (self.take_u24()?, self.take_u24()?);
                let peer = self.take_peer()?;
                let len = self.take_u16()?;
                let bytes = self.take_slice(len.into())?;
                Frame::Datagram(Datagram { mode, flow, number, peer, bytes })
            }
            _ => return None,
        })
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let [kind] = self.take()?;
            if kind != PADDING {
                let frame = self.take_frame(kind);
                if frame.is_none() {
                    self.0 = &[];
                }
                return Some(frame.ok_or(Malformed));
            }
        }
    }
}
