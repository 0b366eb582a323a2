//! Connections to origins: looks names up, tries addresses by Happy Eyeballs (RFC 8305), uses TCP Fast Open
//! (RFC 7413).
//!
//! The [policy](crate::policy) judges each address of a name. The allowed addresses are tried in turn, IPv4
//! and IPv6 alternating. The next attempt starts 250 ms after the one before, or as soon as that one fails.
//! The first connection wins; the others are dropped.
//!
//! **Fast Open.** The first address gets the first bytes in its SYN, if it has given a cookie before. A SYN
//! may arrive twice, and after a slow address another one may get the bytes again. So only bytes that may
//! safely arrive twice are sent there: see [`can_be_repeated`]. If the origin or a middlebox does not take
//! data in a SYN, the kernel sends the bytes again once the connection is established.
//!
//! **Spare connections.** An origin that gets many requests has up to two connections that are already
//! established; see `spares`.

mod spares;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use anabranch_algo::Span;
use anabranch_http::happy_eyeballs::race;
use anabranch_net::mptcp_socket::tcp_socket_info;
use anabranch_net::{Clock, Resolver};
use bytes::Bytes;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::descriptors::{self, Descriptors};
use crate::policy::Policy;
use crate::socket::set_up_leg;
use crate::trunk::{Destination, Host, Reason};
use spares::Spares;

/// The most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;
/// The flag `MSG_FASTOPEN` of Linux: connects, with the bytes in the SYN if there is a cookie.
const MSG_FASTOPEN: i32 = 0x2000_0000;

/// The settings of connections to origins.
#[derive(Clone, Debug)]
pub struct Options {
    /// The longest time that the lookup of the name and the connection may take together.
    pub connect_timeout: Duration,
    /// Whether TCP Fast Open is used.
    pub is_fast_open: bool,
    /// The most spare connections to all busy origins together. With 0 there are none.
    pub spares: usize,
    /// The connection time from which an origin gets spare connections. Faster origins get none.
    pub spares_from: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            is_fast_open: true,
            spares: 64,
            spares_from: Duration::from_millis(2),
        }
    }
}

/// A connection to an origin.
#[derive(Debug)]
pub struct Connected {
    /// The connection. Nagle's algorithm is off.
    pub stream: TcpStream,
    /// The origin's address.
    pub peer: SocketAddr,
    /// The number of first bytes that have already been sent.
    pub sent: usize,
}

impl Connected {
    /// Returns the smoothed round-trip time to the origin, if the kernel knows it.
    #[must_use]
    pub fn rtt(&self) -> Option<Span> {
        let info = tcp_socket_info(self.stream.as_fd()).ok()?;
        (info.rtt_us > 0).then(|| Span::from_micros(info.rtt_us.into()))
    }
}

/// The reason why there is no connection.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{why}")]
pub struct Failed {
    /// The reason that the program is told.
    pub reason: Reason,
    /// The description for the operator of the server.
    pub why: String,
}

impl Failed {
    fn new(reason: Reason, why: impl Into<String>) -> Self {
        Self { reason, why: why.into() }
    }
}

/// Makes connections to origins. Clones share the cache of names and the spare connections.
#[derive(Clone, Debug)]
pub struct Connector {
    resolver: Resolver,
    policy: Arc<Policy>,
    options: Options,
    spares: Spares,
    descriptors: Descriptors,
}

impl Connector {
    /// Creates a connector with this resolver. A server that runs for days should use a
    /// [bounded](Resolver::bounded) one.
    #[must_use]
    pub fn new(resolver: Resolver, policy: Policy, options: Options) -> Self {
        let (policy, descriptors) = (Arc::new(policy), Descriptors::of_process());
        Self { resolver, policy, options, spares: Spares::default(), descriptors }
    }

    /// Returns a connector with other settings that shares the resolver and the spare connections. The policy
    /// is checked again whenever a spare connection is taken.
    #[must_use]
    pub fn with(&self, policy: Policy, options: Options) -> Self {
        Self { policy: Arc::new(policy), options, ..self.clone() }
    }

    /// Returns a connector for one client, whose lookups take turns with those of other clients.
    #[must_use]
    pub fn of(&self, client: &str) -> Self {
        Self { resolver: self.resolver.of(client), ..self.clone() }
    }

    /// Connects to `destination`, and sends as much of `first` as Fast Open allows.
    ///
    /// # Errors
    /// If no address can be connected to. With several addresses, the error is that of the attempt that came
    /// nearest to the origin.
    pub async fn connect(&self, destination: &Destination, first: &Bytes) -> Result<Connected, Failed> {
        let connected = timeout(self.options.connect_timeout, self.resolve_and_race(destination, first));
        let late = || Failed::new(Reason::HostUnreachable, "it did not answer in time");
        connected.await.unwrap_or_else(|_| Err(late()))
    }

