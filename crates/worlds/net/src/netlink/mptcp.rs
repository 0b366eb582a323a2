//! The path manager of the kernel's MPTCP (`linux/mptcp_pm.h`, ip-mptcp(8)), over generic netlink.

use std::fmt;
use std::net::IpAddr;
use std::ops::{BitOr, Sub};

use super::generic::{self, FIXED};
use super::message::{Attributes, NLM_F_DUMP, NLM_F_REQUEST, Request, family, ip, u16_at, u32_at};
use super::socket::Socket;
use super::{Error, Netlink, Result};

const NAME: &str = "mptcp_pm";
const VERSION: u8 = 1;
const ADD_ADDR: u8 = 1;
const DEL_ADDR: u8 = 2;
const GET_ADDR: u8 = 3;
const FLUSH_ADDRS: u8 = 4;
const SET_LIMITS: u8 = 5;
const GET_LIMITS: u8 = 6;
const SET_FLAGS: u8 = 7;
const ATTR_ADDR: u16 = 1;
const ATTR_RCV_ADD_ADDRS: u16 = 2;
const ATTR_SUBFLOWS: u16 = 3;
const ADDR_FAMILY: u16 = 1;
const ADDR_ID: u16 = 2;
const ADDR_ADDR4: u16 = 3;
const ADDR_ADDR6: u16 = 4;
const ADDR_PORT: u16 = 5;
const ADDR_FLAGS: u16 = 6;
const ADDR_IF_IDX: u16 = 7;

/// `MPTCP_PM_ADDR_MAX`: the kernel uses no more endpoints than this, and neither limit can be greater.
pub const ENDPOINTS_MAX: u32 = 8;

/// The uses of an endpoint (`MPTCP_PM_ADDR_FLAG_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointFlags(pub u32);

impl EndpointFlags {
    /// The endpoint has no use.
    pub const NONE: Self = Self(0);
    /// The endpoint is announced to the peer, so that the peer connects to it.
    pub const SIGNAL: Self = Self(1);
    /// Connections open a further subflow from the endpoint.
    pub const SUBFLOW: Self = Self(2);
    /// The endpoint's subflow carries data only while no other can.
    pub const BACKUP: Self = Self(4);
    /// Connections open a subflow from the endpoint to every address of the peer.
    pub const FULLMESH: Self = Self(8);
    /// The kernel made the endpoint itself, for an address that a connection happens to use.
    pub const IMPLICIT: Self = Self(16);
    /// Subflows to addresses that the peer announces start from the endpoint (Linux 6.18).
    pub const LAMINAR: Self = Self(32);

    const NAMES: [(Self, &'static str); 6] = [
        (Self::SIGNAL, "signal"),
        (Self::SUBFLOW, "subflow"),
        (Self::BACKUP, "backup"),
        (Self::FULLMESH, "fullmesh"),
        (Self::IMPLICIT, "implicit"),
        (Self::LAMINAR, "laminar"),
    ];

    /// Whether all flags of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for EndpointFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Sub for EndpointFlags {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// Writes the flags as `ip mptcp` does: "subflow backup".
impl fmt::Display for EndpointFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMES.iter().filter(|(flag, _)| self.has(*flag)).map(|(_, name)| *name);
        f.write_str(&names.collect::<Vec<_>>().join(" "))
    }
}

/// An address that MPTCP connections may use besides the address that they began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub ip: IpAddr,
    /// The port that is announced with the address; 0 if none is.
    pub port: u16,
    /// The endpoint's number in MPTCP's options; 0 in a new endpoint lets the kernel choose.
    pub id: u8,
    /// The index of the interface that the endpoint's subflows are bound to.
    pub device: Option<u32>,
    /// The uses of the endpoint.
    pub flags: EndpointFlags,
}

impl Endpoint {
    /// Returns an endpoint from which connections open a further subflow through `device`.
    #[must_use]
    pub const fn subflow(ip: IpAddr, device: Option<u32>) -> Self {
        Self { ip, port: 0, id: 0, device, flags: EndpointFlags::SUBFLOW }
    }

