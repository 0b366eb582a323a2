//! Implements a UDP socket with segmentation offload, ECN and DSCP, batched system calls, and ICMP errors.
//!
//! * **Sending** takes several datagrams of one size to one destination in a call (UDP GSO). The kernel never
//!   fragments: the Don't Fragment bit is set and the kernel's own idea of the path MTU is ignored
//!   (`IP_PMTUDISC_PROBE`, `IPV6_DONTFRAG`), so that probing for the path MTU (RFC 8899) sees the path.
//! * **Receiving** takes up to [`RecvBuffers::COUNT`] buffers in a call (`recvmmsg`), each of which holds one
//!   or more datagrams of one sender (UDP GRO).
//! * **ICMP errors** reach connected sockets only, and only as hints: an attacker who guesses the ports can
//!   forge them, so no path is given up because of one (RFC 8085 section 5.2, RFC 5927).

use std::array;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use nix::errno::Errno;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, TransportErrorPayload, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};

use crate::Egress;

/// The largest payload of one call, in bytes: a 65,535-byte IPv4 packet less its headers. IPv6 would take 20
/// more.
pub const SEND_BYTES_MAX: usize = 65_535 - 20 - 8;

/// The largest number of datagrams of one call (`UDP_MAX_SEGMENTS` was 64 until Linux 6.9).
pub const SEGMENTS_MAX: usize = 64;

/// The size of the receive buffer that is requested, in bytes of payload. Without privilege the kernel grants
/// at most `net.core.rmem_max`.
const RECEIVE_BUFFER: usize = 8 << 20;

/// The size of the send buffer that is requested, in bytes: enough for the packets that wait for a 10 Gbit/s
/// card to report them sent.
const SEND_BUFFER: usize = 2 << 20;

/// The largest number of ICMP errors taken from the socket in one call; the others wait for the next call.
const ERRORS_MAX: usize = 64;

/// A non-blocking UDP socket.
#[derive(Debug)]
pub struct Udp {
    socket: Socket,
    /// The state of quinn-udp, which gives up ECN marks and GSO for good after one EINVAL or EIO. A reply to
    /// an unroutable sender must not cause that for all other peers, so the state is then replaced. The lock
    /// favours readers, because nearly all accesses read.
    state: RwLock<UdpSocketState>,
    gso: AtomicBool,
    local: SocketAddr,
    peer: Option<SocketAddr>,
    receive_buffer: usize,
}

/// Names the ECN field of a received IP packet (RFC 3168 section 5), other than Not-ECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// ECN-capable, ECT(0).
    Ect0,
    /// ECN-capable, ECT(1).
    Ect1,
    /// Congestion experienced.
    Ce,
}

/// Describes the datagrams to send: one, or several of one size to one destination.
#[derive(Clone, Copy, Debug)]
pub struct Datagrams<'a> {
    /// The destination; `None` on a connected socket.
    pub to: Option<SocketAddr>,
    /// The local address that the datagrams must leave from (see [`Received::to_ip`]).
    pub from_ip: Option<IpAddr>,
    /// The payload: the datagrams, one after the other.
    pub bytes: &'a [u8],
    /// The number of bytes per datagram, of which only the last may have fewer; `None` for a single datagram.
    pub segment: Option<usize>,
    /// Whether to mark the packets ECN-capable, ECT(0).
    pub ecn: bool,
    /// The code point of differentiated services (RFC 2474), 0 to 63. Only Linux sends it; other systems send
    /// 0.
    pub dscp: u8,
}

/// Says why a peer seems out of reach. This is a hint, never proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// The host answered that no socket listens on the port.
    Refused,
    /// No route, a host or network that does not answer, or an interface or local address that is gone.
    Unreachable,
}

/// The result of a [`Udp::send`].
#[derive(Debug)]
pub enum SendOutcome {
    /// The kernel took the datagrams. Datagrams that the local queue drops at once count as sent, too: loss
    /// recovery finds them.
    Sent,
    /// The socket's buffer is full: nothing was sent. Wait until the socket is writable.
    WouldBlock,
    /// The peer seems out of reach: nothing was sent, or the socket reports the error of an earlier datagram.
    IcmpError(IcmpError),
    /// The datagrams are larger than the interface allows: nothing was sent.
    TooBig,
    /// Nothing was sent, for another reason.
    Other(io::Error),
}

/// Holds the contents of one buffer: one datagram, or several with one sender, size and ECN field.
#[derive(Debug)]
pub struct Received<'a> {
    /// The sender.
    pub from: SocketAddr,
    /// The local address that the datagrams were sent to. Replies should leave from there.
    pub to_ip: Option<IpAddr>,
    /// The payload: the datagrams, one after the other. Callers that forward datagrams may change them in
    /// place.
    pub bytes: &'a mut [u8],
    /// The number of bytes per datagram, of which only the last may have fewer.
    pub stride: usize,
    /// The ECN field; `None` for Not-ECT.
    pub ecn: Option<Ecn>,
}

