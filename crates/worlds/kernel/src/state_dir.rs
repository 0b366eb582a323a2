//! The directory of what must be put back later: one lock for all that changes it.

/// Where it is kept. The next boot empties it, as it does what it is about.
pub const STATE_DIR: &str = "/run/anabranch";
/// The same for what is set up for the life of a program.
pub const PROGRAM_STATE_DIR: &str = "/run/anabranch/program";

/// The longest file there: one is a few kilobytes.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;
