//! One change of the configuration: how it is made, and how it is shown.

use std::fmt;
use std::net::IpAddr;

use anabranch_net::netlink::{Endpoint, EndpointFlags, Limits, Netlink, PathManager, Route, Rule};

use super::Result;
use super::current::set_enabled;

/// One change of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets `net.mptcp.enabled` to this value.
    Enable(String),
    /// Sets the limits of MPTCP.
    Limits(Limits),
    /// Adds a route.
    AddRoute(Route),
    /// Removes a route.
    DelRoute(Route),
    /// Adds a policy rule.
    AddRule(Rule),
    /// Removes a policy rule.
    DelRule(Rule),
    /// Adds an endpoint.
    AddEndpoint(Endpoint),
    /// Removes an endpoint.
    DelEndpoint(Endpoint),
    /// Gives an endpoint these flags.
    SetFlags(Endpoint, EndpointFlags),
}

impl Change {
    /// Makes the change in the calling thread's network namespace. Removing something that is gone already is
    /// no error.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn apply(&self) -> Result<()> {
        let gone = |done: anabranch_net::netlink::Result<()>| match done {
            Err(e) if e.is_missing() => Ok(()),
            other => other,
        };
        match self {
            Self::Enable(value) => return set_enabled(value),
            Self::Limits(limits) => PathManager::open()?.set_limits(*limits)?,
            Self::AddRoute(route) => Netlink::open()?.add_route(route)?,
            Self::DelRoute(route) => gone(Netlink::open()?.del_route(route))?,
            Self::AddRule(rule) => Netlink::open()?.add_rule(rule)?,
            Self::DelRule(rule) => gone(Netlink::open()?.del_rule(rule))?,
            Self::AddEndpoint(endpoint) => PathManager::open()?.add_endpoint(endpoint)?,
            Self::DelEndpoint(endpoint) => del_endpoint(endpoint)?,
            Self::SetFlags(endpoint, flags) => PathManager::open()?.set_flags(endpoint, *flags)?,
        }
        Ok(())
    }

    pub(super) const fn removed_address(&self) -> Option<IpAddr> {
        if let Self::DelEndpoint(endpoint) = self { Some(endpoint.ip) } else { None }
    }

    /// Returns the index of the interface that the change is about, if there is one.
    pub(super) const fn device(&self) -> Option<u32> {
        match self {
            Self::AddRoute(route) | Self::DelRoute(route) => route.device,
            Self::AddEndpoint(e) | Self::DelEndpoint(e) | Self::SetFlags(e, _) => e.device,
            _ => None,
        }
    }
}

/// Removes an endpoint if it is there. The kernel says `EINVAL` if it is not, and for other reasons, too.
fn del_endpoint(endpoint: &Endpoint) -> Result<()> {
    let manager = PathManager::open()?;
    let is_there = |found: &Endpoint| found.id == endpoint.id && found.ip == endpoint.ip;
    match manager.del_endpoint(endpoint) {
        Err(e) if e.is_missing() || !manager.endpoints()?.iter().any(is_there) => Ok(()),
        done => Ok(done?),
    }
}

/// Writes the change as arguments of the command `sysctl` or `ip`, with interfaces by their numbers.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = |ipv6: bool| if ipv6 { " -6" } else { "" };
        let endpoint = |f: &mut fmt::Formatter<'_>, verb: &str, e: &Endpoint| {
            write!(f, "mptcp endpoint {verb} {}", e.ip)?;
            e.device.map_or(Ok(()), |device| write!(f, " dev {device}"))
        };
        match self {
            Self::Enable(value) => write!(f, "sysctl net.mptcp.enabled={value}"),
            Self::Limits(Limits { subflows, add_addr_accepted }) => {
                write!(f, "mptcp limits set subflows {subflows} add_addr_accepted {add_addr_accepted}")
            }
            Self::AddRoute(route) => write!(f, "route add {route}"),
            Self::DelRoute(route) => write!(f, "route del {route}"),
            Self::AddRule(rule) => write!(f, "rule{} add {rule}", family(rule.ipv6)),
            Self::DelRule(rule) => write!(f, "rule{} del {rule}", family(rule.ipv6)),
            Self::AddEndpoint(e) => endpoint(f, "add", e).and_then(|()| write!(f, " {}", e.flags)),
            Self::DelEndpoint(e) => endpoint(f, "del", e),
            Self::SetFlags(e, flags) => endpoint(f, "change", e).and_then(|()| write!(f, " {flags}")),
        }
    }
}
