//! UDP sockets for legs in the runtime. Sends a leg's packets with few system calls.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::task::{Context, Poll, ready};

use anabranch_algo::Time;
use anabranch_net::udp::SEND_BYTES_MAX;
use anabranch_net::{Datagrams, Egress, Received, RecvBuffers, RecvOutcome, SendOutcome, Udp};
use tokio::io::unix::AsyncFd;

use crate::leg::Leg;

/// The most receiving calls in a row, so that packets to send do not wait for all that arrive.
const RECEIVES_MAX: usize = 4;

struct Fd(Udp);

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// A UDP socket of a leg.
pub(crate) struct LegSocket {
    udp: AsyncFd<Fd>,
}

impl LegSocket {
    #[expect(
        deprecated,
        reason = "what replaces it is unsafe; `Fd` owns the descriptor and never replaces it"
    )]
    fn new(udp: Udp) -> io::Result<Self> {
        Ok(Self { udp: AsyncFd::new(Fd(udp))? })
    }

    /// Opens a client's socket to this server over this egress.
    pub(crate) fn connect(via: &Egress, server: SocketAddr) -> io::Result<Self> {
        Self::new(Udp::connect(via, server)?)
    }

    /// Opens a server's socket at this address.
    pub(crate) fn listen(address: SocketAddr) -> io::Result<Self> {
        Self::new(Udp::listen(address)?)
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.udp.get_ref().0.local_addr()
    }

    /// Passes the packets that have arrived to `each`. Pending if there is none.
    ///
    /// # Errors
    /// If the socket failed; it cannot be used any more.
    pub(crate) fn poll_receive(
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
    pub(crate) fn send(&self, to: Option<SocketAddr>, from: Option<IpAddr>, bytes: &[u8], segment: usize) {
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

/// Takes all packets that a leg has to send. Passes them to `send` in runs of equally long packets for one
/// path: the path, the address, the bytes and the length of a packet. `buffer` is only used for its memory.
pub(crate) fn transmit_all(
    leg: &mut Leg,
    now: Time,
    buffer: &mut Vec<u8>,
    mut send: impl FnMut(u8, SocketAddr, &[u8], usize),
) {
    buffer.clear();
    // The path, the address and the packet length of the run at the start of the buffer.
    let mut run: Option<(u8, SocketAddr, usize)> = None;
    while let Some(next) = leg.poll_transmit(now, buffer) {
        let before = buffer.len() - next.bytes;
        let joins = run.is_some_and(|(path, to, size)| {
            let is_alike = (path, to) == (next.path, next.to) && next.bytes <= size;
            is_alike && before.is_multiple_of(size) && buffer.len() <= SEND_BYTES_MAX
        });
        if !joins {
            if let Some((path, to, size)) = run {
                send(path, to, &buffer[..before], size);
            }
            buffer.drain(..before);
            run = Some((next.path, next.to, next.bytes));
        }
    }
    if let Some((path, to, size)) = run {
        send(path, to, buffer, size);
    }
}
