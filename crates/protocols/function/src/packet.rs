//! IPv4 packets (RFC 791) with what is in them of TCP, UDP and ICMP, read and changed in place. A change of
//! an address or a port changes the checksums by the difference (RFC 1624), so nothing else is touched, and a
//! wrong checksum stays wrong.

/// The protocol numbers that functions know.
pub const ICMP: u8 = 1;
/// See [`ICMP`].
pub const TCP: u8 = 6;
/// See [`ICMP`].
pub const UDP: u8 = 17;

/// The shortest header, bytes.
const HEADER_BYTES_MIN: usize = 20;
/// ICMP's echo reply and echo request (RFC 792).
const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST: u8 = 8;
/// ICMP's errors, which have the header of a packet in them: destination unreachable, time exceeded,
/// parameter problem (RFC 792).
const ERRORS: [u8; 3] = [3, 11, 12];
/// Where the packet in an error begins, in ICMP's message.
const INNER: usize = 8;

/// One end of a flow: an address, and a port or ICMP's identifier.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// The address.
    pub address: u32,
    /// The port, or ICMP's identifier of echoes.
    pub port: u16,
}

/// The ends of a packet, and their protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The number of the protocol.
    pub protocol: u8,
    /// Where it comes from.
    pub from: End,
    /// Where it goes.
    pub to: End,
}

