//! Opens the subflows of a transfer and their sockets, and adapts them when interfaces or the network change.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use anabranch_algo::control::Algorithm;
use anabranch_mmtp::peer::WayBack;
use anabranch_mmtp::subscriber::{PathConfig, PathId, SourceId, Subscriber};
use anabranch_net::{Egress, Limits};
use anabranch_overlay::frame::{self, HEADER_BYTES};
use anabranch_topology::fid::Header;
use anabranch_topology::graph::LinkId;

use crate::{Error, PathState, Result};

use super::groups::GroupPolicy;
use super::request::Request;
use super::routes::label;
use super::world::{OpenSocket, SocketId, World};

/// Holds one subflow: an address of a source, used from one local address.
pub(super) struct UdpPath {
    pub(super) path: PathId,
    pub(super) source: usize,
    pub(super) via: Egress,
    pub(super) peer: SocketAddr,
    /// The socket; `None` while the interface or the address is gone, or the network does not lead there.
    pub(super) socket: Option<SocketId>,
    /// The route there and back, if the path leads through a publish/subscribe network.
    way: Option<Way>,
    /// Whether the network does not lead that way now.
    withdrawn: bool,
    /// Whether the local end is held back.
    is_held: bool,
    /// The UDP port of the path's socket, or of its last one.
    port: u16,
    /// The bytes in front of each packet in a publish/subscribe network; empty elsewhere.
    header: Vec<u8>,
}

/// Describes a route through a publish/subscribe network, as its topology manager gave it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Way {
    /// The index of the source to which the route leads.
    pub(super) source: usize,
    /// This host's address on the line over which packets leave.
    pub(super) from: IpAddr,
    /// The address of the forwarder at the other end of that line.
    pub(super) forwarder: SocketAddr,
    /// The links of the route. Its identifiers change from time to time; its links do not.
    pub(super) links: Vec<LinkId>,
    /// The names of the forwarders on the route.
    pub(super) forwarders: String,
    /// The group of the route: routes of one group share a link.
    pub(super) group: u32,
    /// The header that leads packets to the source.
    pub(super) there: WayBack,
    /// The header that leads answers back.
    pub(super) back: Header,
}

impl Way {
    /// Returns whether the other route takes the same links to one source.
    fn is_same(&self, other: &Self) -> bool {
        (self.source, &self.links, self.forwarder) == (other.source, &other.links, other.forwarder)
    }

    /// Returns the bytes in front of packets whose answers are to come to the port `port`.
    fn header(&self, port: u16) -> Vec<u8> {
        frame::request_header(&self.there, &frame::header(&self.back, port)).to_vec()
    }
}

impl UdpPath {
    /// Returns the local end for reports: an interface or address, or the forwarders of the route through a
    /// network.
    pub(super) fn via(&self) -> String {
        self.way.as_ref().map_or_else(|| self.via.to_string(), |way| way.forwarders.clone())
    }

    /// Records that the path has a socket again.
    fn opened(&mut self, socket: &OpenSocket) {
        (self.socket, self.port) = (Some(socket.id), socket.port);
        if let Some(way) = self.way.clone() {
            self.lead(way);
        }
    }

    /// Leads the path along this route through the network.
    fn lead(&mut self, way: Way) {
        self.header = way.header(self.port);
        self.way = Some(way);
    }

    /// Returns the state for reports if the network does not use this route now, or if its link waits.
    /// Otherwise returns `None`: the subscriber has the state.
    pub(super) fn state(&self) -> Option<PathState> {
        let gone = || PathState::GivenUp("the network does not lead there now".into());
        self.withdrawn.then(gone).or(self.is_held.then_some(PathState::Waiting))
    }

    /// Returns the name of the path's source for reports. `name` is the source's own name.
    pub(super) fn source_label(&self, name: &str) -> String {
        // The peer's address belongs to a forwarder.
        if self.way.is_some() { name.to_owned() } else { label(name, self.peer.ip()) }
    }

