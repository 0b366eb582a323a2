//! Writes and reads netlink messages (`linux/netlink.h`): headers, attributes, nested attributes.
//!
//! Reading never panics, whatever the bytes are: a message or an attribute that is cut short ends the
//! iteration.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `NLMSG_ERROR`: an acknowledgement, or an error.
pub(crate) const ERROR: u16 = 2;
/// `NLMSG_DONE`: the end of a dump.
pub(crate) const DONE: u16 = 3;
pub(crate) const NLM_F_REQUEST: u16 = 0x1;
pub(crate) const NLM_F_ACK: u16 = 0x4;
/// The dump was disturbed by a change: records may be missing.
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
pub(crate) const NLM_F_CREATE: u16 = 0x400;
/// The error message holds only the header of the request that failed.
pub(crate) const NLM_F_CAPPED: u16 = 0x100;
/// The error message is followed by attributes.
pub(crate) const NLM_F_ACK_TLVS: u16 = 0x200;

/// The size of `struct nlmsghdr`, in bytes.
pub(crate) const HEADER: usize = 16;
/// `NLA_F_NESTED`.
const NESTED: u16 = 0x8000;
/// `NLA_TYPE_MASK`.
const KIND_MASK: u16 = 0x3fff;

/// A request that is being written.
#[derive(Clone, Debug)]
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// Begins a request of `kind` with `flags` and the fixed structure `fixed`.
    #[must_use]
    pub fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(fixed);
        let mut request = Self { bytes };
        request.align();
        request
    }

    /// Sets `flags` besides the flags that are set already.
    pub fn add_flags(&mut self, flags: u16) {
        let all = u16_at(&self.bytes, 6).unwrap_or(0) | flags;
        self.bytes.splice(6..8, all.to_ne_bytes());
    }

    /// Adds an attribute.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        // No value of these requests is longer than a name or an address.
        debug_assert!(value.len() < 1_000);
        self.bytes.extend((4 + value.len() as u16).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.align();
        self
    }

    /// Adds an attribute that holds a number of 32 bits.
    pub fn u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Adds an attribute that holds a text and a zero byte.
    pub fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    /// Adds an attribute that holds an address.
    pub fn ip(&mut self, kind: u16, ip: IpAddr) -> &mut Self {
        match ip {
            IpAddr::V4(ip) => self.attribute(kind, &ip.octets()),
            IpAddr::V6(ip) => self.attribute(kind, &ip.octets()),
        }
    }

    /// Adds an attribute that holds `fixed` and then the attributes that `fill` adds.
    pub fn nest(&mut self, kind: u16, fixed: &[u8], fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend((kind | NESTED).to_ne_bytes());
        self.bytes.extend(fixed);
        self.align();
        fill(self);
        let len = (self.bytes.len() - start) as u16;
        self.bytes.splice(start..start + 2, len.to_ne_bytes());
        self
    }

    /// Returns the bytes to send, with the number `sequence`.
    #[must_use]
    pub fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = self.bytes.len() as u32;
        self.bytes.splice(..4, len.to_ne_bytes());
        self.bytes.splice(8..12, sequence.to_ne_bytes());
        self.bytes
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// A message that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_flags`.
    pub flags: u16,
    /// `nlmsg_seq`: the number of the request that this message answers.
    pub sequence: u32,
    /// The bytes after the header.
    pub body: &'a [u8],
}

/// Iterates over the messages that one read from a socket returned.
#[derive(Clone, Debug)]
pub struct Messages<'a>(pub &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let len = usize::try_from(u32_at(self.0, 0)?).ok()?;
        let body = self.0.get(HEADER..len)?;
        let (kind, flags) = (u16_at(self.0, 4)?, u16_at(self.0, 6)?);
        let message = Message { kind, flags, sequence: u32_at(self.0, 8)?, body };
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    }
}

/// Iterates over attributes: kind and value of each.
#[derive(Clone, Debug)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Attributes<'a> {
    /// Returns the attributes that follow a fixed structure of `fixed` bytes.
    #[must_use]
    pub fn after(body: &'a [u8], fixed: usize) -> Self {
        Self(body.get(fixed.next_multiple_of(4)..).unwrap_or_default())
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let (len, kind) = (usize::from(u16_at(self.0, 0)?), u16_at(self.0, 2)?);
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & KIND_MASK, value))
    }
}

/// Returns the number of 16 bits at offset `at`, in the host's byte order.
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

/// Returns the number of 32 bits at offset `at`, in the host's byte order.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

/// Returns the number of 64 bits at offset `at`, in the host's byte order.
#[must_use]
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_ne_bytes)
}

/// Returns the address that 4 or 16 bytes are; `None` for another length.
#[must_use]
pub fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => bytes.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets).into()),
        16 => bytes.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets).into()),
        _ => None,
    }
}

/// Returns the text before the first zero byte. Bytes that are no UTF-8 are replaced.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// `AF_INET`.
pub(crate) const INET: u8 = 2;
/// `AF_INET6`.
pub(crate) const INET6: u8 = 10;

/// Returns the address family of an address.
pub(crate) const fn family(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { INET } else { INET6 }
}

/// Returns the address that stands for every address of a family.
pub(crate) const fn any(family: u8) -> Option<IpAddr> {
    match family {
        INET => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        INET6 => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut request = Request::new(20, NLM_F_REQUEST, &[1, 2, 3, 4, 5]);
        request.text(3, "eth0").u32(4, 1500).nest(5 | 0x100, &[], |inner| {
            inner.ip(1, "10.0.0.1".parse().unwrap()).ip(2, "::1".parse().unwrap());
        });
        let mut bytes = request.finish(77);
        bytes.extend(Request::new(DONE, 0, &[]).finish(78));
        let all: Vec<_> = Messages(&bytes).collect();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].kind, all[0].sequence, all[1].kind, all[1].sequence), (20, 77, DONE, 78));
        let attributes: Vec<_> = Attributes::after(all[0].body, 5).collect();
        assert_eq!(attributes[0], (3, &b"eth0\0"[..]));
        assert_eq!(text(attributes[0].1), "eth0");
        assert_eq!(u32_at(attributes[1].1, 0), Some(1500));
        assert_eq!(attributes[2].0, 0x105);
        let inner: Vec<_> = Attributes(attributes[2].1).filter_map(|(_, value)| ip(value)).collect();
        assert_eq!(inner, ["10.0.0.1".parse::<IpAddr>().unwrap(), "::1".parse().unwrap()]);
    }

    #[test]
    fn what_is_cut_or_wrong_ends() {
        let mut request = Request::new(20, 0, &[0; 8]);
        request.u32(1, 2).text(3, "x");
        let bytes = request.finish(1);
        for len in 0..bytes.len() {
            assert_eq!(Messages(&bytes[..len]).count(), 0);
            let _ = Attributes(&bytes[..len]).count();
        }
        // A length that is less than a header, or more than there are bytes.
        for len in [0_u32, 3, 15, 17, u32::MAX] {
            let mut wrong = bytes.clone();
            wrong.splice(..4, len.to_ne_bytes());
            assert!(Messages(&wrong).count() <= 1);
        }
        for len in [0_u16, 3, u16::MAX] {
            let mut wrong = [9; 8];
            wrong[..2].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(Attributes(&wrong).count(), 0);
        }
        assert_eq!(ip(&[1; 5]), None);
        assert_eq!(text(b"ab"), "ab");
    }
}
