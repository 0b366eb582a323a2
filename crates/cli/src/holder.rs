//! What stays up after the command that made it: namespaces joined by emulated links, held by a process of
//! its own. A laboratory (`anabranch lab up`) is one kind of it, a domain (`anabranch net up`) the other.
//! What is common to both is here: the holder, how it is found and asked, how programs are run inside, and
//! how all of it is taken down.

pub(crate) mod commands;
pub(crate) mod daemon;
pub(crate) mod orphans;
pub(crate) mod plain_name;
pub(crate) mod report;

use serde::{Deserialize, Serialize};

/// What a holder keeps up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A scenario's hosts and links.
    Lab,
    /// The nodes and lines of a domain.
    Net,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Self; 2] = [Self::Lab, Self::Net];

    /// The command whose `up`, `exec`, `status` and `down` it has.
    pub(crate) const fn command(self) -> &'static str {
        match self {
            Self::Lab => "lab",
            Self::Net => "net",
        }
    }

    /// What one is.
    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::Lab => "laboratory",
            Self::Net => "domain",
        }
    }

    /// What has a namespace of its own there.
    pub(crate) const fn host(self) -> &'static str {
        match self {
            Self::Lab => "host",
            Self::Net => "node",
        }
    }
}

/// What a holder says of what it holds.
pub(crate) trait State: Serialize + for<'de> Deserialize<'de> {
    /// What it is a state of.
    const KIND: Kind;

    /// What it is called.
    fn name(&self) -> &str;

    /// The process that holds it.
    fn pid(&self) -> u32;

    /// The names of its hosts, and the descriptors of their namespaces in that process.
    fn hosts(&self) -> Vec<(&str, i32)>;

    /// Why what was measured on it should not be trusted.
    fn faults(&self) -> &[String];

    /// For people.
    fn report(&self) -> String;
}