/// An IPv4 packet whose headers are whole.
#[derive(Debug)]
pub struct Packet<'a> {
    bytes: &'a mut [u8],
    header_bytes: usize,
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn set_word(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Returns the checksum of bytes (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

/// Returns a checksum after words of what it covers have changed (RFC 1624, equation 3).
fn adjusted<const N: usize>(sum: u16, from: [u16; N], to: [u16; N]) -> u16 {
    let words = from.iter().map(|word| u32::from(!*word)).chain(to.iter().map(|word| u32::from(*word)));
    let mut new = u32::from(!sum) + words.sum::<u32>();
    while new > 0xffff {
        new = (new >> 16) + (new & 0xffff);
    }
    !(new as u16)
}

const fn halves(address: u32) -> [u16; 2] {
    [(address >> 16) as u16, address as u16]
}

/// Makes an echo request without data.
#[must_use]
pub fn echo_request(from: u32, to: u32, id: u16, sequence: u16) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[0] = 0x45;
    bytes[3] = 28;
    bytes[8..10].copy_from_slice(&[64, ICMP]);
    bytes[12..16].copy_from_slice(&from.to_be_bytes());
    bytes[16..20].copy_from_slice(&to.to_be_bytes());
    let sum = checksum(&bytes[..20]);
    set_word(&mut bytes, 10, sum);
    bytes[20] = ECHO_REQUEST;
    set_word(&mut bytes, 24, id);
    set_word(&mut bytes, 26, sequence);
    let sum = checksum(&bytes[20..]);
    set_word(&mut bytes, 22, sum);
    bytes
}

impl<'a> Packet<'a> {
    /// Reads a packet, which has to begin and end with these bytes. `None` if it is no IPv4 packet, or its
    /// headers are cut off. Checksums are not looked at.
    #[must_use]
    pub fn parse(bytes: &'a mut [u8]) -> Option<Self> {
        if bytes.len() < HEADER_BYTES_MIN || bytes[0] >> 4 != 4 {
            return None;
        }
        let header_bytes = usize::from(bytes[0] & 15) * 4;
        if header_bytes < HEADER_BYTES_MIN || usize::from(word(bytes, 2)) != bytes.len() {
            return None;
        }
        let packet = Self { bytes, header_bytes };
        let transport = match packet.protocol() {
            _ if packet.is_later_fragment() => 0,
            TCP => 20,
            UDP | ICMP => 8,
            _ => 0,
        };
        (packet.bytes.len() >= header_bytes + transport).then_some(packet)
    }

    /// Returns the whole packet.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Returns the number of the protocol in it.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.bytes[9]
    }

    /// Returns the address from which it comes.
    #[must_use]
    pub fn source(&self) -> u32 {
        long(self.bytes, 12)
    }

    /// Returns the address to which it goes.
    #[must_use]
    pub fn destination(&self) -> u32 {
        long(self.bytes, 16)
    }

    /// Whether it is a fragment other than the first, which has no ports.
    #[must_use]
    pub fn is_later_fragment(&self) -> bool {
        word(self.bytes, 6) & 0x1fff != 0
    }

    /// Whether it is a fragment, the first or another one.
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        word(self.bytes, 6) & 0x3fff != 0
    }

    /// Returns the type of an ICMP message; `None` for other packets.
    fn icmp_type(&self) -> Option<u8> {
        let is_icmp = self.protocol() == ICMP && !self.is_later_fragment();
        is_icmp.then(|| self.bytes[self.header_bytes])
    }

    /// Returns the ends of a packet of TCP or UDP, or of an echo of ICMP, whose identifier is both ports.
    /// `None` for other packets, and for later fragments.
    #[must_use]
    pub fn ends(&self) -> Option<Ends> {
        if self.is_later_fragment() {
            return None;
        }
        let (at, protocol) = (self.header_bytes, self.protocol());
        let (from, to) = match protocol {
            TCP | UDP => (word(self.bytes, at), word(self.bytes, at + 2)),
            ICMP if [ECHO_REPLY, ECHO_REQUEST].contains(&self.bytes[at]) => {
                (word(self.bytes, at + 4), word(self.bytes, at + 4))
            }
            _ => return None,
        };
        Some(Ends {
            protocol,
            from: End { address: self.source(), port: from },
            to: End { address: self.destination(), port: to },
        })
    }

    /// Returns where the packet begins whose headers are in an error of ICMP, and the length of its header.
    fn inner(&self) -> Option<(usize, usize)> {
        let is_error = self.icmp_type().is_some_and(|kind| ERRORS.contains(&kind));
        let at = self.header_bytes + INNER;
        if !is_error || self.bytes.len() < at + HEADER_BYTES_MIN || self.bytes[at] >> 4 != 4 {
            return None;
        }
        let header_bytes = usize::from(self.bytes[at] & 15) * 4;
        let is_whole = header_bytes >= HEADER_BYTES_MIN && self.bytes.len() >= at + header_bytes + 8;
        (is_whole && word(self.bytes, at + 6) & 0x1fff == 0).then_some((at, header_bytes))
    }

    /// Returns the ends of the packet about which this is an error of ICMP; `None` if this is none, or not of
    /// TCP, UDP or an echo request.
    #[must_use]
    pub fn inner_ends(&self) -> Option<Ends> {
        let (at, header_bytes) = self.inner()?;
        let (protocol, ports) = (self.bytes[at + 9], at + header_bytes);
        let (from, to) = match protocol {
            TCP | UDP => (word(self.bytes, ports), word(self.bytes, ports + 2)),
            ICMP if self.bytes[ports] == ECHO_REQUEST => {
                (word(self.bytes, ports + 4), word(self.bytes, ports + 4))
            }
            _ => return None,
        };
        Some(Ends {
            protocol,
            from: End { address: long(self.bytes, at + 12), port: from },
            to: End { address: long(self.bytes, at + 16), port: to },
        })
    }

    /// Sets the end from which it comes. Only for packets that have [`ends`](Self::ends).
    pub fn set_from(&mut self, end: End) {
        self.set_end(12, 0, end);
    }

    /// Sets the end to which it goes. Only for packets that have [`ends`](Self::ends).
    pub fn set_to(&mut self, end: End) {
        self.set_end(16, 2, end);
    }

    /// Sets the address at `address_at` and the port at `port_at` behind the header.
    fn set_end(&mut self, address_at: usize, port_at: usize, end: End) {
        let before = long(self.bytes, address_at);
        self.set_address(address_at, end.address);
        let (at, protocol) = (self.header_bytes, self.protocol());
        let port_at = if protocol == ICMP { at + 4 } else { at + port_at };
        let port = word(self.bytes, port_at);
        let Some(sum_at) = self.transport_sum() else { return };
        set_word(self.bytes, port_at, end.port);
        let sum = word(self.bytes, sum_at);
        if protocol == UDP && sum == 0 {
            return;
        }
        let [a, b] = halves(before);
        let [c, d] = halves(end.address);
        let new = match protocol {
            // ICMP has no pseudo header.
            ICMP => adjusted(sum, [port], [end.port]),
            _ => adjusted(sum, [a, b, port], [c, d, end.port]),
        };
        // Zero means that there is no checksum (RFC 768).
        set_word(self.bytes, sum_at, if protocol == UDP && new == 0 { 0xffff } else { new });
    }

    fn set_address(&mut self, at: usize, address: u32) {
        let before = long(self.bytes, at);
        self.bytes[at..at + 4].copy_from_slice(&address.to_be_bytes());
        let sum = adjusted(word(self.bytes, 10), halves(before), halves(address));
        set_word(self.bytes, 10, sum);
    }

    /// Returns where the checksum of TCP, UDP or ICMP is.
    fn transport_sum(&self) -> Option<usize> {
        let at = match self.protocol() {
            TCP => 16,
            UDP => 6,
            ICMP => 2,
            _ => return None,
        };
        Some(self.header_bytes + at)
    }

    /// Sets the address to which an error of ICMP goes, and the end from which the packet in it came, as a
    /// NAT does (RFC 5508, section 4). Only for packets that have [`inner_ends`](Self::inner_ends).
    pub fn set_error(&mut self, to: u32, end: End) {
        let Some((at, header_bytes)) = self.inner() else { return };
        self.set_address(16, to);
        let before = long(self.bytes, at + 12);
        self.bytes[at + 12..at + 16].copy_from_slice(&end.address.to_be_bytes());
        let sum = adjusted(word(self.bytes, at + 10), halves(before), halves(end.address));
        set_word(self.bytes, at + 10, sum);
        let is_icmp = self.bytes[at + 9] == ICMP;
        set_word(self.bytes, at + header_bytes + if is_icmp { 4 } else { 0 }, end.port);
        let start = self.header_bytes;
        set_word(self.bytes, start + 2, 0);
        let sum = checksum(&self.bytes[start..]);
        set_word(self.bytes, start + 2, sum);
    }

    /// Turns an echo request into its reply, as the host does that is asked.
    /// Returns whether it was a request that is whole.
    pub fn answer_echo(&mut self) -> bool {
        if self.icmp_type() != Some(ECHO_REQUEST) || self.is_fragment() {
            return false;
        }
        let (from, to) = (self.source(), self.destination());
        self.set_address(12, to);
        self.set_address(16, from);
        let at = self.header_bytes;
        let kind = |kind: u8| u16::from_be_bytes([kind, 0]);
        self.bytes[at] = ECHO_REPLY;
        let sum = adjusted(word(self.bytes, at + 2), [kind(ECHO_REQUEST)], [kind(ECHO_REPLY)]);
        set_word(self.bytes, at + 2, sum);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_packets::{echo, error_about, is_intact, transport};

    const HERE: End = End { address: 0x0a01_0002, port: 4_000 };
    const THERE: End = End { address: 0xc000_0201, port: 53 };

    #[test]
    fn a_changed_end_keeps_checksums_right() {
        for protocol in [TCP, UDP] {
            let mut bytes = transport(protocol, HERE, THERE, b"hello");
            assert!(is_intact(&bytes));
            let mut packet = Packet::parse(&mut bytes).unwrap();
            assert_eq!(packet.ends(), Some(Ends { protocol, from: HERE, to: THERE }));
            packet.set_from(End { address: 0xcb00_7101, port: 1_024 });
            packet.set_to(End { address: 0x0a00_0001, port: 80 });
            assert_eq!(packet.ends().unwrap().from, End { address: 0xcb00_7101, port: 1_024 });
            assert!(is_intact(&bytes), "{protocol}");
        }
    }

    #[test]
    fn a_udp_packet_without_checksum_stays_so() {
        let mut bytes = transport(UDP, HERE, THERE, b"x");
        set_word(&mut bytes, 26, 0);
        Packet::parse(&mut bytes).unwrap().set_from(THERE);
        assert_eq!(word(&bytes, 26), 0);
    }

    #[test]
    fn a_ping_is_answered_once() {
        let mut bytes = echo(true, HERE.address, THERE.address, 7);
        let mut packet = Packet::parse(&mut bytes).unwrap();
        assert!(packet.answer_echo());
        assert_eq!((packet.source(), packet.destination()), (THERE.address, HERE.address));
        assert!(!packet.answer_echo(), "a reply is no request");
        assert!(is_intact(&bytes));
        let mut bytes = echo_request(HERE.address, THERE.address, 7, 9);
        assert!(is_intact(&bytes));
        let request = Packet::parse(&mut bytes).unwrap();
        assert_eq!(request.ends().unwrap().to, End { port: 7, ..THERE });
    }

    #[test]
    fn an_error_says_about_whom_it_is() {
        let about = transport(TCP, HERE, THERE, b"");
        let mut bytes = error_about(&about, 0xc633_6401);
        let mut packet = Packet::parse(&mut bytes).unwrap();
        assert_eq!(packet.ends(), None);
        assert_eq!(packet.inner_ends().unwrap().from, HERE);
        packet.set_error(0x0a09_0909, End { address: 0x0a09_0909, port: 5 });
        assert_eq!(packet.destination(), 0x0a09_0909);
        assert_eq!(packet.inner_ends().unwrap().from, End { address: 0x0a09_0909, port: 5 });
        assert!(is_intact(&bytes));
    }

    #[test]
    fn what_is_cut_off_is_no_packet() {
        let whole = transport(TCP, HERE, THERE, b"");
        for len in 0..whole.len() {
            let mut cut = whole[..len].to_vec();
            assert!(Packet::parse(&mut cut).is_none(), "{len}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..96), version in 0x45..0x48_u8) {
            let len = bytes.len() as u16;
            if let Some(first) = bytes.first_mut() {
                *first = version;
            }
            if bytes.len() > 9 {
                bytes[2..4].copy_from_slice(&len.to_be_bytes());
                bytes[9] = [TCP, UDP, ICMP, 47][usize::from(bytes[9] & 3)];
            }
            if let Some(mut packet) = Packet::parse(&mut bytes) {
                if packet.ends().is_some() {
                    packet.set_from(HERE);
                    packet.set_to(THERE);
                }
                if packet.inner_ends().is_some() {
                    packet.set_error(1, HERE);
                }
                packet.answer_echo();
            }
        }
    }
}
