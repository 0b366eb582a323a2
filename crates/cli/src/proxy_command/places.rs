//! Finds the directories for keys and sockets if none are given.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anabranch_kernel::uplinks::PROGRAM_STATE_DIR;
use nix::unistd::geteuid;

use crate::state_dir::state_dir;

/// The directory of the sockets of root's roles; `UNIT_DIRS` has those of the units in `contrib/`.
const ROOT_DIR: &str = "/run/anabranch-proxy";
const UNIT_DIRS: [&str; 2] = ["/run/anabranch-proxy-client", "/run/anabranch-proxy-server"];

/// Returns the directory of a role's socket: `$RUNTIME_DIRECTORY`, which systemd sets,
/// `$XDG_RUNTIME_DIR/anabranch`, [`ROOT_DIR`] for root, or the directory of keys.
pub(super) fn own_dir() -> Option<PathBuf> {
    explicit_dir().or_else(|| match geteuid().is_root() {
        true => Some(ROOT_DIR.into()),
        false => state_dir(),
    })
}

fn explicit_dir() -> Option<PathBuf> {
    let all = |name| std::env::var_os(name).map(|dirs| std::env::split_paths(&dirs).collect::<Vec<_>>());
    // A unit may have several directories, ordered by name. `PROGRAM_STATE_DIR` is skipped, because it is for
    // the record of the kernel's endpoints.
    let is_ours = |dir: &PathBuf| dir.is_absolute() && dir != Path::new(PROGRAM_STATE_DIR);
    let first = |name| all(name).unwrap_or_default().into_iter().find(is_ours);
    first("RUNTIME_DIRECTORY").or_else(|| first("XDG_RUNTIME_DIR").map(|dir| dir.join("anabranch")))
}

/// Returns the directories with sockets that this user may be able to open.
pub(super) fn all_dirs() -> BTreeSet<PathBuf> {
    let own = own_dir().into_iter();
    if std::env::var_os("RUNTIME_DIRECTORY").is_some() {
        return own.collect();
    }
    own.chain(state_dir()).chain([ROOT_DIR.into()]).chain(UNIT_DIRS.map(PathBuf::from)).collect()
}
