//! Finds the directory for keys, tokens and other state if none is given.

use std::path::PathBuf;

/// Returns `$STATE_DIRECTORY`, which systemd sets, `$XDG_STATE_HOME/anabranch`, or
/// `~/.local/state/anabranch`; `None` if none of them is known.
pub(crate) fn state_dir() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    absolute("STATE_DIRECTORY")
        .or_else(|| absolute("XDG_STATE_HOME").map(|dir| dir.join("anabranch")))
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state/anabranch")))
}