    /// Reads the attributes of an address (nested in `MPTCP_PM_ATTR_ADDR`).
    #[must_use]
    pub fn parse(attributes: &[u8]) -> Option<Self> {
        let (mut found, mut port, mut id, mut device, mut flags) = (None, 0, 0, None, EndpointFlags::NONE);
        for (kind, value) in Attributes(attributes) {
            match kind {
                ADDR_ADDR4 | ADDR_ADDR6 => found = ip(value),
                ADDR_PORT => port = u16_at(value, 0)?,
                ADDR_ID => id = *value.first()?,
                ADDR_FLAGS => flags = EndpointFlags(u32_at(value, 0)?),
                ADDR_IF_IDX => device = u32_at(value, 0).filter(|index| *index > 0),
                _ => {}
            }
        }
        Some(Self { ip: found?, port, id, device, flags })
    }

    fn write(&self, request: &mut Request) {
        request.nest(ATTR_ADDR, &[], |one| {
            one.attribute(ADDR_FAMILY, &u16::from(family(self.ip)).to_ne_bytes());
            if self.id > 0 {
                one.attribute(ADDR_ID, &[self.id]);
            }
            one.ip(if self.ip.is_ipv4() { ADDR_ADDR4 } else { ADDR_ADDR6 }, self.ip);
            if self.port > 0 {
                one.attribute(ADDR_PORT, &self.port.to_ne_bytes());
            }
            if self.flags != EndpointFlags::NONE {
                one.u32(ADDR_FLAGS, self.flags.0);
            }
            if let Some(device) = self.device {
                one.u32(ADDR_IF_IDX, device);
            }
        });
    }
}

/// The number of subflows and addresses that a connection may use; neither is more than [`ENDPOINTS_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Subflows besides the first.
    pub subflows: u32,
    /// Addresses announced by the peer that connections connect to.
    pub add_addr_accepted: u32,
}

/// Reads and changes the MPTCP endpoints and limits of a network namespace.
#[derive(Debug)]
pub struct PathManager {
    socket: Socket,
    family: u16,
}

impl PathManager {
    /// Opens a socket in the calling thread's namespace.
    ///
    /// # Errors
    /// `ENOENT` if the kernel has no MPTCP.
    pub fn open() -> Result<Self> {
        let failed = |failure| Error::new("reach the kernel's MPTCP path manager", failure);
        let (socket, family) = generic::open(NAME).map_err(failed)?;
        Ok(Self { socket, family })
    }

    fn request(&self, command: u8, flags: u16) -> Request {
        Request::new(self.family, NLM_F_REQUEST | flags, &[command, VERSION, 0, 0])
    }

