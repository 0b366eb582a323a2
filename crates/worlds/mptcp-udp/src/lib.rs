//! Multipath TCP of this process in UDP.
//!
//! **Purpose.** The world of [`anabranch_mptcp`] for hosts and paths whose kernel has no Multipath TCP: both
//! ends are processes with ordinary UDP sockets, without privilege. A [`Client`] has a number of links, and a
//! socket for each subflow, bound to the subflow's link. A server has one [`Port`] for all its clients. A
//! [`Connection`] is read and written as a stream of bytes by tasks of tokio.
//!
//! ```text
//!   Connection ── read, write ──▶ Host ── Segment ──▶ Stack (machine)
//!       ▲                          │ ▲
//!       └── wakers ── events ──────┘ └── datagrams ── tasks of sockets
//!                                  └──▶ Wire::send: Client: the subflow's socket; Port: the server's socket
//! ```
//!
//! **Addresses.** A datagram has one segment ([`anabranch_mptcp::datagram`]); a subflow is a pair of UDP
//! addresses. At the server these are the addresses that the packets have, behind a NAT those of the NAT. At
//! the client the stack knows link *n* as the address 0.0.0.*n* or `::n`, whatever addresses the link has and
//! however they change; these names never leave the process. If a NAT moves a subflow, the server knows no
//! subflow of the new address and resets it, and the client joins again.
//!
//! **Attackers.** A server keeps state for an address that has proven nothing in one table only, of
//! [`Config::half_open_max`](anabranch_mptcp::Config) connections, which hosts share fairly. It sends such an
//! address fewer bytes than came from there.
//!
//! **Non-goals.** No encryption: what runs above does that. No pacing. Nothing chooses links: the stack's
//! scheduler does.
//!
//! **Map.**
//! * [`socket`]: [`AsyncUdp`], a UDP socket in the runtime.
//! * [`host`]: [`Host`], a stack with its timer and its connections; `shared`: their state.
//! * [`wire`]: [`Wire`], which sends for a host.
//! * [`connection`]: [`Connection`], the program's end.
//! * `batch`: gathers segments that leave in one system call.
//! * [`client`]: [`Client`], links and the sockets of subflows.
//! * [`port`]: [`Port`], a server's sockets.
#![forbid(unsafe_code)]
#![cfg(unix)]

mod batch;
pub mod client;
pub mod connection;
pub mod host;
pub mod port;
mod shared;
pub mod socket;
pub mod wire;

pub use client::{Client, Link};
pub use connection::Connection;
pub use host::{Host, config};
pub use port::Port;
pub use socket::AsyncUdp;
pub use wire::Wire;