    /// Connects as [`connect`](Self::connect) does. With `is_measured` without Fast Open, so that
    /// [`Connected::rtt`] is known.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_measured(
        &self,
        destination: &Destination,
        first: &Bytes,
        is_measured: bool,
    ) -> Result<Connected, Failed> {
        if !is_measured {
            return self.connect(destination, first).await;
        }
        let options = Options { is_fast_open: false, ..self.options.clone() };
        Self { options, ..self.clone() }.connect(destination, first).await
    }

    /// Checks that a further socket may be made; `made` is the latest one.
    ///
    /// # Errors
    /// If too few descriptors are left.
    pub(crate) fn check_descriptors(&self, made: &impl AsRawFd) -> io::Result<()> {
        Ok(self.descriptors.check(made)?)
    }

    /// Returns the addresses of a destination that the policy allows, at least one, the best first.
    ///
    /// # Errors
    /// If the name has no address, or the policy allows none of them.
    pub async fn addresses(&self, destination: &Destination) -> Result<Vec<SocketAddr>, Failed> {
        let found = match destination.host() {
            Host::Ip(ip) => vec![SocketAddr::new(*ip, 0)],
            Host::Name(name) => self.resolver.resolve(name).await.map_err(|e| {
                let is_full = e.kind() == io::ErrorKind::WouldBlock;
                Failed::new(if is_full { Reason::Busy } else { Reason::Name }, e.to_string())
            })?,
        };
        if found.is_empty() {
            return Err(Failed::new(Reason::Name, "the name has no address"));
        }
        let mut addresses = in_turn(found.into_iter().map(|a| SocketAddr::new(a.ip(), destination.port())));
        addresses.retain(|address| self.policy.allows(*address));
        if addresses.is_empty() {
            return Err(Failed::new(Reason::Denied, "the policy does not allow it"));
        }
        addresses.truncate(ADDRESSES_MAX);
        Ok(addresses)
    }

    async fn resolve_and_race(&self, destination: &Destination, first: &Bytes) -> Result<Connected, Failed> {
        let addresses = self.addresses(destination).await?;
        let is_repeatable = can_be_repeated(first);
        if is_repeatable && let Some(connected) = self.spare(addresses[0], first).await {
            return Ok(connected);
        }
        let is_sent = self.options.is_fast_open && is_repeatable;
        let clock = Clock::start();
        let sent = if is_sent { first.clone() } else { Bytes::new() };
        let raced = connect_any(addresses, sent, self.descriptors).await;
        if let Ok(connected) = &raced {
            let took = Duration::from_nanos(clock.now().as_nanos());
            // A connection with bytes in its SYN took no extra time, and needs no spare one.
            if is_repeatable && connected.sent == 0 && took >= self.options.spares_from {
                self.note(connected.peer);
            }
        }
        if raced.is_err()
            && let Host::Name(name) = destination.host()
        {
            self.resolver.distrust(name);
        }
        raced
    }

    /// Takes a spare connection to this address and sends the first bytes on it.
    async fn spare(&self, address: SocketAddr, first: &Bytes) -> Option<Connected> {
        let stream = self.spares.take(address, first).await?;
        self.note(address);
        Some(Connected { stream, peer: address, sent: first.len() })
    }

    /// Counts a connection to an address that is worth a spare connection.
    fn note(&self, address: SocketAddr) {
        let descriptors = self.descriptors;
        let connecting =
            move || async move { connect(address, &[], descriptors).await.map(|connected| connected.stream) };
        self.spares.note(address, self.options.spares, connecting);
    }
}

