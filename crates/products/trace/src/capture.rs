//! Reads capture files and pipes, pcap and pcapng, as a stream of frames.
//!
//! A record is judged by the length that it claims, before the rest of it is read. So an input gives the same
//! frames and the same error, no matter how it is cut into reads.

mod format;

use std::io::{self, Read};
use std::ops::ControlFlow;

use format::{Damage, Format, PCAP_HEADER_BYTES, Pcapng};

/// The longest record that is accepted, bytes; frames have at most 256 kB.
const RECORD_BYTES_MAX: u64 = 16 << 20;
/// The initial size of the buffer, bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// One captured frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The number of the frame in the capture, from 1 as other tools count.
    pub number: u64,
    /// The time of the frame, nanoseconds since 1970.
    pub time_ns: u64,
    /// The link type, as <https://www.tcpdump.org/linktypes.html> numbers them.
    pub link_type: i32,
    /// The length of the frame on the wire, bytes.
    pub wire_bytes: u32,
    /// The captured bytes of the frame; the snap length may have cut off the rest.
    pub bytes: &'a [u8],
}

/// The reason why a capture could not be read further. All frames before the error were delivered.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Reading failed.
    #[error("cannot read after byte {offset} (frame {number}): {source}")]
    Io {
        /// The position in the input, bytes.
        offset: u64,
        /// The number of the frame that was being read.
        number: u64,
        /// The error of the system.
        source: io::Error,
    },
    /// The first bytes belong to no known format.
    #[error("this is no capture: it begins with {0:02x?}; pcap and pcapng can be read")]
    NotACapture(Vec<u8>),
    /// The input is empty.
    #[error("the capture is empty: not even a header is there")]
    Empty,
    /// The fields of a record contradict each other or the format.
    #[error("damaged at byte {offset} (frame {number}): {why}")]
    Damaged {
        /// The position at which the record begins, bytes.
        offset: u64,
        /// The number that the record's frame would have.
        number: u64,
        /// The contradiction.
        why: &'static str,
    },
    /// The input ends within a record.
    #[error("the capture ends within a record that begins at byte {offset} (frame {number}): it was cut off")]
    CutOff {
        /// The position at which the record begins, bytes.
        offset: u64,
        /// The number that the record's frame would have.
        number: u64,
    },
}

/// The part of an input that was read and is not used yet.
#[derive(Debug)]
struct Buffer<R> {
    input: R,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    is_at_end: bool,
}

impl<R: Read> Buffer<R> {
    fn new(input: R) -> Self {
        Self { input, bytes: vec![0; BUFFER_BYTES], start: 0, end: 0, is_at_end: false }
    }

    /// Reads until `wanted` bytes are there or the input ends. Returns whether they are there.
    fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        while self.end - self.start < wanted && !self.is_at_end {
            if self.start + wanted > self.bytes.len() {
                self.bytes.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            // Memory grows with the bytes that are really there, not with the claimed length.
            if self.end == self.bytes.len() {
                self.bytes.resize(2 * self.end, 0);
            }
            match self.input.read(&mut self.bytes[self.end..]) {
                Ok(0) => self.is_at_end = true,
                Ok(bytes) => self.end += bytes,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(self.end - self.start >= wanted)
    }

    fn unused(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }
}

/// A capture that is being read.
#[derive(Debug)]
pub struct Capture<R> {
    buffer: Buffer<R>,
    format: Format,
    /// The position at which the next record begins, bytes.
    offset: u64,
    /// The number of the next frame.
    number: u64,
}

impl<R: Read> Capture<R> {
    /// Opens a capture and reads the beginning of `input`.
    ///
    /// # Errors
    /// If `input` cannot be read, is empty, has no known format, or ends within its header.
    pub fn open(input: R) -> Result<Self, CaptureError> {
        let mut buffer = Buffer::new(input);
        let failed = |source| CaptureError::Io { offset: 0, number: 0, source };
        buffer.fill(4).map_err(failed)?;
        let begin = buffer.unused().get(..4).unwrap_or(buffer.unused());
        if begin.is_empty() {
            return Err(CaptureError::Empty);
        }
        let Some(is_pcapng) = Format::is_pcapng(begin) else {
            return Err(CaptureError::NotACapture(begin.to_vec()));
        };
        if is_pcapng {
            let format = Format::Pcapng(Pcapng::default());
            return Ok(Self { buffer, format, offset: 0, number: 1 });
        }
        buffer.fill(PCAP_HEADER_BYTES).map_err(failed)?;
        let header = buffer.unused().get(..PCAP_HEADER_BYTES);
        let format = header.and_then(Format::pcap).ok_or(CaptureError::CutOff { offset: 0, number: 0 })?;
        buffer.start += PCAP_HEADER_BYTES;
        Ok(Self { buffer, format, offset: PCAP_HEADER_BYTES as u64, number: 1 })
    }

    /// Returns the next frame, or `None` if the input ends between two records.
    ///
    /// # Errors
    /// If the input cannot be read, is damaged or ends within a record. No frame follows an error.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, CaptureError> {
        loop {
            let header_bytes = self.format.header_bytes();
            if !self.fill(header_bytes)? {
                return if self.buffer.unused().is_empty() { Ok(None) } else { Err(self.cut_off()) };
            }
            let header = self.buffer.unused().get(..header_bytes).unwrap_or_default();
            let claimed = self.format.claimed_bytes(header).map_err(|why| self.damaged(why))?;
            if claimed > RECORD_BYTES_MAX {
                return Err(self.damaged("a record is longer than any that is captured"));
            }
            let bytes = claimed as usize;
            if !self.fill(bytes)? {
                return Err(self.cut_off());
            }
            let record = self.buffer.unused().get(..bytes).unwrap_or_default();
            let frame = self.format.record(record).map_err(|why| self.damaged(why))?;
            let start = self.buffer.start;
            self.buffer.start += bytes;
            self.offset += claimed;
            if let Some(record) = frame {
                let number = self.number;
                self.number += 1;
                let data = start + record.data.start..start + record.data.end;
                return Ok(Some(Frame {
                    number,
                    time_ns: record.time_ns,
                    link_type: record.link_type,
                    wire_bytes: record.wire_bytes,
                    bytes: self.buffer.bytes.get(data).unwrap_or_default(),
                }));
            }
        }
    }

    /// Returns how many frames were given.
    pub const fn frames(&self) -> u64 {
        self.number - 1
    }

    fn fill(&mut self, wanted: usize) -> Result<bool, CaptureError> {
        let (offset, number) = (self.offset, self.number);
        self.buffer.fill(wanted).map_err(|source| CaptureError::Io { offset, number, source })
    }

    const fn damaged(&self, why: Damage) -> CaptureError {
        CaptureError::Damaged { offset: self.offset, number: self.number, why }
    }

    const fn cut_off(&self) -> CaptureError {
        CaptureError::CutOff { offset: self.offset, number: self.number }
    }
}

/// Reads `input` to its end and gives each frame to `each`, which may break off. Returns how many frames were
/// given.
///
/// # Errors
/// Those of [`Capture::open`] and [`Capture::next_frame`], after all frames that could be read were given.
pub fn read_capture(
    input: impl Read,
    mut each: impl FnMut(Frame<'_>) -> ControlFlow<()>,
) -> Result<u64, CaptureError> {
    let mut capture = Capture::open(input)?;
    while let Some(frame) = capture.next_frame()? {
        if each(frame).is_break() {
            break;
        }
    }
    Ok(capture.frames())
}
