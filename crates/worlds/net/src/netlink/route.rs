//! Routes (`linux/rtnetlink.h`).

use std::fmt;
use std::net::IpAddr;

use super::message::{
    Attributes, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, Request, any, family, ip, u16_at, u32_at,
};
use super::{Error, Netlink, Result};

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
/// The size of `struct rtmsg`, in bytes.
const FIXED: usize = 12;
/// The offset of `rtm_flags` in `struct rtmsg`, in bytes.
const FLAGS: usize = 8;
/// The size of `struct rtnexthop`, in bytes.
const NEXT_HOP: usize = 8;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTPROT_STATIC: u8 = 4;
const RTM_F_CLONED: u32 = 0x200;
const RTM_F_FIB_MATCH: u32 = 0x2000;
const RTNH_F_ONLINK: u32 = 4;
const SCOPE_UNIVERSE: u8 = 0;
const SCOPE_LINK: u8 = 253;
const SCOPE_NOWHERE: u8 = 255;
/// The largest number of next hops of one route that are read; the others are left out.
const NEXT_HOPS_MAX: usize = 256;

/// The number of the main table (`RT_TABLE_MAIN`), which is the only one without policy routing.
pub const MAIN_TABLE: u32 = 254;

/// The action for a packet that takes a route (`rtm_type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouteKind {
    /// The packet leaves this host.
    #[default]
    Unicast,
    /// The packet is for this host (the kernel's own table 255).
    Local,
    /// The packet is dropped, and the sender is told that there is no route (`unreachable`).
    Unreachable,
    /// The packet is dropped silently.
    Blackhole,
    /// Another kind, by the kernel's number.
    Other(u8),
}

impl RouteKind {
    const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Unicast,
            2 => Self::Local,
            6 => Self::Blackhole,
            7 => Self::Unreachable,
            other => Self::Other(other),
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::Unicast => 1,
            Self::Local => 2,
            Self::Blackhole => 6,
            Self::Unreachable => 7,
            Self::Other(number) => number,
        }
    }
}

/// A route, or one next hop of a route that has several.
///
/// A new route is written so: `Route { device: Some(2), metric: 100, ..Route::to("10.0.0.0".parse()?, 8) }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destination: an address and the length of the prefix in bits.
    pub dst: (IpAddr, u8),
    /// The index of the interface by which packets leave.
    pub device: Option<u32>,
    /// The router; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The source address that packets get if their sender chose none.
    pub source: Option<IpAddr>,
    /// The number of the table; [`MAIN_TABLE`] unless there is policy routing.
    pub table: u32,
    /// The metric: if several routes lead to one destination, the route with the lowest metric is used. For a
    /// new IPv6 route, 0 means 1024.
    pub metric: u32,
    /// Whether the gateway counts as on the link although no prefix says so.
    pub onlink: bool,
    /// The action for packets that take the route.
    pub kind: RouteKind,
    /// The origin of the route (`rtm_protocol`): 2 kernel, 3 boot, 4 static, 9 router advertisement, 16 DHCP.
    pub protocol: u8,
}

impl Route {
    /// Returns a static route to a prefix in the main table, without an interface and a gateway.
    #[must_use]
    pub const fn to(dst: IpAddr, prefix: u8) -> Self {
        Self {
            dst: (dst, prefix),
            device: None,
            gateway: None,
            source: None,
            table: MAIN_TABLE,
            metric: 0,
            onlink: false,
            kind: RouteKind::Unicast,
            protocol: RTPROT_STATIC,
        }
    }

    /// Whether the route matches every destination.
    #[must_use]
    pub const fn is_default(&self) -> bool {
        self.dst.1 == 0
    }

