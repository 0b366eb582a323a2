//! Set-up and teardown: what is there is read, what is to be done is worked out, and done.

use anabranch_net::netlink::{SockDiag, TcpState};

use super::current::CurrentConfig;
use super::desired::desired;
use super::journal::{self, JournalFile};
use super::plan::{diff, rollback};
use super::{Options, Plan, Result};

/// Finds out what is to be done in the calling thread's network namespace, and does nothing.
///
/// # Errors
/// If an interface is not there, is down, or has no address or default route; if the kernel has no MPTCP; if
/// a table is in use.
pub fn plan(options: &Options) -> Result<Plan> {
    let mut current = CurrentConfig::read()?;
    if let Some(program) = &options.program {
        current.read_leads(&program.servers)?;
    }
    let journal = JournalFile::of(&current, &options.state_dir)?.read()?.unwrap_or_default();
    let desired = desired(options, &current, &journal)?;
    Ok(diff(&desired, &current, &journal))
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

/// Whether a set-up for the whole machine covers these interfaces, as far as its journal tells, which can be
/// read without privileges.
#[must_use]
pub fn covers(interfaces: &[String], state_dir: &std::path::Path) -> bool {
    let covered = || {
        let netlink = anabranch_net::netlink::Netlink::open().ok()?;
        let namespace =
            (anabranch_net::Namespace::current_inode().ok()?, netlink.namespace_cookie().unwrap_or(0));
        let current = CurrentConfig { namespace, ..CurrentConfig::default() };
        let endpoints = JournalFile::of(&current, state_dir).ok()?.read().ok()??.endpoints();
        let has = |name: &String| {
            let index = netlink.index(name).ok();
            index.is_some() && endpoints.iter().any(|endpoint| endpoint.device == index)
        };
        Some(interfaces.iter().all(has))
    };
    covered().unwrap_or(false)
}

/// What [`teardown`] would do: `None` if there is nothing to put back.
///
/// # Errors
/// If the kernel cannot be asked or the journal not be read.
pub fn plan_teardown(state_dir: &std::path::Path) -> Result<Option<Plan>> {
    let current = CurrentConfig::read()?;
    let Some(journal) = JournalFile::of(&current, state_dir)?.read()? else { return Ok(None) };
    let mut plan = rollback(&current, &journal);
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
