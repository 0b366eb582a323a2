//! Looks up the route that the kernel would take to a peer, as far as an egress needs it: over rtnetlink on
//! Linux, and by a connected socket on other systems.

use std::io;
use std::net::IpAddr;

#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::netlink::{Error, Netlink, RouteKind};

/// Holds the answer of a route lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Whether the destination is this host itself.
    pub(crate) local: bool,
    /// The interface by which the packet leaves; `None` when several share the load.
    pub(crate) device: Option<u32>,
    /// The source address that the kernel prefers, if it reports one.
    pub(crate) source: Option<IpAddr>,
}

/// Looks up the route to `to` from `from` through the interface with the index `device`, and through no
/// other.
pub(crate) fn lookup_through(to: IpAddr, from: Option<IpAddr>, device: u32) -> io::Result<Route> {
    let fits = |route: &Route| route.device.is_none_or(|found| found == device);
    let route = lookup(to, from, Some(device))?;
    if fits(&route) {
        return Ok(route);
    }
    // For IPv6, this lookup treats the device as a mere preference when a source is given, whereas a socket
    // that is bound to the device must use it. A lookup without a source must use the device, too.
    let route = lookup(to, None, Some(device))?;
    if fits(&route) { Ok(route) } else { Err(io::Error::from(io::ErrorKind::NetworkUnreachable)) }
}

/// Looks up the route to `to` from `from`; with `device`, through that interface.
///
/// # Errors
/// `NetworkUnreachable`, `HostUnreachable` and similar errors if there is no route.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn lookup(to: IpAddr, from: Option<IpAddr>, device: Option<u32>) -> io::Result<Route> {
    // This is the error without its context, which the caller adds.
    let plain =
        |e: Error| e.errno().map_or_else(|| io::ErrorKind::InvalidData.into(), io::Error::from_raw_os_error);
    let hops = Netlink::open().and_then(|netlink| netlink.route_to(to, from, device)).map_err(plain)?;
    match hops.as_slice() {
        [first, rest @ ..] if matches!(first.kind, RouteKind::Unicast | RouteKind::Local) => Ok(Route {
            local: first.kind == RouteKind::Local,
            device: first.device.filter(|_| rest.is_empty()),
            source: first.source,
        }),
        _ => Err(io::ErrorKind::NetworkUnreachable.into()),
    }
}

/// Looks up the route by connecting a socket, which shows the source address.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn lookup(to: IpAddr, from: Option<IpAddr>, _device: Option<u32>) -> io::Result<Route> {
    let any = if to.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let socket = std::net::UdpSocket::bind((from.unwrap_or(any), 0))?;
    socket.connect((to, 9))?;
    let source = socket.local_addr()?.ip();
    Ok(Route { local: to.is_loopback() || to == source, device: None, source: Some(source) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_local() {
        for to in ["127.0.0.1", "::1"] {
            let to: IpAddr = to.parse().unwrap();
            let route = lookup(to, None, None).unwrap();
            assert!(route.local, "{to}");
            assert_eq!(route.source, Some(to));
        }
    }
}
