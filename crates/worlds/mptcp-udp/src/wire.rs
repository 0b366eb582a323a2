//! What sends the datagrams of a host.

use std::fmt::Debug;
use std::net::SocketAddr;

/// Sends datagrams for a host.
pub trait Wire: Debug + Send + Sync {
    /// Sends datagrams of `segment` bytes each, of which the last may be shorter, between these ends of a
    /// subflow. Never blocks; what cannot be sent is lost.
    fn send(&self, from: SocketAddr, to: SocketAddr, bytes: &[u8], segment: usize);

    /// Returns the address in the packets of the subflow with this local end.
    fn address_of(&self, local: SocketAddr) -> SocketAddr {
        local
    }

    /// Closes the sockets of local ends that no subflow uses.
    fn retain(&self, _is_used: &dyn Fn(SocketAddr) -> bool) {}
}
