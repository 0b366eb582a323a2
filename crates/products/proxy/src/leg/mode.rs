//! How the datagrams of a flow are spread over paths.

use std::fmt;
use std::str::FromStr;

/// How the datagrams of a flow are spread over paths. The numbers are those in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Each datagram takes the path with the lowest delay that answers and has room in its window.
    #[default]
    Best = 0,
    /// Each datagram takes the two best paths; the receiver drops the second copy.
    Duplicate = 1,
    /// Each datagram takes the path on which it arrives first. All paths are filled, and the receiver
    /// restores the order within a time limit.
    Aggregate = 2,
}

impl Mode {
    /// All modes, with their names on a command line.
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
