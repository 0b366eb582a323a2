//! The packets of an emulator: an IP packet, or a filler that only has a size.

use anabranch_sim::Packet;

/// Stands for no flow, or no connection.
pub(super) const NO_ID: u32 = u32::MAX;

/// The shortest headers: IPv4 without options (RFC 791); IPv6 (RFC 8200).
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
/// Protocol numbers (IANA).
const TCP: u8 = 6;
const UDP: u8 = 17;
/// The two ECN bits (RFC 3168, section 5).
const ECN_BITS: u8 = 0b11;
const NOT_ECT: u8 = 0b00;
const CE: u8 = 0b11;

/// An IP packet as a [`anabranch_sim::Packet`], or a filler: bytes of cross traffic that end where their
/// route ends.
///
/// * [`bytes`](Packet::bytes): the length of the IP packet.
/// * [`mark`](Packet::mark): sets congestion experienced (RFC 3168) if the packet is ECN-capable, and updates
///   the checksum of an IPv4 header (RFC 1624).
/// * [`corrupt`](Packet::corrupt): flips a bit behind the IP header, where the checksum of TCP or UDP detects
///   it. There is no such checksum in UDP over IPv4 if its sender left it out, nor in a packet whose checksum
///   offload has not filled in yet.
/// * [`flow`](Packet::flow): the number given with the connection, for packets that carry TCP or UDP payload.
#[derive(Clone, Debug)]
pub struct IpPacket {
    /// A buffer, of which the first `head` + `bytes` bytes are in use; empty for a filler.
    data: Box<[u8]>,
    /// The length of the header that a device with offload puts before the packet, in bytes.
    head: u16,
    /// The length of the IP packet in bytes.
    bytes: u32,
    flow: u32,
    connection: u32,
}

impl IpPacket {
    /// Makes cross traffic: `bytes` bytes that are queued, sent and lost like a packet, but never written to
    /// a device. With `flow`, they count as data of that flow. A mark has no effect on them.
    #[must_use]
    pub fn filler(bytes: u32, flow: Option<u32>) -> Self {
        let flow = flow.unwrap_or(NO_ID);
        Self { data: Box::default(), head: 0, bytes, flow, connection: NO_ID }
    }

    /// Makes a packet from the first `len` bytes of `data`, of which the first `head` are not IP. The packet
    /// belongs to `connection` and, if it carries payload, to `flow`. Returns `data` if this is not exactly
    /// one IP packet.
    pub(super) fn parse(
        data: Box<[u8]>,
        head: usize,
        len: usize,
        connection: u32,
        flow: u32,
    ) -> Result<Self, Box<[u8]>> {
        match data.get(head..len).and_then(IpLayout::of) {
            Some(layout) => Ok(Self {
                head: head as u16,
                bytes: (len - head) as u32,
                flow: if layout.payload { flow } else { NO_ID },
                connection,
                data,
            }),
            None => Err(data),
        }
    }

    /// Returns the connection that the packet belongs to; `None` for a filler.
    pub(super) fn connection(&self) -> Option<usize> {
        (self.connection != NO_ID).then_some(self.connection as usize)
    }

    /// Returns the bytes to write to a device: the packet, after its header if it has one; nothing for a
    /// filler.
    pub(super) fn as_written(&self) -> &[u8] {
        self.data.get(..usize::from(self.head) + self.bytes as usize).unwrap_or_default()
    }

    /// Returns the buffer, to be used again.
    pub(super) fn into_data(self) -> Box<[u8]> {
        self.data
    }

    fn ip(&self) -> &[u8] {
        &self.data[usize::from(self.head).min(self.data.len())..]
    }

    fn ip_mut(&mut self) -> &mut [u8] {
        let head = usize::from(self.head).min(self.data.len());
        &mut self.data[head..]
    }

    /// Returns the ECN bits.
    fn ecn(&self) -> u8 {
        match self.ip() {
            [first, second, ..] if first >> 4 == 4 => second & ECN_BITS,
            [_, second, ..] => second >> 4 & ECN_BITS,
            _ => NOT_ECT,
        }
    }
}

