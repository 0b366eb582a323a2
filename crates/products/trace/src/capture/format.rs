//! The records of pcap and pcapng.
//!
//! Sources: <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-06.html> and
//! <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-04.html>.

use std::ops::Range;

/// The most interfaces of one pcapng section.
const INTERFACES_MAX: usize = 4096;

/// The bytes of the header of a pcap file.
pub(super) const PCAP_HEADER_BYTES: usize = 24;
const PCAPNG_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// The magic number of Kuznetzov's variant: each record has eight more bytes before its frame.
const MODIFIED: u32 = 0xa1b2_cd34;

/// Types of blocks.
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
/// The mark of the byte order: the fifth to eighth byte of a section header's body, read as a number.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// The bytes of a block without its body: type and length before the body, the length again after it.
const BLOCK_BYTES: usize = 12;
/// Options of an interface.
const OPTION_RESOLUTION: u16 = 9;
const OPTION_OFFSET: u16 = 14;

/// The reason why a record contradicts itself.
pub(super) type Damage = &'static str;

/// A frame, and the range of its bytes in the record.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) time_ns: u64,
    pub(super) link_type: i32,
    pub(super) wire_bytes: u32,
    pub(super) data: Range<usize>,
}

/// The format of an input, with the state that reading its records needs.
#[derive(Debug)]
pub(super) enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

/// The header of a pcap file.
#[derive(Debug)]
pub(super) struct Pcap {
    is_big: bool,
    /// The nanoseconds in a unit of the time's fraction.
    unit_ns: u32,
    link_type: i32,
    header_bytes: usize,
}

/// The current section of a pcapng file.
#[derive(Debug, Default)]
pub(super) struct Pcapng {
    is_big: bool,
    interfaces: Vec<Interface>,
}

/// The link type and the clock of an interface of a pcapng section.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: i32,
    /// The units of time in a second.
    units: u64,
    offset_s: i64,
}

fn u16_at(bytes: &[u8], at: usize, is_big: bool) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(if is_big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
}

fn u32_at(bytes: &[u8], at: usize, is_big: bool) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(if is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
}

impl Format {
    /// Returns whether an input is pcapng, judged by its first bytes, at most four. Returns `None` if these
    /// begin neither pcap nor pcapng.
    pub(super) fn is_pcapng(begin: &[u8]) -> Option<bool> {
        if PCAPNG_MAGIC.starts_with(begin) {
            return Some(true);
        }
        let magics = [MICROSECONDS, NANOSECONDS, MODIFIED];
        let is_magic = |m: &u32| m.to_be_bytes().starts_with(begin) || m.to_le_bytes().starts_with(begin);
        magics.iter().any(is_magic).then_some(false)
    }

    /// Reads the header of a pcap file.
    pub(super) fn pcap(header: &[u8]) -> Option<Self> {
        let (is_big, magic) = [true, false]
            .into_iter()
            .map(|is_big| (is_big, u32_at(header, 0, is_big)))
            .find(|(_, magic)| magic.is_some_and(|m| [MICROSECONDS, NANOSECONDS, MODIFIED].contains(&m)))?;
        // The upper bits say whether frames end with an Ethernet checksum.
        let link_type = (u32_at(header, 20, is_big)? & 0xffff) as i32;
        let unit_ns = if magic == Some(NANOSECONDS) { 1 } else { 1000 };
        let header_bytes = if magic == Some(MODIFIED) { 24 } else { 16 };
        Some(Self::Pcap(Pcap { is_big, unit_ns, link_type, header_bytes }))
    }

    /// Returns how many bytes of a record must be read to judge it.
    pub(super) const fn header_bytes(&self) -> usize {
        match self {
            Self::Pcap(pcap) => pcap.header_bytes,
            Self::Pcapng(_) => BLOCK_BYTES,
        }
    }

    /// Returns the length that the record beginning with `header` claims, in bytes.
    pub(super) fn claimed_bytes(&mut self, header: &[u8]) -> Result<u64, Damage> {
        match self {
            Self::Pcap(pcap) => {
                let captured = u32_at(header, 8, pcap.is_big).unwrap_or(0);
                Ok(pcap.header_bytes as u64 + u64::from(captured))
            }
            Self::Pcapng(section) => section.claimed_bytes(header),
        }
    }

    /// Reads a whole record. Returns its frame, or `None` if the record has none.
    pub(super) fn record(&mut self, record: &[u8]) -> Result<Option<Record>, Damage> {
        match self {
            Self::Pcap(pcap) => pcap.record(record).map(Some),
            Self::Pcapng(section) => section.block(record),
        }
    }
}

impl Pcap {
    fn record(&self, record: &[u8]) -> Result<Record, Damage> {
        let word = |at| u32_at(record, at, self.is_big).unwrap_or(0);
        let (seconds, fraction, captured, wire_bytes) = (word(0), word(4), word(8), word(12));
        if (seconds, captured, wire_bytes) == (0, 0, 0) {
            return Err("zeros where a frame should be");
        }
        Ok(Record {
            time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * u64::from(self.unit_ns),
            link_type: self.link_type,
            wire_bytes,
            data: self.header_bytes..record.len(),
        })
    }
}

