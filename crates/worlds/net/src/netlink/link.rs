//! Interfaces (`linux/if_link.h`, `linux/veth.h`).

use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::message::{
    Attributes, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, Request, text, u16_at, u32_at, u64_at,
};
use super::{Error, Netlink, Result};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
/// `struct ifinfomsg`.
const FIXED: usize = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_STATS64: u16 = 23;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFF_UP: u32 = 0x1;
const IFF_LOOPBACK: u32 = 0x8;
const IFF_LOWER_UP: u32 = 0x1_0000;

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The interface's index, which is the kernel's number for it.
    pub index: u32,
    /// The name, such as `eth0`.
    pub name: String,
    /// Whether the interface is switched on (`IFF_UP`).
    pub up: bool,
    /// Whether the layer below can carry packets: a cable is plugged in, a station is associated
    /// (`IFF_LOWER_UP`).
    pub carrier: bool,
    /// Whether the interface leads only back to this host.
    pub loopback: bool,
    /// The largest IP packet that the interface takes, in bytes.
    pub mtu: u32,
    /// The kind of a virtual interface: `veth`, `tun`, `bridge`; `None` for hardware.
    pub kind: Option<String>,
    /// The format of the frames (`ARPHRD_…` of `linux/if_arp.h`): 1 is Ethernet.
    pub hardware: u16,
    /// The index of the interface below this one, if that interface is in this namespace, or of the other end
    /// of a virtual cable.
    pub parent: Option<u32>,
    /// The index of the bridge, bond or VRF to which this interface belongs as a port.
    pub master: Option<u32>,
    /// The alias: a text that says what the interface is for.
    pub alias: Option<String>,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received, link-layer headers included.
    pub rx_bytes: u64,
    /// Bytes sent, link-layer headers included.
    pub tx_bytes: u64,
}

impl Link {
    /// Reads the body of an `RTM_NEWLINK` message.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let flags = u32_at(body, 8)?;
        let mut link = Self {
            index: u32_at(body, 4)?,
            up: flags & IFF_UP != 0,
            carrier: flags & IFF_LOWER_UP != 0,
            loopback: flags & IFF_LOOPBACK != 0,
            hardware: u16_at(body, 2)?,
            ..Self::default()
        };
        let mut is_parent_elsewhere = false;
        for (kind, value) in Attributes::after(body, FIXED) {
            match kind {
                IFLA_LINK => link.parent = u32_at(value, 0),
                IFLA_LINK_NETNSID => is_parent_elsewhere = true,
                IFLA_MASTER => link.master = u32_at(value, 0),
                IFLA_IFNAME => link.name = text(value),
                IFLA_MTU => link.mtu = u32_at(value, 0)?,
                IFLA_LINKINFO => {
                    let kind = Attributes(value).find(|(kind, _)| *kind == IFLA_INFO_KIND);
                    link.kind = kind.map(|(_, value)| text(value));
                }
                IFLA_IFALIAS => link.alias = Some(text(value)),
                // struct rtnl_link_stats64.
                IFLA_STATS64 => {
                    link.rx_packets = u64_at(value, 0)?;
                    link.tx_packets = u64_at(value, 8)?;
                    link.rx_bytes = u64_at(value, 16)?;
                    link.tx_bytes = u64_at(value, 24)?;
                }
                _ => {}
            }
        }
        link.parent = link.parent.filter(|_| !is_parent_elsewhere);
        (link.index > 0 && !link.name.is_empty()).then_some(link)
    }
}

fn fixed(index: u32, flags: u32, change: u32) -> [u8; FIXED] {
    let mut fixed = [0; FIXED];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
    fixed[12..].copy_from_slice(&change.to_ne_bytes());
    fixed
}

impl Netlink {
    /// Returns the name of interface `index` for a message.
    pub(super) fn device(&self, index: u32) -> String {
        let links = self.links().unwrap_or_default();
        let link = links.into_iter().find(|link| link.index == index);
        link.map_or_else(|| format!("interface number {index}"), |link| link.name)
    }

    /// Lists all interfaces, ordered by index.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn links(&self) -> Result<Vec<Link>> {
        let request = Request::new(RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, &fixed(0, 0, 0));
        let links = self.socket.dump(&request, |m| (m.kind == RTM_NEWLINK).then(|| Link::parse(m.body))?);
        let mut links = links.map_err(|failure| Error::new("list the interfaces", failure))?;
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    /// Returns the interface called `name`.
    ///
    /// # Errors
    /// `ENODEV` if there is no such interface.
    pub fn link(&self, name: &str) -> Result<Link> {
        let failed = |failure| Error::new(format!("find the interface {name}"), failure);
        // The kernel would understand an empty or overlong name as another request.
        if name.is_empty() || name.len() > 15 {
            return Err(failed(nix::errno::Errno::ENODEV.into()));
        }
        let mut request = Request::new(RTM_GETLINK, NLM_F_REQUEST, &fixed(0, 0, 0));
        request.text(IFLA_IFNAME, name);
        self.socket.get(request, |message| Link::parse(message.body)).map_err(failed)
    }

    /// Returns the interface with this index.
    ///
    /// # Errors
    /// `ENODEV` if there is no such interface.
    pub fn link_at(&self, index: u32) -> Result<Link> {
        let request = Request::new(RTM_GETLINK, NLM_F_REQUEST, &fixed(index, 0, 0));
        let found = self.socket.get(request, |message| Link::parse(message.body));
        found.map_err(|failure| Error::new(format!("find interface number {index}"), failure))
    }

