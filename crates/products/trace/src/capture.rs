//! Capture files and pipes, pcap and pcapng, as a stream of frames.

use std::io::{self, Read};
use std::ops::ControlFlow;

use pcap_parser::traits::{PcapNGPacketBlock as _, PcapReaderIterator};
use pcap_parser::{Block, LegacyPcapReader, Linktype, PcapBlockOwned, PcapError, PcapNGReader};

/// The buffer in which records are parsed, at first and at most, bytes. A record that does not fit is damage.
const BUFFER_BYTES: usize = 256 << 10;
const BUFFER_BYTES_MAX: usize = 16 << 20;
/// The first block of a pcapng file has a few options; more than this is damage.
const SECTION_HEADER_BYTES_MAX: u32 = 1 << 20;
/// Interfaces of one pcapng section at most.
const INTERFACES_MAX: usize = 4096;

const PCAPNG_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const PCAPNG_LITTLE_ENDIAN: [u8; 4] = [0x4d, 0x3c, 0x2b, 0x1a];
const PCAP_HEADER_BYTES: usize = 24;

/// One captured frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its number in the capture, from 1 as other tools count.
    pub number: u64,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// The link type, as <https://www.tcpdump.org/linktypes.html> numbers them.
    pub link_type: i32,
    /// Bytes on the wire.
    pub wire_bytes: u32,
    /// What was captured of them: the snap length may have cut the rest.
    pub bytes: &'a [u8],
}

/// Why a capture could not be read on. All frames before the place were delivered.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Reading failed.
    #[error("cannot read after byte {offset} (frame {number}): {source}")]
    Io {
        /// Where in the input, bytes.
        offset: u64,
        /// The number of the frame that was being read.
        number: u64,
        /// What the system says.
        source: io::Error,
    },
    /// The first bytes are of no known format.
    #[error("this is no capture: it begins with {0:02x?}; pcap and pcapng can be read")]
    NotACapture(Vec<u8>),
    /// There is nothing to read at all.
    #[error("the capture is empty: not even a header is there")]
    Empty,
    /// A record can't be what it claims to be.
    #[error("damaged at byte {offset} (frame {number}): {why}")]
    Damaged {
        /// Where the record begins, bytes.
        offset: u64,
        /// The number that its frame would have.
        number: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The input ends within a record.
    #[error("the capture ends within a record that begins at byte {offset} (frame {number}): it was cut off")]
    CutOff {
        /// Where the record begins, bytes.
        offset: u64,
        /// The number that its frame would have.
        number: u64,
    },
}

/// An input that remembers why it failed: the parser only says that it did.
struct Input<R> {
    prefix: io::Cursor<Vec<u8>>,
    inner: R,
    error: std::rc::Rc<std::cell::RefCell<Option<io::Error>>>,
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.prefix.read(buffer)? {
            0 => {}
            bytes => return Ok(bytes),
        }
        loop {
            match self.inner.read(buffer) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    let kind = e.kind();
                    *self.error.borrow_mut() = Some(e);
                    return Err(kind.into());
                }
                read => return read,
            }
        }
    }
}

/// Reads until `wanted` bytes are there or the input ends.
fn fill(input: &mut impl Read, prefix: &mut Vec<u8>, wanted: usize) -> Result<(), CaptureError> {
    let missing = wanted.saturating_sub(prefix.len());
    let read = input.by_ref().take(missing as u64).read_to_end(prefix);
    read.map(drop).map_err(|source| CaptureError::Io { offset: prefix.len() as u64, number: 0, source })
}

/// How the interfaces of a pcapng section count time.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: i32,
    /// Units a second.
    units: u64,
    offset_s: i64,
}

