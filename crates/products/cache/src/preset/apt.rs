//! Archives of Debian packages (Debian wiki, "DebianRepository/Format"). Lists below `by-hash` are named
//! by their hashes; a file below `pool` never changes, because its name has the version. apt itself
//! verifies both, from the signature of `InRelease` on.

use super::target::{Document, StorePath, TargetKind, UNKNOWN_TYPE};
use crate::digest::{Digest, HashKind};

pub(super) fn kind(path: &StorePath<'_>) -> Option<(TargetKind, &'static str)> {
    if path.directory || path.names.is_empty() {
        return None;
    }
    let names: Vec<&str> = path.names.iter().map(String::as_str).collect();
    let kind = match &names[..] {
        [.., "by-hash", "SHA256", hex] => TargetKind::Object(Digest::from_hex(HashKind::Sha256, hex)?),
        [.., "by-hash", "SHA512", hex] => TargetKind::Object(Digest::from_hex(HashKind::Sha512, hex)?),
        // Too weak to prove anything.
        [.., "by-hash", "MD5Sum" | "SHA1", _] => TargetKind::File,
        [.., "by-hash", _, _] => return None,
        _ if is_package(path.last()) => TargetKind::Unchanging,
        [.., "InRelease" | "Release" | "Release.gpg"] => TargetKind::Document(Document::PLAIN),
        _ => TargetKind::File,
    };
    Some((kind, UNKNOWN_TYPE))
}

/// Whether a file's name has a version (`NAME_VERSION_ARCHITECTURE.deb`), so that it never changes.
fn is_package(name: &str) -> bool {
    let is_deb = [".deb", ".udeb", ".ddeb"].iter().any(|end| name.ends_with(end));
    is_deb && name.matches('_').count() >= 2
}
