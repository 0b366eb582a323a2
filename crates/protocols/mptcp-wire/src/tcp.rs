//! The fixed part of a TCP header (RFC 9293 section 3.1).

use core::fmt;

use crate::bytes::Reader;

/// Bytes of a TCP header without options.
pub const TCP_HEADER_BYTES: usize = 20;

/// The flags of a TCP segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender has no more data.
    pub const FIN: Self = Self(0x01);
    /// The segment begins a subflow.
    pub const SYN: Self = Self(0x02);
    /// The segment resets the subflow.
    pub const RST: Self = Self(0x04);
    /// The receiver should hand the data to the program at once.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement number counts.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x20);
    /// ECN-echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// Returns whether all of `flags` are set.
    #[must_use]
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
    /// Returns the union of both sets of flags.
    #[must_use]
    pub const fn and(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }
}

/// The reason why bytes are not a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpHeaderError {
    /// The bytes end before the fixed part of the header does.
    CutOff,
    /// The length in the header is shorter than its fixed part.
    Length,
}

impl fmt::Display for TcpHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CutOff => "the bytes end before the TCP header does",
            Self::Length => "the TCP header is shorter than its fixed part",
        })
    }
}

impl core::error::Error for TcpHeaderError {}

/// The fixed part of a TCP header. The urgent pointer is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpHeader {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub target_port: u16,
    /// The sequence number.
    pub seq: u32,
    /// The acknowledgement number, which counts only with [`Flags::ACK`].
    pub ack: u32,
    /// The bytes of the header with its options: 20 to 60, a multiple of 4.
    pub header_bytes: usize,
    /// The flags.
    pub flags: Flags,
    /// The window as it is on the wire, not scaled.
    pub window: u16,
    /// The checksum as it is on the wire.
    pub checksum: u16,
}

impl TcpHeader {
    /// Reads the header at the front of `segment`. The caller must check whether the options are there, too,
    /// because a capture may have cut them off.
    ///
    /// # Errors
    /// If `segment` ends too early, or if the length in the header is wrong.
    pub fn read(segment: &[u8]) -> Result<Self, TcpHeaderError> {
        let fixed = segment.first_chunk::<TCP_HEADER_BYTES>().ok_or(TcpHeaderError::CutOff)?;
        let header = Self::fixed(Reader(fixed)).ok_or(TcpHeaderError::CutOff)?;
        if header.header_bytes < TCP_HEADER_BYTES { Err(TcpHeaderError::Length) } else { Ok(header) }
    }

    fn fixed(mut reader: Reader<'_>) -> Option<Self> {
        let (source_port, target_port) = (reader.u16()?, reader.u16()?);
        let (seq, ack) = (reader.u32()?, reader.u32()?);
        let (offset, flags) = (reader.u8()?, Flags(reader.u8()?));
        let header_bytes = usize::from(offset >> 4) * 4;
        let (window, checksum) = (reader.u16()?, reader.u16()?);
        Some(Self { source_port, target_port, seq, ack, header_bytes, flags, window, checksum })
    }

    /// Returns the fixed part on the wire. The reserved bits and the urgent pointer are zero. Of
    /// [`header_bytes`](Self::header_bytes) only the multiple of 4 below 64 is written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; TCP_HEADER_BYTES] {
        let mut bytes = [0; TCP_HEADER_BYTES];
        bytes[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.target_port.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.seq.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.ack.to_be_bytes());
        bytes[12] = ((self.header_bytes / 4) as u8) << 4;
        bytes[13] = self.flags.0;
        bytes[14..16].copy_from_slice(&self.window.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.checksum.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let header = TcpHeader {
            source_port: 5_000,
            target_port: 443,
            seq: 0x0102_0304,
            ack: 0xfffe_fdfc,
            header_bytes: 32,
            flags: Flags::SYN.and(Flags::ACK),
            window: 65_535,
            checksum: 0xabcd,
        };
        let bytes = header.to_bytes();
        assert_eq!((bytes[12], bytes[13]), (0x80, 0x12));
        assert_eq!(TcpHeader::read(&bytes), Ok(header));
    }

    #[test]
    fn lengths_are_checked() {
        let mut bytes = [0; 24];
        bytes[12] = 0x50;
        for len in 0..bytes.len() {
            let read = TcpHeader::read(&bytes[..len]).err();
            assert_eq!(read, (len < TCP_HEADER_BYTES).then_some(TcpHeaderError::CutOff));
        }
        bytes[12] = 0x40;
        assert_eq!(TcpHeader::read(&bytes), Err(TcpHeaderError::Length));
    }
}
