//! The kernel's network configuration and its sockets, over netlink (RFC 3549, netlink(7)), synchronously.
//!
//! Each socket works in the network namespace that its thread was in when it was opened, and stays there
//! when the thread moves on.
//!
//! * [`Netlink`]: interfaces, addresses, routes, policy rules (rtnetlink(7)).
//! * [`PathManager`]: the endpoints and limits of the kernel's MPTCP (generic netlink, `linux/mptcp_pm.h`).
//! * [`SockDiag`]: the TCP and MPTCP sockets and how they fare (`sock_diag(7)`, `linux/inet_diag.h`).
//!
//! No library: what is needed of the three protocols are a dozen messages, whose encoding is in [`message`].
//! What the kernel says is read by functions of a byte slice (`parse`), which skip what they do not know and
//! answer `None` to what is cut short.

mod address;
mod link;
pub mod message;
mod mptcp;
mod route;
mod rule;
mod sock_diag;
mod socket;

pub use address::Address;
pub use link::Link;
pub use mptcp::{ENDPOINTS_MAX, Endpoint, EndpointFlags, Limits, PathManager};
pub use route::{MAIN_TABLE, Route, RouteKind};
pub use rule::Rule;
pub use sock_diag::{
    MptcpConnection, MptcpInfo, MptcpSubflow, SockDiag, SubflowFlags, TcpInfo, TcpSocket, TcpState,
};

use std::fmt;
use std::io;

use nix::sys::socket::SockProtocol;

/// A request that failed: what was attempted, and why it did not work.
///
/// Becomes an [`io::Error`] of the same kind and text with `?`.
#[derive(Debug)]
pub struct Error {
    attempt: String,
    cause: io::Error,
    detail: Option<String>,
}

/// What requests return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(attempt: impl Into<String>, failure: socket::Failure) -> Self {
        Self { attempt: attempt.into(), cause: failure.cause, detail: failure.detail }
    }

    /// The system's error number, such as `EEXIST`; `None` if the kernel did not refuse but answered what
    /// makes no sense.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.cause.raw_os_error()
    }

    /// Whether what was to be added is there already.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.errno() == Some(nix::libc::EEXIST)
    }

    /// Whether what was to be changed or removed is not there: a device, an address, a route, a rule.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        use nix::libc::{EADDRNOTAVAIL, ENODEV, ENOENT, ENXIO, ESRCH};
        self.errno().is_some_and(|errno| [EADDRNOTAVAIL, ENODEV, ENOENT, ENXIO, ESRCH].contains(&errno))
    }

    /// Whether privileges are missing (`CAP_NET_ADMIN` in the namespace).
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.cause.kind() == io::ErrorKind::PermissionDenied
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.attempt, self.cause)?;
        match &self.detail {
            Some(detail) => write!(f, " ({detail})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.cause.kind(), error)
    }
}

/// Interfaces, addresses, routes and policy rules of a network namespace.
///
/// Interfaces are named by their index, as the kernel does: names can change.
#[derive(Debug)]
pub struct Netlink {
    socket: socket::Socket,
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace.
    ///
    /// # Errors
    /// What socket(2) fails with.
    pub fn open() -> Result<Self> {
        let socket = socket::Socket::open(SockProtocol::NetlinkRoute);
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

    /// The name of interface `index` for a message.
    fn device(&self, index: u32) -> String {
        let links = self.links().unwrap_or_default();
        let link = links.into_iter().find(|link| link.index == index);
        link.map_or_else(|| format!("interface number {index}"), |link| link.name)
    }
}
