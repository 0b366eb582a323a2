//! Every program on several links, towards servers that know nothing of it: SOCKS5 and HTTP proxies whose
//! middle is Multipath TCP.
//!
//! **Purpose.** A client on the host with the links, a server on a host with a good connection, and trunks
//! between them: few connections that are there already and carry many streams. The crate's README has the
//! data flow and what is refused; `docs/wire-proxy.md` the wire format.
//!
//! **Non-goals.** No command line, no printing, no signals: events go to the caller. No congestion control:
//! the kernel's, with the controllers of the crate `kernel`.
//!
//! **Map.**
//! * [`trunk`]: one end of a trunk, a machine; [`trunk::frame`]: its wire format; [`trunk::Destination`]:
//!   where a program wants to go.
//! * [`trunk_task`]: a trunk in the world: [`start`](trunk_task::start) it on a connection,
//!   [`TrunkHandle::open`](trunk_task::TrunkHandle::open) or `accept` a [`Stream`](trunk_task::Stream).
//! * [`leg`]: one end of a leg, a machine: programs' datagrams over several paths; [`leg::packet`]: its
//!   format.
//! * [`pool`]: on which trunk a stream is opened; when one more is wanted, when one may go.
//! * [`keys`]: pairs of keys, the line that pairs a client, the list of clients; [`tls`]: TLS 1.3 with them.
//! * [`socket`]: MPTCP sockets for trunks, and what the kernel says of them.
//! * [`links`]: which links a client uses, and what the kernel is told of them.
//! * [`ingress`]: what programs speak.
//! * [`redirect`]: programs that know nothing of a proxy.
//! * [`egress`]: connections to origins; [`policy`]: which are allowed.
//! * [`config`]: the settings of both roles, for files, flags and programs.
//! * [`flows`]: the connections that are there, and how long they may take; [`quota`]: what one user may
//!   have.
//! * [`status`]: what a role is doing: a snapshot, a page, metrics; `traffic`: what links carry.
//! * `constant_time`: comparisons that give nothing away; `descriptors`: how many are left.
//! * `relay`: bytes between a TCP connection and a stream; `buffer`: what is read into.
//! * [`client`], [`server`]: the two roles: options in; [`Running`] has the [events](Event), and the handle
//!   that ends it.
#![deny(unsafe_code)]

mod buffer;
pub mod client;
pub mod config;
mod constant_time;
mod descriptors;
mod error;
mod event;
pub mod keys;
mod leg_socket;
pub mod links;
mod memory;
pub mod policy;
pub mod redirect;
mod relay;
mod role;
pub mod server;
pub mod status;
mod traffic;

// The parts of the two roles: open to the tests, examples and fuzz targets of this workspace, and to the
// documentation's links, but no interface for programs.
#[doc(hidden)]
pub mod egress;
#[doc(hidden)]
pub mod flows;
#[doc(hidden)]
pub mod ingress;
#[doc(hidden)]
pub mod leg;
#[doc(hidden)]
pub mod pool;
#[doc(hidden)]
pub mod quota;
#[doc(hidden)]
pub mod socket;
#[doc(hidden)]
pub mod tls;
#[doc(hidden)]
pub mod trunk;
#[doc(hidden)]
pub mod trunk_task;

pub use error::Error;
pub use event::{Door, Event, Finished, Protocol, Stop, Totals};
pub use role::{Reloader, Running};
pub use status::Status;
pub use trunk::Host;

/// Where a server listens if nobody says where.
pub const PORT: u16 = 26_228;
