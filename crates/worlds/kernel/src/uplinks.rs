//! Uses several uplinks with the kernel's own MPTCP, and undoes that later.
//!
//! Each uplink gets:
//!
//! * an MPTCP endpoint for its address, bound to the device, so that connections open a subflow from it;
//! * a routing table with its networks and its default route;
//! * policy rules that send packets from its address to that table.
//!
//! Routes more specific than a default route still come from the main table, so that containers and private
//! networks are reached as before.
//!
//! Nothing is guessed: the gateway is that of the interface's default route in the main table.
//!
//! # How it is put back
//! Before the first change, a journal records everything that will be added, and the former state of
//! everything that will be changed. [`teardown`] uses the journal to undo what was done, even if the set-up
//! was interrupted. Things that were there before exactly as wanted are not in the journal, and stay.
//!
//! # For the life of a program
//! A [`Session`] sets up uplinks and undoes that when it is dropped. If its process is killed, the next
//! session undoes it first. Sessions have a journal of their own. [`survey`] tells which interfaces could be
//! uplinks, and why the others could not.

mod apply;
mod change;
mod current;
mod desired;
mod endpoints;
mod error;
mod journal;
mod options;
mod plan;
#[cfg(test)]
mod program_tests;
mod session;
mod survey;

pub use apply::{covers, made, plan, plan_teardown, setup, teardown};
pub use change::Change;
pub use error::{Error, Result};
pub use options::{Options, PROGRAM_TABLE_BASE, Program, RULE_PRIORITY, TABLE_BASE, UPLINKS_MAX};
pub use plan::Plan;
pub use session::Session;
pub use survey::{Survey, SurveyedAddress, SurveyedLink, survey};

pub use crate::state_dir::{PROGRAM_STATE_DIR, STATE_DIR};
