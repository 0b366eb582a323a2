//! Writes a copy of a capture that can be shared: it hides which hosts talked to each other and keeps what
//! Multipath TCP did.
//!
//! The copy is not edited from the frames but built anew from the fields that the analysis reads, so nothing
//! is kept by oversight. The output is a pcap of raw IP packets with nanoseconds.
//!
//! | part of a frame | in the copy |
//! | --- | --- |
//! | link header, fields and options of IP, frames without TCP | left out |
//! | IP addresses, also in ADD_ADDR | replaced; two with a common prefix of n bits keep one |
//! | ports, sequence numbers, window, flags, time | kept (a pcap has no time after February 2106) |
//! | payload | left out; its length is kept |
//! | options of TCP: segment size, window scale, SACK, Multipath TCP | kept |
//! | other options (timestamps reveal a host's clock, Fast Open's cookies its address) | padding |
//! | keys, tokens, nonces, HMACs of MP_JOIN | kept: they are random and depend on no address |
//! | HMAC of ADD_ADDR | computed for the new address, right or wrong as before; 0 if the keys are not known |
//! | checksums | IP's is right; TCP's and a DSS's are 0, because they would reveal facts about the payload |
//!
//! Addresses are replaced as Crypto-PAn does (Xu, Fan, Ammar, Moon: *Prefix-preserving IP address
//! anonymization*, ICNP 2002, section 3): a keyed function of the bits before a bit, here HMAC-SHA256,
//! decides whether the bit is flipped. The same key gives the same addresses in every capture. Without the
//! key no replacement can be undone, but a reader who knows some of the addresses learns which prefixes other
//! addresses share with them.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anabranch_mptcp_wire::hmac::hmac_sha256;
use anabranch_mptcp_wire::tcp::TcpHeader;
use anabranch_mptcp_wire::{AddAddr, InternetChecksum, Key, MptcpOption, TcpOption, TcpOptions};

use crate::capture::Frame;
use crate::segment::{Segment, segment};

/// The bytes of the key that replaces addresses.
pub const KEY_BYTES: usize = 16;
/// The most addresses whose replacements are remembered.
const KNOWN_MAX: usize = 1 << 16;
const NOP: u8 = 1;
/// The bytes that are kept of an option that cannot be read: kind, length, subtype and flags.
const MALFORMED_KEPT: usize = 4;

/// The keys of a segment's sender and of its receiver, if they are known.
pub type Keys = Option<(Key, Key)>;

/// Replaces addresses by a secret key.
#[derive(Debug)]
pub struct Addresses {
    key: [u8; KEY_BYTES],
    known: HashMap<IpAddr, IpAddr>,
}

impl Addresses {
    /// Creates an empty table of replacements by this key.
    #[must_use]
    pub fn new(key: [u8; KEY_BYTES]) -> Self {
        Self { key, known: HashMap::new() }
    }

    /// Returns the address that replaces `address`.
    pub fn replace(&mut self, address: IpAddr) -> IpAddr {
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        if self.known.len() == KNOWN_MAX {
            self.known.clear();
        }
        let replaced = match address {
            IpAddr::V4(v4) => {
                let bits = self.bits(4, u128::from(v4.to_bits()) << 96, 32) >> 96;
                IpAddr::V4(Ipv4Addr::from_bits(bits as u32))
            }
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(self.bits(6, v6.to_bits(), 128))),
        };
        self.known.insert(address, replaced);
        replaced
    }

    /// Returns the replacement of the highest `count` bits of `value`.
    fn bits(&self, family: u8, value: u128, count: u8) -> u128 {
        (0..count).fold(0, |replaced, place| {
            let before = value & !(u128::MAX >> place);
            let digest = hmac_sha256(self.key, &[&[family, place], &before.to_be_bytes()]);
            let bit = value >> (127 - place) & 1 ^ u128::from(digest[0] >> 7);
            replaced | bit << (127 - place)
        })
    }
}

