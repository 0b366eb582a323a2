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
//! What is about to be added, and what is about to be changed as it was before, is written to a journal
//! before the first change. [`teardown`] goes by it: it removes what of it is there, whether or not all of it
//! was done before somebody pulled the plug. What was there before and is just what is wanted is in no
//! journal, and stays.

mod current;
mod desired;
mod journal;
mod plan;

pub use journal::STATE_DIR;
pub use plan::{Change, Plan};

use std::fmt;
use std::path::PathBuf;

use net::netlink::{self, SockDiag, TcpState};

use current::CurrentConfig;
use journal::JournalFile;

/// The first routing table unless told otherwise: ANABR on a telephone's keys, as the port of `serve`.
pub const TABLE_BASE: u32 = 26_227;
/// The priority of the rules that look up the uplinks' tables. The one before it is for the rules that look
/// up the main table first. Both are before the main table's own, 32766.
pub const RULE_PRIORITY: u32 = 26_227;
/// Uplinks at most: the kernel uses no more endpoints.
pub const UPLINKS_MAX: usize = netlink::ENDPOINTS_MAX as usize;

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Options {
    /// The names of the interfaces to use.
    pub interfaces: Vec<String>,
    /// Those of them that carry data only while no other can.
    pub backup: Vec<String>,
    /// The routing table of the first uplink; the others have the next numbers.
    pub table_base: u32,
    /// Where the journal is kept: [`STATE_DIR`], a directory that the next boot empties.
    pub state_dir: PathBuf,
}

impl Options {
    /// Options for these interfaces.
    #[must_use]
    pub fn new(interfaces: Vec<String>) -> Self {
        Self { interfaces, backup: Vec::new(), table_base: TABLE_BASE, state_dir: STATE_DIR.into() }
    }
}

/// Why it does not work; for the person at the terminal.
#[derive(Debug)]
pub enum Error {
    /// What was asked for makes no sense.
    Usage(String),
    /// An interface cannot be used, or the kernel cannot do it.
    Unusable(String),
    /// The kernel refused.
    Refused(netlink::Error),
    /// The journal cannot be read or written.
    Journal(String),
}

/// What the functions here return.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Unusable(text) | Self::Journal(text) => f.write_str(text),
            Self::Refused(error) if error.is_denied() => write!(f, "{error}: run it as root"),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<netlink::Error> for Error {
    fn from(error: netlink::Error) -> Self {
        Self::Refused(error)
    }
}

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
    // With an endpoint go the subflows from its address, the first of a connection too: the kernel knows no
    // other way. Where the sockets cannot be listed, the note is missing, no more.
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
        // What is left may be of a namespace that is gone, or have been cut off before anything was changed.
        JournalFile::of(&CurrentConfig::read()?, state_dir)?.remove()?;
        return Ok(None);
    };
    plan.apply()?;
    plan.remove_journal(state_dir)?;
    Ok(Some(plan))
}