impl Received<'_> {
    /// Iterates over the datagrams. Empty datagrams do not appear.
    pub fn datagrams(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.bytes.chunks(self.stride.max(1))
    }
}

/// The result of a [`Udp::recv`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvOutcome {
    /// Datagrams were received and handed over.
    Received {
        /// Whether every buffer was filled, so that more datagrams are probably waiting.
        more: bool,
    },
    /// No datagram has arrived. Wait until the socket is readable.
    WouldBlock,
    /// An ICMP error about an earlier datagram of this socket has arrived.
    IcmpError(IcmpError),
    /// A router said that a packet was too big for its next link (RFC 1191, RFC 8201).
    TooBig {
        /// The largest IP packet that the next link takes, in bytes, as far as the router can be trusted.
        mtu: u32,
    },
}

/// Reusable buffers for [`Udp::recv`]; one set serves any number of sockets.
#[derive(Debug)]
pub struct RecvBuffers(Box<[u8]>);

impl RecvBuffers {
    /// The number of buffers in a set.
    pub const COUNT: usize = quinn_udp::BATCH_SIZE;
    /// The size of a buffer, in bytes: the largest UDP packet, and the most that GRO joins.
    pub const SIZE: usize = 1 << 16;

    /// Allocates a set: 2 MiB where the system has `recvmmsg`.
    #[must_use]
    pub fn new() -> Self {
        Self(vec![0; Self::COUNT * Self::SIZE].into())
    }
}

impl Default for RecvBuffers {
    fn default() -> Self {
        Self::new()
    }
}

impl Udp {
    /// Binds a socket that any peer may send to, for sources.
    ///
    /// Each address needs a separate socket: `[::]` is IPv6 only (RFC 3493 section 5.3), so that `0.0.0.0`
    /// can be bound to the same port and every address is of the socket's family. An unconnected socket
    /// reports no ICMP errors.
    ///
    /// # Errors
    /// If binding fails (`AddrInUse`, `AddrNotAvailable`, `PermissionDenied`); the message has the address.
    pub fn listen(address: SocketAddr) -> io::Result<Self> {
        let open = || {
            let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
            if address.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            socket.bind(&address.into())?;
            Self::new(socket, None)
        };
        open().map_err(|e: io::Error| io::Error::new(e.kind(), format!("listening on {address}: {e}")))
    }

    /// Opens a socket for one subflow: bound as `via` promises, connected to `peer`.
    ///
    /// # Errors
    /// If the promise of `via` cannot be kept or no route leads to `peer`; the message says which.
    pub fn connect(via: &Egress, peer: SocketAddr) -> io::Result<Self> {
        let mut peer = peer;
        // An IPv4-mapped IPv6 address is an IPv4 peer.
        if let IpAddr::V4(v4) = peer.ip().to_canonical() {
            peer.set_ip(IpAddr::V4(v4));
        }
        let socket = via.udp_socket(peer)?;
        let peer = socket.peer_addr()?.as_socket().unwrap_or(peer);
        Self::new(socket, Some(peer))
    }

