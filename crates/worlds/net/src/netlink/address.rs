//! Addresses of interfaces (`linux/if_addr.h`).

use std::net::IpAddr;

use super::message::{
    Attributes, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, Request, family, ip, u32_at,
};
use super::{Error, Netlink, Result};

const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
/// The size of `struct ifaddrmsg`, in bytes.
const FIXED: usize = 8;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
const IFA_F_SECONDARY: u32 = 0x01;
const IFA_F_NODAD: u32 = 0x02;
const IFA_F_DADFAILED: u32 = 0x08;
const IFA_F_DEPRECATED: u32 = 0x20;
const IFA_F_TENTATIVE: u32 = 0x40;
/// `RT_SCOPE_UNIVERSE`.
const SCOPE_UNIVERSE: u8 = 0;

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The interface's index.
    pub device: u32,
    /// The address.
    pub ip: IpAddr,
    /// The length of the prefix that is on the link, in bits.
    pub prefix: u8,
    /// The address of the other end of a point-to-point link, if that differs from `ip`.
    pub peer: Option<IpAddr>,
    /// Whether the address is valid beyond the link (`RT_SCOPE_UNIVERSE`).
    pub global: bool,
    /// The flags (`ifa_flags`, `IFA_F_*`).
    pub flags: u32,
}

impl Address {
    /// Returns whether new connections may use the address: it is neither deprecated nor a duplicate nor
    /// still being checked.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.flags & (IFA_F_DADFAILED | IFA_F_DEPRECATED | IFA_F_TENTATIVE) == 0
    }

    /// Whether the address is not the first of its network on the interface (IPv4), or is temporary (IPv6,
    /// RFC 8981).
    #[must_use]
    pub const fn is_secondary(&self) -> bool {
        self.flags & IFA_F_SECONDARY != 0
    }

    /// Reads the body of an `RTM_NEWADDR` message.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let device = u32_at(body, 4)?;
        let (mut flags, mut address, mut local) = (u32::from(*body.get(2)?), None, None);
        for (kind, value) in Attributes::after(body, FIXED) {
            match kind {
                IFA_ADDRESS => address = ip(value),
                IFA_LOCAL => local = ip(value),
                IFA_FLAGS => flags = u32_at(value, 0)?,
                _ => {}
            }
        }
        // If both are given, IFA_LOCAL is this host's address, and IFA_ADDRESS is the peer's if it differs.
        let ip = local.or(address)?;
        let peer = address.filter(|peer| *peer != ip);
        Some(Self { device, ip, prefix: *body.get(1)?, peer, global: *body.get(3)? == SCOPE_UNIVERSE, flags })
    }
}

fn request(kind: u16, flags: u16, device: u32, ip: IpAddr, prefix: u8) -> Request {
    let mut fixed = [family(ip), prefix, 0, SCOPE_UNIVERSE, 0, 0, 0, 0];
    fixed[4..].copy_from_slice(&device.to_ne_bytes());
    let mut request = Request::new(kind, NLM_F_REQUEST | flags, &fixed);
    request.ip(IFA_LOCAL, ip).ip(IFA_ADDRESS, ip);
    request
}

impl Netlink {
    /// Lists all addresses of all interfaces, in the kernel's order.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn addresses(&self) -> Result<Vec<Address>> {
        let request = Request::new(RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, &[0; FIXED]);
        let all = self.socket.dump(&request, |m| (m.kind == RTM_NEWADDR).then(|| Address::parse(m.body))?);
        all.map_err(|failure| Error::new("list the addresses", failure))
    }

    /// Adds an address to an interface; the address has a prefix of `prefix` bits. An IPv6 address is usable
    /// at once: its neighbours are not asked whether it is free.
    ///
    /// # Errors
    /// `EEXIST` if the interface has the address already, `ENODEV`, `EPERM`.
    pub fn add_address(&self, device: u32, ip: IpAddr, prefix: u8) -> Result<()> {
        let mut request = request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, device, ip, prefix);
        if ip.is_ipv6() {
            request.u32(IFA_FLAGS, IFA_F_NODAD);
        }
        let attempt = || format!("add address {ip}/{prefix} to {}", self.device(device));
        self.socket.change(request).map_err(|failure| Error::new(attempt(), failure))
    }

    /// Removes an address from an interface.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if the interface does not have the address, `ENODEV`, `EPERM`.
    pub fn del_address(&self, device: u32, ip: IpAddr, prefix: u8) -> Result<()> {
        let request = request(RTM_DELADDR, 0, device, ip, prefix);
        let attempt = || format!("remove address {ip}/{prefix} from {}", self.device(device));
        self.socket.change(request).map_err(|failure| Error::new(attempt(), failure))
    }
}
