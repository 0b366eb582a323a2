//! Sets up and tears down: reads the present configuration, plans the changes, and makes them.

use std::net::IpAddr;

use anabranch_net::netlink::{SockDiag, TcpState};

use super::current::CurrentConfig;
use super::desired::desired;
use super::journal::{self, JournalFile};
use super::plan::{diff, rollback};
use super::{Options, Plan, Result};

/// Plans the set-up of the calling thread's network namespace, and changes nothing.
///
/// # Errors
/// If an interface does not exist, is down, or has no address or default route; if the kernel has no MPTCP;
/// if a routing table is in use.
pub fn plan(options: &Options) -> Result<Plan> {
    let mut current = CurrentConfig::read()?;
    if let Some(program) = &options.program {
        current.read_leads(&program.servers)?;
    }
    let journal = JournalFile::of(&current, &options.state_dir)?.read()?.unwrap_or_default();
    let desired = desired(options, &current, &journal)?;
    Ok(diff(&desired, &current, &journal))
}

/// Makes the changes of [`plan`], and returns that plan.
///
/// # Errors
/// As [`plan`]; if the kernel refuses a change, or the journal cannot be written. Changes made until then are
/// in the journal, and [`teardown`] undoes them.
pub fn setup(options: &Options) -> Result<Plan> {
    let _lock = journal::lock(&options.state_dir)?;
    let plan = plan(options)?;
    plan.write_intent(&options.state_dir)?;
    plan.apply()?;
    plan.commit(&options.state_dir)?;
    Ok(plan)
}

/// Whether a set-up for the whole machine covers these interfaces, according to its journal. The journal can
/// be read without privileges.
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

/// Returns the addresses of the endpoints that set-ups with this directory have made in the calling thread's
/// network namespace, according to the journal.
///
/// # Errors
/// If the kernel cannot be asked, or the journal cannot be read.
pub fn made(state_dir: &std::path::Path) -> Result<Vec<IpAddr>> {
    let journal = JournalFile::of(&CurrentConfig::read()?, state_dir)?.read()?.unwrap_or_default();
    Ok(journal.endpoints().into_iter().map(|endpoint| endpoint.ip).collect())
}

/// Plans the changes of [`teardown`]; `None` if there is nothing to put back.
///
/// # Errors
/// If the kernel cannot be asked, or the journal cannot be read.
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

/// Puts everything back as it was before the first [`setup`] in the calling thread's network namespace.
/// Returns the plan that was carried out; `None` if there was nothing to put back. Settings that another
/// program has changed since then are left as they are, with a note. Connections whose subflows all come from
/// the uplinks' addresses end.
///
/// # Errors
/// If the kernel refuses a change, or the journal cannot be read. It can be called again then.
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