/// Writes the anonymised copy of a capture.
#[derive(Debug)]
pub struct Anonymiser<W> {
    out: W,
    addresses: Addresses,
    /// The packet that is being written.
    packet: Vec<u8>,
    written: u64,
}

impl<W: io::Write> Anonymiser<W> {
    /// Begins a copy in `out`.
    ///
    /// # Errors
    /// If writing to `out` fails.
    pub fn new(mut out: W, key: [u8; KEY_BYTES]) -> io::Result<Self> {
        // The header says: nanoseconds, version 2.4, no snap length, raw IP.
        for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 262_144, 101] {
            out.write_all(&word.to_le_bytes())?;
        }
        Ok(Self { out, addresses: Addresses::new(key), packet: Vec::new(), written: 0 })
    }

    /// Writes the copy of the next frame. Give the analysis the frame first. `keys` returns the keys of a
    /// segment's sender and receiver, as [`Analysis::keys`](crate::Analysis::keys) does.
    ///
    /// # Errors
    /// If writing to the output fails.
    pub fn frame(
        &mut self,
        frame: &Frame<'_>,
        keys: impl Fn(SocketAddr, SocketAddr) -> Keys,
    ) -> io::Result<()> {
        let Ok(segment) = segment(frame) else { return Ok(()) };
        let wire_bytes = self.build(&segment, keys);
        let (seconds, nanoseconds) = (frame.time_ns / 1_000_000_000, frame.time_ns % 1_000_000_000);
        for word in [seconds as u32, nanoseconds as u32, self.packet.len() as u32, wire_bytes] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.written += 1;
        self.out.write_all(&self.packet)
    }

    /// Ends the copy. Returns the output and the number of frames in it.
    ///
    /// # Errors
    /// If writing to the output fails.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        self.out.flush()?;
        Ok((self.out, self.written))
    }

    /// Builds the packet and returns its bytes on the wire.
    fn build(&mut self, segment: &Segment<'_>, keys: impl Fn(SocketAddr, SocketAddr) -> Keys) -> u32 {
        let tcp_bytes = segment.header_bytes as u32 + segment.payload_bytes;
        let ends = [segment.from, segment.to].map(|end| self.addresses.replace(end.ip()));
        let packet = &mut self.packet;
        packet.clear();
        // A length that does not fit is written as 0, as senders do that leave it to their network cards.
        let length = |bytes: u32| u16::try_from(bytes).unwrap_or(0).to_be_bytes();
        match ends {
            [IpAddr::V4(from), IpAddr::V4(to)] => {
                packet.extend([0x45, 0]);
                packet.extend(length(20 + tcp_bytes));
                packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
                packet.extend(from.octets());
                packet.extend(to.octets());
                let mut sum = InternetChecksum::default();
                sum.add(packet);
                packet[10..12].copy_from_slice(&sum.finish().to_be_bytes());
            }
            // Both ends of a packet have the same address family.
            [from, to] => {
                packet.extend([0x60, 0, 0, 0]);
                packet.extend(length(tcp_bytes));
                packet.extend([6, 64]);
                for address in [from, to] {
                    let v6 = match address {
                        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                        IpAddr::V6(v6) => v6,
                    };
                    packet.extend(v6.octets());
                }
            }
        }
        let wire_bytes = packet.len() as u32 + tcp_bytes;
        let header = TcpHeader {
            source_port: segment.from.port(),
            target_port: segment.to.port(),
            seq: segment.seq,
            ack: segment.ack,
            header_bytes: segment.header_bytes.into(),
            flags: segment.flags,
            window: segment.window,
            checksum: 0,
        };
        packet.extend(header.to_bytes());
        let start = packet.len();
        packet.resize(start + segment.options.len(), NOP);
        let keys = || keys(segment.from, segment.to);
        options(segment.options, &mut packet[start..], &mut self.addresses, keys);
        wire_bytes
    }
}

