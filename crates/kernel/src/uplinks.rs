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

mod current;
mod desired;
mod error;
mod journal;
mod options;
mod plan;

pub use error::{Error, Result};
pub use options::{Options, RULE_PRIORITY, TABLE_BASE, UPLINKS_MAX};
pub use plan::{Change, Plan};

pub use crate::state_dir::STATE_DIR;

use net::netlink::{SockDiag, TcpState};

use current::CurrentConfig;
use journal::JournalFile;

/// Finds out what is to be done in the calling thread's network namespace, and does nothing.
///
/// # Errors
/// If an interface is not there, is down, or has no address or default route; if the kernel has no MPTCP; if
/// a table is in use.
pub fn plan(options: &Options) -> Result<Plan> {
    let current = CurrentConfig::read()?;
    let journal = JournalFile::of(&current, &options.state_dir)?.read()?.unwrap_or_default();
    let desired = desired::desired(options, &current, &journal)?;
    Ok(plan::diff(&desired, &current, &journal))
}

/// Does what [`plan`] says, and gives it back.
///
/// # Errors
/// As [`plan`]; what the kernel refuses; if the journal cannot be written. What had been done until then is
/// in the journal: [`teardown`] removes it.
pub fn setup(options: &Options) -> Result<Plan> {
    let _lock = journal::lock(&options.state_dir)?;
    let plan = plan(options)?;
    plan.write_intent(&options.state_dir)?;
    plan.apply()?;
    plan.commit(&options.state_dir)?;
    Ok(plan)
}

/// What [`teardown`] would do: `None` if there is nothing to put back.
///
/// # Errors
/// If the kernel cannot be asked or the journal not be read.
pub fn plan_teardown(state_dir: &std::path::Path) -> Result<Option<Plan>> {
    let current = CurrentConfig::read()?;
    let Some(journal) = JournalFile::of(&current, state_dir)?.read()? else { return Ok(None) };
    let mut plan = plan::rollback(&current, &journal);
    // Removing an endpoint ends the subflows from its address, including the first of a connection. If the
    // sockets cannot be listed, only the note is missing.
    let sockets = SockDiag::open()
        .and_then(|sockets| sockets.tcp(&[TcpState::Established, TcpState::CloseWait]))
        .unwrap_or_default();
    plan.note_closed_connections(&sockets);
    Ok(Some(plan))
}

/// Puts everything back as it was before the first [`setup`] in the calling thread's network namespace, and
/// tells what was done: `None` if there was nothing to put back. What somebody else has changed since then is
/// left as it is, and said. Connections whose subflows all come from the uplinks' addresses end.
///
/// # Errors
/// What the kernel refuses; if the journal cannot be read. It can be called again then.
pub fn teardown(state_dir: &std::path::Path) -> Result<Option<Plan>> {
    let _lock = journal::lock(state_dir)?;
    let Some(plan) = plan_teardown(state_dir)? else {
        // The journal may be of a namespace that is gone, or of a set-up that changed nothing yet.
        JournalFile::of(&CurrentConfig::read()?, state_dir)?.remove()?;
        return Ok(None);
    };
    plan.apply()?;
    plan.remove_journal(state_dir)?;
    Ok(Some(plan))
}
