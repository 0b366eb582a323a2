//! The kernel's network configuration and its sockets, over netlink (RFC 3549, netlink(7)), synchronously.
//!
//! Each socket works in the network namespace that its thread was in when the thread opened it, and stays
//! there when the thread moves on.
//!
//! * [`Netlink`]: interfaces, addresses, routes, policy rules (rtnetlink(7)).
//! * [`PathManager`]: the endpoints and limits of the kernel's MPTCP (generic netlink, `linux/mptcp_pm.h`).
//! * [`Nl80211`]: the stations of a WiFi interface and their radio (generic netlink, `linux/nl80211.h`).
//! * [`SockDiag`]: the TCP and MPTCP sockets and their measurements (`sock_diag(7)`, `linux/inet_diag.h`).
//!
//! No library is used: the four protocols need a dozen messages, whose encoding is in [`message`]. Functions
//! called `parse` read the kernel's answers from a byte slice; they skip unknown parts and return `None` for
//! truncated ones.

mod address;
mod error;
mod generic;
mod link;
pub mod message;
mod mptcp;
mod nl80211;
mod route;
mod rtnetlink;
mod rule;
mod sock_diag;
mod socket;

pub use address::Address;
pub use error::{Error, Result};
pub use link::Link;
pub use mptcp::{ENDPOINTS_MAX, Endpoint, EndpointFlags, Limits, PathManager};
pub use nl80211::{Nl80211, Station};
pub use route::{MAIN_TABLE, Route, RouteKind};
pub use rtnetlink::Netlink;
pub use rule::Rule;
pub use sock_diag::{
    MptcpConnection, MptcpInfo, MptcpSubflow, SockDiag, SubflowFlags, TcpInfo, TcpSocket, TcpState,
};
