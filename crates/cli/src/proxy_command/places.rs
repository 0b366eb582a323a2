//! Where what is kept and where the sockets are, if nobody says where.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anabranch_kernel::uplinks::PROGRAM_STATE_DIR;
use nix::unistd::geteuid;

/// Where sockets of root's roles are, and those of the units in `contrib/`.
const ROOT_DIR: &str = "/run/anabranch-proxy";
const UNIT_DIRS: [&str; 2] = ["/run/anabranch-proxy-client", "/run/anabranch-proxy-server"];

/// Where keys are kept if nobody says where: `$STATE_DIRECTORY`, which systemd sets,
/// `$XDG_STATE_HOME/anabranch`, or `~/.local/state/anabranch`.
pub(super) fn state_dir() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    absolute("STATE_DIRECTORY")
        .or_else(|| absolute("XDG_STATE_HOME").map(|dir| dir.join("anabranch")))
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state/anabranch")))
}

/// Where a role has its socket: `$RUNTIME_DIRECTORY`, which systemd sets, `$XDG_RUNTIME_DIR/anabranch`,
/// root's own place, or where keys are kept.
pub(super) fn own_dir() -> Option<PathBuf> {
    explicit_dir().or_else(|| match geteuid().is_root() {
        true => Some(ROOT_DIR.into()),
        false => state_dir(),
    })
}

fn explicit_dir() -> Option<PathBuf> {
    let all = |name| std::env::var_os(name).map(|dirs| std::env::split_paths(&dirs).collect::<Vec<_>>());
    // A unit may have several, in the order of their names; what the kernel was told has one of its own.
    let is_ours = |dir: &PathBuf| dir.is_absolute() && dir != Path::new(PROGRAM_STATE_DIR);
    let first = |name| all(name).unwrap_or_default().into_iter().find(is_ours);
    first("RUNTIME_DIRECTORY").or_else(|| first("XDG_RUNTIME_DIR").map(|dir| dir.join("anabranch")))
}

/// Where sockets may be that this user can open.
pub(super) fn all_dirs() -> BTreeSet<PathBuf> {
    let own = own_dir().into_iter();
    if std::env::var_os("RUNTIME_DIRECTORY").is_some() {
        return own.collect();
    }
    own.chain(state_dir()).chain([ROOT_DIR.into()]).chain(UNIT_DIRS.map(PathBuf::from)).collect()
}