    /// Returns the packet as it is sent, with the path's header in front.
    pub(super) fn framed<'a>(&self, packet: &'a [u8]) -> Cow<'a, [u8]> {
        if self.header.is_empty() { packet.into() } else { [&self.header[..], packet].concat().into() }
    }

    /// Removes the headers from packets that arrived together, `stride` bytes each. Returns the rest and its
    /// stride.
    pub(super) fn unframed<'a>(&self, bytes: &'a [u8], stride: usize) -> (Cow<'a, [u8]>, usize) {
        if self.header.is_empty() || stride <= HEADER_BYTES {
            return (bytes.into(), stride);
        }
        let packets = bytes.chunks(stride).map(|packet| packet.get(HEADER_BYTES..).unwrap_or_default());
        (packets.flatten().copied().collect(), stride - HEADER_BYTES)
    }
}

/// The number of paths up to which each new route gets a separate path, so that the report shows the bytes of
/// each route. Beyond it, a new route reuses a path that the network does not use any more: a transfer has at
/// most [`PATHS_MAX`](anabranch_mmtp::subscriber::PATHS_MAX) paths, however often its network changes.
const OWN_PATHS_MAX: usize = 64;

/// Holds the paths of a transfer, and the settings from which more are made.
pub(super) struct UdpPaths {
    pub(super) links: Vec<UdpPath>,
    /// The sources, each with its name and addresses.
    sources: Vec<(SourceId, String, Vec<SocketAddr>)>,
    via: Vec<Egress>,
    algorithm: Algorithm,
    groups: GroupPolicy,
    limits: Limits,
}

