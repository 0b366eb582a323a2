//! Where a request came from, and so where its replies go.

use std::net::SocketAddr;

use crate::cookie::header_bytes;

/// Bytes of a [`WayBack`].
pub const WAY_BACK_BYTES: usize = 38;

/// What an overlay wants in front of every packet of a reply, so that it finds the receiver: a frame's header
/// as the crate `overlay` makes it. It came with the request: a source knows nothing of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WayBack(pub [u8; WAY_BACK_BYTES]);

/// A receiver, as a source sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The UDP address that replies are sent to: the receiver's own, or that of the forwarder that handed the
    /// request over.
    pub address: SocketAddr,
    /// How replies get from that forwarder to the receiver.
    pub way_back: Option<WayBack>,
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self { address, way_back: None }
    }
}

impl Peer {
    /// What goes in front of each packet.
    #[must_use]
    pub fn prefix(&self) -> &[u8] {
        self.way_back.as_ref().map_or(&[], |way_back| &way_back.0)
    }

    /// Bytes that the network carries with each packet besides its payload.
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        header_bytes(self.address.ip()) + self.prefix().len()
    }
}
