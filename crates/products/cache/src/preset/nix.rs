//! Binary caches of Nix (Nix manual, "HTTP Binary Cache Store"). A `.narinfo` names the archive of a store
//! path; the archive's file name is the SHA-256 of its bytes, as they are sent, in Nix's base 32.

use super::target::{Document, StorePath, TargetKind, UNKNOWN_TYPE};
use crate::digest::Digest;

/// The number of characters of the hash in a store path.
const STORE_HASH_CHARS: usize = 32;

pub(super) fn kind(path: &StorePath<'_>) -> Option<(TargetKind, &'static str)> {
    let names: Vec<&str> = path.names.iter().map(String::as_str).collect();
    match (&names[..], path.directory) {
        (["nix-cache-info"], false) => Some((TargetKind::Document(Document::PLAIN), "text/x-nix-cache-info")),
        ([name], false) if name.strip_suffix(".narinfo").is_some_and(|h| h.len() == STORE_HASH_CHARS) => {
            Some((TargetKind::Document(Document::PLAIN), "text/x-nix-narinfo"))
        }
        (["nar", name], false) => {
            let (hash, _) = name.split_once(".nar")?;
            let kind = Digest::from_nix_base32(hash).map_or(TargetKind::File, TargetKind::Object);
            Some((kind, "application/x-nix-nar"))
        }
        (["log", _], false) => Some((TargetKind::File, UNKNOWN_TYPE)),
        _ => None,
    }
}
