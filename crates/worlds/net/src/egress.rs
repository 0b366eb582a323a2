//! Binds sockets to the interface and the local address that a subflow must use.
//!
//! An [`Egress`] that the user named is honoured or refused, never ignored. It promises:
//! * an interface (`eth0`): every packet leaves by this interface and only packets that arrive on it are
//!   received, by `SO_BINDTODEVICE`. If that is not permitted (Linux before 5.7 without `CAP_NET_RAW`, some
//!   sandboxes), an address of the interface is bound instead. The routing tables must then send packets from
//!   that address out of the interface; otherwise the egress is refused.
//! * an address (`192.0.2.7`): packets carry it as their source. The interface that owns the address is also
//!   used if a route leads through it. A host with several providers needs this, because its routing table
//!   alone would send everything to one of them.
//! * both (`fe80::1%eth0`): the interface and the address.
//!
//! The route must exist in the routing tables: for a socket that is bound to a device, IPv4 invents a route
//! otherwise (see `route_lookup`). A host reaches its own addresses over loopback, so another interface is
//! refused for them.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use socket2::{Domain, Protocol, Socket, Type};

use crate::interface::{Interface, interfaces, inventory, is_link_local};
use crate::route_lookup::{lookup, lookup_through};

/// Says where packets leave this host: by an interface, from a local address, both, or as the kernel picks.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Egress {
    device: Option<String>,
    address: Option<IpAddr>,
}

/// Says how a socket towards one peer is bound to keep the promise of an [`Egress`].
#[derive(Default)]
struct Binding {
    device: Option<(String, u32)>,
    /// Whether the device was promised; otherwise it is only the better choice.
    strict: bool,
    address: Option<IpAddr>,
}

impl Egress {
    /// Returns an egress without a promise: the kernel picks the route and the address.
    #[must_use]
    pub const fn any() -> Self {
        Self { device: None, address: None }
    }

    /// Parses `eth0`, `192.0.2.7`, `2001:db8::7` or `fe80::1%eth0`, and checks that the host has the
    /// interface and the address.
    ///
    /// # Errors
    /// `NotFound` if the host has no such interface or address, with a message that lists the existing ones;
    /// `NetworkDown` if the interface is down; `InvalidInput` if the text before `%` is no address.
    pub fn parse(text: &str) -> io::Result<Self> {
        let all = interfaces()?;
        let (address, device) = match text.split_once('%') {
            Some((address, device)) => {
                let address = address.parse::<IpAddr>().map_err(|_| {
                    io::Error::new(
                        io::ErrorKind::InvalidInput,
                        format!("`{address}` in `{text}` is no address"),
                    )
                })?;
                (Some(address), Some(device))
            }
            None => match text.parse() {
                Ok(address) => (Some(address), None),
                Err(_) => (None, Some(text)),
            },
        };
        if let Some(device) = device {
            interface_named(&all, device, address)?;
        } else if let Some(address) = address
            && !all.iter().any(|i| i.addresses.contains(&address))
            // All of 127.0.0.0/8 is local, and so may be other prefixes that no interface lists.
            && !lookup(address, None, None).is_ok_and(|route| route.local)
        {
            return Err(not_found(&all, text));
        }
        Ok(Self { device: device.map(str::to_owned), address })
    }

    /// Returns the egress by the interface `name`. Binding a socket checks that the host has it.
    #[must_use]
    pub fn of_device(name: impl Into<String>) -> Self {
        Self { device: Some(name.into()), address: None }
    }

    /// Returns the egress from the local address `address`. Binding a socket checks that the host has it.
    #[must_use]
    pub const fn of_address(address: IpAddr) -> Self {
        Self { device: None, address: Some(address) }
    }

    /// Returns the name of the interface, if one is promised.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Returns the local address, if one is promised.
    #[must_use]
    pub const fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Returns whether an unbound socket keeps the promise, if the kernel gave it the address `own` towards
    /// `peer`: it sends from the promised address and, by the routing tables, out of the promised interface.
    /// Packets may still arrive by another interface.
    #[must_use]
    pub fn is_kept_by(&self, own: IpAddr, peer: IpAddr) -> bool {
        let leads = |device: &String| {
            let all = interfaces().unwrap_or_default();
            interface_named(&all, device, None).is_ok_and(|interface| is_routed(own, peer, interface.index))
        };
        self.address.is_none_or(|address| address == own) && self.device.as_ref().is_none_or(leads)
    }