    /// Reads the body of an `RTM_NEWROUTE` message: one route for each next hop. Returns nothing if the
    /// message is cut short, or if it is no route of a table but a cached lookup.
    #[must_use]
    pub fn parse(body: &[u8]) -> Vec<Self> {
        match u32_at(body, FLAGS) {
            Some(flags) if flags & RTM_F_CLONED == 0 => Self::parse_any(body).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// Reads the body of an `RTM_NEWROUTE` message as [`Route::parse`] does, and also the body of a lookup's
    /// answer.
    fn parse_any(body: &[u8]) -> Option<Vec<Self>> {
        let flags = u32_at(body, FLAGS)?;
        let mut route = Self::to(any(*body.first()?)?, *body.get(1)?);
        route.table = u32::from(*body.get(4)?);
        route.protocol = *body.get(5)?;
        route.kind = RouteKind::from_number(*body.get(7)?);
        route.onlink = flags & RTNH_F_ONLINK != 0;
        let mut hops = Vec::new();
        for (kind, value) in Attributes::after(body, FIXED) {
            match kind {
                RTA_DST => route.dst.0 = ip(value)?,
                RTA_PREFSRC => route.source = ip(value),
                RTA_PRIORITY => route.metric = u32_at(value, 0)?,
                RTA_TABLE => route.table = u32_at(value, 0)?,
                RTA_MULTIPATH => hops = next_hops(value),
                _ => route.hop(kind, value),
            }
        }
        if hops.is_empty() {
            return Some(vec![route]);
        }
        let with = |(device, flags, attributes): (u32, u8, &[u8])| {
            let onlink = u32::from(flags) & RTNH_F_ONLINK != 0;
            let mut one = Self { device: Some(device), onlink, ..route };
            Attributes(attributes).for_each(|(kind, value)| one.hop(kind, value));
            one
        };
        Some(hops.into_iter().map(with).collect())
    }

    /// Reads an attribute that each next hop may have.
    fn hop(&mut self, kind: u16, value: &[u8]) {
        match kind {
            RTA_OIF => self.device = u32_at(value, 0),
            RTA_GATEWAY => self.gateway = ip(value),
            // struct rtvia has an address family and an address, which are not of the destination's family.
            RTA_VIA => self.gateway = value.get(2..).and_then(ip),
            _ => {}
        }
    }

    fn request(&self, kind: u16, flags: u16) -> Request {
        let scope = match (kind, self.kind, self.gateway) {
            (RTM_DELROUTE, ..) => SCOPE_NOWHERE,
            (_, RouteKind::Unicast, None) => SCOPE_LINK,
            _ => SCOPE_UNIVERSE,
        };
        // The table is given by an attribute, because only the attribute has 32 bits for it.
        let rtm = [family(self.dst.0), self.dst.1, 0, 0, 0, self.protocol, scope, self.kind.number()];
        let mut fixed = [0; FIXED];
        fixed[..8].copy_from_slice(&rtm);
        let onlink = if self.onlink { RTNH_F_ONLINK } else { 0 };
        fixed[FLAGS..].copy_from_slice(&onlink.to_ne_bytes());
        let mut request = Request::new(kind, NLM_F_REQUEST | flags, &fixed);
        request.u32(RTA_TABLE, self.table);
        if self.dst.1 > 0 {
            request.ip(RTA_DST, self.dst.0);
        }
        if let Some(device) = self.device {
            request.u32(RTA_OIF, device);
        }
        match self.gateway {
            Some(gateway) if gateway.is_ipv4() == self.dst.0.is_ipv4() => {
                request.ip(RTA_GATEWAY, gateway);
            }
            Some(gateway) => {
                let mut via = u16::from(family(gateway)).to_ne_bytes().to_vec();
                match gateway {
                    IpAddr::V4(gateway) => via.extend(gateway.octets()),
                    IpAddr::V6(gateway) => via.extend(gateway.octets()),
                }
                request.attribute(RTA_VIA, &via);
            }
            None => {}
        }
        if let Some(source) = self.source {
            request.ip(RTA_PREFSRC, source);
        }
        if self.metric > 0 {
            request.u32(RTA_PRIORITY, self.metric);
        }
        request
    }
}

/// Reads the next hops of a route: device, flags and attributes of each.
fn next_hops(mut bytes: &[u8]) -> Vec<(u32, u8, &[u8])> {
    let mut hops = Vec::new();
    while hops.len() < NEXT_HOPS_MAX {
        let (Some(len), Some(device)) = (u16_at(bytes, 0), u32_at(bytes, 4)) else { break };
        let Some(attributes) = bytes.get(NEXT_HOP..usize::from(len)) else { break };
        hops.push((device, bytes[2], attributes));
        bytes = bytes.get(usize::from(len).next_multiple_of(4)..).unwrap_or_default();
    }
    hops
}

/// Writes the route as `ip route` does, with the index of the interface instead of its name.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            RouteKind::Unicast => {}
            RouteKind::Other(number) => write!(f, "type {number} ")?,
            kind => write!(f, "{} ", format!("{kind:?}").to_lowercase())?,
        }
        match self.dst {
            (ip, 0) => write!(f, "default{}", if ip.is_ipv4() { "" } else { " (IPv6)" })?,
            (ip, prefix) => write!(f, "{ip}/{prefix}")?,
        }
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if let Some(device) = self.device {
            write!(f, " dev {device}")?;
        }
        if let Some(source) = self.source {
            write!(f, " src {source}")?;
        }
        if self.table != MAIN_TABLE {
            write!(f, " table {}", self.table)?;
        }
        if self.metric > 0 {
            write!(f, " metric {}", self.metric)?;
        }
        Ok(())
    }
}

