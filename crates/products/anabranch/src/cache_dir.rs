//! Where hashes and what was learnt of URLs are kept between runs.

use std::path::PathBuf;

/// `$XDG_CACHE_HOME/anabranch`, else `~/.cache/anabranch`; `None` if neither is known.
#[must_use]
pub fn cache_dir() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // The base directory specification says that relative paths are to be ignored.
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    base.map(|base| base.join("anabranch"))
}
