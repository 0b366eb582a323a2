//! Repositories of OSTree in the mode `archive` (ostree manual, "Anatomy of an OSTree repository"):
//! `objects/HH/REST.KIND`, where `HHREST` is the SHA-256 of a commit or of a directory's names or metadata.
//! The name of a file is the hash of its metadata and its uncompressed content, which the client verifies.

use super::target::{Document, StorePath, TargetKind, UNKNOWN_TYPE};
use crate::digest::{Digest, HashKind};

pub(super) fn kind(path: &StorePath<'_>) -> Option<(TargetKind, &'static str)> {
    if path.directory {
        return None;
    }
    let names: Vec<&str> = path.names.iter().map(String::as_str).collect();
    let kind = match &names[..] {
        [.., "objects", first, rest] if first.len() == 2 => {
            let (rest, kind) = rest.split_once('.')?;
            let digest = Digest::from_hex(HashKind::Sha256, &format!("{first}{rest}"))?;
            match kind {
                "commit" | "dirtree" | "dirmeta" => TargetKind::Object(digest),
                "filez" => TargetKind::Unchanging,
                // Signatures may be added to a commit.
                "commitmeta" => TargetKind::Document(Document::PLAIN),
                _ => return None,
            }
        }
        [.., "config" | "summary" | "summary.sig"] => TargetKind::Document(Document::PLAIN),
        names if names.contains(&"refs") => TargetKind::Document(Document::PLAIN),
        names if names.contains(&"deltas") || names.contains(&"delta-indexes") => TargetKind::File,
        _ => return None,
    };
    Some((kind, UNKNOWN_TYPE))
}
