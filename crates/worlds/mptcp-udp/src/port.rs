//! The sockets of a server: one UDP port at all addresses of the host or at one.

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::task::{Context, Poll};

use anabranch_mptcp::datagram;
use anabranch_mptcp::segment::EcnField;
use anabranch_net::{Received, RecvBuffers};

use crate::host::Host;
use crate::socket::AsyncUdp;
use crate::wire::Wire;

/// A UDP port of a server. Other datagrams may use the same port.
#[derive(Debug)]
pub struct Port {
    sockets: Vec<AsyncUdp>,
}

impl Port {
    /// Binds a port. At `[::]` it also covers IPv4.
    ///
    /// # Errors
    /// If the address cannot be bound, or if this thread is not in a runtime of tokio.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let first = AsyncUdp::listen(address)?;
        let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), first.local_addr().port());
        let mut sockets = vec![first];
        if address.ip().is_unspecified() && address.is_ipv6() {
            sockets.push(AsyncUdp::listen(v4)?);
        }
        Ok(Self { sockets })
    }

    /// Returns the address of the port, at `[::]` if it is bound to all addresses of both families.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.sockets[0].local_addr()
    }

    /// Returns the socket for peers of the family of `peer`.
    #[must_use]
    pub fn socket_for(&self, peer: SocketAddr) -> Option<&AsyncUdp> {
        self.sockets.iter().find(|socket| socket.local_addr().is_ipv4() == peer.is_ipv4())
    }

    /// Passes the datagrams that have arrived to `each`. Pending if there are none. A socket that failed
    /// counts as one without datagrams.
    pub fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut RecvBuffers,
        mut each: impl FnMut(Received<'_>),
    ) -> Poll<()> {
        let mut has_come = false;
        for socket in &self.sockets {
            has_come |= matches!(socket.poll_receive(cx, buffers, &mut each), Poll::Ready(Ok(())));
        }
        if has_come { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Receives datagrams, and hands segments to `host` and everything else to `other`. Never returns.
    pub async fn receive(&self, host: &Host, mut other: impl FnMut(&Received<'_>)) {
        let (mut buffers, mut segments) = (RecvBuffers::new(), Vec::new());
        let port = self.local_addr().port();
        poll_fn(|cx| {
            loop {
                let come = self.poll_receive(cx, &mut buffers, |received| {
                    let local = received.to_ip.map(|ip| SocketAddr::new(ip, port));
                    let mut has_other = false;
                    for bytes in received.datagrams() {
                        if !datagram::is_segment(bytes) {
                            has_other = true;
                        } else if let Some(local) = local {
                            let read = datagram::parse(bytes, received.from, local, EcnField::NotEct);
                            segments.extend(read.ok());
                        }
                    }
                    // One sender's datagrams of one size are of one kind.
                    if has_other {
                        other(&received);
                    }
                });
                host.handle(&segments);
                segments.clear();
                if come.is_pending() {
                    return Poll::<()>::Pending;
                }
            }
        })
        .await;
    }
}

impl Wire for Port {
    fn send(&self, from: SocketAddr, to: SocketAddr, bytes: &[u8], segment: usize) {
        if let Some(socket) = self.socket_for(to) {
            socket.send(Some(to), Some(from.ip()), bytes, segment);
        }
    }
}
