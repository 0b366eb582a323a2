//! Lists the interfaces of this host and their addresses.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

/// Describes the present state of a network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The name, such as `eth0`.
    pub name: String,
    /// The kernel's number for the interface. A device that goes and comes back gets another number.
    pub index: u32,
    /// Whether the interface is switched on and has a carrier (`IFF_UP` and `IFF_RUNNING`).
    pub up: bool,
    /// Whether the interface leads only back to this host.
    pub loopback: bool,
    /// The IPv4 and IPv6 addresses, in the kernel's order.
    pub addresses: Vec<IpAddr>,
    /// The largest IP packet that the interface takes, in bytes; `None` where the system does not report it
    /// (no `/sys`).
    pub mtu: Option<u32>,
}

/// Lists all interfaces of the host, ordered by index.
///
/// # Errors
/// If `getifaddrs` fails (memory or descriptors are used up).
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut found: BTreeMap<u32, Interface> = BTreeMap::new();
    for entry in getifaddrs()? {
        // An interface that vanished since the list was made has no index, and is left out.
        let Ok(index) = if_nametoindex(entry.interface_name.as_str()) else { continue };
        let interface = found.entry(index).or_insert_with(|| Interface {
            index,
            up: entry.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING),
            loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
            addresses: Vec::new(),
            mtu: mtu(&entry.interface_name),
            name: entry.interface_name,
        });
        let Some(address) = entry.address else { continue };
        let address = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(v4), _) => IpAddr::V4(v4.ip()),
            (_, Some(v6)) => IpAddr::V6(v6.ip()),
            _ => continue,
        };
        if !interface.addresses.contains(&address) {
            interface.addresses.push(address);
        }
    }
    Ok(found.into_values().collect())
}

/// Returns whether an address is valid on its own link only: RFC 3927 section 2.1, RFC 4291 section 2.5.6.
#[must_use]
pub const fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn mtu(name: &str) -> Option<u32> {
    // Interface names hold no `/` on Linux, so this cannot leave the directory.
    std::fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok()?.trim().parse().ok()
}

/// Returns one line that names every interface and its addresses, for messages that refuse a name.
pub(crate) fn inventory(interfaces: &[Interface]) -> String {
    let mut text = String::new();
    for interface in interfaces {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(&interface.name);
        if !interface.up {
            text.push_str(" [down]");
        }
        for (n, address) in interface.addresses.iter().enumerate() {
            let _ = write!(text, "{}{address}", if n == 0 { " (" } else { ", " });
        }
        if !interface.addresses.is_empty() {
            text.push(')');
        }
    }
    if text.is_empty() { "no interface at all".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there() {
        let all = interfaces().unwrap();
        let lo = all.iter().find(|i| i.loopback && i.up).expect("a loopback interface that is up");
        assert!(lo.addresses.iter().any(IpAddr::is_loopback));
        assert!(lo.index > 0);
        assert!(lo.mtu.is_none_or(|mtu| mtu >= 1280));
        assert!(inventory(&all).contains("127.0.0.1"));
    }
}