impl Packet for IpPacket {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn mark(&mut self) {
        if self.ecn() == NOT_ECT {
            return;
        }
        let ip = self.ip_mut();
        if ip[0] >> 4 == 4 {
            let before = u16::from_be_bytes([ip[0], ip[1]]);
            ip[1] |= CE;
            let after = u16::from_be_bytes([ip[0], ip[1]]);
            let checksum = updated_checksum(u16::from_be_bytes([ip[10], ip[11]]), before, after);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            ip[1] |= CE << 4;
        }
    }

    fn is_ect(&self) -> bool {
        self.ecn() != NOT_ECT
    }

    fn flow(&self) -> Option<u32> {
        (self.flow != NO_ID).then_some(self.flow)
    }

    /// A hash of protocol, addresses and ports (RFC 8290, section 4.1.1); of a fragment without ports. Of a
    /// filler its flow.
    fn flow_key(&self) -> u64 {
        let ip = self.as_written().get(usize::from(self.head)..).unwrap_or_default();
        let Some(layout) = IpLayout::of(ip) else { return u64::from(self.flow) };
        let (protocol, addresses, is_fragment) = match ip[0] >> 4 {
            4 => (ip[9], &ip[12..IPV4_BYTES], u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0),
            _ => (ip[6], &ip[8..IPV6_BYTES], false),
        };
        let ports = ip.get(layout.header_bytes..layout.header_bytes + 4);
        let ports = ports.filter(|_| matches!(protocol, TCP | UDP) && !is_fragment).unwrap_or_default();
        let parts = [&[protocol], addresses, ports].concat();
        let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        parts.iter().fold(0xcbf2_9ce4_8422_2325, hash)
    }

    fn corrupt(&mut self, bit: u64) {
        let bytes = self.bytes as usize;
        let ip = self.ip_mut();
        let Some(layout) = ip.get(..bytes).and_then(IpLayout::of) else { return };
        // A packet that is only a header can only be corrupted there.
        let from = if layout.header_bytes < bytes { layout.header_bytes } else { 0 };
        let at = bit % (8 * (bytes - from) as u64);
        ip[from + (at / 8) as usize] ^= 1 << (at % 8);
    }
}

/// Returns a header's checksum after one of its words changed (RFC 1624, equation 3).
fn updated_checksum(checksum: u16, before: u16, after: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// The layout of an IP packet.
#[derive(Debug, PartialEq, Eq)]
struct IpLayout {
    /// The length of the IP header in bytes, including the IPv6 extension headers that are known.
    header_bytes: usize,
    /// Whether the packet carries TCP or UDP payload.
    payload: bool,
}

impl IpLayout {
    /// Finds the layout; `None` if `packet` is not exactly one IP packet.
    fn of(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 if packet.len() >= IPV4_BYTES => {
                let header_bytes = usize::from(packet[0] & 0xf) * 4;
                let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
                if header_bytes < IPV4_BYTES || header_bytes > total || total != packet.len() {
                    return None;
                }
                // Later fragments contain payload, and no header to read.
                let later = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff != 0;
                let known = matches!(packet[9], TCP | UDP);
                let payload = known && (later || has_payload(packet[9], &packet[header_bytes..]));
                Some(Self { header_bytes, payload })
            }
            6 if packet.len() >= IPV6_BYTES => {
                let total = IPV6_BYTES + usize::from(u16::from_be_bytes([packet[4], packet[5]]));
                if total != packet.len() {
                    return None;
                }
                let (next, header_bytes, later) = skip_extension_headers(packet);
                let known = matches!(next, TCP | UDP);
                let payload = known && (later || has_payload(next, &packet[header_bytes..]));
                Some(Self { header_bytes, payload })
            }
            _ => None,
        }
    }
}

/// Returns the protocol after the extension headers of an IPv6 packet, the offset where it begins, and
/// whether the packet is a fragment other than the first (RFC 8200, section 4).
fn skip_extension_headers(packet: &[u8]) -> (u8, usize, bool) {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const DESTINATION: u8 = 60;
    let (mut next, mut at, mut later) = (packet[6], IPV6_BYTES, false);
    // Each extension header has at least 8 bytes, so this ends.
    while let (HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION, Some(head)) = (next, packet.get(at..at + 8)) {
        let bytes = if next == FRAGMENT { 8 } else { 8 + 8 * usize::from(head[1]) };
        later |= next == FRAGMENT && u16::from_be_bytes([head[2], head[3]]) >> 3 != 0;
        if at + bytes > packet.len() {
            break;
        }
        next = head[0];
        at += bytes;
    }
    (next, at, later)
}

