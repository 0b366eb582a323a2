//! The subflows of a transfer: which there are, their sockets, and what happens when an interface goes.

use std::net::{IpAddr, SocketAddr};

use algo::control::Algorithm;
use mmtp::subscriber::{PathConfig, PathId, SourceId, Subscriber};
use net::{Egress, Interface, Udp};

use crate::{Error, Result};

use super::groups::GroupPolicy;
use super::request::Request;

/// One subflow: a source's address, seen from one local address.
pub(super) struct UdpPath {
    pub(super) path: PathId,
    pub(super) source: usize,
    pub(super) via: Egress,
    pub(super) peer: SocketAddr,
    /// None while the interface or the address is gone.
    pub(super) udp: Option<Udp>,
}

/// How paths are made.
pub(super) struct UdpPaths {
    pub(super) links: Vec<UdpPath>,
    /// Each with its name.
    sources: Vec<(SourceId, String, Vec<SocketAddr>)>,
    via: Vec<Egress>,
    algorithm: Algorithm,
    groups: GroupPolicy,
}

impl UdpPaths {
    /// A path for every source and every local address that leads there; none without sources.
    ///
    /// # Errors
    /// If they are `needed`: [`Error::Unreachable`] if no path leads to any source, or none from a named
    /// `--via`.
    pub(super) fn new(
        request: &Request,
        algorithm: Algorithm,
        groups: GroupPolicy,
        sources: &[(String, Vec<SocketAddr>)],
        needed: bool,
        subscriber: &mut Subscriber,
    ) -> Result<Self> {
        let sources: Vec<_> = sources
            .iter()
            .map_while(|(name, addresses)| Some((subscriber.add_source()?, name.clone(), addresses.clone())))
            .collect();
        let mut new = Self { links: Vec::new(), sources, via: request.via.clone(), algorithm, groups };
        let error = new.extend(subscriber);
        if !needed {
            return Ok(new);
        }
        for via in &request.via {
            if !new.links.iter().any(|link| link.via == *via) {
                let why = error.clone().unwrap_or_else(|| "no source is of its address family".into());
                return Err(Error::unreachable(format!("--via {via} leads to no source: {why}")));
            }
        }
        if new.links.is_empty() {
            let why = error.unwrap_or_else(|| "no usable interface".into());
            return Err(Error::unreachable(format!("no way to any source: {why}")));
        }
        Ok(new)
    }

    /// Adds the paths that are possible and not there yet; tells what went wrong with the last impossible
    /// one.
    fn extend(&mut self, subscriber: &mut Subscriber) -> Option<String> {
        let mut error = None;
        for (index, (source, name, addresses)) in self.sources.iter().enumerate() {
            for &peer in addresses {
                let routes = match local_ends(&self.via, peer.ip()) {
                    Ok(routes) => routes,
                    Err(e) => {
                        error = Some(e.to_string());
                        continue;
                    }
                };
                if routes.is_empty() {
                    error = Some(format!("no route to {}", peer.ip()));
                }
                for via in routes {
                    if self
                        .links
                        .iter()
                        .any(|link| link.source == index && link.peer == peer && link.via == via)
                    {
                        continue;
                    }
                    let udp = match Udp::connect(&via, peer) {
                        Ok(udp) => udp,
                        Err(e) => {
                            error = Some(e.to_string());
                            continue;
                        }
                    };
                    let group = self.groups.of(self.links.len(), name, peer, &via);
                    let config = PathConfig {
                        group,
                        control: self.algorithm,
                        payload_max: payload_max(&udp),
                        receive_buffer: udp.receive_buffer(),
                    };
                    let Some(path) = subscriber.add_path(*source, &config) else {
                        return Some("too many paths".into());
                    };
                    self.links.push(UdpPath { path, source: index, via, peer, udp: Some(udp) });
                }
            }
        }
        error
    }

    /// Who shares a bottleneck with whom, as it seems: a sentence.
    pub(super) fn describe(&self, groups: &[u32]) -> String {
        let all = groups.iter().max().map_or(0, |most| most + 1);
        let members = |group: u32| {
            let of = self.links.iter().filter(|link| groups.get(link.path) == Some(&group));
            of.map(|link| format!("{} via {}", link.peer, link.via)).collect::<Vec<_>>().join(", ")
        };
        match all {
            0 | 1 => "paths may share one bottleneck".into(),
            _ => {
                let each: Vec<String> = (0..all).map(members).collect();
                format!("paths pass {all} different bottlenecks, it seems: {}", each.join(" | "))
            }
        }
    }

    /// The host's interfaces changed: paths whose address is gone are closed, those that can be are opened
    /// (again). Returns the paths that went down and those that came up.
    pub(super) fn refresh(&mut self, subscriber: &mut Subscriber) -> (Vec<PathId>, Vec<PathId>) {
        let (mut down, mut up) = (Vec::new(), Vec::new());
        let interfaces = net::interfaces().unwrap_or_default();
        for link in &mut self.links {
            match &link.udp {
                Some(udp) if !is_there(&interfaces, udp.local_addr().ip(), &link.via) => {
                    link.udp = None;
                    down.push(link.path);
                }
                Some(_) => {}
                None => {
                    if let Ok(udp) = Udp::connect(&link.via, link.peer) {
                        link.udp = Some(udp);
                        up.push(link.path);
                    }
                }
            }
        }
        self.extend(subscriber);
        (down, up)
    }
}

/// The local ends to use towards `peer`: those that were named, else all that lead there.
pub(super) fn local_ends(named: &[Egress], peer: IpAddr) -> std::io::Result<Vec<Egress>> {
    if named.is_empty() {
        return net::usable_egresses(peer);
    }
    let fits = |via: &&Egress| via.address().is_none_or(|ip| ip.is_ipv4() == peer.to_canonical().is_ipv4());
    Ok(named.iter().filter(fits).cloned().collect())
}

/// Whether the local address of a socket still exists on an interface that is up, the named one if one was;
/// if only an interface was named, that is up and the address may be on any (see [`net::usable_egresses`]).
fn is_there(interfaces: &[Interface], ip: IpAddr, via: &Egress) -> bool {
    let is_named = |i: &&Interface| via.device().is_none_or(|name| name == i.name);
    // All of 127/8 is local without being listed.
    let has = |i: &Interface| i.addresses.contains(&ip) || (i.loopback && ip.is_loopback());
    let mut up = interfaces.iter().filter(|i| i.up);
    match via.address() {
        Some(_) => up.filter(is_named).any(has),
        None => up.clone().any(|i| is_named(&i)) && up.any(has),
    }
}

/// The largest UDP payload that the socket's interface takes.
fn payload_max(udp: &Udp) -> usize {
    let ip = udp.local_addr().ip();
    let interfaces = net::interfaces().unwrap_or_default();
    let here = interfaces.iter().find(|i| i.addresses.contains(&ip) || (i.loopback && ip.is_loopback()));
    let mtu = here.and_then(|i| i.mtu).map_or(1_500, |mtu| mtu as usize);
    // IP header and UDP header.
    mtu.saturating_sub(if ip.is_ipv4() { 28 } else { 48 })
}
