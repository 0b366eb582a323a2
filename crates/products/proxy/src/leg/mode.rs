//! How the datagrams of a flow are spread over paths.

use std::fmt;
use std::str::FromStr;

/// How the datagrams of a flow are spread over paths. The numbers are those of the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Each takes the path with the lowest delay that answers and has room in its window.
    #[default]
    Best = 0,
    /// Each takes the two best paths; the second copy is dropped.
    Duplicate = 1,
    /// Each takes the path on which it is there first, all paths are filled, and order is restored within a
    /// bound.
    Aggregate = 2,
}

impl Mode {
    /// All, with their names on a command line.
    pub const NAMES: [(Self, &'static str); 3] =
        [(Self::Best, "best"), (Self::Duplicate, "duplicate"), (Self::Aggregate, "aggregate")];

    pub(super) fn from_number(number: u8) -> Option<Self> {
        Self::NAMES.iter().map(|(mode, _)| *mode).find(|mode| *mode as u8 == number)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(mode, _)| mode == self).map_or("", |(_, name)| *name);
        f.write_str(name)
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(_, name)| *name == text).map(|(mode, _)| *mode);
        found.ok_or_else(|| format!("'{text}' is none of best, duplicate and aggregate"))
    }
}
