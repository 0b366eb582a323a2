//! Namespaces joined by emulated links that stay up after the command that made them. A separate process, the
//! holder, keeps them. A laboratory (`anabranch lab up`) is one kind, a domain (`anabranch net up`) the
//! other.
//!
//! This module has what both kinds share: the holder, finding and asking it, running programs inside, and
//! taking everything down.

pub(crate) mod commands;
pub(crate) mod daemon;
pub(crate) mod orphans;
pub(crate) mod plain_name;
pub(crate) mod report;

use serde::{Deserialize, Serialize};

/// The kinds of setups that a holder keeps up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A scenario's hosts and links.
    Lab,
    /// The nodes and lines of a domain.
    Net,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Self; 2] = [Self::Lab, Self::Net];

    /// Returns the command that has `up`, `exec`, `status` and `down` for this kind.
    pub(crate) const fn command(self) -> &'static str {
        match self {
            Self::Lab => "lab",
            Self::Net => "net",
        }
    }

    /// Returns the word for a setup of this kind.
    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::Lab => "laboratory",
            Self::Net => "domain",
        }
    }

    /// Returns the word for the parts of the setup that have a namespace each.
    pub(crate) const fn host(self) -> &'static str {
        match self {
            Self::Lab => "host",
            Self::Net => "node",
        }
    }
}

/// The state of a setup, as its holder reports it.
pub(crate) trait State: Serialize + for<'de> Deserialize<'de> {
    /// The kind of the setup.
    const KIND: Kind;

    /// Returns the name of the setup.
    fn name(&self) -> &str;

    /// Returns the process id of the holder.
    fn pid(&self) -> u32;

    /// Returns the names of the hosts, and the descriptors of their namespaces in the holder's process.
    fn hosts(&self) -> Vec<(&str, i32)>;

    /// Returns the reasons not to trust measurements in this setup.
    fn faults(&self) -> &[String];

    /// Returns the state as text for people.
    fn report(&self) -> String;
}
