//! What is known of the paths of content-addressed stores: which URLs a path stands for, and which hash
//! its bytes must have.
//!
//! | preset | objects, verified by their names | the rest |
//! | --- | --- | --- |
//! | `files` | – | files that may change |
//! | `pypi` | files that the index lists with `#sha256=` | index pages, rewritten; metadata of wheels |
//! | `nix` | `nar/HASH.nar*` (SHA-256 in Nix's base 32) | `.narinfo`, which Nix's own signature protects |
//! | `oci` | `…/blobs/DIGEST`, `…/manifests/DIGEST` | `…/manifests/TAG`, `…/tags/list`, `/v2/` |
//! | `apt` | `…/by-hash/SHA256/HASH`, `…/by-hash/SHA512/HASH` | lists; `pool/`, whose files never change |
//! | `casync` | chunks that are not compressed (SHA-512/256) | `.cacnk` chunks, which never change; indexes |
//! | `git-lfs` | all: each URL ends in the SHA-256 | – |
//! | `huggingface` | files in Git LFS, by the SHA-256 that the hub says | other files; lists in JSON |
//! | `ostree` | commits, directories (SHA-256) | `.filez` files, which stay; refs, summaries, deltas |
//!
//! A preset is refused nothing but paths: a path that the store cannot have is answered with 404, and no
//! source is asked.

mod apt;
mod casync;
mod git_lfs;
mod huggingface;
mod nix;
mod oci;
mod ostree;
mod pypi;
mod pypi_json;
mod target;
#[cfg(test)]
mod tests;

use crate::config::Route;

pub use crate::preset_names::Preset;
pub use pypi::rewrite_index;
pub use target::{Document, Resolution, StorePath, Target, TargetKind, UNKNOWN_TYPE};

/// Returns what a path of a route stands for; `None` if the store has no such path.
#[must_use]
pub fn target(route: &Route, path: &StorePath<'_>) -> Option<Target> {
    let (kind, media_type) = match route.preset {
        Preset::Files if path.directory => return None,
        Preset::Files => (TargetKind::File, UNKNOWN_TYPE),
        Preset::PyPi => return pypi::target(route, path),
        Preset::Nix => nix::kind(path)?,
        Preset::Oci => oci::kind(path)?,
        Preset::Apt => apt::kind(path)?,
        Preset::Casync => casync::kind(path)?,
        Preset::Ostree => ostree::kind(path)?,
        Preset::GitLfs => git_lfs::kind(path)?,
        Preset::HuggingFace => huggingface::kind(path)?,
    };
    Some(Target { sources: path.below(&route.sources), kind, media_type, credentials: None })
}
