//! Uses several uplinks with the kernel's own MPTCP, and puts back what was there before.
//!
//! For each uplink: an MPTCP endpoint for its address, so that connections open a subflow from it, bound to
//! the device; a routing table with its networks and its default route; and policy rules that look the
//! packets from its address up there. Routes that are more special than a default route still come from the
//! main table, so that containers and private networks are reached as before.
//!
//! Nothing is guessed: the gateway is the one that the main table has for the interface.
//!
//! # How it is put back
//! Before the first change, a journal gets everything that will be added and the former state of everything
//! that will be changed. [`teardown`] uses it to remove what is there, even if the set-up was interrupted.
//! Things that were there before and are wanted as they are are not in the journal, and stay.
//!
//! # For the life of a program
//! A [`Session`] sets up as long as it lives, and puts back when it is dropped; if its process is killed, the
//! next one puts back first. It has a journal of its own.

mod apply;
mod current;
mod desired;
mod error;
mod journal;
mod options;
mod plan;
mod session;

pub use apply::{covers, plan, plan_teardown, setup, teardown};
pub use error::{Error, Result};
pub use options::{Options, PROGRAM_TABLE_BASE, Program, RULE_PRIORITY, TABLE_BASE, UPLINKS_MAX};
pub use plan::{Change, Plan};
pub use session::Session;

pub use crate::state_dir::{PROGRAM_STATE_DIR, STATE_DIR};
