//! Connections to origins: names to addresses, Happy Eyeballs (RFC 8305), TCP Fast Open (RFC 7413).
//!
//! The addresses of a name are judged by the [policy](crate::policy), and those that remain are tried one
//! after the other, families in turn, each 250 ms after the one before or as soon as that one has failed. The
//! first that is connected wins; the others are dropped.
//!
//! **Fast Open.** The first address gets the first bytes in its SYN, if it has given a cookie before. A SYN
//! may arrive twice, and a slow address may get bytes that another one gets again. So only bytes go there
//! that do no harm then: see [`can_be_repeated`]. Where the origin or a box on the way takes no such SYN, the
//! kernel sends the bytes again when the connection is there.
//!
//! **Spare connections.** An origin that is asked often has up to two connections that are there already; see
//! `spares`.

mod spares;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use anabranch_http::happy_eyeballs::race;
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

/// Addresses of one name that are tried at most.
const ADDRESSES_MAX: usize = 16;
/// `MSG_FASTOPEN` of Linux: connects, with the bytes in the SYN if there is a cookie.
const MSG_FASTOPEN: i32 = 0x2000_0000;

/// How connections to origins are made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name and connection together may take so long.
    pub connect_timeout: Duration,
    /// Whether TCP Fast Open is used.
    pub is_fast_open: bool,
    /// Spare connections to origins that are asked often, of all origins together; 0: none.
    pub spares: usize,
    /// A connection that is made faster than this is not worth a spare one.
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
    /// The connection, without Nagle's delay.
    pub stream: TcpStream,
    /// Its far end.
    pub peer: SocketAddr,
    /// How many of the first bytes are under way already.
    pub sent: usize,
}

/// Why there is none.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{why}")]
pub struct Failed {
    /// What the program is told.
    pub reason: Reason,
    /// What whoever runs the server is told.
    pub why: String,
}

impl Failed {
    fn new(reason: Reason, why: impl Into<String>) -> Self {
        Self { reason, why: why.into() }
    }
}

/// Makes connections. Clones share the names that they know.
#[derive(Clone, Debug)]
pub struct Connector {
    resolver: Resolver,
    policy: Arc<Policy>,
    options: Options,
    spares: Spares,
    descriptors: Descriptors,
}

impl Connector {
    /// One that asks this resolver. For a server that runs for days that is a
    /// [bounded](Resolver::bounded) one.
    #[must_use]
    pub fn new(resolver: Resolver, policy: Policy, options: Options) -> Self {
        let (policy, descriptors) = (Arc::new(policy), Descriptors::of_process());
        Self { resolver, policy, options, spares: Spares::default(), descriptors }
    }

    /// One that has the same resolver, and the same spare connections: each is judged when it is taken.
    #[must_use]
    pub fn with(&self, policy: Policy, options: Options) -> Self {
        Self { policy: Arc::new(policy), options, ..self.clone() }
    }

    /// The same, for a client whose names take turns with those of the others.
    #[must_use]
    pub fn of(&self, client: &str) -> Self {
        Self { resolver: self.resolver.of(client), ..self.clone() }
    }

    /// A connection to `destination`, with as much of `first` under way as Fast Open allows.
    ///
    /// # Errors
    /// Why there is none; of several addresses what the most telling one says.
    pub async fn connect(&self, destination: &Destination, first: &Bytes) -> Result<Connected, Failed> {
        let connected = timeout(self.options.connect_timeout, self.resolve_and_race(destination, first));
        let late = || Failed::new(Reason::HostUnreachable, "it did not answer in time");
        connected.await.unwrap_or_else(|_| Err(late()))
    }

    /// Whether a further socket may be made; `made` is the latest.
    ///
    /// # Errors
    /// Too few descriptors are left.
    pub(crate) fn check_descriptors(&self, made: &impl AsRawFd) -> io::Result<()> {
        Ok(self.descriptors.check(made)?)
    }

    /// The addresses of a destination that the policy allows, at least one; the best first.
    ///
    /// # Errors
    /// Why there is none.
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
            // With bytes in the SYN it took no time, and needs none.
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

    /// A spare connection to this address, with the first bytes on their way.
    async fn spare(&self, address: SocketAddr, first: &Bytes) -> Option<Connected> {
        let stream = self.spares.take(address, first).await?;
        self.note(address);
        Some(Connected { stream, peer: address, sent: first.len() })
    }

    /// An address was connected to that is worth a spare connection.
    fn note(&self, address: SocketAddr) {
        let descriptors = self.descriptors;
        let connecting =
            move || async move { connect(address, &[], descriptors).await.map(|connected| connected.stream) };
        self.spares.note(address, self.options.spares, connecting);
    }
}

/// The families in turn, the first one first; each in the order that the resolver gave (RFC 8305 section 4).
fn in_turn(addresses: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut seen: Vec<SocketAddr> = Vec::new();
    for address in addresses.map(|address| SocketAddr::new(address.ip().to_canonical(), address.port())) {
        // A resolver may name one for each kind of socket.
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

/// The first connection to any of these.
async fn connect_any(
    addresses: Vec<SocketAddr>,
    first: Bytes,
    descriptors: Descriptors,
) -> Result<Connected, Failed> {
    // What is sent with the SYN goes to one address only.
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

/// Of several addresses the one with the highest number says what happened: that one is nearest to the
/// origin.
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
            // No cookie: the kernel connects, and asks for one.
            Err(e) if e.raw_os_error() == Some(nix::libc::EINPROGRESS) => Some(0),
            // Fast Open is switched off here.
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

/// Whether nothing happens that did not happen already if an origin gets these bytes twice: the beginning of
/// TLS, and a safe request (RFC 9110 section 9.2.1) that is alone.
#[must_use]
pub fn can_be_repeated(first: &[u8]) -> bool {
    // A record of the handshake: its answer is of no use without what follows. TLS 1.3's early data is there
    // only if the program allows that it is repeated (RFC 8446 section 8).
    let is_tls = first.starts_with(&[22, 3]);
    let is_safe = [b"GET ".as_slice(), b"HEAD ", b"OPTIONS "].iter().any(|method| first.starts_with(method));
    let end = first.windows(4).position(|four| four == b"\r\n\r\n");
    is_tls || is_safe && end.is_some_and(|end| end + 4 == first.len())
}

/// What a program is told about an error of the system.
#[must_use]
pub fn reason(error: &io::Error) -> Reason {
    use nix::libc;
    // Out of descriptors, of memory, of local ports.
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
        // A packet filter of this host.
        io::ErrorKind::PermissionDenied => Reason::Denied,
        _ => Reason::HostUnreachable,
    }
}

#[cfg(test)]
mod tests;
