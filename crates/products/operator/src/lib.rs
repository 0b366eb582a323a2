//! Packet functions that start in less than a millisecond, and move while packets come.
//!
//! **Purpose.** A function (a firewall, a NAT: crate `function`) is an instance with state. A host carries
//! thousands of them in one process, as modules of WebAssembly between two devices that it makes; starts one
//! in less than a millisecond; and moves one to another host with its state and its addresses, while packets
//! come: those that come meanwhile wait. Whatever is killed, one of the two hosts runs it.
//!
//! **Non-goals.** No virtual machines, and no isolation like theirs. No IPv6. No printing and no command
//! line. `docs/operator.md` has the data flow, and what is refused.
//!
//! **Map.**
//! * [`spec`]: what an instance is made of.
//! * [`wasm`]: modules, their limits, and instances of them; [`functions`]: the modules that come with this.
//! * [`frame`]: Ethernet and ARP. [`neighbours`]: who has which MAC. [`plane`]: from frames to instances and
//!   back, without a socket and a clock.
//! * [`port`]: the devices. [`host`]: the thread that moves packets, and what can be asked of it.
//! * [`records`]: what outlives the process, in memory or in a file.
//! * [`manager`]: runs, lists and ends instances.
//! * [`delta`]: what differs between two states. [`mover`]: a move at its source, [`journey`]: with its
//!   connection; [`arrivals`]: at its destination; [`wire`]: what both say; [`remote`] and `server`: the ends
//!   of the connection.
//! * [`control`]: what a command says to the agent of this host. [`agent`]: the process that carries
//!   instances; [`event`]: what it reports.
//! * [`storm`]: how many this machine carries, and how fast they start.
#![deny(unsafe_code)]

pub mod agent;
pub mod arrivals;
pub mod control;
pub mod delta;
mod error;
pub mod event;
pub mod frame;
pub mod functions;
pub mod host;
pub mod journey;
pub mod manager;
pub mod mover;
pub mod neighbours;
pub mod plane;
pub mod port;
pub mod records;
pub mod remote;
mod server;
pub mod spec;
pub mod storm;
pub mod wasm;
pub mod wire;

pub use error::{Error, Result};
