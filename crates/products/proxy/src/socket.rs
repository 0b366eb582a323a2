//! Sockets for trunks: Multipath TCP (RFC 8684), or TCP where there is none, and why.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::time::Duration;

use anabranch_net::Egress;
use anabranch_net::mptcp_socket::{SubflowInfo, mptcp_socket_info};
use anabranch_net::netlink::MptcpInfo;
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::trunk::Transport;

/// Connections that may wait to be accepted: with 100, peers dropped SYNs at 1,000 clients at once, which
/// costs these a second or three. The kernel's `net.core.somaxconn` may be less.
const BACKLOG: i32 = 4_096;
/// Bytes in the kernel that are not sent yet, beyond which a socket does not ask for more
/// (`TCP_NOTSENT_LOWAT`). What is there cannot be overtaken by a more urgent stream: 64 KiB are 50 ms at
/// 10 Mbit/s. Less would be sent, at a gigabit, before the task wakes: the kernel asks again at half of it,
/// which lasts a quarter of a millisecond there.
const NOT_SENT_MAX: u32 = 64 * 1024;

/// A host that is gone without a word is noticed: it is asked after a minute of silence, then each quarter.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15));

/// How long nothing is accepted after accept(2) has failed, which it does when there are no descriptors left.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How trunk sockets are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// The congestion controller's name; `None`: the system's default. Subflows have the same.
    pub congestion: Option<String>,
    /// The interface or the local address that the first subflow has; other ones are the path manager's.
    pub egress: Egress,
}

/// A connection for a trunk.
#[derive(Debug)]
pub struct Connection {
    /// The connection.
    pub stream: TcpStream,
    /// What this end sees of it.
    pub transport: Transport,
}

/// Why this kernel gives no MPTCP sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoMptcp {
    /// `net.mptcp.enabled` is 0.
    Disabled,
    /// It is built without.
    Unknown,
}

impl fmt::Display for NoMptcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disabled => "MPTCP is switched off here (sysctl net.mptcp.enabled)",
            Self::Unknown => "this kernel has no MPTCP",
        })
    }
}

/// A socket; an MPTCP one if the kernel has them.
fn socket(address: SocketAddr, options: &SocketOptions) -> io::Result<(Socket, bool)> {
    let domain = Domain::for_address(address);
    let (socket, is_mptcp) = match Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP)) {
        Ok(socket) => (socket, true),
        Err(e) if lacks_mptcp(&e).is_some() => {
            (Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?, false)
        }
        Err(e) => return Err(e),
    };
    socket.set_nonblocking(true)?;
    if let Some(name) = &options.congestion {
        // An MPTCP socket without subflows takes any name, and has the default then: plain TCP tells.
        let trial = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        set_congestion(&trial, name)?;
        set_congestion(&socket, name)?;
    }
    Ok((socket, is_mptcp))
}

fn set_congestion(socket: &Socket, name: &str) -> io::Result<()> {
    socket.set_tcp_congestion(name.as_bytes()).map_err(|e| {
        let why = match Errno::from_raw(e.raw_os_error().unwrap_or(0)) {
            Errno::ENOENT => "the kernel has no such one",
            Errno::EPERM => "it is not allowed to this user (sysctl net.ipv4.tcp_allowed_congestion_control)",
            _ => return e,
        };
        io::Error::new(e.kind(), format!("the congestion controller `{name}`: {why}"))
    })
}

fn lacks_mptcp(error: &io::Error) -> Option<NoMptcp> {
    match Errno::from_raw(error.raw_os_error()?) {
        Errno::ENOPROTOOPT => Some(NoMptcp::Disabled),
        Errno::EPROTONOSUPPORT | Errno::EINVAL => Some(NoMptcp::Unknown),
        _ => None,
    }
}

/// What keeps this host from MPTCP, in words; `None` if it has it.
#[must_use]
pub fn missing_mptcp() -> Option<String> {
    let made = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP));
    made.err().and_then(|e| lacks_mptcp(&e)).map(|why| why.to_string())
}

/// Why a trunk has one path only, in words: which end or path refused. `own` is what this end sees, `peer`
/// what the other one says of its own. `None` if it is MPTCP.
#[must_use]
pub fn why_single_path(own: Transport, peer: Transport) -> Option<String> {
    match (own, peer) {
        (Transport::Mptcp, Transport::Mptcp) => None,
        (Transport::NoMptcp, _) => Some(missing_mptcp().unwrap_or_else(|| NoMptcp::Unknown.to_string())),
        (_, Transport::NoMptcp) => Some("the other end has no MPTCP".to_owned()),
        _ => Some("both ends have MPTCP, but something on the path takes it away".to_owned()),
    }
}

/// What the kernel would let its own tuning take for what came and was not read (`net.ipv4.tcp_rmem`, of the
/// network namespace).
const RECEIVE_LIMITS: &str = "/proc/sys/net/ipv4/tcp_rmem";
/// What any program may ask for.
const RECEIVE_ALLOWED: &str = "/proc/sys/net/core/rmem_max";

