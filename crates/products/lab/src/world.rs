//! Defines the worlds in which a scenario runs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A world in which a scenario runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// The simulator, in virtual time.
    #[default]
    Sim,
    /// The kernel's own TCP and MPTCP over emulated links, in real time.
    Kernel,
}

impl World {
    /// All worlds, in the order in which tables show them.
    pub const ALL: [Self; 2] = [Self::Sim, Self::Kernel];

    /// Returns the name of the world on command lines and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Kernel => "kernel",
        }
    }

    /// Returns the world with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|world| world.name() == name)
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