    /// Returns the index of the interface called `name`.
    ///
    /// # Errors
    /// `ENODEV` if there is no such interface.
    pub fn index(&self, name: &str) -> Result<u32> {
        Ok(self.link(name)?.index)
    }

    /// Switches an interface on or off, and sets its MTU in bytes; `None` changes nothing.
    ///
    /// # Errors
    /// `ENODEV`; `EINVAL` for an MTU that the interface cannot have; `EPERM`.
    pub fn set_link(&self, device: u32, up: Option<bool>, mtu: Option<u32>) -> Result<()> {
        let flags = if up == Some(true) { IFF_UP } else { 0 };
        let change = if up.is_some() { IFF_UP } else { 0 };
        let mut request = Request::new(RTM_NEWLINK, NLM_F_REQUEST, &fixed(device, flags, change));
        if let Some(mtu) = mtu {
            request.u32(IFLA_MTU, mtu);
        }
        self.socket.change(request).map_err(|failure| {
            let device = self.device(device);
            let up = up.map(|up| format!("switch {device} {}", if up { "on" } else { "off" }));
            let mtu = mtu.map(|mtu| format!("set the MTU of {device} to {mtu}"));
            let what: Vec<_> = up.into_iter().chain(mtu).collect();
            Error::new(what.join(" and "), failure)
        })
    }

    /// Sets the alias of an interface: a text of at most 255 bytes that says what the interface is for.
    ///
    /// # Errors
    /// `ENODEV`; `EINVAL` for an alias that is too long; `EPERM`.
    pub fn set_alias(&self, device: u32, alias: &str) -> Result<()> {
        let mut request = Request::new(RTM_NEWLINK, NLM_F_REQUEST, &fixed(device, 0, 0));
        request.text(IFLA_IFALIAS, alias);
        let attempt = || format!("write the alias of {}", self.device(device));
        self.socket.change(request).map_err(|failure| Error::new(attempt(), failure))
    }

    /// Makes an interface a port of a bridge, bond or VRF; with `None`, it is a port of none.
    ///
    /// # Errors
    /// `ENODEV`; `EOPNOTSUPP` if `master` takes no ports; `EPERM`.
    pub fn set_master(&self, device: u32, master: Option<u32>) -> Result<()> {
        let mut request = Request::new(RTM_NEWLINK, NLM_F_REQUEST, &fixed(device, 0, 0));
        request.u32(IFLA_MASTER, master.unwrap_or(0));
        let attempt = || match master {
            Some(master) => format!("make {} a port of {}", self.device(device), self.device(master)),
            None => format!("take {} out of its bridge", self.device(device)),
        };
        self.socket.change(request).map_err(|failure| Error::new(attempt(), failure))
    }

    /// Makes a virtual cable with the end `name` in this namespace and the end `peer` in `namespace`, or also
    /// here without `namespace`.
    ///
    /// # Errors
    /// `EEXIST` if a name is taken; `EOPNOTSUPP` if the kernel has no veth; `EPERM`.
    pub fn add_veth(&self, name: &str, peer: &str, namespace: Option<BorrowedFd<'_>>) -> Result<()> {
        let flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL;
        let mut request = Request::new(RTM_NEWLINK, flags, &fixed(0, 0, 0));
        request.text(IFLA_IFNAME, name).nest(IFLA_LINKINFO, &[], |info| {
            info.text(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, &[], |data| {
                data.nest(VETH_INFO_PEER, &fixed(0, 0, 0), |other| {
                    other.text(IFLA_IFNAME, peer);
                    if let Some(namespace) = namespace {
                        other.u32(IFLA_NET_NS_FD, namespace.as_raw_fd().cast_unsigned());
                    }
                });
            });
        });
        let attempt = || format!("make the pair of interfaces {name} and {peer}");
        self.socket.change(request).map_err(|failure| Error::new(attempt(), failure))
    }

    /// Removes an interface; a virtual cable loses both its ends.
    ///
    /// # Errors
    /// `ENODEV`; `EOPNOTSUPP` for hardware; `EPERM`.
    pub fn del_link(&self, device: u32) -> Result<()> {
        let request = Request::new(RTM_DELLINK, NLM_F_REQUEST, &fixed(device, 0, 0));
        let attempt = || format!("remove {}", self.device(device));
        self.socket.change(request).map_err(|failure| Error::new(attempt(), failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_is_no_link() {
        let mut request = Request::new(RTM_NEWLINK, 0, &fixed(7, IFF_UP, 0));
        request.text(IFLA_IFNAME, "p0").u32(IFLA_MTU, 1400).attribute(IFLA_STATS64, &[1; 32]);
        request.u32(IFLA_LINK, 3).u32(IFLA_MASTER, 4);
        let bytes = request.finish(0);
        let body = &bytes[16..];
        let link = Link::parse(body).unwrap();
        assert_eq!((link.index, link.name.as_str(), link.up, link.mtu), (7, "p0", true, 1400));
        assert_eq!((link.parent, link.master), (Some(3), Some(4)));
        for len in 0..body.len() {
            assert!(len >= 23 || Link::parse(&body[..len]).is_none());
        }
        assert_eq!(u16_at(body, 16), Some(7), "the length of the name's attribute");
    }
}