impl Interface {
    /// `resolution` is the option `if_tsresol`: a power of ten, or of two if its highest bit is set.
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

/// What of the file's headers the frames need.
#[derive(Debug, Default)]
struct Format {
    /// Of pcap: nanoseconds per unit of the fraction, and the link type.
    pcap: Option<(u32, i32)>,
    interfaces: Vec<Interface>,
}

/// Reads `input` to its end and gives each frame to `each`, which may break off. Returns how many frames were
/// given.
///
/// # Errors
/// [`CaptureError`], after all frames that could be read.
pub fn read_capture(
    mut input: impl Read,
    mut each: impl FnMut(Frame<'_>) -> ControlFlow<()>,
) -> Result<u64, CaptureError> {
    let mut prefix = Vec::new();
    fill(&mut input, &mut prefix, 12)?;
    if prefix.is_empty() {
        return Err(CaptureError::Empty);
    }
    let is_pcapng = prefix.starts_with(&PCAPNG_MAGIC);
    let header_bytes = if is_pcapng {
        let length: [u8; 4] = prefix.get(4..8).and_then(|b| b.try_into().ok()).unwrap_or_default();
        let is_little = prefix.get(8..12) == Some(&PCAPNG_LITTLE_ENDIAN);
        let length = if is_little { u32::from_le_bytes(length) } else { u32::from_be_bytes(length) };
        if length > SECTION_HEADER_BYTES_MAX {
            return Err(CaptureError::Damaged { offset: 0, number: 0, why: "its first block is too long" });
        }
        length as usize
    } else {
        PCAP_HEADER_BYTES
    };
    fill(&mut input, &mut prefix, header_bytes)?;
    let begin: Vec<u8> = prefix.iter().copied().take(4).collect();
    let error = std::rc::Rc::default();
    let capacity = BUFFER_BYTES.max(2 * header_bytes);
    let is_short = prefix.len() < header_bytes;
    let input = Input { prefix: io::Cursor::new(prefix), inner: input, error: std::rc::Rc::clone(&error) };
    let opened: Result<Box<dyn PcapReaderIterator + '_>, _> = if is_pcapng {
        PcapNGReader::new(capacity, input).map(|reader| Box::new(reader) as _)
    } else {
        LegacyPcapReader::new(capacity, input).map(|reader| Box::new(reader) as _)
    };
    let mut reader = opened.map_err(|_| {
        if is_short {
            CaptureError::CutOff { offset: 0, number: 0 }
        } else {
            CaptureError::NotACapture(begin)
        }
    })?;
    let mut walk = Walk { offset: 0, number: 1, format: Format::default() };
    loop {
        let step = match reader.next() {
            Ok((bytes, block)) => walk.block(&block, &mut each).map(|flow| (bytes, flow)),
            Err(error) => Err(Stop::of(&error, walk.offset, walk.number)),
        };
        match step {
            Ok((bytes, flow)) => {
                walk.offset += bytes as u64;
                reader.consume_noshift(bytes);
                if flow.is_break() {
                    return Ok(walk.number - 1);
                }
            }
            Err(Stop::End) => return Ok(walk.number - 1),
            Err(Stop::Wrong(wrong)) => return Err(wrong),
            Err(stop) => {
                let is_too_small = matches!(stop, Stop::Grow);
                if is_too_small && !grow(&mut *reader) {
                    return Err(walk.damaged("a record is longer than any that is captured"));
                }
                if reader.refill().is_err() {
                    let source = error.borrow_mut().take().unwrap_or_else(|| io::ErrorKind::Other.into());
                    return Err(CaptureError::Io { offset: walk.offset, number: walk.number, source });
                }
            }
        }
    }
}

/// Doubles the buffer; `false` at its limit.
fn grow(reader: &mut dyn PcapReaderIterator) -> bool {
    let wanted = (reader.data().len().max(BUFFER_BYTES) * 2).next_power_of_two();
    let mut size = BUFFER_BYTES * 2;
    while size <= BUFFER_BYTES_MAX {
        // It grows only if the new size is larger than the old.
        if size >= wanted && reader.grow(size) {
            return true;
        }
        size *= 2;
    }
    false
}

/// Why no block came.
enum Stop {
    End,
    Refill,
    Grow,
    Wrong(CaptureError),
}

impl Stop {
    fn of(error: &PcapError<&[u8]>, offset: u64, number: u64) -> Self {
        match error {
            PcapError::Eof => Self::End,
            PcapError::Incomplete(_) => Self::Refill,
            PcapError::BufferTooSmall => Self::Grow,
            PcapError::UnexpectedEof => Self::Wrong(CaptureError::CutOff { offset, number }),
            _ => Self::Wrong(CaptureError::Damaged { offset, number, why: "no block can look like this" }),
        }
    }
}

/// Where the reader is.
struct Walk {
    offset: u64,
    number: u64,
    format: Format,
}

impl Walk {
    const fn damaged(&self, why: &'static str) -> CaptureError {
        CaptureError::Damaged { offset: self.offset, number: self.number, why }
    }

