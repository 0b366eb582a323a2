//! The paths of a move: which links lead to the other host, what the kernel's Multipath TCP is told of
//! them, and what each has carried.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path as FilePath;

use anabranch_kernel::uplinks::{self, Options, PROGRAM_STATE_DIR, STATE_DIR, Session};
use anabranch_net::netlink::{Endpoint, EndpointFlags, Limits, Netlink, PathManager, SockDiag, TcpState};
use anabranch_net::{interfaces, is_link_local, usable_egresses};
use serde::Serialize;

use crate::error::{Error, Result};

/// A way to the other host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Path {
    /// The device of this host.
    pub device: String,
    /// The address of the other host that is reached by it.
    pub remote: IpAddr,
    /// Whether connections to that address leave by it by themselves: a move begins on such a path.
    pub is_first: bool,
}

/// Finds the paths to a host with these addresses: over the links that are named, or else over all that lead
/// there. The first one is a path on which a connection can begin.
///
/// # Errors
/// `Unreachable` if a named link is away, is down or does not lead there, or if no link does. Nothing else is
/// used in its place.
pub fn find(named: &[String], remotes: &[IpAddr]) -> Result<Vec<Path>> {
    let netlink = Netlink::open().map_err(|e| Error::Kernel(e.to_string()))?;
    let devices = if named.is_empty() { all(remotes) } else { named.to_vec() };
    let mut paths = Vec::new();
    for device in devices {
        check_link(&netlink, &device)?;
        let index = netlink.index(&device).map_err(|e| Error::Unreachable(e.to_string()))?;
        let leaves_by_it = |remote: &&IpAddr| {
            let routes = netlink.route_to(**remote, None, None).unwrap_or_default();
            remote.is_loopback() || routes.iter().any(|route| route.device == Some(index))
        };
        let leads = |remote: &&IpAddr| netlink.route_to(**remote, None, Some(index)).is_ok();
        let found = match remotes.iter().find(leaves_by_it) {
            Some(remote) => Some((*remote, true)),
            None => remotes.iter().find(leads).map(|remote| (*remote, false)),
        };
        match found {
            Some((remote, is_first)) => paths.push(Path { device, remote, is_first }),
            None if named.is_empty() => {}
            None => {
                let there = list(remotes);
                return Err(Error::Unreachable(format!(
                    "{device} does not lead to the other host ({there})"
                )));
            }
        }
    }
    paths.sort_by_key(|path| !path.is_first);
    match paths.first() {
        Some(path) if path.is_first => Ok(paths),
        Some(path) => Err(Error::Unreachable(format!(
            "connections to {} leave by another link than those that are named: name that one too, or reach \
             the host by an address behind {}",
            path.remote, path.device
        ))),
        None => Err(Error::Unreachable(format!("no link leads to the other host ({})", list(remotes)))),
    }
}

