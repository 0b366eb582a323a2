//! The options of a set-up.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use anabranch_net::netlink;

use crate::state_dir::{PROGRAM_STATE_DIR, STATE_DIR};

/// The default first routing table: ANABR on a telephone's keys, as the port of `serve`.
pub const TABLE_BASE: u32 = 26_227;
/// The first routing table of a set-up for a program, after all tables that begin at [`TABLE_BASE`].
pub const PROGRAM_TABLE_BASE: u32 = TABLE_BASE + UPLINKS_MAX as u32;
/// The priority of the rules that look up the uplinks' tables. The rules that look up the main table first
/// have the priority one below. Both come before the main table's own rule, 32766.
pub const RULE_PRIORITY: u32 = 26_227;
/// The most uplinks: the kernel uses no more endpoints.
pub const UPLINKS_MAX: usize = netlink::ENDPOINTS_MAX as usize;

/// The options of a set-up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The names of the interfaces to use.
    pub interfaces: Vec<String>,
    /// The interfaces among them that carry data only while no other can.
    pub backup: Vec<String>,
    /// The routing table of the first uplink; the others have the next numbers.
    pub table_base: u32,
    /// The directory of the journal, by default [`STATE_DIR`], which the next boot empties.
    pub state_dir: PathBuf,
    /// The options of a set-up for the life of a program; `None` for a set-up that stays.
    pub program: Option<Program>,
}

/// The options of a set-up for the life of a program, which may remove endpoints and restore them meanwhile.
///
/// * An interface that cannot be used now is left out, with a note.
/// * An interface without a default route is used if packets from its address to a server leave by it.
/// * The journal also contains endpoints that were there before exactly as wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The addresses of the servers that the program talks to.
    pub servers: Vec<IpAddr>,
    /// Interfaces that have no endpoint for now, so that no connection uses them. Their rules and routes
    /// stay.
    pub without: Vec<String>,
    /// The numbers that new endpoints of these addresses get; those of others are chosen by the kernel. An
    /// address should always get the same: Linux recognises by it the address of a connection's first
    /// subflow, whose number in MPTCP's options is 0.
    pub ids: BTreeMap<IpAddr, u8>,
    /// Addresses whose endpoints are made anew this time, so that connections open new subflows from them.
    pub renewed: Vec<IpAddr>,
    /// Addresses whose endpoints stay as they are while their interface cannot be used.
    pub kept: Vec<IpAddr>,
    /// Whether every endpoint opens subflows to all addresses of the peer.
    pub fullmesh: bool,
    /// Whether endpoints that others have made are left as they are, even if they are for an address of an
    /// uplink; otherwise they are replaced, and restored at the end.
    pub leaves_others: bool,
}

impl Options {
    /// Makes the options of a set-up of these interfaces that stays.
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

    /// Makes the options of a program that talks to these servers. Its tables and its journal are not those
    /// of [`new`](Self::new), so that an administrator's set-up is left as it is.
    #[must_use]
    pub fn for_program(interfaces: Vec<String>, servers: Vec<IpAddr>) -> Self {
        Self {
            table_base: PROGRAM_TABLE_BASE,
            state_dir: PROGRAM_STATE_DIR.into(),
            program: Some(Program { servers, ..Program::default() }),
            ..Self::new(interfaces)
        }
    }
}
