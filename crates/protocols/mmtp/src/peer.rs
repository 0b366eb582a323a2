//! Where a request came from, and so where its replies go.

use std::net::{IpAddr, SocketAddr};

/// The most that [`header_bytes`] returns.
pub const HEADER_BYTES_MAX: usize = 48;
/// Bytes of a [`WayBack`].
pub const WAY_BACK_BYTES: usize = 38;

/// Bytes of the headers of a packet to or from this address: UDP's (RFC 768) and IP's without options
/// (RFC 791, RFC 8200).
#[must_use]
pub const fn header_bytes(address: IpAddr) -> usize {
    match address.to_canonical() {
        IpAddr::V4(_) => 28,
        IpAddr::V6(_) => HEADER_BYTES_MAX,
    }
}

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
