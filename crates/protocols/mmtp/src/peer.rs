//! The origin of a request, which is where its replies go.

use std::net::{IpAddr, SocketAddr};

/// The largest result of [`header_bytes`].
pub const HEADER_BYTES_MAX: usize = 48;
/// The bytes of a [`WayBack`].
pub const WAY_BACK_BYTES: usize = 38;

/// Returns the bytes of the headers of a packet to or from this address: UDP's (RFC 768) and IP's without
/// options (RFC 791, RFC 8200).
#[must_use]
pub const fn header_bytes(address: IpAddr) -> usize {
    match address.to_canonical() {
        IpAddr::V4(_) => 28,
        IpAddr::V6(_) => HEADER_BYTES_MAX,
    }
}

/// The header that an overlay needs in front of every packet of a reply, so that the packet finds the
/// receiver. It is the header of a frame of the crate `overlay`. It came with the request, because a source
/// does not know the path to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WayBack(pub [u8; WAY_BACK_BYTES]);

/// A receiver, as a source sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The UDP address that replies are sent to: the receiver's own address, or that of the forwarder that
    /// handed the request over.
    pub address: SocketAddr,
    /// The header that takes replies from that forwarder to the receiver; `None` without an overlay.
    pub way_back: Option<WayBack>,
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self { address, way_back: None }
    }
}

impl Peer {
    /// Returns the bytes that go in front of each packet.
    #[must_use]
    pub fn prefix(&self) -> &[u8] {
        self.way_back.as_ref().map_or(&[], |way_back| &way_back.0)
    }

    /// Returns how many bytes the network carries with each packet besides its payload.
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        header_bytes(self.address.ip()) + self.prefix().len()
    }
}