impl UdpPaths {
    /// Opens a path for every source and every local address that leads there; opens no path without sources.
    ///
    /// # Errors
    /// If paths are `needed`: [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if no path leads to
    /// any source, or if no path starts from a named local end.
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
        let (via, limits) = (request.links.ends.clone(), request.http.limits.clone());
        let mut new = Self { links: Vec::new(), sources, via, algorithm, groups, limits };
        let error = new.extend(subscriber, world);
        if !needed {
            return Ok(new);
        }
        for via in request.links.ends.iter().filter(|via| world.held(via).is_none()) {
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

    /// Adds the possible paths that do not exist yet. Returns why the last impossible path could not be
    /// added.
    fn extend(&mut self, subscriber: &mut Subscriber, world: &mut dyn World) -> Option<String> {
        let mut error = None;
        for index in 0..self.sources.len() {
            for peer in self.sources[index].2.clone() {
                let routes = match world.local_ends(&self.via, peer.ip()) {
                    Ok(mut routes) => {
                        routes.retain(|via| world.held(via).is_none());
                        routes
                    }
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
                    if !self.add(index, via, peer, &socket, None, subscriber, world) {
                        return Some("too many paths".into());
                    }
                }
            }
        }
        error
    }

    /// Adds a path over a socket that has been opened for it. If there are too many paths, closes the socket
    /// and returns false. `through` has the route through a network, and whether the route's group counts.
    #[expect(clippy::too_many_arguments, reason = "a path has so many parts")]
    fn add(
        &mut self,
        source: usize,
        via: Egress,
        peer: SocketAddr,
        socket: &OpenSocket,
        through: Option<(&Way, bool)>,
        subscriber: &mut Subscriber,
        world: &mut dyn World,
    ) -> bool {
        let (id, name, _) = &self.sources[source];
        let group = match through {
            Some((way, true)) => way.group,
            _ => self.groups.of(self.links.len(), name, peer, &via),
        };
        let header = through.map(|(way, _)| way.header(socket.port)).unwrap_or_default();
        let config = PathConfig {
            group,
            uplink: world.uplink(&via),
            control: self.algorithm.into(),
            payload_max: socket.payload_max.saturating_sub(if header.is_empty() { 0 } else { HEADER_BYTES }),
            receive_buffer: socket.receive_buffer,
        };
        let Some(path) = subscriber.add_path(*id, &config) else {
            world.close_udp(socket.id);
            return false;
        };
        subscriber.limit(path, self.limits.of(&via));
        let (way, withdrawn, is_held) = (through.map(|(way, _)| way.clone()), false, false);
        let (socket, port) = (Some(socket.id), socket.port);
        self.links.push(UdpPath { path, source, via, peer, socket, way, withdrawn, is_held, port, header });
        true
    }

    /// Closes paths whose address is gone and opens those that are possible (again), after the host's
    /// interfaces changed. Returns the paths that went down and those that came up.
    pub(super) fn refresh(
        &mut self,
        subscriber: &mut Subscriber,
        world: &mut dyn World,
    ) -> (Vec<PathId>, Vec<PathId>) {
        let (mut down, mut up) = (Vec::new(), Vec::new());
        for link in &mut self.links {
            link.is_held = world.held(&link.via).is_some();
            match link.socket {
                Some(socket) if link.is_held || !world.is_bound(socket, &link.via) => {
                    world.close_udp(socket);
                    link.socket = None;
                    down.push(link.path);
                }
                Some(_) => {}
                None => {
                    // The network reports when its routes can be used again.
                    if !link.withdrawn
                        && !link.is_held
                        && let Ok(socket) = world.open_udp(&link.via, link.peer)
                    {
                        link.opened(&socket);
                        up.push(link.path);
                    }
                }
            }
        }
        self.extend(subscriber, world);
        (down, up)
    }
}

impl UdpPaths {
    /// Follows the network, whose routes are now `ways`: closes the paths of other routes and opens paths for
    /// new routes. If `grouped`, exactly the paths that share links are coupled. Returns the paths that went
    /// down and the paths that came up again.
    pub(super) fn follow(
        &mut self,
        ways: &[Way],
        grouped: bool,
        subscriber: &mut Subscriber,
        world: &mut dyn World,
    ) -> (Vec<PathId>, Vec<PathId>) {
        let (mut down, mut up) = (Vec::new(), Vec::new());
        for link in &mut self.links {
            let Some(known) = &link.way else { continue };
            let way = ways.iter().find(|way| way.is_same(known));
            if let Some(way) = way {
                // The route has the same links, perhaps with identifiers of another epoch.
                link.lead(way.clone());
            }
            match (way, link.socket) {
                (None, Some(socket)) => {
                    world.close_udp(socket);
                    link.socket = None;
                    down.push(link.path);
                }
                (Some(_), None) => {
                    if let Ok(socket) = world.open_udp(&link.via, link.peer) {
                        link.opened(&socket);
                        up.push(link.path);
                    }
                }
                _ => {}
            }
            link.withdrawn = way.is_none();
            if let Some(way) = way.filter(|_| grouped) {
                subscriber.set_group(link.path, way.group);
            }
        }
        for way in ways {
            let is_known = |link: &UdpPath| link.way.as_ref().is_some_and(|known| known.is_same(way));
            if self.links.iter().any(is_known) || way.source >= self.sources.len() {
                continue;
            }
            let Ok(via) = Egress::parse(&way.from.to_string()) else { continue };
            let Ok(socket) = world.open_udp(&via, way.forwarder) else { continue };
            if let Some(link) = self.replaceable(way, &via) {
                link.way = Some(way.clone());
                link.withdrawn = false;
                link.opened(&socket);
                up.push(link.path);
                if grouped {
                    subscriber.set_group(link.path, way.group);
                }
                continue;
            }
            let through = Some((way, grouped));
            if !self.add(way.source, via, way.forwarder, &socket, through, subscriber, world) {
                break;
            }
        }
        (down, up)
    }

    /// Returns the path that a new route reuses, if there are enough paths. The path leads to the same source
    /// over the same line, so that its packets may be as long.
    fn replaceable(&mut self, way: &Way, via: &Egress) -> Option<&mut UdpPath> {
        if self.links.len() < OWN_PATHS_MAX {
            return None;
        }
        let fits = |link: &UdpPath| {
            link.withdrawn && link.source == way.source && link.peer == way.forwarder && link.via == *via
        };
        self.links.iter_mut().find(|link| fits(link))
    }
}

#[cfg(test)]
mod tests {
    use anabranch_algo::{Machine as _, Span};
    use anabranch_mmtp::subscriber::{Input, PATHS_MAX};