    fn block(
        &mut self,
        block: &PcapBlockOwned<'_>,
        each: &mut impl FnMut(Frame<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Stop> {
        let frame = match block {
            PcapBlockOwned::LegacyHeader(header) => {
                let Linktype(link_type) = header.network;
                let unit_ns = if header.is_nanosecond_precision() { 1 } else { 1000 };
                self.format.pcap = Some((unit_ns, link_type));
                return Ok(ControlFlow::Continue(()));
            }
            PcapBlockOwned::Legacy(record) => {
                let (unit_ns, link_type) = self.format.pcap.unwrap_or((1000, 0));
                if record.origlen == 0 && record.caplen == 0 && record.ts_sec == 0 {
                    return Err(Stop::Wrong(self.damaged("zeros where a frame should be")));
                }
                let fraction = u64::from(record.ts_usec) * u64::from(unit_ns);
                Some((
                    u64::from(record.ts_sec) * 1_000_000_000 + fraction,
                    link_type,
                    record.origlen,
                    record.data,
                ))
            }
            PcapBlockOwned::NG(block) => self.pcapng(block).map_err(Stop::Wrong)?,
        };
        let Some((time_ns, link_type, wire_bytes, bytes)) = frame else {
            return Ok(ControlFlow::Continue(()));
        };
        let frame = Frame { number: self.number, time_ns, link_type, wire_bytes, bytes };
        self.number += 1;
        Ok(each(frame))
    }

    #[expect(clippy::type_complexity, reason = "the fields of a frame before it has a number")]
    fn pcapng<'a>(&mut self, block: &Block<'a>) -> Result<Option<(u64, i32, u32, &'a [u8])>, CaptureError> {
        match block {
            Block::SectionHeader(_) => self.format.interfaces.clear(),
            Block::InterfaceDescription(description) => {
                let Linktype(link_type) = description.linktype;
                let interface = Interface::new(link_type, description.if_tsresol, description.if_tsoffset)
                    .ok_or_else(|| self.damaged("an interface has an impossible resolution of time"))?;
                if self.format.interfaces.len() == INTERFACES_MAX {
                    return Err(self.damaged("more interfaces than any machine has"));
                }
                self.format.interfaces.push(interface);
            }
            Block::EnhancedPacket(packet) => {
                let interface = self
                    .format
                    .interfaces
                    .get(packet.if_id as usize)
                    .ok_or_else(|| self.damaged("a frame of an interface that is not described"))?;
                let time_ns = interface.time_ns(packet.ts_high, packet.ts_low);
                let captured = packet.data.get(..packet.caplen as usize).unwrap_or(packet.data);
                return Ok(Some((time_ns, interface.link_type, packet.origlen, captured)));
            }
            Block::SimplePacket(packet) => {
                // It has no time, so no statistics can be made of it; its frame counts.
                let link_type = self.format.interfaces.first().map_or(1, |interface| interface.link_type);
                return Ok(Some((0, link_type, packet.orig_len(), packet.data)));
            }
            _ => {}
        }
        Ok(None)
    }
}
