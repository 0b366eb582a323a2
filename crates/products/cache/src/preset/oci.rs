//! Registries of container images (OCI Distribution Specification 1.1). Blobs and manifests are named by
//! their digests; a tag names a manifest that may change.

use super::target::{Document, StorePath, TargetKind, UNKNOWN_TYPE};
use crate::digest::{Digest, HashKind};

/// The types of manifests, in the order in which registries should prefer them.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json, */*;q=0.1";

pub(super) fn kind(path: &StorePath<'_>) -> Option<(TargetKind, &'static str)> {
    let names: Vec<&str> = path.names.iter().map(String::as_str).collect();
    let document = |accept| TargetKind::Document(Document { accept, ..Document::PLAIN });
    match &names[..] {
        ["v2"] => Some((document("application/json"), "application/json")),
        ["v2", _, .., "blobs", digest] if !path.directory => {
            Some((TargetKind::Object(parse(digest)?), UNKNOWN_TYPE))
        }
        // A manifest's type is known only from its server, so that it is a document even by its digest.
        ["v2", _, .., "manifests", name] if !path.directory => {
            let digest = if name.contains(':') { Some(parse(name)?) } else { None };
            let document = Document { accept: MANIFESTS, digest, ..Document::PLAIN };
            Some((TargetKind::Document(document), UNKNOWN_TYPE))
        }
        ["v2", _, .., "tags", "list"] if !path.directory => {
            Some((document("application/json"), "application/json"))
        }
        _ => None,
    }
}

/// Parses a digest: `sha256:HEX` or `sha512:HEX`.
fn parse(text: &str) -> Option<Digest> {
    match text.split_once(':')? {
        ("sha256", hex) => Digest::from_hex(HashKind::Sha256, hex),
        ("sha512", hex) => Digest::from_hex(HashKind::Sha512, hex),
        _ => None,
    }
}