impl Netlink {
    /// Lists all routes of all tables, in the kernel's order.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn routes(&self) -> Result<Vec<Route>> {
        let request = Request::new(RTM_GETROUTE, NLM_F_REQUEST | NLM_F_DUMP, &[0; FIXED]);
        let all = self.socket.dump(&request, |m| (m.kind == RTM_NEWROUTE).then(|| Route::parse(m.body)));
        Ok(all.map_err(|failure| Error::new("list the routes", failure))?.concat())
    }

    /// Returns the route that a packet to `to` takes, from `from` and through the interface `device` if they
    /// are given: one route for each next hop.
    ///
    /// Connecting a socket that is bound to a device is not enough to learn this: when no route leads through
    /// the device, IPv4 assumes that the peer is on the link, connects, and asks for the peer by ARP for
    /// ever. With a device, this method asks the routing tables alone (`RTM_F_FIB_MATCH`), policy rules
    /// included.
    ///
    /// # Errors
    /// `ENETUNREACH`, `EHOSTUNREACH` and similar errors if there is no route.
    pub fn route_to(&self, to: IpAddr, from: Option<IpAddr>, device: Option<u32>) -> Result<Vec<Route>> {
        let bits = |ip: IpAddr| if ip.is_ipv4() { 32 } else { 128 };
        // The plain IPv6 lookup obeys the device when no source is given, and only the plain lookup tells the
        // preferred source. The plain IPv4 lookup invents an on-link route for any device.
        let flags = if to.is_ipv4() && device.is_some() { RTM_F_FIB_MATCH } else { 0 };
        let mut fixed = [0; FIXED];
        fixed[..3].copy_from_slice(&[family(to), bits(to), from.map_or(0, bits)]);
        fixed[FLAGS..].copy_from_slice(&flags.to_ne_bytes());
        let mut request = Request::new(RTM_GETROUTE, NLM_F_REQUEST, &fixed);
        request.ip(RTA_DST, to);
        if let Some(from) = from {
            request.ip(RTA_SRC, from);
        }
        if let Some(device) = device {
            request.u32(RTA_OIF, device);
        }
        let found =
            self.socket.get(request, |m| (m.kind == RTM_NEWROUTE).then(|| Route::parse_any(m.body))?);
        found.map_err(|failure| Error::new(format!("find a route to {to}"), failure))
    }

    /// Adds a route.
    ///
    /// # Errors
    /// `EEXIST` if there is a route to this prefix with this metric; `ENETUNREACH` if the gateway is not on
    /// the link; `ENETDOWN`, `ENODEV`, `EPERM`.
    pub fn add_route(&self, route: &Route) -> Result<()> {
        let request = route.request(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
        self.socket.change(request).map_err(|failure| Error::new(self.about("add", route), failure))
    }

    /// Removes a route that agrees with every value given in `route`.
    ///
    /// # Errors
    /// `ESRCH` if there is no such route, `EPERM`.
    pub fn del_route(&self, route: &Route) -> Result<()> {
        let request = route.request(RTM_DELROUTE, 0);
        self.socket.change(request).map_err(|failure| Error::new(self.about("remove", route), failure))
    }

    fn about(&self, verb: &str, route: &Route) -> String {
        let text = format!("{verb} the route {route}");
        let Some(device) = route.device else { return text };
        text.replacen(&format!(" dev {device}"), &format!(" dev {}", self.device(device)), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_not() {
        let v4 = |text: &str| text.parse::<IpAddr>().unwrap();
        let route = Route {
            device: Some(3),
            gateway: Some(v4("fe80::1")),
            source: Some(v4("10.0.0.2")),
            table: 26_227,
            metric: 7,
            onlink: true,
            ..Route::to(v4("10.1.0.0"), 16)
        };
        let bytes = route.request(RTM_NEWROUTE, 0).finish(0);
        assert_eq!(Route::parse(&bytes[16..]), [route]);
        assert_eq!(route.to_string(), "10.1.0.0/16 via fe80::1 dev 3 src 10.0.0.2 table 26227 metric 7");
        for len in 0..bytes.len() - 16 {
            let _ = Route::parse(&bytes[16..16 + len]);
        }
        let plain = Route::to(v4("::"), 0);
        let bytes = plain.request(RTM_NEWROUTE, 0).finish(0);
        assert_eq!(Route::parse(&bytes[16..]), [plain]);
        assert_eq!(plain.to_string(), "default (IPv6)");
    }

    #[test]
    fn a_lookup_is_no_route_of_a_table() {
        let mut fixed = [0; FIXED];
        (fixed[0], fixed[1], fixed[7]) = (2, 32, RouteKind::Local.number());
        fixed[FLAGS..].copy_from_slice(&RTM_F_CLONED.to_ne_bytes());
        let mut request = Request::new(RTM_NEWROUTE, 0, &fixed);
        request.ip(RTA_DST, IpAddr::from([127, 0, 0, 1])).u32(RTA_OIF, 7);
        let bytes = request.finish(0);
        assert_eq!(Route::parse(&bytes[16..]), []);
        let found = Route::parse_any(&bytes[16..]).unwrap();
        assert_eq!((found.len(), found[0].kind, found[0].device), (1, RouteKind::Local, Some(7)));
        for len in 0..bytes.len() - 16 {
            let _ = Route::parse_any(&bytes[16..16 + len]);
        }
    }

    #[test]
    fn several_next_hops_are_several_routes() {
        let mut fixed = [0; FIXED];
        (fixed[0], fixed[4], fixed[7]) = (2, 254, 1);
        let mut request = Request::new(RTM_NEWROUTE, 0, &fixed);
        let hop = |device: u32, last: u8| {
            let mut hop = vec![16, 0, 0, 0];
            hop.extend(device.to_ne_bytes());
            hop.extend([8, 0, 5, 0, 10, 0, 0, last]);
            hop
        };
        request.attribute(RTA_MULTIPATH, &[hop(1, 1), hop(2, 9)].concat());
        let bytes = request.finish(0);
        if cfg!(target_endian = "little") {
            let routes = Route::parse(&bytes[16..]);
            let shown: Vec<_> = routes.iter().map(Route::to_string).collect();
            assert_eq!(shown, ["default via 10.0.0.1 dev 1", "default via 10.0.0.9 dev 2"]);
        }
    }
}
