//! Lets every program use several links, towards servers that need no change: SOCKS5 and HTTP proxies that
//! are connected by Multipath TCP.
//!
//! **Purpose.** A client runs on the host with the links, a server on a host with a good connection. Trunks
//! between them are few lasting connections that carry many streams. The crate's README has the data flow and
//! the refusals; `docs/wire-proxy.md` has the wire format.
//!
//! **Non-goals.** No command line, no printing, no signals: events go to the caller. No congestion control:
//! the kernel does that, with the controllers of the crate `kernel`.
//!
//! **Map.**
//! * [`trunk`]: one end of a trunk, a machine; [`trunk::frame`]: its wire format; [`trunk::Destination`]: the
//!   destination of a program.
//! * [`trunk_task`]: runs a trunk in the world: [`start`](trunk_task::start) it on a connection,
//!   [`TrunkHandle::open`](trunk_task::TrunkHandle::open) or `accept` a [`Stream`](trunk_task::Stream).
//! * [`leg`]: one end of a leg, a machine that carries programs' datagrams over several paths;
//!   [`leg::packet`]: its format.
//! * [`pool`]: chooses the trunk of a stream, and when to open and close trunks; [`pool::servers`]: chooses
//!   the server if there are several.
//! * [`keys`]: key pairs, the line that pairs a client, the list of clients; [`tls`]: TLS 1.3 with these
//!   keys.
//! * [`socket`]: MPTCP sockets for trunks, and the kernel's information about them.
//! * [`transport`]: chooses what carries trunks; `trunk_socket`: the connection under a trunk, of the kernel
//!   or in UDP.
//! * [`links`]: the links that a client uses, and the kernel's endpoints for them.
//! * [`ingress`]: the protocols of programs.
//! * [`redirect`]: takes connections of programs that know no proxy.
//! * [`egress`]: connections to origins; [`policy`]: the destinations that are allowed.
//! * [`config`]: the settings of both roles, for files, flags and programs.
//! * [`flows`]: the live connections and their time-outs; [`quota`]: the limits of each user.
//! * [`status`]: the state of a role as a snapshot, a page and metrics; `traffic`: the bytes on each link.
//! * [`control`]: commands to a role that runs.
//! * `constant_time`: comparisons that reveal no secret; `descriptors`: the limits on
//!   descriptors.
//! * `relay`: moves bytes between a TCP connection and a stream; `buffer`: the buffers of reads.
//! * [`client`], [`server`]: the two roles, started with options; [`Running`] has the [events](Event), and
//!   the handle that ends the role.
#![deny(unsafe_code)]

mod buffer;
pub mod client;
pub mod config;
mod constant_time;
pub mod control;
mod descriptors;
mod error;
mod event;
pub mod keys;
mod leg_socket;
pub mod links;
mod memory;
pub mod policy;
mod random;
pub mod redirect;
mod relay;
mod role;
pub mod server;
pub mod status;
mod traffic;
pub mod transport;
mod trunk_socket;

// The parts of the two roles are public for the tests, examples and fuzz targets of this workspace and for
// links in the documentation. They are no interface for programs.
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

/// The default port of a server.
pub const PORT: u16 = 26_228;
