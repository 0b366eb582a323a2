//! The present configuration of a network namespace, read once.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;

use anabranch_net::Namespace;
use anabranch_net::netlink::{Address, Endpoint, Limits, Link, Netlink, PathManager, Route, Rule};

use super::error::hint;
use super::{Error, Result};

/// The file that says whether MPTCP is on. `/proc/sys/net` belongs to the thread's network namespace.
const ENABLED: &str = "/proc/sys/net/mptcp/enabled";

/// The configuration of the calling thread's network namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct CurrentConfig {
    /// The namespace's inode and cookie.
    pub(crate) namespace: (u64, u64),
    pub(crate) links: Vec<Link>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) routes: Vec<Route>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) limits: Limits,
    /// Whether a program manages paths (mptcpd, for example), which ignores the kernel's endpoints.
    pub(crate) user_manager: bool,
    /// `net.mptcp.enabled`.
    pub(crate) enabled: String,
    /// Interfaces whose new IPv6 connections come from temporary addresses (RFC 8981), by index.
    pub(crate) temporary: BTreeMap<u32, bool>,
    /// Local addresses from which packets to the servers of a program leave by the address's own interface.
    pub(crate) leads: Vec<IpAddr>,
}

impl CurrentConfig {
    pub(crate) fn read() -> Result<Self> {
        let enabled = enabled()?;
        let netlink = Netlink::open()?;
        let manager = PathManager::open()?;
        let inode = Namespace::current_inode()
            .map_err(|e| Error::Unusable(format!("cannot tell which network namespace this is: {e}")))?;
        let links = netlink.links()?;
        let temporary = links.iter().map(|link| (link.index, prefers_temporary(&link.name))).collect();
        Ok(Self {
            // Before Linux 5.14 there are no cookies, and the inode alone has to tell namespaces apart.
            namespace: (inode, netlink.namespace_cookie().unwrap_or(0)),
            links,
            addresses: netlink.addresses()?,
            routes: netlink.routes()?,
            rules: netlink.rules()?,
            endpoints: manager.endpoints()?,
            limits: manager.limits()?,
            user_manager: has_user_manager(),
            enabled,
            temporary,
            leads: Vec::new(),
        })
    }

    /// Finds the addresses from which packets already reach a server through the address's own interface.
    pub(crate) fn read_leads(&mut self, servers: &[IpAddr]) -> Result<()> {
        let netlink = Netlink::open()?;
        let leads = |address: &Address| {
            let mut servers = servers.iter().filter(|server| server.is_ipv4() == address.ip.is_ipv4());
            servers.any(|server| {
                let hops = netlink.route_to(*server, Some(address.ip), None).unwrap_or_default();
                hops.first().is_some_and(|hop| hop.device == Some(address.device))
            })
        };
        self.leads = self.addresses.iter().filter(|address| leads(address)).map(|a| a.ip).collect();
        Ok(())
    }

    /// Returns the name of an interface, for people.
    pub(crate) fn name(&self, device: u32) -> String {
        let link = self.links.iter().find(|link| link.index == device);
        link.map_or_else(|| format!("a vanished interface ({device})"), |link| link.name.clone())
    }

    pub(crate) fn has_device(&self, device: u32) -> bool {
        self.links.iter().any(|link| link.index == device)
    }
}

fn enabled() -> Result<String> {
    match fs::read_to_string(ENABLED) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Err(Error::Unusable("this kernel has no MPTCP (CONFIG_MPTCP)".into()))
        }
        Err(e) => Err(Error::Unusable(format!("cannot read {ENABLED}: {e}"))),
    }
}

pub(crate) fn set_enabled(value: &str) -> Result<()> {
    fs::write(ENABLED, value)
        .map_err(|e| Error::Unusable(format!("cannot set net.mptcp.enabled to {value}: {e}{}", hint(&e))))
}

/// Whether `net.mptcp.pm_type` is 1, a manager in user space. Newer kernels keep `path_manager` in step with
/// it.
fn has_user_manager() -> bool {
    fs::read_to_string("/proc/sys/net/mptcp/pm_type").is_ok_and(|text| text.trim() == "1")
}

/// Whether `use_tempaddr` is 2: then the kernel prefers temporary addresses.
fn prefers_temporary(name: &str) -> bool {
    // Interface names hold no `/` on Linux, so this cannot leave the directory.
    let text = fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{name}/use_tempaddr"));
    text.is_ok_and(|text| text.trim() == "2")
}
