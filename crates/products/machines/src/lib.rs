//! Running machines that move between hosts over all links.
//!
//! **Purpose.** A machine (a guest of QEMU) moves to another host while it runs, over all paths between the
//! two at once, encrypted. Before, it is told whether the move will ever end; afterwards, how long the guest
//! stood still, as it felt it. Whatever is killed meanwhile, one of the two hosts runs the machine.
//!
//! **Non-goals.** No hypervisor: QEMU runs machines and copies their memory and disks. No printing and no
//! command line. `docs/machines.md` has the data flow, and what is refused.
//!
//! **Map.**
//! * [`config`]: what a machine is made of, and the arguments of its QEMU; [`launch`]: starts and ends it;
//!   [`qmp`]: speaks with it.
//! * [`store`]: what this host knows, on disk.
//! * [`model`]: predicts a move, in virtual time; [`memory`]: what of a guest's memory is in use;
//!   [`outlook`]: measures guest and paths for the model.
//! * [`paths`]: the ways to the other host, and what each carries.
//! * [`journal`]: the rules of who may run a machine; [`settle`]: the end of a move, and of one that was
//!   killed.
//! * [`disks`]: disks of one host alone, at both ends of their copy.
//! * [`mover`]: a move, at its source. [`remote`]: the agent as the source sees it; [`wire`]: what they say.
//! * [`protect`]: a machine whose disks are copied for as long as it runs; `lag`: how far the copy is behind;
//!   [`shadow`]: that copy, at the other host.
//! * [`agent`]: the destination; [`door`]: who is let in there; `arrivals`: the machines that come to it;
//!   `limits`: what they may have; [`connections`]: the places of connections; `key`: the key between the two
//!   QEMUs.
//! * `beat`: a guest's heartbeat.
#![deny(unsafe_code)]

pub mod agent;
mod arrivals;
mod beat;
pub mod config;
pub mod connections;
pub mod disks;
pub mod door;
mod error;
pub mod journal;
mod key;
mod lag;
pub mod launch;
mod limits;
pub mod memory;
pub mod model;
pub mod mover;
pub mod outlook;
pub mod paths;
pub mod protect;
pub mod qmp;
pub mod remote;
pub mod settle;
pub mod shadow;
pub mod store;
pub mod wire;

pub use error::{Error, Result};
pub use limits::Allowed;
