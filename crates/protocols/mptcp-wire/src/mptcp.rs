//! The options of Multipath TCP: kind 30, told apart by the high four bits of the third byte (RFC 8684
//! section 3, RFC 6824 section 3).

use crate::address::{AddAddr, RemoveAddr};
use crate::bytes::{Reader, Writer};
use crate::dss::Dss;
use crate::keys::Key;

const MP_CAPABLE: u8 = 0;
const MP_JOIN: u8 = 1;
const DSS: u8 = 2;
const ADD_ADDR: u8 = 3;
const REMOVE_ADDR: u8 = 4;
const MP_PRIO: u8 = 5;
const MP_FAIL: u8 = 6;
const MP_FASTCLOSE: u8 = 7;
const MP_TCPRST: u8 = 8;

/// Flag B of MP_JOIN and MP_PRIO.
const BACKUP: u8 = 1;

/// One option of Multipath TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MptcpOption<'a> {
    /// MP_CAPABLE: the handshake of the first subflow.
    Capable(MpCapable),
    /// MP_JOIN: the handshake of a further subflow.
    Join(Join),
    /// DSS: data acknowledgement and mapping.
    Dss(Dss),
    /// ADD_ADDR: an address of the sender, or its echo.
    AddAddr(AddAddr),
    /// REMOVE_ADDR: addresses that the sender has lost.
    RemoveAddr(RemoveAddr<'a>),
    /// MP_PRIO: a subflow becomes backup or ceases to be one (RFC 8684 section 3.3.8).
    Prio {
        /// Whether it becomes backup.
        backup: bool,
        /// The address whose subflows are meant (version 0 only); `None`: the subflow that carries it.
        address_id: Option<u8>,
    },
    /// MP_FAIL: the checksum of the mapping at this data sequence number was wrong (RFC 8684 section 3.7).
    Fail {
        /// The data sequence number.
        data_seq: u64,
    },
    /// MP_FASTCLOSE: the whole connection is reset (RFC 8684 section 3.5).
    FastClose {
        /// The receiver's key.
        key: Key,
    },
    /// MP_TCPRST: why a subflow is reset (RFC 8684 section 3.6).
    Reset(Reset),
    /// A subtype that is not known here.
    Unknown {
        /// The subtype, four bits.
        subtype: u8,
        /// Everything after kind and length, the subtype included.
        body: &'a [u8],
    },
}

/// MP_CAPABLE (RFC 8684 section 3.1). Which keys it has tells on which segment it is: in version 1 none on
/// the SYN, the sender's on the SYN/ACK, both on the third segment; in version 0 the sender's on the SYN too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpCapable {
    /// Version of the protocol: 0 or 1; others are kept.
    pub version: u8,
    /// Flags A to H, A the highest: A asks for checksums, C refuses subflows to this address, H says HMAC.
    pub flags: u8,
    /// The sender's key.
    pub sender_key: Option<Key>,
    /// The receiver's key.
    pub receiver_key: Option<Key>,
    /// Bytes of data on this segment, if it carries any (version 1).
    pub data_bytes: Option<u16>,
    /// Checksum of that data, if checksums are in use.
    pub checksum: Option<u16>,
}

impl MpCapable {
    /// Flag A: checksums are required.
    pub const CHECKSUM: u8 = 0x80;
    /// Flag B: the option is extended in a way that is not known yet, and must be ignored.
    pub const EXTENSIBILITY: u8 = 0x40;
    /// Flag C: no further subflows to the address that sent this.
    pub const NO_JOIN_HERE: u8 = 0x20;
    /// Flag H: HMAC-SHA1 in version 0, HMAC-SHA256 in version 1.
    pub const HMAC: u8 = 0x01;

    /// Without keys and data.
    #[must_use]
    pub const fn new(version: u8, flags: u8) -> Self {
        Self { version, flags, sender_key: None, receiver_key: None, data_bytes: None, checksum: None }
    }

    fn parse(nibble: u8, mut body: Reader<'_>) -> Option<Self> {
        let mut option = Self::new(nibble, body.u8()?);
        if !body.is_empty() {
            option.sender_key = Some(Key(body.u64()?));
        }
        if !body.is_empty() {
            option.receiver_key = Some(Key(body.u64()?));
        }
        if !body.is_empty() {
            option.data_bytes = Some(body.u16()?);
        }
        if !body.is_empty() {
            option.checksum = Some(body.u16()?);
        }
        body.is_empty().then_some(option)
    }

    fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.put(&[MP_CAPABLE << 4 | nibble(self.version)?, self.flags])?;
        let fields = [self.sender_key, self.receiver_key];
        match (fields, self.data_bytes, self.checksum) {
            ([None, Some(_)], ..) | ([_, None], Some(_), _) | (_, None, Some(_)) => return None,
            _ => {}
        }
        for key in fields.into_iter().flatten() {
            writer.put(&key.0.to_be_bytes())?;
        }
        for number in [self.data_bytes, self.checksum].into_iter().flatten() {
            writer.put(&number.to_be_bytes())?;
        }
        Some(())
    }
}

