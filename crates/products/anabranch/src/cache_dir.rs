//! Where hashes and what was learnt of URLs are kept between runs.

use std::path::{Path, PathBuf};

/// `$XDG_CACHE_HOME/anabranch`, else `~/.cache/anabranch`; `None` if neither is known, or if
/// the home directory does not exist, which is so for many service users: the cache does not create one.
#[must_use]
pub fn cache_dir() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // The base directory specification says that relative paths are to be ignored.
    let of_home = || absolute("HOME").map(|home| home.join(".cache"));
    let base = absolute("XDG_CACHE_HOME").or_else(of_home);
    let is_there = |base: &PathBuf| base.is_dir() || base.parent().is_some_and(Path::is_dir);
    base.filter(is_there).map(|base| base.join("anabranch"))
}