fn list(ips: &[IpAddr]) -> String {
    ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the devices that lead to any of these addresses.
fn all(remotes: &[IpAddr]) -> Vec<String> {
    let mut devices = Vec::new();
    for remote in remotes {
        if remote.is_loopback() {
            return vec!["lo".to_owned()];
        }
        for egress in usable_egresses(*remote).unwrap_or_default() {
            if let Some(device) =
                egress.device().filter(|device| !devices.iter().any(|known| known == device))
            {
                devices.push(device.to_owned());
            }
        }
    }
    devices
}

fn check_link(netlink: &Netlink, device: &str) -> Result {
    let away =
        |text: &str| Err(Error::Unreachable(format!("{device} {text}: the move does not begin without it")));
    let Ok(link) = netlink.link(device) else { return away("does not exist here") };
    if !link.up {
        return away("is down");
    }
    if !link.carrier {
        return away("has no carrier");
    }
    let addresses = netlink.addresses().map_err(|e| Error::Kernel(e.to_string()))?;
    match addresses.iter().any(|address| address.device == link.index && !is_link_local(address.ip)) {
        true => Ok(()),
        false => away("has no address"),
    }
}

/// Tells the kernel's Multipath TCP of these paths, until the result is dropped. One path needs nothing.
///
/// # Errors
/// `Kernel` if the kernel has no Multipath TCP, or this process may not set it up and nobody else has.
pub fn set_up(paths: &[Path]) -> Result<Option<Session>> {
    if paths.len() < 2 {
        return Ok(None);
    }
    let names: Vec<String> = paths.iter().map(|path| path.device.clone()).collect();
    let mut servers: Vec<IpAddr> = paths.iter().map(|path| path.remote).collect();
    servers.dedup();
    match Session::begin(Options::for_program(names.clone(), servers)) {
        Ok((session, _)) => Ok(Some(session)),
        Err(_)
            if [STATE_DIR, PROGRAM_STATE_DIR]
                .iter()
                .any(|dir| uplinks::covers(&names, FilePath::new(dir))) =>
        {
            Ok(None)
        }
        Err(e) => Err(Error::Kernel(format!("cannot use {} at once: {e}", names.join(" and ")))),
    }
}

/// Puts back what [`set_up`] of a killed process left.
pub fn clean_up() {
    // This fails for a session that another program uses, which must stay.
    let _ = Session::clean_up(FilePath::new(PROGRAM_STATE_DIR));
}

/// Returns the addresses by which other hosts can reach this one.
#[must_use]
pub fn own_addresses() -> Vec<IpAddr> {
    let up =
        interfaces().unwrap_or_default().into_iter().filter(|interface| interface.up && !interface.loopback);
    let mut ips: Vec<IpAddr> =
        up.flat_map(|interface| interface.addresses).filter(|ip| !is_link_local(*ip)).collect();
    // Addresses of the first version have a route more often.
    ips.sort_by_key(IpAddr::is_ipv6);
    ips
}

/// Addresses that Multipath TCP announces to the other ends of connections, until this is dropped.
#[derive(Debug)]
pub struct Announced {
    manager: PathManager,
    added: Vec<Endpoint>,
    former: Limits,
}

impl Announced {
    /// Prepares the kernel for connections over several paths.
    ///
    /// # Errors
    /// If the kernel has no Multipath TCP or does not allow it.
    pub fn begin() -> anabranch_net::netlink::Result<Self> {
        let manager = PathManager::open()?;
        let former = manager.limits()?;
        let most = anabranch_net::netlink::ENDPOINTS_MAX;
        manager.set_limits(Limits { subflows: most, add_addr_accepted: former.add_addr_accepted })?;
        Ok(Self { manager, added: Vec::new(), former })
    }

    /// Announces these addresses, too. Those that are endpoints already stay as they are.
    ///
    /// # Errors
    /// If the kernel does not allow it, or has no room for more.
    pub fn add(&mut self, ips: &[IpAddr]) -> anabranch_net::netlink::Result<()> {
        let known = self.manager.endpoints()?;
        for ip in ips.iter().filter(|ip| known.iter().all(|endpoint| endpoint.ip != **ip)) {
            let endpoint = Endpoint { flags: EndpointFlags::SIGNAL, ..Endpoint::subflow(*ip, None) };
            self.manager.add_endpoint(&endpoint)?;
            self.added.push(endpoint);
        }
        Ok(())
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        let endpoints = self.manager.endpoints().unwrap_or_default();
        for added in &self.added {
            if let Some(endpoint) = endpoints.iter().find(|endpoint| endpoint.ip == added.ip) {
                let _ = self.manager.del_endpoint(endpoint);
            }
        }
        let _ = self.manager.set_limits(self.former);
    }
}

/// What each link has carried of a move.
#[derive(Debug, Default)]
pub struct Carried {
    /// For each subflow, by the number of its socket: the device and the bytes.
    subflows: BTreeMap<u64, (String, u64)>,
    devices: BTreeMap<IpAddr, String>,
}

impl Carried {
    /// Reads what the connections to `ports` of the other host have carried. Subflows that have ended keep
    /// what they carried. Returns the devices that have a subflow now.
    ///
    /// # Errors
    /// `Kernel` if the kernel does not list its sockets.
    pub fn read(&mut self, remotes: &[IpAddr], ports: &[u16]) -> Result<Vec<String>> {
        let failed = |e: anabranch_net::netlink::Error| Error::Kernel(e.to_string());
        let sockets = SockDiag::open().and_then(|diag| diag.tcp(&[TcpState::Established])).map_err(failed)?;
        let mut now = Vec::new();
        for socket in sockets {
            let remote = SocketAddr::new(socket.remote.ip().to_canonical(), socket.remote.port());
            if !ports.contains(&remote.port()) || !remotes.contains(&remote.ip()) {
                continue;
            }
            let device = self.device_of(socket.local.ip().to_canonical());
            let bytes = socket.info.as_ref().map_or(0, |info| info.bytes_acked);
            self.subflows.insert(socket.cookie, (device.clone(), bytes));
            if !now.contains(&device) {
                now.push(device);
            }
        }
        Ok(now)
    }

    fn device_of(&mut self, ip: IpAddr) -> String {
        if !self.devices.contains_key(&ip) {
            let all = interfaces().unwrap_or_default();
            self.devices.extend(
                all.into_iter().flat_map(|i| i.addresses.into_iter().map(move |ip| (ip, i.name.clone()))),
            );
        }
        self.devices.get(&ip).cloned().unwrap_or_else(|| ip.to_string())
    }

    /// Returns the bytes that each device has carried.
    #[must_use]
    pub fn by_device(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for (device, bytes) in self.subflows.values() {
            *sums.entry(device.clone()).or_insert(0) += bytes;
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_link_that_is_away_is_an_error() {
        let remotes = ["127.0.0.1".parse().unwrap()];
        let error = find(&["no-such0".to_owned()], &remotes).unwrap_err();
        let text = "no-such0 does not exist here: the move does not begin without it";
        assert_eq!(error, Error::Unreachable(text.to_owned()));
        let paths = find(&[], &remotes).unwrap();
        assert_eq!((paths.len(), paths[0].device.as_str(), paths[0].is_first), (1, "lo", true));
        assert!(set_up(&paths).unwrap().is_none());
    }
}