/// Has subflows that join later receive as much at once as the first ones came to by tuning.
///
/// The kernel tunes a connection's receive buffer by the most that it ever took in a round trip, and begins
/// each subflow with 128 KiB. Once the first subflows are gone nothing exceeds that most, so those that
/// joined stay as they began: a window of 80 kB for all (Linux 6.18). A fixed size is that of each subflow;
/// the largest that tuning may reach takes nothing away. It needs CAP_NET_ADMIN, or an administrator who lets
/// all have so much; else tuning goes on.
fn widen(stream: &TcpStream) -> Option<()> {
    let limits = fs::read_to_string(RECEIVE_LIMITS).ok()?;
    let most: usize = limits.split_whitespace().nth(2)?.parse().ok()?;
    // The kernel doubles what it is told.
    let size = most / 2;
    if setsockopt(stream, sockopt::RcvBufForce, &size).is_ok() {
        return Some(());
    }
    let allowed: usize = fs::read_to_string(RECEIVE_ALLOWED).ok()?.trim().parse().ok()?;
    // Less would be a limit for good.
    (allowed >= size).then(|| setsockopt(stream, sockopt::RcvBuf, &size).ok()).flatten()
}

/// Sets what every trunk has. No size of the send buffer: that would end its tuning, and with it the rate.
fn tune(stream: &TcpStream) -> io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    let _ = widen(stream);
    // An old kernel has no such option for MPTCP: then urgent bytes wait a little longer.
    let _ = socket.set_tcp_notsent_lowat(NOT_SENT_MAX);
    Ok(())
}

/// Connects to a server, by MPTCP if both ends and the path let it.
///
/// # Errors
/// There is no such controller, interface or local address; what connect(2) says.
pub async fn connect(server: SocketAddr, options: &SocketOptions) -> io::Result<Connection> {
    let (socket, is_mptcp) = socket(server, options)?;
    let server = match options.egress == Egress::any() {
        true => server,
        false => options.egress.bind(&socket, server)?,
    };
    let stream = TcpSocket::from_std_stream(socket.into()).connect(server).await?;
    tune(&stream)?;
    let transport = transport(&stream, is_mptcp);
    Ok(Connection { stream, transport })
}

fn transport(stream: &TcpStream, is_mptcp: bool) -> Transport {
    match mptcp_socket_info(stream.as_fd()) {
        Ok(Some(_)) => Transport::Mptcp,
        _ if is_mptcp => Transport::Tcp,
        _ => Transport::NoMptcp,
    }
}

/// How an MPTCP connection fares, and each of its subflows: round-trip times, rates, bytes, losses. `None`
/// if it is plain TCP.
///
/// # Errors
/// The socket is gone.
pub fn subflows(stream: &TcpStream) -> io::Result<Option<(MptcpInfo, Vec<SubflowInfo>)>> {
    mptcp_socket_info(stream.as_fd())
}

/// Sets up a connection of a program or to an origin, or a listener, whose connections have what it has:
/// small pieces leave at once, and a host that is gone is noticed.
///
/// # Errors
/// What setsockopt(2) says.
pub(crate) fn set_up_leg(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&KEEPALIVE)
}

/// Listens for programs, by plain TCP.
///
/// # Errors
/// What bind(2) says.
pub fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    set_up_leg(&socket)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Takes the connections of clients.
///
/// It is bound to the wildcard: a listener that is bound to one address takes no further subflow to another
/// one that the kernel announces (Linux 6.18). If one address was asked for, connections that begin at
/// another are closed; further subflows of those that began rightly may use all.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    only: Option<IpAddr>,
    is_mptcp: bool,
}

impl Listener {
    /// Listens at an address.
    ///
    /// # Errors
    /// There is no such controller; what bind(2) says: the port may be in use at another address of the host
    /// too; `AddrNotAvailable` if the host does not have the address.
    pub fn bind(address: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let only = Some(address.ip()).filter(|ip| !ip.is_unspecified());
        if only.is_some() {
            // It would be bound in vain, without an error.
            let trial = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
            trial.bind(&SocketAddr::new(address.ip(), 0).into())?;
        }
        let wildcard: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let (socket, is_mptcp) = socket(address, options)?;
        if address.is_ipv6() {
            // The wildcard itself means both families.
            socket.set_only_v6(only.is_some())?;
        }
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::new(wildcard, address.port()).into())?;
        socket.listen(BACKLOG)?;
        Ok(Self { listener: TcpListener::from_std(socket.into())?, only, is_mptcp })
    }

    /// The address that it takes connections at.
    ///
    /// # Errors
    /// What getsockname(2) says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let bound = self.listener.local_addr()?;
        Ok(self.only.map_or(bound, |ip| SocketAddr::new(ip, bound.port())))
    }

    /// The next connection, and who it is from.
    ///
    /// # Errors
    /// What accept(2) says: with `EMFILE` and its like, wait a moment before the next call.
    pub async fn accept(&self) -> io::Result<(Connection, SocketAddr)> {
        loop {
            let (stream, peer) = self.listener.accept().await?;
            let local = stream.local_addr().map(|address| address.ip().to_canonical());
            if self.only.is_some_and(|ip| !local.as_ref().is_ok_and(|local| *local == ip.to_canonical())) {
                continue;
            }
            // One that is gone already fails at its first use.
            let _ = tune(&stream);
            let transport = transport(&stream, self.is_mptcp);
            return Ok((Connection { stream, transport }, peer));
        }
    }
}