    /// Lists all endpoints, in the kernel's order.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn endpoints(&self) -> Result<Vec<Endpoint>> {
        let all = self.socket.dump(&self.request(GET_ADDR, NLM_F_DUMP), |message| {
            let mut attributes = Attributes::after(message.body, FIXED);
            attributes.find(|(kind, _)| *kind == ATTR_ADDR).and_then(|(_, one)| Endpoint::parse(one))
        });
        all.map_err(|failure| Error::new("list the MPTCP endpoints", failure))
    }

    /// Adds an endpoint. Existing connections open a subflow from it, too.
    ///
    /// # Errors
    /// `EEXIST` if the address or the id is taken, `EPERM`.
    pub fn add_endpoint(&self, endpoint: &Endpoint) -> Result<()> {
        let mut request = self.request(ADD_ADDR, 0);
        endpoint.write(&mut request);
        self.socket.change(request).map_err(|failure| {
            let device = endpoint.device.map(|index| format!(" on {}", device(index))).unwrap_or_default();
            Error::new(format!("add the MPTCP endpoint {}{device}", endpoint.ip), failure)
        })
    }

    /// Removes the endpoint that has the address and id of `endpoint`, and the subflows from it.
    ///
    /// # Errors
    /// `EINVAL` if there is no endpoint with this id, `EPERM`.
    pub fn del_endpoint(&self, endpoint: &Endpoint) -> Result<()> {
        let mut request = self.request(DEL_ADDR, 0);
        Endpoint { flags: EndpointFlags::NONE, device: None, ..*endpoint }.write(&mut request);
        let attempt = || format!("remove the MPTCP endpoint {} with id {}", endpoint.ip, endpoint.id);
        self.socket.change(request).map_err(|failure| Error::new(attempt(), failure))
    }

    /// Sets the flags of the endpoint that has the id of `endpoint`. Only [`BACKUP`](EndpointFlags::BACKUP)
    /// and [`FULLMESH`](EndpointFlags::FULLMESH) can change; existing connections follow.
    ///
    /// # Errors
    /// `EINVAL` if there is no such endpoint, `EPERM`.
    pub fn set_flags(&self, endpoint: &Endpoint, flags: EndpointFlags) -> Result<()> {
        let mut request = self.request(SET_FLAGS, 0);
        Endpoint { flags, ..*endpoint }.write(&mut request);
        let attempt = || format!("set the flags of the MPTCP endpoint {} to '{flags}'", endpoint.ip);
        self.socket.change(request).map_err(|failure| Error::new(attempt(), failure))
    }

    /// Removes all endpoints.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn flush_endpoints(&self) -> Result<()> {
        let failed = |failure| Error::new("remove all MPTCP endpoints", failure);
        self.socket.change(self.request(FLUSH_ADDRS, 0)).map_err(failed)
    }

    /// Returns the limits.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn limits(&self) -> Result<Limits> {
        let parse = |body: &[u8]| {
            let mut limits = Limits::default();
            for (kind, value) in Attributes::after(body, FIXED) {
                match kind {
                    ATTR_SUBFLOWS => limits.subflows = u32_at(value, 0)?,
                    ATTR_RCV_ADD_ADDRS => limits.add_addr_accepted = u32_at(value, 0)?,
                    _ => {}
                }
            }
            Some(limits)
        };
        let limits = self.socket.get(self.request(GET_LIMITS, 0), |message| parse(message.body));
        limits.map_err(|failure| Error::new("read the MPTCP limits", failure))
    }

    /// Sets the limits.
    ///
    /// # Errors
    /// `EINVAL` if a limit is greater than [`ENDPOINTS_MAX`], `EPERM`.
    pub fn set_limits(&self, limits: Limits) -> Result<()> {
        let mut request = self.request(SET_LIMITS, 0);
        request.u32(ATTR_SUBFLOWS, limits.subflows).u32(ATTR_RCV_ADD_ADDRS, limits.add_addr_accepted);
        let Limits { subflows, add_addr_accepted } = limits;
        let attempt = || {
            format!("set the MPTCP limits to {subflows} subflows and {add_addr_accepted} accepted addresses")
        };
        self.socket.change(request).map_err(|failure| Error::new(attempt(), failure))
    }
}

/// Returns the name of an interface for a message.
fn device(index: u32) -> String {
    Netlink::open().map_or_else(|_| format!("interface number {index}"), |netlink| netlink.device(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_not() {
        let flags = EndpointFlags::SUBFLOW | EndpointFlags::BACKUP;
        let endpoint =
            Endpoint { port: 80, id: 3, flags, ..Endpoint::subflow("fd77::1".parse().unwrap(), Some(4)) };
        let mut request = Request::new(1, 0, &[]);
        endpoint.write(&mut request);
        let bytes = request.finish(0);
        let (_, inner) = Attributes(&bytes[16..]).next().unwrap();
        assert_eq!(Endpoint::parse(inner), Some(endpoint));
        for len in 0..inner.len() {
            assert_ne!(Endpoint::parse(&inner[..len]), Some(endpoint));
        }
        assert_eq!(flags.to_string(), "subflow backup");
        assert_eq!((flags - EndpointFlags::BACKUP).to_string(), "subflow");
        assert_eq!(EndpointFlags::NONE.to_string(), "");
    }
}