    /// Opens a UDP socket that keeps the promise, connected to `peer`.
    pub(crate) fn udp_socket(&self, peer: SocketAddr) -> io::Result<Socket> {
        let (socket, peer) = self.bound_socket(peer, Type::DGRAM, Protocol::UDP)?;
        socket
            .connect(&peer.into())
            .map_err(|e| io::Error::new(e.kind(), format!("{} via {self}: {e}", peer.ip())))?;
        Ok(socket)
    }

    /// Opens a TCP socket that keeps the promise towards `peer`: bound, non-blocking, not yet connected.
    /// Returns it with the address to connect it to: `peer`, with the interface's zone if it needs one.
    ///
    /// # Errors
    /// `InvalidInput` if no host can have the address `peer`, or if its family is not that of the promised
    /// address. Otherwise the reason why the promise cannot be kept, such as an interface that is gone or has
    /// no route.
    pub fn tcp_socket(&self, peer: SocketAddr) -> io::Result<(Socket, SocketAddr)> {
        let (socket, peer) = self.bound_socket(peer, Type::STREAM, Protocol::TCP)?;
        socket.set_nonblocking(true)?;
        Ok((socket, peer))
    }

    /// Opens a socket that keeps the promise. Returns it with `peer`, which has the interface's zone if it
    /// needs one.
    fn bound_socket(
        &self,
        peer: SocketAddr,
        kind: Type,
        protocol: Protocol,
    ) -> io::Result<(Socket, SocketAddr)> {
        let socket = Socket::new(Domain::for_address(peer), kind, Some(protocol))?;
        if peer.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        let peer = self.bind(&socket, peer)?;
        Ok((socket, peer))
    }

