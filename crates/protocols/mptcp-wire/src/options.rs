//! Reads the options of a TCP header (RFC 9293 section 3.1) one after the other, and writes them.

use crate::bytes::{Reader, Writer};
use crate::mptcp::MptcpOption;

/// The most bytes of options in a TCP header.
pub const OPTION_BYTES_MAX: usize = 40;
/// The most blocks in one SACK option.
pub const SACK_BLOCKS_MAX: usize = 4;

const END_OF_LIST: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const FAST_OPEN: u8 = 34;
/// The kind of all options of Multipath TCP.
pub const MPTCP: u8 = 30;

/// One TCP option. Padding (NOP, end of list) is not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// Maximum segment size, bytes (RFC 9293 section 3.7.1).
    Mss(u16),
    /// Window scale, as a shift (RFC 7323 section 2).
    WindowScale(u8),
    /// Selective acknowledgements are permitted (RFC 2018 section 2).
    SackPermitted,
    /// Selective acknowledgements (RFC 2018 section 3).
    Sack(SackBlocks),
    /// Timestamps (RFC 7323 section 3).
    Timestamps {
        /// The sender's clock.
        value: u32,
        /// The last value that the sender has received.
        echo: u32,
    },
    /// TCP Fast Open: a cookie, or a request for one if it is empty (RFC 7413 section 4.1.1).
    FastOpen(&'a [u8]),
    /// Multipath TCP.
    Mptcp(MptcpOption<'a>),
    /// Any other option.
    Unknown {
        /// The option's kind.
        kind: u8,
        /// The bytes after the option's length.
        body: &'a [u8],
    },
}

/// The reason why an option could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionError {
    /// The bytes end before the option does: the header is wrong, or a capture was cut off at its snap
    /// length. No further option is read.
    Truncated {
        /// The option's kind.
        kind: u8,
        /// The length that the option claims, or `None` if the bytes end before it.
        claimed_bytes: Option<u8>,
    },
    /// The option has a length that no option of its kind has. The options after it are still read, unless
    /// the length is below 2.
    BadLength {
        /// The option's kind.
        kind: u8,
        /// The option's length in bytes.
        bytes: u8,
    },
}

impl core::fmt::Display for OptionError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Self::Truncated { kind, claimed_bytes: Some(bytes) } => {
                write!(f, "TCP option {kind} of {bytes} bytes is cut off")
            }
            Self::Truncated { kind, claimed_bytes: None } => write!(f, "TCP option {kind} is cut off"),
            Self::BadLength { kind, bytes } => write!(f, "TCP option {kind} can't have {bytes} bytes"),
        }
    }
}

impl core::error::Error for OptionError {}

/// The blocks of a SACK option, each as the sequence numbers of its left and right edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(u32, u32); SACK_BLOCKS_MAX],
    len: u8,
}

impl SackBlocks {
    /// Adds a block and returns whether there was room.
    pub fn push(&mut self, left: u32, right: u32) -> bool {
        let Some(free) = self.blocks.get_mut(usize::from(self.len)) else { return false };
        *free = (left, right);
        self.len += 1;
        true
    }

    /// Returns the blocks in their order on the wire.
    #[must_use]
    pub fn as_slice(&self) -> &[(u32, u32)] {
        self.blocks.get(..usize::from(self.len)).unwrap_or_default()
    }

    fn parse(mut body: Reader<'_>) -> Option<Self> {
        let mut blocks = Self::default();
        while !body.is_empty() {
            if !blocks.push(body.u32()?, body.u32()?) {
                return None;
            }
        }
        Some(blocks)
    }
}

impl<'a> TcpOption<'a> {
    /// Reads the bytes after kind and length. Returns `None` if the length is wrong for the kind.
    fn parse(kind: u8, body: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(body);
        let option = match kind {
            MSS => Self::Mss(reader.u16()?),
            WINDOW_SCALE => Self::WindowScale(reader.u8()?),
            SACK_PERMITTED => Self::SackPermitted,
            SACK => return SackBlocks::parse(reader).map(Self::Sack),
            TIMESTAMPS => Self::Timestamps { value: reader.u32()?, echo: reader.u32()? },
            FAST_OPEN => return Some(Self::FastOpen(body)),
            MPTCP => return MptcpOption::parse(body).map(Self::Mptcp),
            _ => return Some(Self::Unknown { kind, body }),
        };
        reader.is_empty().then_some(option)
    }

