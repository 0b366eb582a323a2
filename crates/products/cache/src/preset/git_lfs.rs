//! Objects of Git LFS (git-lfs, "Git LFS Specification" and "Batch API"): the server of a repository names,
//! for each object, a URL that ends in the object's SHA-256, its `oid`. Clients ask that server themselves,
//! by POST, and fetch objects from the cache instead of the URL by git's setting `insteadOf`. The query of a
//! URL may be a signature, which goes to the source and is no part of the object's name.

use super::target::{StorePath, TargetKind, UNKNOWN_TYPE};
use crate::digest::{Digest, HashKind};

pub(super) fn kind(path: &StorePath<'_>) -> Option<(TargetKind, &'static str)> {
    let digest = Digest::from_hex(HashKind::Sha256, path.last()).filter(|_| !path.directory)?;
    Some((TargetKind::Object(digest), UNKNOWN_TYPE))
}