    /// Binds a new socket of the family of `peer` so that it keeps the promise towards `peer`. Returns the
    /// address to connect it to: `peer`, with the interface's zone if it needs one. For an MPTCP socket, the
    /// promise holds for the first subflow.
    ///
    /// # Errors
    /// The errors of [`tcp_socket`](Self::tcp_socket).
    pub fn bind(&self, socket: &Socket, peer: SocketAddr) -> io::Result<SocketAddr> {
        let to = peer.ip();
        let refuse = |kind, why: &str| Err(io::Error::new(kind, format!("{to} via {self}: {why}")));
        if peer.port() == 0 || to.is_unspecified() || to.is_multicast() {
            return refuse(io::ErrorKind::InvalidInput, "not an address that a host can have");
        }
        if self.address.is_some_and(|address| address.is_ipv4() != to.is_ipv4()) {
            return refuse(io::ErrorKind::InvalidInput, "one is IPv4, the other IPv6");
        }
        let binding = self.binding(peer)?;
        let index = binding.device.as_ref().map_or(0, |(_, index)| *index);
        let scoped = |ip: IpAddr, port: u16, scope: u32| match ip {
            IpAddr::V6(ip) if is_link_local(ip.into()) => SocketAddrV6::new(ip, port, 0, scope).into(),
            ip => SocketAddr::new(ip, port),
        };
        let peer = match peer {
            SocketAddr::V6(v6) if v6.scope_id() == 0 => scoped(to, peer.port(), index),
            peer => peer,
        };

        let mut address = binding.address;
        if let Some((name, index)) = &binding.device {
            match bind_device(socket, name) {
                Ok(()) => {}
                Err(e)
                    if !matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) =>
                {
                    return refuse(e.kind(), &format!("binding to interface {name}: {e}"));
                }
                Err(_) if !binding.strict => {}
                Err(e) => match fallback_address(*index, address, to)? {
                    Some(other) => address = Some(other),
                    None => {
                        let why =
                            format!("binding to interface {name}: {e}, and its addresses route elsewhere");
                        return refuse(io::ErrorKind::PermissionDenied, &why);
                    }
                },
            }
        }
        if let Some(address) = address {
            let scope = if let SocketAddr::V6(v6) = peer { v6.scope_id() } else { 0 };
            if let Err(e) = socket.bind(&scoped(address, 0, if index == 0 { scope } else { index }).into()) {
                return refuse(e.kind(), &format!("binding to {address}: {e}"));
            }
        }
        Ok(peer)
    }

    fn binding(&self, peer: SocketAddr) -> io::Result<Binding> {
        let to = peer.ip();
        if self.device.is_none() && self.address.is_none() {
            return Ok(Binding::default());
        }
        let refuse = |kind, why: String| Err(io::Error::new(kind, format!("{to} via {self}: {why}")));
        let all = interfaces()?;
        let scope =
            if let SocketAddr::V6(v6) = peer { Some(v6.scope_id()).filter(|&s| s != 0) } else { None };
        let here = lookup(to, None, scope).is_ok_and(|route| route.local);
        if let Some(name) = &self.device {
            let interface = interface_named(&all, name, self.address)?;
            if here && !interface.loopback {
                let why = format!("that is this host, which is reached over loopback and not over {name}");
                return refuse(io::ErrorKind::NetworkUnreachable, why);
            }
            if here {
                return Ok(Binding { address: self.address, ..Binding::default() });
            }
            if interface.loopback {
                return refuse(io::ErrorKind::NetworkUnreachable, format!("{name} reaches only this host"));
            }
            if scope.is_some_and(|scope| scope != interface.index) {
                return refuse(io::ErrorKind::InvalidInput, format!("the peer's zone is not {name}"));
            }
            if let Err(e) = lookup_through(to, self.address, interface.index) {
                return refuse(e.kind(), format!("no route through {name}: {e}"));
            }
            let device = Some((name.clone(), interface.index));
            return Ok(Binding { device, strict: true, address: self.address });
        }
        let address = self.address;
        if here {
            return Ok(Binding { address, ..Binding::default() });
        }
        if address.is_some_and(|address| address.is_loopback()) {
            return refuse(
                io::ErrorKind::NetworkUnreachable,
                "a loopback address reaches only this host".to_owned(),
            );
        }
        let owner = all.iter().find(|i| {
            !i.loopback
                && address.is_some_and(|address| i.addresses.contains(&address))
                && scope.is_none_or(|scope| scope == i.index)
                && lookup_through(to, address, i.index).is_ok()
        });
        if let Some(owner) = owner {
            return Ok(Binding { device: Some((owner.name.clone(), owner.index)), strict: false, address });
        }
        match lookup(to, address, scope) {
            Ok(_) => Ok(Binding { address, ..Binding::default() }),
            Err(e) => refuse(e.kind(), format!("no route: {e}")),
        }
    }
}

impl fmt::Display for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.address, &self.device) {
            (Some(address), Some(device)) => write!(f, "{address}%{device}"),
            (Some(address), None) => write!(f, "{address}"),
            (None, Some(device)) => f.write_str(device),
            (None, None) => f.write_str("any"),
        }
    }
}

/// Returns the egresses towards `peer` that each deserve a subflow, if the user named none.
///
/// * If `peer` is this host: the one address that the kernel would use.
/// * Otherwise each interface that is up, is not loopback and has a route to the peer, with its address: for
///   IPv4 every address of the interface; for IPv6 the one that the kernel prefers towards this peer (RFC
///   6724), since an interface commonly has several (stable, temporary, deprecated, unique local) that all
///   mean the same path.
/// * Each interface without such an address through which a route to the peer leads (*unnumbered*: the
///   address is on loopback, say), with the address that the kernel picks.
/// * Link-local addresses only towards a link-local peer.
///
/// Each candidate is tried with a socket that is bound, connected and closed again; connecting UDP sends
/// nothing. If no candidate works, the list is empty.
///
/// # Errors
/// If the interfaces cannot be read.
pub fn usable_egresses(peer: IpAddr) -> io::Result<Vec<Egress>> {
    let peer = peer.to_canonical();
    if let Ok(route) = lookup(peer, None, None)
        && route.local
    {
        return Ok(vec![Egress { device: None, address: Some(route.source.unwrap_or(peer)) }]);
    }
    let mut egresses = Vec::new();
    for interface in interfaces()?.into_iter().filter(|i| i.up && !i.loopback) {
        let route = lookup_through(peer, None, interface.index).ok();
        let preferred = route.and_then(|route| route.source).filter(|_| peer.is_ipv6());
        for &address in &interface.addresses {
            let fits = address.is_ipv4() == peer.is_ipv4()
                && (address.is_ipv4() || preferred.is_none_or(|preferred| preferred == address))
                && is_link_local(address) == is_link_local(peer);
            let egress = Egress { device: Some(interface.name.clone()), address: Some(address) };
            // Port 9 is "discard"; no packet goes there.
            if fits && egress.udp_socket(SocketAddr::new(peer, 9)).is_ok() {
                egresses.push(egress);
            }
        }
        let family = |address: &IpAddr| address.is_ipv4() == peer.is_ipv4() && !is_link_local(*address);
        let unnumbered = Egress { device: Some(interface.name.clone()), address: None };
        if route.is_some()
            && !is_link_local(peer)
            && !interface.addresses.iter().any(family)
            && unnumbered.udp_socket(SocketAddr::new(peer, 9)).is_ok()
        {
            egresses.push(unnumbered);
        }
    }
    Ok(egresses)
}

