//! What is asked for.

use std::path::PathBuf;

use net::netlink;

use super::STATE_DIR;

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