    fn new(socket: Socket, peer: Option<SocketAddr>) -> io::Result<Self> {
        let state = offloads(&socket)?;
        if peer.is_some() {
            state.enable_transport_errors((&socket).into())?;
        }
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::Unsupported)?;
        let receive_buffer = enlarge(&socket)?;
        let gso = AtomicBool::new(state.max_gso_segments() > 1);
        Ok(Self { socket, state: RwLock::new(state), gso, local, peer, receive_buffer })
    }

    /// Returns the address that the socket is bound to.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the peer, if the socket is connected.
    #[must_use]
    pub const fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Returns the size of the receive buffer that the kernel granted, in bytes of payload. The number is
    /// rough: the kernel counts its bookkeeping against twice this number.
    #[must_use]
    pub const fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// Returns the number of datagrams of `segment` bytes that one [`send`](Self::send) may carry now: 1
    /// without segmentation offload, which may turn out to be missing later.
    #[must_use]
    pub fn max_segments(&self, segment: usize) -> usize {
        if self.gso.load(Ordering::Relaxed) {
            (SEND_BYTES_MAX / segment.max(1)).clamp(1, SEGMENTS_MAX)
        } else {
            1
        }
    }

    /// Sends datagrams. Never blocks.
    ///
    /// If segmentation offload has been found missing, several datagrams are sent one by one, and datagrams
    /// for which the buffer has no room are lost. This happens at most once to callers that follow
    /// [`max_segments`](Self::max_segments).
    pub fn send(&self, datagrams: &Datagrams<'_>) -> SendOutcome {
        let Some(to) = datagrams.to.or(self.peer) else {
            return invalid("no destination");
        };
        if to.port() == 0 || to.ip().is_unspecified() || to.is_ipv4() != self.local.is_ipv4() {
            return invalid("not a destination for this socket");
        }
        let segment = datagrams.segment.filter(|&segment| segment < datagrams.bytes.len());
        let Some(segment) = segment else {
            return self.outcome(self.transmit(to, datagrams, datagrams.bytes, None));
        };
        if segment == 0
            || datagrams.bytes.len() > SEND_BYTES_MAX
            || datagrams.bytes.len().div_ceil(segment) > SEGMENTS_MAX
        {
            return invalid("more datagrams than one call carries");
        }
        if !self.gso.load(Ordering::Relaxed) {
            return self.send_singly(to, datagrams, segment);
        }
        match self.transmit(to, datagrams, datagrams.bytes, Some(segment)) {
            // EIO: the route cannot segment (IPsec, a device without checksums). EINVAL: older kernels report
            // segments above the MTU by it, and all kernels an address that is gone. Sending one datagram
            // alone tells which.
            Err(e) if matches!(errno(&e), Errno::EIO | Errno::EINVAL) => {
                let outcome = self.send_singly(to, datagrams, segment);
                if matches!(outcome, SendOutcome::Sent) {
                    self.gso.store(false, Ordering::Relaxed);
                }
                outcome
            }
            result => self.outcome(result),
        }
    }

    fn send_singly(&self, to: SocketAddr, datagrams: &Datagrams<'_>, segment: usize) -> SendOutcome {
        for (n, one) in datagrams.bytes.chunks(segment).enumerate() {
            let outcome = self.outcome(self.transmit(to, datagrams, one, None));
            match outcome {
                SendOutcome::Sent => {}
                _ if n == 0 => return outcome,
                _ => break,
            }
        }
        SendOutcome::Sent
    }

    fn transmit(
        &self,
        to: SocketAddr,
        datagrams: &Datagrams<'_>,
        contents: &[u8],
        segment_size: Option<usize>,
    ) -> io::Result<()> {
        let transmit = Transmit {
            destination: to,
            ecn: datagrams.ecn.then_some(EcnCodepoint::Ect0),
            contents,
            segment_size,
            src_ip: datagrams.from_ip,
        };
        let send = || {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            if datagrams.dscp != 0 {
                return crate::marked::send(&self.socket, &transmit, datagrams.dscp);
            }
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            state.try_send((&self.socket).into(), &transmit)
        };
        match send() {
            // The error may be about an earlier packet that a router found too big. If it is about this
            // packet, sending fails again. The router's message waits in the error queue for `recv`.
            Err(e) if errno(&e) == Errno::EMSGSIZE && self.peer.is_some() => send(),
            Err(e) if matches!(errno(&e), Errno::EIO | Errno::EINVAL) => {
                if let Ok(fresh) = offloads(&self.socket) {
                    *self.state.write().unwrap_or_else(PoisonError::into_inner) = fresh;
                }
                Err(e)
            }
            result => result,
        }
    }

    fn outcome(&self, result: io::Result<()>) -> SendOutcome {
        let Err(e) = result else { return SendOutcome::Sent };
        match errno(&e) {
            Errno::EAGAIN => SendOutcome::WouldBlock,
            Errno::EMSGSIZE => SendOutcome::TooBig,
            // A socket that reads ICMP errors is also told when the local queue dropped a packet.
            Errno::ENOBUFS | Errno::ENOMEM => SendOutcome::Sent,
            // Here the error means that the source address is no longer one of this host.
            Errno::EINVAL => SendOutcome::IcmpError(IcmpError::Unreachable),
            errno => icmp_error(errno).map_or(SendOutcome::Other(e), SendOutcome::IcmpError),
        }
    }

    /// Receives the datagrams that have arrived, in at most [`RecvBuffers::COUNT`] buffers, and hands each
    /// buffer to `each`. Never blocks.
    ///
    /// Datagrams that cannot be answered are dropped: datagrams from port 0, to a multicast or broadcast
    /// address and, on a connected socket, from other peers before it was connected.
    ///
    /// # Errors
    /// If receiving fails for a reason that is neither an empty socket nor the network. The socket is then of
    /// no further use.
    pub fn recv(
        &self,
        buffers: &mut RecvBuffers,
        mut each: impl FnMut(Received<'_>),
    ) -> io::Result<RecvOutcome> {
        let mut metas = [RecvMeta::default(); RecvBuffers::COUNT];
        let mut parts = buffers.0.chunks_exact_mut(RecvBuffers::SIZE);
        let mut slices: [_; RecvBuffers::COUNT] =
            array::from_fn(|_| IoSliceMut::new(parts.next().unwrap_or_default()));
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let result = state.recv((&self.socket).into(), &mut slices, &mut metas);
        drop(state);
        let count = match result {
            Ok(count) => count,
            Err(e) => return self.explain(e),
        };
        for (meta, buffer) in metas.iter().zip(&mut slices).take(count) {
            let stranger =
                self.peer.is_some_and(|p| (p.ip(), p.port()) != (meta.addr.ip(), meta.addr.port()));
            let broadcast = match meta.dst_ip {
                Some(IpAddr::V4(ip)) => ip.is_multicast() || ip.is_broadcast(),
                Some(IpAddr::V6(ip)) => ip.is_multicast(),
                None => false,
            };
            if stranger || broadcast || meta.addr.port() == 0 {
                continue;
            }
            each(Received {
                from: meta.addr,
                to_ip: meta.dst_ip,
                bytes: buffer.get_mut(..meta.len).unwrap_or_default(),
                stride: meta.stride,
                ecn: meta.ecn.map(|ecn| match ecn {
                    EcnCodepoint::Ect0 => Ecn::Ect0,
                    EcnCodepoint::Ect1 => Ecn::Ect1,
                    EcnCodepoint::Ce => Ecn::Ce,
                }),
            });
        }
        Ok(RecvOutcome::Received { more: count == RecvBuffers::COUNT })
    }

    /// Turns an error of `recv` into an outcome. The socket's error queue is read first, if it has one.
    fn explain(&self, error: io::Error) -> io::Result<RecvOutcome> {
        if let Some(queued) = self.queued_error() {
            return Ok(queued);
        }
        match errno(&error) {
            // EMSGSIZE: a local probe was too big, which `send` has reported.
            Errno::EAGAIN | Errno::EMSGSIZE => Ok(RecvOutcome::WouldBlock),
            errno => icmp_error(errno).map_or(Err(error), |error| Ok(RecvOutcome::IcmpError(error))),
        }
    }

    /// Empties the error queue, since the socket stays readable otherwise, and returns the most useful error.
    fn queued_error(&self) -> Option<RecvOutcome> {
        self.peer?;
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let (mut worst, mut mtu_min) = (None, None);
        for _ in 0..ERRORS_MAX {
            let Ok(Some(error)) = state.recv_transport_error((&self.socket).into()) else { break };
            if let TransportErrorPayload::TooBig { mtu } = error.payload {
                mtu_min = Some(mtu_min.map_or(mtu, |least: u32| least.min(mtu)));
                continue;
            }
            worst = match icmp_error(Errno::from_raw(error.raw_errno)) {
                Some(IcmpError::Refused) => Some(IcmpError::Refused),
                Some(IcmpError::Unreachable) => worst.or(Some(IcmpError::Unreachable)),
                None => worst,
            };
        }
        worst.map(RecvOutcome::IcmpError).or(mtu_min.map(|mtu| RecvOutcome::TooBig { mtu }))
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Enables quinn-udp's offloads, without receive time stamps, which cost time and are not used.
fn offloads(socket: &Socket) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(socket.into())?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use nix::sys::socket::{setsockopt, sockopt::ReceiveTimestampns};
        let _ = setsockopt(socket, ReceiveTimestampns, &false);
    }
    Ok(state)
}

