//! The route that the kernel would take: one lookup over rtnetlink (RFC 3549, rtnetlink(7)).
//!
//! Connecting a socket that is bound to a device is not enough to learn this: when no route leads through the
//! device, IPv4 on Linux assumes that the peer is on the link, connects, and asks for it by ARP for ever. The
//! lookup here asks the routing tables alone (`RTM_F_FIB_MATCH`), policy rules included.

use std::io;
use std::net::IpAddr;

/// The answer of a route lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Whether the destination is this host itself.
    pub(crate) local: bool,
    /// The interface the packet leaves by; `None` when several share the load.
    pub(crate) device: Option<u32>,
    /// The source address the kernel prefers, where it says so.
    pub(crate) source: Option<IpAddr>,
}

/// The route to `to` from `from` through `device` (an interface index), through that device and no other.
pub(crate) fn lookup_through(to: IpAddr, from: Option<IpAddr>, device: u32) -> io::Result<Route> {
    let fits = |route: &Route| route.device.is_none_or(|found| found == device);
    let route = lookup(to, from, Some(device))?;
    if fits(&route) {
        return Ok(route);
    }
    // For IPv6 this lookup takes the device as a mere wish when a source is given, whereas a socket bound to
    // the device is held to it. Without a source the lookup is held to it as well.
    let route = lookup(to, None, Some(device))?;
    if fits(&route) { Ok(route) } else { Err(io::Error::from(io::ErrorKind::NetworkUnreachable)) }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use linux::lookup;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use std::io;
    use std::net::IpAddr;
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
    };

    use super::Route;

    // linux/netlink.h and linux/rtnetlink.h.
    const NLMSG_ERROR: u16 = 2;
    const RTM_NEWROUTE: u16 = 24;
    const RTM_GETROUTE: u16 = 26;
    const NLM_F_REQUEST: u16 = 1;
    const RTM_F_FIB_MATCH: u32 = 0x2000;
    const RTA_DST: u16 = 1;
    const RTA_SRC: u16 = 2;
    const RTA_OIF: u16 = 4;
    const RTA_PREFSRC: u16 = 7;
    const RTN_UNICAST: u8 = 1;
    const RTN_LOCAL: u8 = 2;
    const AF_INET: u8 = 2;
    const AF_INET6: u8 = 10;
    /// `struct nlmsghdr` and `struct rtmsg` together.
    const HEADERS: usize = 16 + 12;
    /// More than one route with its metrics and next hops takes.
    const REPLY_MAX: usize = 8 * 1024;

    /// The route to `to` from `from`; with `device`, through that interface.
    ///
    /// # Errors
    /// `NetworkUnreachable`, `HostUnreachable` and their like when there is none.
    pub(crate) fn lookup(to: IpAddr, from: Option<IpAddr>, device: Option<u32>) -> io::Result<Route> {
        let netlink = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkRoute,
        )?;
        let request = request(to, from, device);
        sendto(netlink.as_raw_fd(), &request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        // The kernel answers within the call that asks: nothing to wait for.
        let mut reply = [0; REPLY_MAX];
        let len = recv(netlink.as_raw_fd(), &mut reply, MsgFlags::empty())?;
        parse(reply.get(..len).unwrap_or_default())
    }

    fn request(to: IpAddr, from: Option<IpAddr>, device: Option<u32>) -> Vec<u8> {
        let bits = |ip: IpAddr| if ip.is_ipv4() { 32 } else { 128 };
        // The plain IPv6 lookup is strict about the device when no source is given, and only it tells the
        // preferred source; the plain IPv4 lookup makes up an on-link route for any device.
        let flags = if to.is_ipv4() && device.is_some() { RTM_F_FIB_MATCH } else { 0 };
        let mut message = vec![0; 4];
        message.extend(RTM_GETROUTE.to_ne_bytes());
        message.extend(NLM_F_REQUEST.to_ne_bytes());
        message.extend([0; 8]); // sequence and port: one request, one socket
        let family = if to.is_ipv4() { AF_INET } else { AF_INET6 };
        message.extend([family, bits(to), from.map_or(0, bits), 0, 0, 0, 0, 0]);
        message.extend(flags.to_ne_bytes());
        let mut attribute = |kind: u16, value: &[u8]| {
            // Every value here is 4 or 16 bytes: aligned as it is.
            message.extend((4 + value.len() as u16).to_ne_bytes());
            message.extend(kind.to_ne_bytes());
            message.extend(value);
        };
        let mut address = |kind, ip: IpAddr| match ip {
            IpAddr::V4(ip) => attribute(kind, &ip.octets()),
            IpAddr::V6(ip) => attribute(kind, &ip.octets()),
        };
        address(RTA_DST, to);
        if let Some(from) = from {
            address(RTA_SRC, from);
        }
        if let Some(device) = device {
            attribute(RTA_OIF, &device.to_ne_bytes());
        }
        let len = message.len() as u32;
        message.splice(..4, len.to_ne_bytes());
        message
    }

    fn parse(reply: &[u8]) -> io::Result<Route> {
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "malformed rtnetlink reply");
        let (header, body) = reply.split_at_checked(16).ok_or_else(malformed)?;
        match u16::from_ne_bytes([header[4], header[5]]) {
            NLMSG_ERROR => {
                let errno = body.first_chunk().copied().map(i32::from_ne_bytes).ok_or_else(malformed)?;
                return Err(io::Error::from_raw_os_error(errno.saturating_neg()));
            }
            RTM_NEWROUTE => {}
            _ => return Err(malformed()),
        }
        let kind = *body.get(7).ok_or_else(malformed)?;
        if kind != RTN_UNICAST && kind != RTN_LOCAL {
            return Err(io::Error::from(io::ErrorKind::NetworkUnreachable));
        }
        let mut route = Route { local: kind == RTN_LOCAL, device: None, source: None };
        let mut rest = reply.get(HEADERS..).ok_or_else(malformed)?;
        while let Some((head, after)) = rest.split_first_chunk::<4>() {
            let len = usize::from(u16::from_ne_bytes([head[0], head[1]]));
            let Some(value) = len.checked_sub(4).and_then(|len| after.get(..len)) else { break };
            match (u16::from_ne_bytes([head[2], head[3]]), value.len()) {
                (RTA_OIF, 4) => route.device = value.first_chunk().copied().map(u32::from_ne_bytes),
                (RTA_PREFSRC, 4) => route.source = value.first_chunk::<4>().copied().map(IpAddr::from),
                (RTA_PREFSRC, 16) => route.source = value.first_chunk::<16>().copied().map(IpAddr::from),
                _ => {}
            }
            rest = after.get(value.len().next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(route)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn replies_that_are_cut_or_wrong_are_refused() {
            let mut reply = vec![0; HEADERS];
            reply[4..6].copy_from_slice(&RTM_NEWROUTE.to_ne_bytes());
            reply[16 + 7] = RTN_LOCAL;
            reply.extend([8, 0, 4, 0, 7, 0, 0, 0, 200, 0, 7, 0]);
            let route = parse(&reply).unwrap();
            assert_eq!((route.local, route.source), (true, None));
            #[cfg(target_endian = "little")]
            assert_eq!(route.device, Some(7));
            for len in 0..reply.len() {
                let _ = parse(&reply[..len]);
            }
            assert!(parse(&[]).is_err());
        }
    }
}

/// Elsewhere: what a connected socket says.
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