    /// Writes the option and returns its length in bytes. Returns `None` if `out` has no room or a field is
    /// invalid.
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let mut writer = Writer::new(out);
        let kind = match self {
            Self::Mss(_) => MSS,
            Self::WindowScale(_) => WINDOW_SCALE,
            Self::SackPermitted => SACK_PERMITTED,
            Self::Sack(_) => SACK,
            Self::Timestamps { .. } => TIMESTAMPS,
            Self::FastOpen(_) => FAST_OPEN,
            Self::Mptcp(_) => MPTCP,
            Self::Unknown { kind, .. } => *kind,
        };
        writer.put(&[kind, 0])?;
        match self {
            Self::Mss(bytes) => writer.put(&bytes.to_be_bytes())?,
            Self::WindowScale(shift) => writer.put(&[*shift])?,
            Self::SackPermitted => {}
            Self::Sack(blocks) => {
                for (left, right) in blocks.as_slice() {
                    writer.put(&left.to_be_bytes())?;
                    writer.put(&right.to_be_bytes())?;
                }
            }
            Self::Timestamps { value, echo } => {
                writer.put(&value.to_be_bytes())?;
                writer.put(&echo.to_be_bytes())?;
            }
            Self::FastOpen(body) | Self::Unknown { body, .. } => writer.put(body)?,
            Self::Mptcp(option) => option.write(&mut writer)?,
        }
        writer.finish()
    }
}

/// An iterator over the options of a TCP header, in order. It never panics and always ends.
#[derive(Clone, Debug)]
pub struct TcpOptions<'a> {
    rest: &'a [u8],
}

impl<'a> TcpOptions<'a> {
    /// Reads `bytes`: the part of a TCP header after its first 20 bytes, up to its data offset. A capture may
    /// have cut these bytes short.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the Multipath TCP options that could be read.
    pub fn mptcp(self) -> impl Iterator<Item = MptcpOption<'a>> {
        self.filter_map(|option| match option {
            Ok(TcpOption::Mptcp(option)) => Some(option),
            _ => None,
        })
    }
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = Result<TcpOption<'a>, OptionError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (&kind, rest) = self.rest.split_first()?;
            match kind {
                END_OF_LIST => {
                    self.rest = &[];
                    return None;
                }
                NOP => {
                    self.rest = rest;
                    continue;
                }
                _ => {}
            }
            let claimed = rest.first().copied();
            let Some(bytes) = claimed else {
                self.rest = &[];
                return Some(Err(OptionError::Truncated { kind, claimed_bytes: None }));
            };
            if bytes < 2 {
                self.rest = &[];
                return Some(Err(OptionError::BadLength { kind, bytes }));
            }
            let Some((option, after)) = self.rest.split_at_checked(usize::from(bytes)) else {
                self.rest = &[];
                return Some(Err(OptionError::Truncated { kind, claimed_bytes: claimed }));
            };
            self.rest = after;
            let body = option.get(2..).unwrap_or_default();
            return Some(TcpOption::parse(kind, body).ok_or(OptionError::BadLength { kind, bytes }));
        }
    }
}

/// Options as they are sent: at most 40 bytes, padded to a multiple of four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionBuffer {
    bytes: [u8; OPTION_BYTES_MAX],
    len: u8,
}

impl Default for OptionBuffer {
    fn default() -> Self {
        Self { bytes: [NOP; OPTION_BYTES_MAX], len: 0 }
    }
}

impl OptionBuffer {
    /// Appends an option and returns whether there was room. Without room nothing changes.
    pub fn push(&mut self, option: &TcpOption<'_>) -> bool {
        let mut scratch = [0; OPTION_BYTES_MAX];
        let from = usize::from(self.len);
        let Some(len) = option.write(&mut scratch) else { return false };
        let (Some(target), Some(source)) = (self.bytes.get_mut(from..from + len), scratch.get(..len)) else {
            return false;
        };
        target.copy_from_slice(source);
        self.len += len as u8;
        true
    }

    /// Copies the options of a header that arrived, padding included. Returns `None` for more than 40 bytes.
    #[must_use]
    pub fn from_wire(bytes: &[u8]) -> Option<Self> {
        let mut buffer = Self::default();
        buffer.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        buffer.len = bytes.len() as u8;
        Some(buffer)
    }

    /// Returns the free bytes.
    #[must_use]
    pub const fn room(&self) -> usize {
        OPTION_BYTES_MAX - self.len as usize
    }

    /// Returns the options, padded with NOPs to a multiple of four bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len).next_multiple_of(4)).unwrap_or(&self.bytes)
    }

    /// Returns an iterator over the options in the buffer.
    #[must_use]
    pub fn iter(&self) -> TcpOptions<'_> {
        TcpOptions::new(self.as_bytes())
    }
}

impl<'a> IntoIterator for &'a OptionBuffer {
    type Item = Result<TcpOption<'a>, OptionError>;
    type IntoIter = TcpOptions<'a>;
    fn into_iter(self) -> TcpOptions<'a> {
        self.iter()
    }
}
