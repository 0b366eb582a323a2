//! What is asked for.

use std::net::IpAddr;
use std::path::PathBuf;

use anabranch_net::netlink;

use crate::state_dir::{PROGRAM_STATE_DIR, STATE_DIR};

/// The first routing table unless told otherwise: ANABR on a telephone's keys, as the port of `serve`.
pub const TABLE_BASE: u32 = 26_227;
/// The first routing table of a set-up for a program: behind those of [`TABLE_BASE`].
pub const PROGRAM_TABLE_BASE: u32 = TABLE_BASE + UPLINKS_MAX as u32;
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
    /// What is different if it is for the life of a program.
    pub program: Option<Program>,
}

/// A set-up for the life of a program that takes endpoints away and puts them back meanwhile.
///
/// * An interface that cannot be used now is left out, with a note.
/// * One without a default route is used if packets from its address to one of the servers leave by it.
/// * Endpoints that are there already as they are wanted are in the journal too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Whom the program speaks to.
    pub servers: Vec<IpAddr>,
    /// Interfaces that have no endpoint for now, so that no connection uses them; all else stays.
    pub without: Vec<String>,
}

impl Options {
    /// Options for these interfaces.
    #[must_use]
    pub fn new(interfaces: Vec<String>) -> Self {
        Self {
            interfaces,
            backup: Vec::new(),
            table_base: TABLE_BASE,
            state_dir: STATE_DIR.into(),
            program: None,
        }
    }

    /// Options of a program that speaks to these servers. Its tables and its journal are not those of
    /// [`new`](Self::new): so an administrator's set-up is left as it is.
    #[must_use]
    pub fn for_program(interfaces: Vec<String>, servers: Vec<IpAddr>) -> Self {
        Self {
            table_base: PROGRAM_TABLE_BASE,
            state_dir: PROGRAM_STATE_DIR.into(),
            program: Some(Program { servers, without: Vec::new() }),
            ..Self::new(interfaces)
        }
    }
}
