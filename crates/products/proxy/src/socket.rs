//! Sockets for trunks: Multipath TCP (RFC 8684), or TCP without it, with the reason.

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

/// The most connections that may wait to be accepted. With 100, the kernel dropped SYNs when 1,000 clients
/// came at once, which delays a client by one to three seconds. The kernel's `net.core.somaxconn` may be
/// less.
const BACKLOG: i32 = 4_096;
/// The number of unsent bytes in the kernel above which a socket is not writable (`TCP_NOTSENT_LOWAT`). A
/// more urgent stream cannot overtake these bytes: 64 KiB take 50 ms at 10 Mbit/s. Fewer bytes would be sent
/// before the task wakes at a gigabit: the socket becomes writable at half of them, which last a quarter of a
/// millisecond there.
const NOT_SENT_MAX: u32 = 64 * 1024;

/// Detects a host that has vanished: the first keepalive is sent after a minute of silence, then one every 15
/// s.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15));

/// The pause after accept(2) has failed, which it does when no descriptors are left.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How trunks' sockets are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// The name of the congestion controller, also for subflows; `None` for the system's default.
    pub congestion: Option<String>,
    /// The interface or local address of the first subflow. The path manager chooses those of other subflows.
    pub egress: Egress,
}

/// A connection for a trunk.
#[derive(Debug)]
pub struct Connection {
    /// The connection.
    pub stream: TcpStream,
    /// The transport as this end sees it.
    pub transport: Transport,
}

/// The reason why this kernel gives no MPTCP sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoMptcp {
    /// `net.mptcp.enabled` is 0.
    Disabled,
    /// The kernel is built without MPTCP.
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

/// Makes a socket, with MPTCP if the kernel has it. The flag tells whether it is MPTCP.
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
        // An MPTCP socket without subflows accepts any name and then uses the default, so the name is tried
        // on plain TCP.
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

/// Returns why this host has no MPTCP, as a sentence for people, or `None` if it has it.
#[must_use]
pub fn missing_mptcp() -> Option<String> {
    let made = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP));
    made.err().and_then(|e| lacks_mptcp(&e)).map(|why| why.to_string())
}

/// Returns why a trunk has only one path, as a sentence that names the end or path that refused MPTCP. `own`
/// is the transport that this end sees, `peer` the one that the other end reports. Returns `None` if both see
/// MPTCP, of the kernel or in UDP.
#[must_use]
pub fn why_single_path(own: Transport, peer: Transport) -> Option<String> {
    match (own, peer) {
        (Transport::Mptcp, Transport::Mptcp) | (Transport::Udp, _) | (_, Transport::Udp) => None,
        (Transport::NoMptcp, _) => Some(missing_mptcp().unwrap_or_else(|| NoMptcp::Unknown.to_string())),
        (_, Transport::NoMptcp) => Some("the other end has no MPTCP".to_owned()),
        _ => Some("both ends have MPTCP, but something on the path takes it away".to_owned()),
    }
}

/// The file with the kernel's limits for the automatic size of receive buffers (`net.ipv4.tcp_rmem` of the
/// network namespace).
const RECEIVE_LIMITS: &str = "/proc/sys/net/ipv4/tcp_rmem";
/// The file with the largest receive buffer that any program may set.
const RECEIVE_ALLOWED: &str = "/proc/sys/net/core/rmem_max";

/// Lets later subflows receive as much at once as the kernel's tuning allows the first ones.
///
/// The kernel tunes a connection's receive buffer by the most that it ever received in a round trip, and each
/// subflow begins with 128 KiB. Once the first subflows are gone, nothing exceeds that most, so the joined
/// subflows keep a window of 80 kB together (Linux 6.18). A fixed size holds for each subflow, and the
/// largest size that tuning may reach does not reduce anything. This needs CAP_NET_ADMIN, or an administrator
/// who allows everyone this size; otherwise tuning goes on.
fn widen(stream: &TcpStream) -> Option<()> {
    let limits = fs::read_to_string(RECEIVE_LIMITS).ok()?;
    let most: usize = limits.split_whitespace().nth(2)?.parse().ok()?;
    // The kernel doubles the given size.
    let size = most / 2;
    if setsockopt(stream, sockopt::RcvBufForce, &size).is_ok() {
        return Some(());
    }
    let allowed: usize = fs::read_to_string(RECEIVE_ALLOWED).ok()?.trim().parse().ok()?;
    // A smaller fixed size would limit the connection for its whole life.
    (allowed >= size).then(|| setsockopt(stream, sockopt::RcvBuf, &size).ok()).flatten()
}

