//! The Data Sequence Signal option (RFC 8684 section 3.3).

use crate::bytes::{Reader, Writer};
use crate::data_number::expand;

const ACK: u8 = 0x01;
const ACK_FULL: u8 = 0x02;
const MAP: u8 = 0x04;
const MAP_FULL: u8 = 0x08;
const FIN: u8 = 0x10;

/// A data sequence number as it is sent: whole, or its lowest 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataNumber {
    /// The lowest 32 bits.
    Short(u32),
    /// All 64 bits.
    Full(u64),
}

impl DataNumber {
    fn parse(is_full: bool, body: &mut Reader<'_>) -> Option<Self> {
        if is_full { body.u64().map(Self::Full) } else { body.u32().map(Self::Short) }
    }

    fn write(self, writer: &mut Writer<'_>) -> Option<()> {
        match self {
            Self::Short(number) => writer.put(&number.to_be_bytes()),
            Self::Full(number) => writer.put(&number.to_be_bytes()),
        }
    }

    const fn is_full(self) -> bool {
        matches!(self, Self::Full(_))
    }

    /// Returns all 64 bits. For a short number, returns the number with these bits that is closest to `near`.
    #[must_use]
    pub const fn near(self, near: u64) -> u64 {
        match self {
            Self::Short(number) => expand(number, near),
            Self::Full(number) => number,
        }
    }
}

/// The position of a subflow's bytes in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DssMapping {
    /// The data sequence number of the first byte.
    pub data_seq: DataNumber,
    /// The first byte's sequence number on the subflow, counted from the subflow's SYN, which has 0. A
    /// DATA_FIN without data also has 0 here.
    pub subflow_seq: u32,
    /// The number of bytes, a DATA_FIN included. 0 maps all bytes that follow: the infinite mapping of a
    /// fallback.
    pub data_bytes: u16,
    /// The checksum, if checksums are in use: see [`dss_checksum`](crate::checksum::dss_checksum).
    pub checksum: Option<u16>,
}

impl DssMapping {
    /// Returns whether the mapping covers all bytes that follow (RFC 8684 section 3.7).
    #[must_use]
    pub const fn is_infinite(&self) -> bool {
        self.data_bytes == 0
    }
}

/// A Data Sequence Signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dss {
    /// The next data sequence number that the sender expects.
    pub data_ack: Option<DataNumber>,
    /// The mapping of bytes on this subflow.
    pub mapping: Option<DssMapping>,
    /// DATA_FIN: the mapping's last number is the end of the data.
    pub data_fin: bool,
}

impl Dss {
    pub(crate) fn parse(mut body: Reader<'_>) -> Option<Self> {
        // Three reserved bits are followed by F, m, M, a, A; `m` and `a` count only with `M` and `A`.
        let flags = body.u8()?;
        let mut dss = Self { data_fin: flags & FIN != 0, ..Self::default() };
        if flags & ACK != 0 {
            dss.data_ack = Some(DataNumber::parse(flags & ACK_FULL != 0, &mut body)?);
        }
        if flags & MAP != 0 {
            let data_seq = DataNumber::parse(flags & MAP_FULL != 0, &mut body)?;
            let (subflow_seq, data_bytes) = (body.u32()?, body.u16()?);
            let checksum = if body.is_empty() { None } else { Some(body.u16()?) };
            dss.mapping = Some(DssMapping { data_seq, subflow_seq, data_bytes, checksum });
        }
        body.is_empty().then_some(dss)
    }

    pub(crate) fn write(&self, subtype: u8, writer: &mut Writer<'_>) -> Option<()> {
        let mut flags = if self.data_fin { FIN } else { 0 };
        if let Some(ack) = self.data_ack {
            flags |= if ack.is_full() { ACK | ACK_FULL } else { ACK };
        }
        if let Some(mapping) = self.mapping {
            flags |= if mapping.data_seq.is_full() { MAP | MAP_FULL } else { MAP };
        }
        writer.put(&[subtype, flags])?;
        if let Some(ack) = self.data_ack {
            ack.write(writer)?;
        }
        if let Some(mapping) = self.mapping {
            mapping.data_seq.write(writer)?;
            writer.put(&mapping.subflow_seq.to_be_bytes())?;
            writer.put(&mapping.data_bytes.to_be_bytes())?;
            if let Some(checksum) = mapping.checksum {
                writer.put(&checksum.to_be_bytes())?;
            }
        }
        Some(())
    }
}
