//! The subflows of a transfer: which there are, their sockets, and what happens when an interface goes.

use std::net::SocketAddr;

use algo::control::Algorithm;
use mmtp::subscriber::{PathConfig, PathId, SourceId, Subscriber};
use net::{Egress, Limits};

use crate::{Error, Result};

use super::groups::GroupPolicy;
use super::request::Request;
use super::world::{SocketId, World};

/// One subflow: a source's address, seen from one local address.
pub(super) struct UdpPath {
    pub(super) path: PathId,
    pub(super) source: usize,
    pub(super) via: Egress,
    pub(super) peer: SocketAddr,
    /// None while the interface or the address is gone.
    pub(super) socket: Option<SocketId>,
}

/// How paths are made.
pub(super) struct UdpPaths {
    pub(super) links: Vec<UdpPath>,
    /// Each with its name.
    sources: Vec<(SourceId, String, Vec<SocketAddr>)>,
    via: Vec<Egress>,
    algorithm: Algorithm,
    groups: GroupPolicy,
    limits: Limits,
}

impl UdpPaths {
    /// A path for every source and every local address that leads there; none without sources.
    ///
    /// # Errors
    /// If they are `needed`: [`Error::Unreachable`] if no path leads to any source, or none from a named
    /// local end.
    pub(super) fn new(
        request: &Request,
        algorithm: Algorithm,
        groups: GroupPolicy,
        sources: &[(String, Vec<SocketAddr>)],
        needed: bool,
        subscriber: &mut Subscriber,
        world: &mut dyn World,
    ) -> Result<Self> {
        let sources: Vec<_> = sources
            .iter()
            .map_while(|(name, addresses)| Some((subscriber.add_source()?, name.clone(), addresses.clone())))
            .collect();
        let (via, limits) = (request.via.clone(), request.http.limits.clone());
        let mut new = Self { links: Vec::new(), sources, via, algorithm, groups, limits };
        let error = new.extend(subscriber, world);
        if !needed {
            return Ok(new);
        }
        for via in &request.via {
            if !new.links.iter().any(|link| link.via == *via) {
                let why = error.clone().unwrap_or_else(|| "no source is of its address family".into());
                return Err(Error::unreachable(format!("`via` {via} leads to no source: {why}")));
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
    fn extend(&mut self, subscriber: &mut Subscriber, world: &mut dyn World) -> Option<String> {
        let mut error = None;
        for (index, (source, name, addresses)) in self.sources.iter().enumerate() {
            for &peer in addresses {
                let routes = match world.local_ends(&self.via, peer.ip()) {
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
                    let socket = match world.open_udp(&via, peer) {
                        Ok(socket) => socket,
                        Err(e) => {
                            error = Some(e.to_string());
                            continue;
                        }
                    };
                    let group = self.groups.of(self.links.len(), name, peer, &via);
                    let config = PathConfig {
                        group,
                        control: self.algorithm,
                        payload_max: socket.payload_max,
                        receive_buffer: socket.receive_buffer,
                    };
                    let Some(path) = subscriber.add_path(*source, &config) else {
                        world.close_udp(socket.id);
                        return Some("too many paths".into());
                    };
                    subscriber.limit(path, self.limits.of(&via));
                    let socket = Some(socket.id);
                    self.links.push(UdpPath { path, source: index, via, peer, socket });
                }
            }
        }
        error
    }

    /// The host's interfaces changed: paths whose address is gone are closed, those that can be are opened
    /// (again). Returns the paths that went down and those that came up.
    pub(super) fn refresh(
        &mut self,
        subscriber: &mut Subscriber,
        world: &mut dyn World,
    ) -> (Vec<PathId>, Vec<PathId>) {
        let (mut down, mut up) = (Vec::new(), Vec::new());
        for link in &mut self.links {
            match link.socket {
                Some(socket) if !world.is_bound(socket, &link.via) => {
                    world.close_udp(socket);
                    link.socket = None;
                    down.push(link.path);
                }
                Some(_) => {}
                None => {
                    if let Ok(socket) = world.open_udp(&link.via, link.peer) {
                        link.socket = Some(socket.id);
                        up.push(link.path);
                    }
                }
            }
        }
        self.extend(subscriber, world);
        (down, up)
    }
}