/// Returns the [`usable_egresses`] towards `peer` without the one that the kernel uses for a socket that is
/// not bound.
///
/// # Errors
/// If the interfaces cannot be read.
pub fn other_egresses(peer: IpAddr) -> io::Result<Vec<Egress>> {
    let own = lookup(peer.to_canonical(), None, None).ok().and_then(|route| route.source);
    let mut all = usable_egresses(peer)?;
    all.retain(|egress| egress.address.is_none() || egress.address != own);
    Ok(all)
}

/// Returns the interface called `name`, if it exists, is up and has `address`, where one is given.
fn interface_named<'a>(
    all: &'a [Interface],
    name: &str,
    address: Option<IpAddr>,
) -> io::Result<&'a Interface> {
    let interface = all.iter().find(|i| i.name == name).ok_or_else(|| not_found(all, name))?;
    if !interface.up {
        return Err(io::Error::new(io::ErrorKind::NetworkDown, format!("interface {name} is down")));
    }
    match address {
        Some(address) if !interface.addresses.contains(&address) => {
            Err(not_found(all, &format!("{address}%{name}")))
        }
        _ => Ok(interface),
    }
}

fn not_found(all: &[Interface], what: &str) -> io::Error {
    let there = inventory(all);
    let text = format!("this host has no interface or address `{what}`; it has: {there}");
    io::Error::new(io::ErrorKind::NotFound, text)
}

/// Returns an address of the interface `index` (only `wanted`, if that is given) from which the routing
/// tables reach `to` by that interface, although no socket is bound to it.
fn fallback_address(index: u32, wanted: Option<IpAddr>, to: IpAddr) -> io::Result<Option<IpAddr>> {
    let all = interfaces()?;
    let own = all.iter().filter(|i| i.index == index).flat_map(|i| i.addresses.iter().copied());
    let mut candidates =
        own.filter(|&a| a.is_ipv4() == to.is_ipv4() && wanted.is_none_or(|wanted| wanted == a));
    Ok(candidates.find(|&address| is_routed(address, to, index)))
}

