//! Tells which interfaces could be uplinks now, by the same rules as a set-up.

use std::net::IpAddr;

use anabranch_net::netlink::{Endpoint, Route};
use anabranch_net::{Egress, uplink_of};

use super::current::CurrentConfig;
use super::desired::{DesiredConfig, add_uplink};
use super::{Error, Result};

/// An address of an uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurveyedAddress {
    /// The address.
    pub ip: IpAddr,
    /// The gateway of its default route; `None` if the other end of the link is the way out.
    pub gateway: Option<IpAddr>,
}

/// An interface, as a set-up would see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyedLink {
    /// The name.
    pub name: String,
    /// The index, which changes when the interface is made anew.
    pub index: u32,
    /// Whether packets leave the host by this interface itself: hardware, veth, bridges, bonds; no tunnel.
    pub is_line: bool,
    /// Whether it has a default route in the main table.
    pub has_default_route: bool,
    /// The addresses that it would use, or why it cannot be used.
    pub addresses: std::result::Result<Vec<SurveyedAddress>, String>,
}

/// The interfaces of a network namespace, without loopback, and what others have told MPTCP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The interfaces, ordered by index.
    pub links: Vec<SurveyedLink>,
    /// All MPTCP endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Whether a program manages the paths (`net.mptcp.pm_type` is 1), so that endpoints are not used.
    pub user_manager: bool,
}

/// Reads the calling thread's network namespace.
///
/// # Errors
/// If the kernel cannot be asked, or has no MPTCP.
pub fn survey() -> Result<Survey> {
    let current = CurrentConfig::read()?;
    Ok(of(&current, &|name| uplink_of(&Egress::of_device(name)).is_some()))
}

fn of(current: &CurrentConfig, is_line: &dyn Fn(String) -> bool) -> Survey {
    let links = current.links.iter().filter(|link| !link.loopback).map(|link| {
        let mut found = DesiredConfig::default();
        let added = add_uplink(&mut found, current, &link.name, 0, false);
        let gateway_of = |ip: IpAddr| {
            let mut defaults = found.routes.iter().filter(|route| route.is_default());
            defaults.find(|route| route.dst.0.is_ipv4() == ip.is_ipv4()).and_then(|route| route.gateway)
        };
        let addresses =
            found.endpoints.iter().map(|e| SurveyedAddress { ip: e.ip, gateway: gateway_of(e.ip) });
        SurveyedLink {
            name: link.name.clone(),
            index: link.index,
            is_line: is_line(link.name.clone()),
            has_default_route: has_default_route(&current.routes, link.index),
            addresses: match added {
                Ok(()) => Ok(addresses.collect()),
                Err(Error::Unusable(text)) => Err(text),
                Err(other) => Err(other.to_string()),
            },
        }
    });
    Survey {
        links: links.collect(),
        endpoints: current.endpoints.clone(),
        user_manager: current.user_manager,
    }
}

fn has_default_route(routes: &[Route], index: u32) -> bool {
    let mut defaults = routes.iter().filter(|route| route.is_default());
    defaults.any(|route| route.table == anabranch_net::netlink::MAIN_TABLE && route.device == Some(index))
}

#[cfg(test)]
mod tests {
    use super::super::desired::tests::current;
    use super::*;

    #[test]
    fn uplinks_are_told_with_their_gateways_and_others_with_the_reason() {
        let mut current = current();
        let all = of(&current, &|name| name != "wwan0");
        let names: Vec<_> = all.links.iter().map(|link| (link.name.as_str(), link.is_line)).collect();
        assert_eq!(names, [("wlan0", true), ("wwan0", false)]);
        let found = all.links[0].addresses.clone().unwrap();
        let texts: Vec<_> = found.iter().map(|a| format!("{} by {:?}", a.ip, a.gateway)).collect();
        assert_eq!(texts, ["192.168.1.7 by Some(192.168.1.1)", "2001:db8::7 by Some(fe80::1)"]);
        assert_eq!(all.links[1].addresses.clone().unwrap()[0].gateway, None);
        assert!(all.links[1].has_default_route);
        current.links[2].up = false;
        let why = of(&current, &|_| true).links[1].addresses.clone().unwrap_err();
        assert!(why.starts_with("wwan0 is down"), "{why}");
    }
}
