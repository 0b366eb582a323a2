//! A UDP socket in the runtime.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::task::{Context, Poll, ready};

use anabranch_net::{Datagrams, Egress, Received, RecvBuffers, RecvOutcome, SendOutcome, Udp};
use tokio::io::unix::AsyncFd;

/// The most receiving calls in a row, so that datagrams to send do not wait for all that arrive.
const RECEIVES_MAX: usize = 4;

#[derive(Debug)]
struct Fd(Udp);

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// A UDP socket whose reader is a task.
#[derive(Debug)]
pub struct AsyncUdp {
    udp: AsyncFd<Fd>,
}

impl AsyncUdp {
    #[expect(
        deprecated,
        reason = "what replaces it is unsafe; `Fd` owns the descriptor and never replaces it"
    )]
    fn new(udp: Udp) -> io::Result<Self> {
        Ok(Self { udp: AsyncFd::new(Fd(udp))? })
    }

    /// Opens a socket to this peer over this egress.
    ///
    /// # Errors
    /// If [`Udp::connect`] fails, or if this thread is not in a runtime of tokio.
    pub fn connect(via: &Egress, peer: SocketAddr) -> io::Result<Self> {
        Self::new(Udp::connect(via, peer)?)
    }

    /// Opens a socket at this address, to which any peer may send.
    ///
    /// # Errors
    /// If [`Udp::listen`] fails, or if this thread is not in a runtime of tokio.
    pub fn listen(address: SocketAddr) -> io::Result<Self> {
        Self::new(Udp::listen(address)?)
    }

    /// Returns the address that the socket is bound to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.udp.get_ref().0.local_addr()
    }

    /// Passes the datagrams that have arrived to `each`. Pending if there is none.
    ///
    /// # Errors
    /// If the socket failed; it cannot be used any more.
    pub fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut RecvBuffers,
        mut each: impl FnMut(Received<'_>),
    ) -> Poll<io::Result<()>> {
        for _ in 0..RECEIVES_MAX {
            let mut ready = ready!(self.udp.poll_read_ready(cx))?;
            match ready.get_inner().0.recv(buffers, &mut each)? {
                RecvOutcome::WouldBlock => ready.clear_ready(),
                RecvOutcome::Received { .. } | RecvOutcome::IcmpError(_) | RecvOutcome::TooBig { .. } => {}
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends datagrams of `segment` bytes each, of which the last may be shorter. Datagrams for which the
    /// socket has no room are lost, as in any other queue on the way.
    pub fn send(&self, to: Option<SocketAddr>, from: Option<IpAddr>, bytes: &[u8], segment: usize) {
        let udp = &self.udp.get_ref().0;
        let at_once = udp.max_segments(segment) * segment.max(1);
        for bytes in bytes.chunks(at_once) {
            let segment = Some(segment);
            let outcome = udp.send(&Datagrams { to, from_ip: from, bytes, segment, ecn: false, dscp: 0 });
            if !matches!(outcome, SendOutcome::Sent) {
                return;
            }
        }
    }
}
