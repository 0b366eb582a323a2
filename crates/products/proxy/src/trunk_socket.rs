//! The connection under a trunk: of the kernel, or Multipath TCP of this process in UDP.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use anabranch_mptcp::SubflowReport;
use anabranch_mptcp_udp::Connection as UdpConnection;
use anabranch_mptcp_udp::connection::Monitor;
use anabranch_net::mptcp_socket::{SubflowInfo, mptcp_socket_info, tcp_socket_info};
use anabranch_net::netlink::{TcpInfo, TcpState};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The connection under a trunk.
#[derive(Debug)]
pub(crate) enum TrunkSocket {
    /// A connection of the kernel: MPTCP or TCP.
    Kernel(TcpStream),
    /// A connection of this process.
    Udp(UdpConnection),
}

/// Applies an expression to either connection.
macro_rules! either {
    ($socket:expr, $inner:ident => $result:expr) => {
        match $socket.get_mut() {
            TrunkSocket::Kernel($inner) => $result,
            TrunkSocket::Udp($inner) => $result,
        }
    };
}

impl AsyncRead for TrunkSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, inner => Pin::new(inner).poll_read(cx, buffer))
    }
}

impl AsyncWrite for TrunkSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, inner => Pin::new(inner).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, inner => Pin::new(inner).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Kernel(stream) => stream.is_write_vectored(),
            Self::Udp(connection) => connection.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, inner => Pin::new(inner).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, inner => Pin::new(inner).poll_shutdown(cx))
    }
}

/// Reads the measurements of a trunk's connection.
#[derive(Debug)]
pub(crate) enum Meter {
    /// The kernel's socket, with both ends of its first subflow.
    Kernel(OwnedFd, SocketAddr, SocketAddr),
    /// The subflows of a connection of this process.
    Udp(Monitor),
}

impl TrunkSocket {
    /// Returns what reads the measurements of the connection. Returns `None` if no descriptors are left or
    /// the connection is gone.
    pub(crate) fn meter(&self) -> Option<Meter> {
        match self {
            Self::Kernel(stream) => {
                let canonical = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
                let (local, peer) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
                let fd = stream.as_fd().try_clone_to_owned().ok()?;
                Some(Meter::Kernel(fd, canonical(local), canonical(peer)))
            }
            Self::Udp(connection) => Some(Meter::Udp(connection.monitor())),
        }
    }

    /// Returns the address of the other end.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Kernel(stream) => stream.peer_addr().ok(),
            Self::Udp(connection) => Some(connection.peer_addr()),
        }
    }
}

impl Meter {
    /// Returns the present measurements of each subflow. A plain TCP connection counts as one subflow.
    pub(crate) fn subflows(&self) -> Vec<SubflowInfo> {
        let (fd, local, remote) = match self {
            Self::Udp(monitor) => return monitor.subflows().iter().filter_map(info).collect(),
            Self::Kernel(fd, local, remote) => (fd, *local, *remote),
        };
        match mptcp_socket_info(fd.as_fd()) {
            Ok(Some((_, subflows))) => subflows,
            _ => {
                let tcp = tcp_socket_info(fd.as_fd()).ok();
                tcp.map(|tcp| SubflowInfo { local, remote, tcp }).into_iter().collect()
            }
        }
    }
}

/// Returns a subflow of this process as the kernel would report it, if its handshake is complete.
fn info(report: &SubflowReport) -> Option<SubflowInfo> {
    let SubflowReport { local, remote, is_up, srtt, sent_bytes, received_bytes, resent_bytes, .. } = *report;
    let tcp = TcpInfo {
        state: Some(TcpState::Established),
        backoff: u8::try_from(report.timeouts_in_a_row).unwrap_or(u8::MAX),
        rtt_us: u32::try_from(srtt.as_nanos() / 1_000).unwrap_or(u32::MAX),
        cwnd: report.cwnd_packets,
        total_retrans: u32::try_from(report.resent_packets).unwrap_or(u32::MAX),
        bytes_received: received_bytes,
        bytes_sent: sent_bytes + resent_bytes,
        bytes_retrans: resent_bytes,
        ..TcpInfo::default()
    };
    is_up.then_some(SubflowInfo { local, remote, tcp })
}