/// Writes the options that are kept at the same offsets in `out`, which has the same length and is full of
/// padding.
fn options(mut rest: &[u8], mut out: &mut [u8], addresses: &mut Addresses, keys: impl Fn() -> Keys) {
    while let [kind, after @ ..] = rest {
        let bytes = match (kind, after.first()) {
            (0, _) => {
                out.fill(0);
                return;
            }
            (&NOP, _) => 1,
            (_, Some(&bytes)) if bytes >= 2 => usize::from(bytes),
            // The last option has no length, or a length below 2, which ends the list.
            _ => rest.len(),
        };
        let is_cut = bytes > rest.len();
        let (option, following) = rest.split_at(bytes.min(rest.len()));
        let (room, left) = out.split_at_mut(option.len());
        if *kind != NOP {
            one(option, is_cut, room, addresses, &keys);
        }
        (rest, out) = (following, left);
    }
}

fn one(option: &[u8], is_cut: bool, out: &mut [u8], addresses: &mut Addresses, keys: &impl Fn() -> Keys) {
    let read = TcpOptions::new(option).next();
    let replaced = match read {
        Some(Ok(TcpOption::Mptcp(option))) => mptcp(option, addresses, keys).map(TcpOption::Mptcp),
        Some(Ok(
            option @ (TcpOption::Mss(_)
            | TcpOption::WindowScale(_)
            | TcpOption::SackPermitted
            | TcpOption::Sack(_)),
        )) => Some(option),
        // The option stays unreadable in the same way, without its content.
        Some(Err(_)) => {
            let kept = if is_cut { 2 } else { MALFORMED_KEPT }.min(option.len());
            out.fill(0);
            out[..kept].copy_from_slice(&option[..kept]);
            None
        }
        _ => None,
    };
    if let Some(replaced) = replaced {
        // The length of an option never changes; if it did, padding would stay in its place.
        let mut scratch = [NOP; anabranch_mptcp_wire::options::OPTION_BYTES_MAX];
        if replaced.write(&mut scratch) == Some(out.len()) {
            out.copy_from_slice(&scratch[..out.len()]);
        }
    }
}

/// Returns the option that replaces an option of Multipath TCP, or `None` if the option is not kept.
fn mptcp<'a>(
    option: MptcpOption<'a>,
    addresses: &mut Addresses,
    keys: &impl Fn() -> Keys,
) -> Option<MptcpOption<'a>> {
    Some(match option {
        MptcpOption::Capable(mut capable) => {
            capable.checksum = capable.checksum.map(|_| 0);
            MptcpOption::Capable(capable)
        }
        MptcpOption::Dss(mut dss) => {
            if let Some(mapping) = &mut dss.mapping {
                mapping.checksum = mapping.checksum.map(|_| 0);
            }
            MptcpOption::Dss(dss)
        }
        MptcpOption::AddAddr(AddAddr::V0 { address_id, address, port }) => {
            let address = addresses.replace(address);
            MptcpOption::AddAddr(AddAddr::V0 { address_id, address, port })
        }
        MptcpOption::AddAddr(AddAddr::V1 { echo, address_id, address, port, hmac }) => {
            let replaced = addresses.replace(address);
            let hmac = hmac.map(|hmac| {
                let Some((own, peer)) = keys() else { return 0 };
                let of = |address| own.add_addr_hmac(peer, address_id, address, port);
                if of(address) == hmac { of(replaced) } else { !of(replaced) }
            });
            MptcpOption::AddAddr(AddAddr::V1 { echo, address_id, address: replaced, port, hmac })
        }
        MptcpOption::Unknown { .. } => return None,
        MptcpOption::Join(_)
        | MptcpOption::RemoveAddr(_)
        | MptcpOption::Prio { .. }
        | MptcpOption::Fail { .. }
        | MptcpOption::FastClose { .. }
        | MptcpOption::Reset(_) => option,
    })
}