/// Asks the kernel for large buffers. Returns the size of the receive buffer that it granted, in bytes.
fn enlarge(socket: &Socket) -> io::Result<usize> {
    // The default stays if more is not granted.
    let _ = socket.set_send_buffer_size(SEND_BUFFER);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
        if setsockopt(socket, RcvBufForce, &RECEIVE_BUFFER).is_err() {
            let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
        }
        // socket(7): the kernel doubles the size that it is given, and reports the double.
        Ok(socket.recv_buffer_size()? / 2)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
        socket.recv_buffer_size()
    }
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)
}

/// Returns the kind of an error that says that the peer is out of reach; `None` for other errors.
fn icmp_error(errno: Errno) -> Option<IcmpError> {
    Some(match errno {
        Errno::ECONNREFUSED => IcmpError::Refused,
        Errno::EHOSTUNREACH
        | Errno::ENETUNREACH
        | Errno::EHOSTDOWN
        | Errno::ENETDOWN
        | Errno::ENODEV
        | Errno::ENXIO
        | Errno::EADDRNOTAVAIL
        // ICMP "protocol unreachable", "administratively prohibited"; a local firewall or a `prohibit` route.
        | Errno::ENOPROTOOPT
        | Errno::EACCES
        | Errno::EPERM => IcmpError::Unreachable,
        _ => return None,
    })
}

fn invalid(why: &str) -> SendOutcome {
    SendOutcome::Other(io::Error::new(io::ErrorKind::InvalidInput, why))
}