/// MP_JOIN (RFC 8684 section 3.2): one form for each segment of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// On the SYN.
    Syn {
        /// Whether the subflow is to be a backup.
        backup: bool,
        /// Identifies the sender's address.
        address_id: u8,
        /// The receiver's token: which connection.
        token: u32,
        /// A random number.
        nonce: u32,
    },
    /// On the SYN/ACK.
    SynAck {
        /// Whether the subflow is to be a backup.
        backup: bool,
        /// Identifies the sender's address.
        address_id: u8,
        /// The leftmost 64 bits of the HMAC.
        hmac: u64,
        /// A random number.
        nonce: u32,
    },
    /// On the third segment.
    Ack {
        /// The leftmost 160 bits of the HMAC.
        hmac: [u8; 20],
    },
}

impl Join {
    fn parse(nibble: u8, mut body: Reader<'_>) -> Option<Self> {
        let (bytes, backup, address_id) = (body.rest().len(), nibble & BACKUP != 0, body.u8()?);
        // Without kind, length and the byte of the subtype.
        Some(match bytes {
            9 => Self::Syn { backup, address_id, token: body.u32()?, nonce: body.u32()? },
            13 => Self::SynAck { backup, address_id, hmac: body.u64()?, nonce: body.u32()? },
            21 => Self::Ack { hmac: body.array()? },
            _ => return None,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        match *self {
            Self::Syn { backup, address_id, token, nonce } => {
                writer.put(&[MP_JOIN << 4 | u8::from(backup), address_id])?;
                writer.put(&token.to_be_bytes())?;
                writer.put(&nonce.to_be_bytes())
            }
            Self::SynAck { backup, address_id, hmac, nonce } => {
                writer.put(&[MP_JOIN << 4 | u8::from(backup), address_id])?;
                writer.put(&hmac.to_be_bytes())?;
                writer.put(&nonce.to_be_bytes())
            }
            Self::Ack { hmac } => {
                writer.put(&[MP_JOIN << 4, 0])?;
                writer.put(&hmac)
            }
        }
    }
}

/// MP_TCPRST (RFC 8684 section 3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Flags U, V, W and T, T the lowest.
    pub flags: u8,
    /// One of the constants of this type; others are kept.
    pub reason: u8,
}

impl Reset {
    /// Flag T: the cause may pass; the subflow may be tried again later.
    pub const TRANSIENT: u8 = 0x01;
    /// Unspecified error.
    pub const UNSPECIFIED: u8 = 0;
    /// MPTCP-specific error: the HMAC or the token is wrong, for one.
    pub const MPTCP_SPECIFIC: u8 = 1;
    /// Lack of resources.
    pub const RESOURCES: u8 = 2;
    /// Administratively prohibited.
    pub const PROHIBITED: u8 = 3;
    /// Too much outstanding data.
    pub const OUTSTANDING: u8 = 4;
    /// Unacceptable performance.
    pub const PERFORMANCE: u8 = 5;
    /// Middlebox interference.
    pub const MIDDLEBOX: u8 = 6;
}

/// Four bits that fit.
fn nibble(value: u8) -> Option<u8> {
    (value < 16).then_some(value)
}

impl<'a> MptcpOption<'a> {
    /// Reads what follows kind and length; `None` if the subtype can't have so many bytes.
    #[must_use]
    pub fn parse(body: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(body);
        let first = reader.u8()?;
        let (subtype, low) = (first >> 4, first & 15);
        let option = match subtype {
            MP_CAPABLE => return MpCapable::parse(low, reader).map(Self::Capable),
            MP_JOIN => return Join::parse(low, reader).map(Self::Join),
            DSS => return Dss::parse(reader).map(Self::Dss),
            ADD_ADDR => return AddAddr::parse(low, reader).map(Self::AddAddr),
            REMOVE_ADDR => return RemoveAddr::parse(reader).map(Self::RemoveAddr),
            MP_PRIO => {
                let address_id = if reader.is_empty() { None } else { reader.u8() };
                Self::Prio { backup: low & BACKUP != 0, address_id }
            }
            MP_FAIL => {
                reader.u8()?;
                Self::Fail { data_seq: reader.u64()? }
            }
            MP_FASTCLOSE => {
                reader.u8()?;
                Self::FastClose { key: Key(reader.u64()?) }
            }
            MP_TCPRST => Self::Reset(Reset { flags: low, reason: reader.u8()? }),
            _ => return Some(Self::Unknown { subtype, body }),
        };
        reader.is_empty().then_some(option)
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        match self {
            Self::Capable(option) => option.write(writer),
            Self::Join(option) => option.write(writer),
            Self::Dss(option) => option.write(DSS << 4, writer),
            Self::AddAddr(option) => option.write(ADD_ADDR << 4, writer),
            Self::RemoveAddr(option) => option.write(REMOVE_ADDR << 4, writer),
            Self::Prio { backup, address_id } => {
                writer.put(&[MP_PRIO << 4 | u8::from(*backup)])?;
                address_id.map_or(Some(()), |id| writer.put(&[id]))
            }
            Self::Fail { data_seq } => {
                writer.put(&[MP_FAIL << 4, 0])?;
                writer.put(&data_seq.to_be_bytes())
            }
            Self::FastClose { key } => {
                writer.put(&[MP_FASTCLOSE << 4, 0])?;
                writer.put(&key.0.to_be_bytes())
            }
            Self::Reset(Reset { flags, reason }) => writer.put(&[MP_TCPRST << 4 | nibble(*flags)?, *reason]),
            Self::Unknown { subtype, body } => {
                let is_kept = body.first().is_some_and(|first| first >> 4 == *subtype);
                if is_kept { writer.put(body) } else { None }
            }
        }
    }
}
