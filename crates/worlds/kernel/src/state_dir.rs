//! The directories that keep what must be put back later. One lock guards each.

/// The directory of the machine's set-up. The next boot empties it, and undoes the changes that it is about.
pub const STATE_DIR: &str = "/run/anabranch";
/// The directory of set-ups that last as long as one program.
pub const PROGRAM_STATE_DIR: &str = "/run/anabranch/program";

/// The most bytes of a file in these directories; a real one has a few kilobytes.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;