/// Orders addresses so that the families alternate, beginning with the family of the first. Each family keeps
/// the order of the resolver (RFC 8305 section 4).
fn in_turn(addresses: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut seen: Vec<SocketAddr> = Vec::new();
    for address in addresses.map(|address| SocketAddr::new(address.ip().to_canonical(), address.port())) {
        // A resolver may return an address once for each type of socket.
        if !seen.contains(&address) {
            seen.push(address);
        }
    }
    let first_is_v6 = seen.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = seen.into_iter().partition(|a| a.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut all = Vec::new();
    loop {
        let two = [first.next(), second.next()];
        if two == [None, None] {
            return all;
        }
        all.extend(two.into_iter().flatten());
    }
}

/// Connects to the first of these addresses that answers.
async fn connect_any(
    addresses: Vec<SocketAddr>,
    first: Bytes,
    descriptors: Descriptors,
) -> Result<Connected, Failed> {
    // The bytes in the SYN go to one address only.
    let bytes = std::iter::once(first).chain(std::iter::repeat(Bytes::new()));
    let ways = addresses.into_iter().zip(bytes);
    let begin = |(address, first)| attempt(address, first, descriptors);
    let mut worst: Option<Failed> = None;
    let connected = race(ways, begin, |failed| match failed {
        Ok(failed) => {
            let is_worst = |worst: &Failed| telling(failed.reason) > telling(worst.reason);
            if worst.as_ref().is_none_or(is_worst) {
                worst = Some(failed);
            }
        }
        Err(e) if worst.is_none() => worst = Some(Failed::new(Reason::HostUnreachable, e.to_string())),
        Err(_) => {}
    });
    let connected = connected.await;
    connected
        .ok_or_else(|| worst.unwrap_or_else(|| Failed::new(Reason::HostUnreachable, "there is no address")))
}

/// Ranks a reason by how near to the origin an attempt failed. Of several failures, the one with the highest
/// rank is reported.
fn telling(reason: Reason) -> u8 {
    match reason {
        Reason::Busy => 5,
        Reason::Refused => 4,
        Reason::NoInterest => 3,
        Reason::HostUnreachable => 2,
        Reason::NetworkUnreachable => 1,
        _ => 0,
    }
}

async fn attempt(address: SocketAddr, first: Bytes, descriptors: Descriptors) -> Result<Connected, Failed> {
    let connected = connect(address, &first, descriptors).await;
    connected.map_err(|e| Failed::new(reason(&e), format!("{address}: {e}")))
}

async fn connect(address: SocketAddr, first: &[u8], descriptors: Descriptors) -> io::Result<Connected> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    descriptors.check(&socket)?;
    socket.set_nonblocking(true)?;
    set_up_leg(&socket)?;
    if !first.is_empty() {
        let sent = match socket.send_to_with_flags(first, &address.into(), MSG_FASTOPEN) {
            Ok(sent) => Some(sent),
            // There is no cookie: the kernel connects and asks for one.
            Err(e) if e.raw_os_error() == Some(nix::libc::EINPROGRESS) => Some(0),
            // Fast Open is switched off on this host.
            Err(e) if e.kind() == io::ErrorKind::Unsupported => None,
            Err(e) => return Err(e),
        };
        if let Some(sent) = sent {
            let stream = TcpStream::from_std(socket.into())?;
            stream.writable().await?;
            if let Some(e) = stream.take_error()? {
                return Err(e);
            }
            return Ok(Connected { peer: stream.peer_addr()?, stream, sent });
        }
    }
    let stream = TcpSocket::from_std_stream(socket.into()).connect(address).await?;
    Ok(Connected { stream, peer: address, sent: 0 })
}

/// Whether an origin may get these bytes twice without harm. That holds for the beginning of TLS, and for a
/// complete safe request (RFC 9110 section 9.2.1) with nothing after it.
#[must_use]
pub fn can_be_repeated(first: &[u8]) -> bool {
    // A handshake record may be repeated: its answer is useless without the rest of the handshake. TLS 1.3's
    // early data is sent only if the program accepts that it may be repeated (RFC 8446 section 8).
    let is_tls = first.starts_with(&[22, 3]);
    let is_safe = [b"GET ".as_slice(), b"HEAD ", b"OPTIONS "].iter().any(|method| first.starts_with(method));
    let end = first.windows(4).position(|four| four == b"\r\n\r\n");
    is_tls || is_safe && end.is_some_and(|end| end + 4 == first.len())
}

/// Returns the reason that a program is told for an error of the system.
#[must_use]
pub fn reason(error: &io::Error) -> Reason {
    use nix::libc;
    // These mean that descriptors, memory or local ports are exhausted.
    let exhausted =
        [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::EADDRNOTAVAIL, libc::EAGAIN];
    let is_exhausted = error.raw_os_error().is_some_and(|number| exhausted.contains(&number));
    if is_exhausted || descriptors::is_scarce(error) {
        return Reason::Busy;
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Reason::Refused,
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::NetworkDown => Reason::NetworkUnreachable,
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
            Reason::NoInterest
        }
        // A packet filter of this host refused the connection.
        io::ErrorKind::PermissionDenied => Reason::Denied,
        _ => Reason::HostUnreachable,
    }
}

#[cfg(test)]
mod tests;