impl Pcapng {
    fn claimed_bytes(&mut self, header: &[u8]) -> Result<u64, Damage> {
        if header.starts_with(&PCAPNG_MAGIC) {
            self.is_big = match u32_at(header, 8, true) {
                Some(BYTE_ORDER) => true,
                Some(order) if order.swap_bytes() == BYTE_ORDER => false,
                _ => return Err("a section without an order of bytes"),
            };
        }
        let claimed = u32_at(header, 4, self.is_big).unwrap_or(0);
        if (claimed as usize) < BLOCK_BYTES || !claimed.is_multiple_of(4) {
            return Err("no block can have this length");
        }
        Ok(claimed.into())
    }

    fn block(&mut self, block: &[u8]) -> Result<Option<Record>, Damage> {
        let word = |at| u32_at(block, at, self.is_big);
        if word(4) != word(block.len() - 4) {
            return Err("a block whose length is another one at its end");
        }
        let body = block.get(8..block.len() - 4).unwrap_or_default();
        match word(0).unwrap_or(0) {
            SECTION_HEADER => self.interfaces.clear(),
            INTERFACE_DESCRIPTION => self.interface(body)?,
            kind @ (ENHANCED_PACKET | PACKET) => return self.packet(body, kind == PACKET).map(Some),
            SIMPLE_PACKET => return self.simple_packet(body).map(Some),
            _ => {}
        }
        Ok(None)
    }

    fn interface(&mut self, body: &[u8]) -> Result<(), Damage> {
        const SHORT: Damage = "an interface that is not described whole";
        let link_type = i32::from(u16_at(body, 0, self.is_big).ok_or(SHORT)?);
        let (mut resolution, mut offset_s) = (6, 0);
        let mut options = body.get(8..).ok_or(SHORT)?;
        while let (Some(code), Some(bytes)) =
            (u16_at(options, 0, self.is_big), u16_at(options, 2, self.is_big))
        {
            let bytes = usize::from(bytes);
            let value = options.get(4..4 + bytes).ok_or(SHORT)?;
            match (code, bytes) {
                (0, _) => break,
                (OPTION_RESOLUTION, 1) => resolution = value[0],
                (OPTION_OFFSET, 8) => {
                    let value: [u8; 8] = value.try_into().map_err(|_| SHORT)?;
                    offset_s =
                        if self.is_big { i64::from_be_bytes(value) } else { i64::from_le_bytes(value) };
                }
                _ => {}
            }
            options = options.get(4 + bytes.next_multiple_of(4)..).unwrap_or_default();
        }
        let interface = Interface::new(link_type, resolution, offset_s)
            .ok_or("an interface has an impossible resolution of time")?;
        if self.interfaces.len() == INTERFACES_MAX {
            return Err("more interfaces than any machine has");
        }
        self.interfaces.push(interface);
        Ok(())
    }

    /// Reads a packet block. The old form has 16 bits of the interface and 16 of drops in place of 32 bits.
    fn packet(&self, body: &[u8], is_old: bool) -> Result<Record, Damage> {
        const SHORT: Damage = "a block that is shorter than its frame";
        let word = |at| u32_at(body, at, self.is_big).ok_or(SHORT);
        let number = if is_old { u16_at(body, 0, self.is_big).map(u32::from) } else { word(0).ok() };
        let interface = self.interfaces.get(number.ok_or(SHORT)? as usize);
        let interface = interface.ok_or("a frame of an interface that is not described")?;
        let (time_ns, captured) = (interface.time_ns(word(4)?, word(8)?), word(12)? as usize);
        body.get(20..20 + captured).ok_or(SHORT)?;
        let data = 8 + 20..8 + 20 + captured;
        Ok(Record { time_ns, link_type: interface.link_type, wire_bytes: word(16)?, data })
    }

    /// Reads a simple packet block. The block has no time, so its frame counts but gives no other statistics.
    fn simple_packet(&self, body: &[u8]) -> Result<Record, Damage> {
        let wire_bytes = u32_at(body, 0, self.is_big).ok_or("a frame without a length")?;
        let captured = (body.len() - 4).min(wire_bytes as usize);
        let link_type = self.interfaces.first().map_or(1, |interface| interface.link_type);
        Ok(Record { time_ns: 0, link_type, wire_bytes, data: 8 + 4..8 + 4 + captured })
    }
}

impl Interface {
    /// Creates an interface. `resolution` is the option `if_tsresol`: a power of ten, or of two if its
    /// highest bit is set. Returns `None` if the power does not fit into 64 bits.
    fn new(link_type: i32, resolution: u8, offset_s: i64) -> Option<Self> {
        let exponent = u32::from(resolution & 0x7f);
        let units =
            if resolution & 0x80 == 0 { 10_u64.checked_pow(exponent) } else { 1_u64.checked_shl(exponent) };
        Some(Self { link_type, units: units?, offset_s })
    }

    fn time_ns(&self, high: u32, low: u32) -> u64 {
        let ticks = u64::from(high) << 32 | u64::from(low);
        let seconds = i128::from(ticks / self.units) + i128::from(self.offset_s);
        let fraction = i128::from(ticks % self.units) * 1_000_000_000 / i128::from(self.units);
        u64::try_from(seconds * 1_000_000_000 + fraction).unwrap_or(0)
    }
}
