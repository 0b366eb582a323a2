//! Ethernet frames and ARP (RFC 826) for IPv4.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// The length of an Ethernet header, bytes.
pub const HEADER_BYTES: usize = 14;
/// The length of a frame with ARP, bytes.
pub const ARP_BYTES: usize = HEADER_BYTES + 28;
/// EtherTypes.
pub const IPV4: u16 = 0x0800;
/// See [`IPV4`].
pub const ARP: u16 = 0x0806;

/// The address of a network card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// All hosts of a network.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Makes an address of random bytes: one host's, and not a maker's.
    #[must_use]
    pub const fn local([a, b, c, d, e]: [u8; 5]) -> Self {
        Self([2, a, b, c, d, e])
    }

    /// Reads six bytes.
    fn at(bytes: &[u8], at: usize) -> Self {
        let mut mac = [0; 6];
        mac.copy_from_slice(&bytes[at..at + 6]);
        Self(mac)
    }
}

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The MAC of the receiver.
    pub to: Mac,
    /// The MAC of the sender.
    pub from: Mac,
    /// The protocol of the payload (EtherType).
    pub ethertype: u16,
}

impl Header {
    /// Reads the header of a frame.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        (frame.len() >= HEADER_BYTES).then(|| Self {
            to: Mac::at(frame, 0),
            from: Mac::at(frame, 6),
            ethertype: u16::from_be_bytes([frame[12], frame[13]]),
        })
    }

    /// Writes the header to the beginning of a frame, which has room for it.
    pub fn write(self, frame: &mut [u8]) {
        frame[..6].copy_from_slice(&self.to.0);
        frame[6..12].copy_from_slice(&self.from.0);
        frame[12..HEADER_BYTES].copy_from_slice(&self.ethertype.to_be_bytes());
    }
}

/// A message of ARP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// Whether it asks, or answers.
    pub is_request: bool,
    /// The MAC of the sender.
    pub mac: Mac,
    /// The address of the sender.
    pub sender: Ipv4Addr,
    /// The address that is asked for, or the one that asked.
    pub target: Ipv4Addr,
    /// The MAC of the target, if it is known.
    pub target_mac: Mac,
}

impl Arp {
    /// Reads a frame with ARP for IPv4 over Ethernet.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let body = frame.get(HEADER_BYTES..ARP_BYTES)?;
        if body[..6] != [0, 1, 8, 0, 6, 4] || body[6] != 0 {
            return None;
        }
        let address = |at: usize| Ipv4Addr::new(body[at], body[at + 1], body[at + 2], body[at + 3]);
        Some(Self {
            is_request: match body[7] {
                1 => true,
                2 => false,
                _ => return None,
            },
            mac: Mac::at(body, 8),
            sender: address(14),
            target_mac: Mac::at(body, 18),
            target: address(24),
        })
    }

    /// Makes the frame with this message to a host.
    #[must_use]
    pub fn to_frame(self, to: Mac) -> [u8; ARP_BYTES] {
        let mut frame = [0; ARP_BYTES];
        Header { to, from: self.mac, ethertype: ARP }.write(&mut frame);
        let body = &mut frame[HEADER_BYTES..];
        body[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, if self.is_request { 1 } else { 2 }]);
        body[8..14].copy_from_slice(&self.mac.0);
        body[14..18].copy_from_slice(&self.sender.octets());
        body[18..24].copy_from_slice(&self.target_mac.0);
        body[24..28].copy_from_slice(&self.target.octets());
        frame
    }

    /// Makes the request for a target.
    #[must_use]
    pub const fn request(mac: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> Self {
        Self { is_request: true, mac, sender, target, target_mac: Mac([0; 6]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_and_a_cut_one_does_not() {
        let asked = Arp::request(Mac::local([1, 2, 3, 4, 5]), [10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let frame = asked.to_frame(Mac::BROADCAST);
        assert_eq!(Arp::parse(&frame), Some(asked));
        assert_eq!(Header::parse(&frame).unwrap().ethertype, ARP);
        assert_eq!(asked.mac.to_string(), "02:01:02:03:04:05");
        for len in 0..frame.len() {
            assert!(Arp::parse(&frame[..len]).is_none());
        }
        for at in [14, 15, 16, 17, 18, 19, 20] {
            let mut other = frame;
            other[at] ^= 0x40;
            assert!(Arp::parse(&other).is_none(), "{at}");
        }
    }
}