/// Sets the options of every trunk. The size of the send buffer is not set, because that would end its tuning
/// and limit the rate.
fn tune(stream: &TcpStream) -> io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    let _ = widen(stream);
    // An old kernel has no such option for MPTCP; urgent bytes then wait a little longer.
    let _ = socket.set_tcp_notsent_lowat(NOT_SENT_MAX);
    Ok(())
}

/// Connects to a server, by MPTCP if both ends and the path support it.
///
/// # Errors
/// If the congestion controller, the interface or the local address does not exist, or if connect(2) fails.
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

/// Returns the kernel's information about an MPTCP connection and each subflow: round-trip times, rates,
/// bytes and losses. Returns `None` for plain TCP.
///
/// # Errors
/// If the socket is not connected any more.
pub fn subflows(stream: &TcpStream) -> io::Result<Option<(MptcpInfo, Vec<SubflowInfo>)>> {
    mptcp_socket_info(stream.as_fd())
}

/// Sets the options of a connection of a program or to an origin. If `socket` is a listener, its connections
/// inherit them. Small writes leave at once, and a host that has vanished is detected.
///
/// # Errors
/// If setsockopt(2) fails.
pub(crate) fn set_up_leg(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&KEEPALIVE)
}

/// Listens for programs by plain TCP.
///
/// # Errors
/// If the address cannot be bound.
pub fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    set_up_leg(&socket)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// A listener for the connections of clients.
///
/// It is bound to the wildcard address, because a listener that is bound to one address accepts no further
/// subflow to another announced address (Linux 6.18). If one address was requested, connections that begin at
/// another are closed, but later subflows may use all addresses.
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
    /// If the congestion controller does not exist, if the address cannot be bound, or if the port is in use
    /// at any address of the host. `AddrNotAvailable` if the host does not have the address.
    pub fn bind(address: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let only = Some(address.ip()).filter(|ip| !ip.is_unspecified());
        if only.is_some() {
            // The wildcard would be bound without an error even if the host does not have the address.
            let trial = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
            trial.bind(&SocketAddr::new(address.ip(), 0).into())?;
        }
        let wildcard: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let (socket, is_mptcp) = socket(address, options)?;
        if address.is_ipv6() {
            // The IPv6 wildcard covers both families.
            socket.set_only_v6(only.is_some())?;
        }
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::new(wildcard, address.port()).into())?;
        socket.listen(BACKLOG)?;
        Ok(Self { listener: TcpListener::from_std(socket.into())?, only, is_mptcp })
    }

    /// Returns the address at which connections are taken.
    ///
    /// # Errors
    /// If getsockname(2) fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let bound = self.listener.local_addr()?;
        Ok(self.only.map_or(bound, |ip| SocketAddr::new(ip, bound.port())))
    }

    /// Waits for the next connection. Returns it with the address of its client.
    ///
    /// # Errors
    /// If accept(2) fails. After `EMFILE` and similar errors, wait a moment before the next call.
    pub async fn accept(&self) -> io::Result<(Connection, SocketAddr)> {
        loop {
            let (stream, peer) = self.listener.accept().await?;
            let local = stream.local_addr().map(|address| address.ip().to_canonical());
            if self.only.is_some_and(|ip| !local.as_ref().is_ok_and(|local| *local == ip.to_canonical())) {
                continue;
            }
            // A connection that is already gone fails at its first use.
            let _ = tune(&stream);
            let transport = transport(&stream, self.is_mptcp);
            return Ok((Connection { stream, transport }, peer));
        }
    }
}
