//! ADD_ADDR and REMOVE_ADDR (RFC 8684 section 3.4, RFC 6824 section 3.4).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::{Reader, Writer};

/// Flag E of version 1.
const ECHO: u8 = 1;
/// The most identifiers that a REMOVE_ADDR in 40 bytes of options has room for.
pub const REMOVED_MAX: usize = 37;

/// ADD_ADDR: an address at which the sender can be reached, or the echo of such an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddAddr {
    /// Version 1. An echo has the flag E and no HMAC.
    V1 {
        /// Flag E: the sender echoes an address that it has received. It is independent of the HMAC, as on
        /// the wire.
        echo: bool,
        /// The identifier of the address.
        address_id: u8,
        /// The address.
        address: IpAddr,
        /// The port, if it is not that of the subflow which carries the option.
        port: Option<u16>,
        /// The rightmost 64 bits of the HMAC; an echo has none.
        hmac: Option<u64>,
    },
    /// Version 0, which has neither echo nor HMAC, and names the version of IP.
    V0 {
        /// The identifier of the address.
        address_id: u8,
        /// The address.
        address: IpAddr,
        /// The port, if it is not that of the subflow which carries the option.
        port: Option<u16>,
    },
}

impl AddAddr {
    /// Reads the option. Its length decides which fields it has. Where version 0 has the version of IP,
    /// version 1 has three reserved bits, which are zero, and the flag E.
    pub(crate) fn parse(low: u8, mut body: Reader<'_>) -> Option<Self> {
        let address_id = body.u8()?;
        let bytes = body.rest().len();
        let (is_v6, has_port, has_hmac) = match bytes {
            4 => (false, false, false),
            6 => (false, true, false),
            12 => (false, false, true),
            14 => (false, true, true),
            16 => (true, false, false),
            18 => (true, true, false),
            24 => (true, false, true),
            26 => (true, true, true),
            _ => return None,
        };
        let address = if is_v6 {
            IpAddr::V6(Ipv6Addr::from(body.array::<16>()?))
        } else {
            IpAddr::V4(Ipv4Addr::from(body.array::<4>()?))
        };
        let port = if has_port { Some(body.u16()?) } else { None };
        let ip_version = if is_v6 { 6 } else { 4 };
        if !has_hmac && low == ip_version {
            return Some(Self::V0 { address_id, address, port });
        }
        let hmac = if has_hmac { Some(body.u64()?) } else { None };
        Some(Self::V1 { echo: low & ECHO != 0, address_id, address, port, hmac })
    }

    pub(crate) fn write(&self, subtype: u8, writer: &mut Writer<'_>) -> Option<()> {
        let (low, id, address, port, hmac) = match *self {
            Self::V1 { echo, address_id, address, port, hmac } => {
                (u8::from(echo), address_id, address, port, hmac)
            }
            Self::V0 { address_id, address, port } => {
                (if address.is_ipv4() { 4 } else { 6 }, address_id, address, port, None)
            }
        };
        writer.put(&[subtype | low, id])?;
        match address {
            IpAddr::V4(address) => writer.put(&address.octets())?,
            IpAddr::V6(address) => writer.put(&address.octets())?,
        }
        if let Some(port) = port {
            writer.put(&port.to_be_bytes())?;
        }
        hmac.map_or(Some(()), |hmac| writer.put(&hmac.to_be_bytes()))
    }
}

/// REMOVE_ADDR: identifiers of addresses at which the sender cannot be reached any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoveAddr<'a> {
    /// The identifiers, at least one.
    pub address_ids: &'a [u8],
}

impl<'a> RemoveAddr<'a> {
    pub(crate) const fn parse(body: Reader<'a>) -> Option<Self> {
        if body.is_empty() { None } else { Some(Self { address_ids: body.rest() }) }
    }

    pub(crate) fn write(&self, subtype: u8, writer: &mut Writer<'_>) -> Option<()> {
        if self.address_ids.is_empty() || self.address_ids.len() > REMOVED_MAX {
            return None;
        }
        writer.put(&[subtype])?;
        writer.put(self.address_ids)
    }
}