    use super::*;
    use crate::event::Observer;
    use crate::get::sockets::Sockets;
    use crate::{Control, Stop};

    /// Returns a route with the single link of this number.
    fn way(number: u32) -> Way {
        let header = |byte: u8| {
            let mut bytes = [0; 34];
            bytes[1] = byte;
            bytes[2..6].copy_from_slice(&number.to_le_bytes());
            Header::parse(&bytes).expect("a header").0
        };
        Way {
            source: 0,
            from: "127.0.0.1".parse().expect("an address"),
            forwarder: "127.0.0.1:7700".parse().expect("an address"),
            links: vec![LinkId(number)],
            forwarders: format!("r{number}"),
            group: number,
            there: frame::header(&header(5), 26_227),
            back: header(6),
        }
    }

    fn sockets() -> Sockets {
        let mut listener = |_| Control::Continue;
        let stop = Stop::new().expect("a stop");
        let mut observer = Observer::new(&mut listener, stop, Span::from_secs(1));
        Sockets::new(&Default::default(), &mut observer).expect("sockets")
    }

    fn paths_to_one_source(subscriber: &mut Subscriber) -> UdpPaths {
        let source = subscriber.add_source().expect("room");
        UdpPaths {
            links: Vec::new(),
            sources: vec![(source, "p1".into(), Vec::new())],
            via: Vec::new(),
            algorithm: Algorithm::by_name("nmcc").expect("a controller"),
            groups: GroupPolicy::All,
            limits: Limits::default(),
        }
    }

    #[test]
    fn a_network_that_changes_for_ever_does_not_run_out_of_paths() {
        let mut world = sockets();
        let mut subscriber = Subscriber::new(&[7; 32]);
        let mut paths = paths_to_one_source(&mut subscriber);
        let mut now = world.now();
        for number in 0..2 * PATHS_MAX as u32 {
            let ways = [way(number), way(number + 1)];
            let (down, up) = paths.follow(&ways, true, &mut subscriber, &mut world);
            now += Span::from_secs(1);
            down.into_iter().for_each(|path| subscriber.handle(now, Input::Down { path }));
            up.into_iter().for_each(|path| subscriber.handle(now, Input::Up { path }));
            while !matches!(subscriber.poll(now), anabranch_algo::Output::Wait(_)) {}
            let open: Vec<&UdpPath> = paths.links.iter().filter(|link| link.socket.is_some()).collect();
            assert_eq!(open.len(), 2, "{number}");
            for way in &ways {
                let link = open.iter().find(|link| link.way.as_ref() == Some(way)).expect("a path");
                let report = subscriber.paths().nth(link.path).expect("a report");
                assert_eq!((report.group, link.via()), (way.group, way.forwarders.clone()));
                assert!(!link.withdrawn && link.header[..38] != [0; 38] && link.state().is_none());
            }
        }
        assert_eq!(paths.links.len(), OWN_PATHS_MAX);
        // A route that comes back reuses its own path, as long as no other route has taken it.
        paths.follow(&[way(3)], true, &mut subscriber, &mut world);
        assert_eq!(paths.links.len(), OWN_PATHS_MAX);
    }

    #[test]
    fn a_way_with_new_identifiers_is_the_same_path() {
        let mut world = sockets();
        let mut subscriber = Subscriber::new(&[7; 32]);
        let mut paths = paths_to_one_source(&mut subscriber);
        let old = way(1);
        paths.follow(std::slice::from_ref(&old), true, &mut subscriber, &mut world);
        let before = paths.links[0].header.clone();
        let new = Way { there: way(9).there, back: way(9).back, ..old };
        let (down, up) = paths.follow(std::slice::from_ref(&new), true, &mut subscriber, &mut world);
        assert!(down.is_empty() && up.is_empty() && paths.links.len() == 1);
        let [link] = &paths.links[..] else { panic!("one path") };
        assert_eq!(link.header, new.header(link.port));
        assert!(link.header != before && link.port != 0 && link.socket.is_some());
    }
}
