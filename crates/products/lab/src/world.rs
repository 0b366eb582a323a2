//! Where a scenario runs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// In the simulator, in virtual time.
    #[default]
    Sim,
    /// Through the kernel's own TCP and MPTCP, over emulated links, in real time.
    Kernel,
}

impl World {
    /// All of them, in the order in which tables show them.
    pub const ALL: [Self; 2] = [Self::Sim, Self::Kernel];

    /// What it is called on command lines and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Kernel => "kernel",
        }
    }

    /// The one of this name.
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
