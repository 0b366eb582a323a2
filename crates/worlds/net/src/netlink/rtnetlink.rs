//! The socket of rtnetlink(7). The files of interfaces, addresses, routes and rules have its requests.

use nix::sys::socket::SockProtocol;

use super::socket::Socket;
use super::{Error, Result};

/// Reads and changes the interfaces, addresses, routes and policy rules of a network namespace.
///
/// Interfaces are given by their index, as in the kernel: names can change.
#[derive(Debug)]
pub struct Netlink {
    pub(super) socket: Socket,
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace.
    ///
    /// # Errors
    /// If the netlink socket cannot be opened.
    pub fn open() -> Result<Self> {
        let socket = Socket::open(SockProtocol::NetlinkRoute);
        Ok(Self { socket: socket.map_err(|failure| Error::new("open a route netlink socket", failure))? })
    }

    /// Returns the number of this network namespace (`SO_NETNS_COOKIE`), which no other namespace gets until
    /// the next boot. A later namespace may get the inode of one that is gone.
    ///
    /// # Errors
    /// `ENOPROTOOPT` before Linux 5.14.
    pub fn namespace_cookie(&self) -> Result<u64> {
        self.socket.namespace_cookie().map_err(|failure| Error::new("name the network namespace", failure))
    }
}
