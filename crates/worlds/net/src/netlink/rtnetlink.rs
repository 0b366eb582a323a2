//! The socket of rtnetlink(7). What can be asked of it stands in the file of what it is about.

use nix::sys::socket::SockProtocol;

use super::socket::Socket;
use super::{Error, Result};

/// Interfaces, addresses, routes and policy rules of a network namespace.
///
/// Interfaces are named by their index, as the kernel does: names can change.
#[derive(Debug)]
pub struct Netlink {
    pub(super) socket: Socket,
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace.
    ///
    /// # Errors
    /// What socket(2) fails with.
    pub fn open() -> Result<Self> {
        let socket = Socket::open(SockProtocol::NetlinkRoute);
        Ok(Self { socket: socket.map_err(|failure| Error::new("open a route netlink socket", failure))? })
    }

    /// The number that names this network namespace and no other until the next boot (`SO_NETNS_COOKIE`); its
    /// inode may be another's once it is gone.
    ///
    /// # Errors
    /// `ENOPROTOOPT` before Linux 5.14.
    pub fn namespace_cookie(&self) -> Result<u64> {
        self.socket.namespace_cookie().map_err(|failure| Error::new("name the network namespace", failure))
    }
}
