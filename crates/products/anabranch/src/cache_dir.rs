//! The directory for files that are kept between runs: hashes, and the history of URLs.

use std::path::{Path, PathBuf};

/// Returns `$XDG_CACHE_HOME/anabranch`, or else `~/.cache/anabranch`. Returns `None` if neither is known, or
/// if the home directory does not exist, as for many service users: the cache does not create one.
#[must_use]
pub fn cache_dir() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // The base directory specification says that relative paths must be ignored.
    let of_home = || absolute("HOME").map(|home| home.join(".cache"));
    let base = absolute("XDG_CACHE_HOME").or_else(of_home);
    let is_there = |base: &PathBuf| base.is_dir() || base.parent().is_some_and(Path::is_dir);
    base.filter(is_there).map(|base| base.join("anabranch"))
}
