//! The server's UDP port: trunks of clients without MPTCP, and legs.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anabranch_mptcp::Config;
use anabranch_mptcp_udp::{Connection, Host, Port};

use crate::random::random;
use crate::server::legs::Legs;
use crate::transport::udp_config;

/// The most bytes of a connection that wait to be read. A client that is not authenticated yet can make the
/// server hold as many.
const RECEIVE_BUFFER_BYTES: u32 = 2 << 20;

/// The UDP port of a server. Clones are the same port.
#[derive(Clone, Debug)]
pub(super) struct UdpDoor {
    port: Arc<Port>,
    host: Host,
}

impl UdpDoor {
    /// Binds the UDP port with the number of `address`. `congestion` is the name of a congestion controller.
    ///
    /// # Errors
    /// If the port cannot be bound, or if the system has no random numbers.
    pub(super) fn bind(address: SocketAddr, congestion: Option<&str>) -> io::Result<Self> {
        let port = Arc::new(Port::bind(address)?);
        let seed = random().ok_or_else(|| io::Error::other("the system has no random numbers"))?;
        let config = Config { receive_buffer_bytes: RECEIVE_BUFFER_BYTES, ..udp_config(congestion) };
        let host = Host::new(config, seed, Arc::<Port>::clone(&port));
        host.listen(port.local_addr().port());
        Ok(Self { port, host })
    }

    /// Returns the port, for legs.
    pub(super) const fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// Sends what is due. Never returns.
    pub(super) async fn run(&self) {
        self.host.run().await;
    }

    /// Receives what clients send, and hands the datagrams of legs to `legs`. Never returns.
    pub(super) async fn receive(&self, legs: Option<Arc<Legs>>) {
        let other = |received: &anabranch_net::Received<'_>| {
            legs.iter().for_each(|legs| legs.take(received));
        };
        self.port.receive(&self.host, other).await;
    }

    /// Waits for the next connection; for ever without a port.
    pub(super) async fn accept(door: Option<&Self>) -> Connection {
        match door {
            Some(door) => door.host.accept().await,
            None => std::future::pending().await,
        }
    }
}