/// Whether a TCP segment or UDP datagram has payload.
fn has_payload(protocol: u8, segment: &[u8]) -> bool {
    match (protocol, segment.get(12)) {
        (TCP, Some(offset)) => segment.len() > usize::from(offset >> 4) * 4,
        (UDP, _) => segment.len() > 8,
        _ => false,
    }
}

const _: () = assert!(size_of::<IpPacket>() <= 32, "it is moved from queue to queue");

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_sim::Rng;

    const HEAD: usize = 10;

    fn ipv4(protocol: u8, tos: u8, fragment: u16, rest: &[u8]) -> Vec<u8> {
        let total = (IPV4_BYTES + rest.len()) as u16;
        let mut packet =
            vec![0x45, tos, 0, 0, 0xab, 0xcd, 0, 0, 63, protocol, 0, 0, 10, 1, 2, 3, 10, 9, 8, 7];
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        let checksum = !sum(&packet);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet.extend(rest);
        packet
    }

    fn ipv6(next: u8, class: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60 | class >> 4, class << 4 | 0x5, 0x55, 0x55, 0, 0, next, 64];
        packet[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
        packet.extend([0xfd; 32]);
        packet.extend(rest);
        packet
    }

    /// Makes a TCP segment with 12 bytes of options.
    fn tcp(payload: usize) -> Vec<u8> {
        let mut segment = vec![1; 32 + payload];
        segment[12] = 8 << 4;
        segment
    }

    /// Computes the sum of the Internet checksum (RFC 1071).
    fn sum(header: &[u8]) -> u16 {
        let mut sum: u32 =
            header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    fn parsed(packet: &[u8]) -> Option<IpPacket> {
        let mut data = vec![0xee; HEAD];
        data.extend(packet);
        let len = data.len();
        data.extend([0xee; 100]);
        IpPacket::parse(data.into(), HEAD, len, 3, 7).ok()
    }

    fn flow(packet: &[u8]) -> Option<u32> {
        parsed(packet).unwrap().flow()
    }

    #[test]
    fn only_payload_is_data_of_the_flow() {
        assert_eq!(flow(&ipv4(TCP, 0, 0, &tcp(1))), Some(7));
        assert_eq!(flow(&ipv4(TCP, 0, 0, &tcp(0))), None);
        assert_eq!(flow(&ipv4(UDP, 0, 0, &[0; 9])), Some(7));
        assert_eq!(flow(&ipv4(UDP, 0, 0, &[0; 8])), None);
        assert_eq!(flow(&ipv4(1, 0, 0, &[0; 64])), None);
        // The second fragment has only payload. If the first lacks a whole TCP header, the payload is not
        // known.
        assert_eq!(flow(&ipv4(UDP, 0, 0x2001, &[0; 8])), Some(7));
        assert_eq!(flow(&ipv4(TCP, 0, 0x2000, &[0; 8])), None);
        assert_eq!(flow(&ipv6(TCP, 0, &tcp(1))), Some(7));
        assert_eq!(flow(&ipv6(TCP, 0, &tcp(0))), None);
        // These are hop-by-hop options of 16 bytes, then the second fragment of UDP.
        let mut options = vec![44, 1];
        options.extend([0; 14]);
        options.extend([UDP, 0, 0, 8 << 3, 0, 0, 0, 0]);
        assert_eq!(flow(&ipv6(0, 0, &options)), Some(7));
    }

    #[test]
    fn flows_differ_by_protocol_addresses_and_ports() {
        let key = |packet: &[u8]| parsed(packet).unwrap().flow_key();
        let ports = |from: u8, to: u8| [&[0, from, 0, to], &tcp(9)[4..]].concat();
        let first = key(&ipv4(TCP, 0, 0, &ports(1, 2)));
        assert_eq!(first, key(&ipv4(TCP, 3, 0, &[ports(1, 2), vec![5; 70]].concat())));
        let others =
            [ipv4(TCP, 0, 0, &ports(2, 1)), ipv4(UDP, 0, 0, &ports(1, 2)), ipv6(TCP, 0, &ports(1, 2))];
        assert!(others.iter().all(|other| key(other) != first));
        let fragments = [ipv4(UDP, 0, 0x2000, &ports(1, 2)), ipv4(UDP, 0, 0x2001, &[7; 30])];
        assert_eq!(key(&fragments[0]), key(&fragments[1]));
        assert_ne!(IpPacket::filler(9, Some(1)).flow_key(), IpPacket::filler(9, Some(2)).flow_key());
    }

    #[test]
    fn a_mark_keeps_the_checksum_right_and_needs_ect() {
        for tos in 0..=255u8 {
            let mut marked = parsed(&ipv4(TCP, tos, 0, &tcp(5))).unwrap();
            let ect = tos & ECN_BITS != 0;
            assert_eq!(marked.is_ect(), ect);
            marked.mark();
            let header = &marked.ip()[..IPV4_BYTES];
            assert_eq!(header[1], if ect { tos | CE } else { tos });
            assert_eq!(sum(header), 0xffff);

            let before = ipv6(TCP, tos, &tcp(5));
            let mut marked = parsed(&before).unwrap();
            assert_eq!(marked.is_ect(), ect);
            marked.mark();
            let now = if ect { tos | CE } else { tos };
            assert_eq!(&marked.ip()[..4], &ipv6(TCP, now, &tcp(5))[..4]);
        }
        let mut filler = IpPacket::filler(1_000, Some(4));
        filler.mark();
        filler.corrupt(17);
        assert_eq!((filler.bytes(), filler.flow(), filler.is_ect()), (1_000, Some(4), false));
        assert_eq!((filler.connection(), filler.as_written().len()), (None, 0));
    }

    #[test]
    fn a_flipped_bit_is_one_behind_the_header() {
        let mut rng = Rng::new(1);
        for packet in [ipv4(TCP, 0, 0, &tcp(90)), ipv6(UDP, 0, &[0; 50]), ipv4(UDP, 0, 0, &[])] {
            let header = if packet[0] >> 4 == 4 { IPV4_BYTES } else { IPV6_BYTES };
            let bits = 8 * packet.len() as u64;
            for _ in 0..2_000 {
                let mut broken = parsed(&packet).unwrap();
                broken.corrupt(rng.below(bits));
                let changed = broken.ip().iter().zip(&packet).enumerate().filter(|(_, (a, b))| a != b);
                let changed: Vec<(usize, u32)> =
                    changed.map(|(i, (a, b))| (i, (a ^ b).count_ones())).collect();
                assert!(matches!(changed[..], [(at, 1)] if at >= header || packet.len() == header));
            }
        }
    }

    #[test]
    fn whatever_is_no_whole_packet_is_refused() {
        let whole = ipv4(TCP, 0, 0, &tcp(5));
        let as_sent = parsed(&whole).unwrap();
        assert_eq!(as_sent.bytes() as usize, whole.len());
        assert_eq!(&as_sent.as_written()[HEAD..], whole);
        for len in 0..whole.len() {
            assert!(parsed(&whole[..len]).is_none(), "{len}");
        }
        assert!(IpPacket::parse(vec![0; 4].into(), HEAD, 4, 0, 0).is_err());

        let mut rng = Rng::new(2);
        let mut good = 0;
        for _ in 0..200_000 {
            let len = rng.below(80) as usize;
            let mut noise: Vec<u8> = (0..len).map(|_| rng.bits() as u8).collect();
            // Most of the noise is made as similar to a packet as possible.
            if let [first, _, high, low, _, six, ..] = noise.as_mut_slice()
                && rng.chance(0.9)
            {
                let six_bytes = len.saturating_sub(IPV6_BYTES) as u8;
                (*first, *high, *low, *six) =
                    if rng.chance(0.5) { (0x45, 0, len as u8, *six) } else { (0x60, *high, *low, six_bytes) };
            }
            if len > 6 && noise[0] == 0x60 {
                noise[4] = 0;
                noise[6] = [0, 43, 44, 60, TCP, UDP][rng.below(6) as usize];
            }
            if let Some(mut parsed) = parsed(&noise) {
                good += 1;
                parsed.mark();
                parsed.corrupt(rng.bits());
                assert!(parsed.is_ect() || parsed.flow().is_none_or(|flow| flow == 7));
            }
        }
        assert!(good > 10_000, "{good}");
    }
}