/// Returns whether the routing tables send packets from `from` to `to` out of the interface `index`, although
/// no socket is bound to it.
fn is_routed(from: IpAddr, to: IpAddr, index: u32) -> bool {
    lookup(to, Some(from), None).is_ok_and(|route| route.device == Some(index))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn bind_device(socket: &Socket, name: &str) -> io::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt::BindToDevice};
    Ok(setsockopt(socket, BindToDevice, &name.into())?)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn bind_device(_socket: &Socket, _name: &str) -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_refused_with_what_there_is() {
        for text in ["nope0", "198.51.100.77", "127.0.0.1%nope0", "2001:db8::77"] {
            let error = Egress::parse(text).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{text}");
            let message = error.to_string();
            assert!(message.contains(text.split_once('%').map_or(text, |(_, device)| device)), "{message}");
            assert!(message.contains("127.0.0.1"), "lists what exists: {message}");
        }
        assert_eq!(Egress::parse("x%lo").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn text_survives() {
        for text in ["lo", "127.0.0.1", "127.0.0.9", "127.0.0.1%lo"] {
            assert_eq!(Egress::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Egress::any().to_string(), "any");
    }

    #[test]
    fn loopback_reaches_loopback_only() {
        assert_eq!(
            usable_egresses("127.0.0.1".parse().unwrap()).unwrap(),
            [Egress { device: None, address: "127.0.0.1".parse().ok() }]
        );
        let far: SocketAddr = "192.0.2.200:9".parse().unwrap();
        for text in ["lo", "127.0.0.1"] {
            let error = Egress::parse(text).unwrap().udp_socket(far).unwrap_err();
            assert!(error.to_string().contains("reach"), "{error}");
        }
        let egress = Egress::parse("lo").unwrap();
        assert!(egress.udp_socket("127.0.0.1:9".parse().unwrap()).is_ok());
        for interface in interfaces().unwrap().iter().filter(|i| i.up && !i.loopback) {
            let egress = Egress::parse(&interface.name).unwrap();
            let error = egress.udp_socket("127.0.0.1:9".parse().unwrap()).unwrap_err();
            assert!(error.to_string().contains("this host"), "{error}");
        }
    }

    #[test]
    fn tcp_sockets_keep_the_promise_too() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let egress = Egress::parse("127.0.0.9").unwrap();
        let (socket, peer) = egress.tcp_socket(listener.local_addr().unwrap()).unwrap();
        // The socket is not connected: the caller connects it and must not be blocked meanwhile.
        assert!(socket.peer_addr().is_err());
        socket.set_nonblocking(false).unwrap();
        socket.connect(&peer.into()).unwrap();
        assert_eq!(listener.accept().unwrap().1.ip(), egress.address().unwrap());
        assert!(egress.tcp_socket("192.0.2.200:80".parse().unwrap()).is_err());
    }

    #[test]
    fn mixed_families_and_impossible_peers_are_refused() {
        let egress = Egress::parse("127.0.0.1").unwrap();
        for peer in ["[::1]:9", "0.0.0.0:9", "127.0.0.1:0", "224.0.0.1:9"] {
            assert_eq!(
                egress.udp_socket(peer.parse().unwrap()).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{peer}"
            );
        }
    }

    /// If binding to a device is forbidden, an address stands in for its interface only if routes lead there.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_fallback_address_is_used_only_where_it_routes() {
        let test = || {
            if let Err(e) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
                crate::testing::refused(format!("no network namespace of our own ({e}); run as root"));
                return;
            }
            let ip = |text: &str| {
                let done = std::process::Command::new("ip").args(text.split(' ')).status().expect("iproute2");
                assert!(done.success(), "ip {text}");
            };
            for n in [1, 2] {
                ip(&format!("link add d{n} type veth peer name e{n}"));
                ip(&format!("addr add 10.77.{n}.1/24 dev d{n}"));
                ip(&format!("link set d{n} up"));
                ip(&format!("link set e{n} up"));
            }
            ip("route add default via 10.77.1.2");
            // The kernel reports a moment later that the other end of a cable is on.
            let up = |all: &[Interface]| all.iter().filter(|i| i.up && i.name.starts_with('d')).count() == 2;
            let looks = std::iter::repeat_with(|| interfaces().unwrap()).take(1_000);
            let all = looks
                .inspect(|_| std::thread::sleep(std::time::Duration::from_millis(5)))
                .find(|all| up(all))
                .expect("the interfaces come up");
            let index = |name: &str| interface_named(&all, name, None).unwrap().index;
            let far = "198.51.100.9".parse().unwrap();
            assert_eq!(fallback_address(index("d1"), None, far).unwrap(), "10.77.1.1".parse().ok());
            assert_eq!(fallback_address(index("d2"), None, far).unwrap(), None);
            assert_eq!(
                fallback_address(index("d2"), None, "10.77.2.9".parse().unwrap()).unwrap(),
                "10.77.2.1".parse().ok()
            );
            ip("rule add from 10.77.2.1 table 7");
            ip("route add default via 10.77.2.2 table 7");
            assert_eq!(fallback_address(index("d2"), None, far).unwrap(), "10.77.2.1".parse().ok());
            assert_eq!(fallback_address(index("d2"), "10.77.1.1".parse().ok(), far).unwrap(), None);
        };
        std::thread::spawn(test).join().unwrap();
    }
}
