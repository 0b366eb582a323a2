//! The options of Multipath TCP: kind 30, with the subtype in the high four bits of the third byte (RFC 8684
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
    /// ADD_ADDR: an address of the sender, or the echo of such an option.
    AddAddr(AddAddr),
    /// REMOVE_ADDR: addresses that the sender has lost.
    RemoveAddr(RemoveAddr<'a>),
    /// MP_PRIO: a subflow becomes a backup or ceases to be one (RFC 8684 section 3.3.8).
    Prio {
        /// Whether the subflow becomes a backup.
        backup: bool,
        /// The address whose subflows are meant (version 0 only). `None` means the subflow that carries the
        /// option.
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
    /// MP_TCPRST: the reason why a subflow is reset (RFC 8684 section 3.6).
    Reset(Reset),
    /// A subtype that this crate does not know.
    Unknown {
        /// The subtype, four bits.
        subtype: u8,
        /// Everything after kind and length, the subtype included.
        body: &'a [u8],
    },
}

/// MP_CAPABLE (RFC 8684 section 3.1). Its keys show which segment carries it. Version 1 has no key on the
/// SYN, the sender's key on the SYN/ACK and both keys on the third segment. Version 0 has the sender's key on
/// the SYN, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpCapable {
    /// The version of the protocol: 0 or 1; others are kept.
    pub version: u8,
    /// Flags A to H, A the highest. A asks for checksums, C refuses subflows to this address, H chooses HMAC.
    pub flags: u8,
    /// The sender's key.
    pub sender_key: Option<Key>,
    /// The receiver's key.
    pub receiver_key: Option<Key>,
    /// The bytes of data on this segment, if it carries any (version 1).
    pub data_bytes: Option<u16>,
    /// The checksum of that data, if checksums are in use.
    pub checksum: Option<u16>,
}

impl MpCapable {
    /// Flag A: checksums are required.
    pub const CHECKSUM: u8 = 0x80;
    /// Flag B: the option is extended in a way that is not known yet, and must be ignored.
    pub const EXTENSIBILITY: u8 = 0x40;
    /// Flag C: no further subflows may go to the address that sent this option.
    pub const NO_JOIN_HERE: u8 = 0x20;
    /// Flag H: HMAC-SHA1 in version 0, HMAC-SHA256 in version 1.
    pub const HMAC: u8 = 0x01;

    /// Creates an option without keys and data.
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
    /// The form on the SYN.
    Syn {
        /// Whether the subflow becomes a backup.
        backup: bool,
        /// The identifier of the sender's address.
        address_id: u8,
        /// The receiver's token, which names the connection.
        token: u32,
        /// The sender's random number.
        nonce: u32,
    },
    /// The form on the SYN/ACK.
    SynAck {
        /// Whether the subflow becomes a backup.
        backup: bool,
        /// The identifier of the sender's address.
        address_id: u8,
        /// The leftmost 64 bits of the HMAC.
        hmac: u64,
        /// The sender's random number.
        nonce: u32,
    },
    /// The form on the third segment.
    Ack {
        /// The leftmost 160 bits of the HMAC.
        hmac: [u8; 20],
    },
}

impl Join {
    fn parse(nibble: u8, mut body: Reader<'_>) -> Option<Self> {
        let (bytes, backup, address_id) = (body.rest().len(), nibble & BACKUP != 0, body.u8()?);
        // The lengths are without kind, length and the byte of the subtype.
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
    /// The reason: one of the constants of this type; others are kept.
    pub reason: u8,
}

impl Reset {
    /// Flag T: the cause may pass, so the subflow may be tried again later.
    pub const TRANSIENT: u8 = 0x01;
    /// Unspecified error.
    pub const UNSPECIFIED: u8 = 0;
    /// MPTCP-specific error, such as a wrong HMAC or token.
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

/// Returns `value` if it fits into four bits.
fn nibble(value: u8) -> Option<u8> {
    (value < 16).then_some(value)
}

impl<'a> MptcpOption<'a> {
    /// Reads the bytes after kind and length. Returns `None` if the subtype cannot have this length.
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
