//! The hub of Hugging Face and its mirrors, as the client `huggingface_hub` asks them (version 2.4,
//! `file_download.py`): `NAME/resolve/REVISION/FILE`, where NAME is `REPO`, `OWNER/REPO`,
//! `datasets/OWNER/REPO` or `spaces/OWNER/REPO`.
//!
//! The hub answers a file in Git LFS by a redirect to a storage, with fields of its own: `X-Linked-Etag` is
//! the SHA-256 of the file, `X-Linked-Size` its length, `X-Repo-Commit` the commit that REVISION means now.
//! Other files it sends itself, with an `ETag` that is no SHA-256. A file of a commit never changes. `api/`
//! has lists in JSON.
//!
//! The fields by which the hub offers another protocol (`X-Xet-Hash`) are not handed on, so that clients
//! fetch by HTTP, and through the cache.

use super::target::{Document, StorePath, TargetKind, UNKNOWN_TYPE};

/// The number of hexadecimal digits of a commit.
const COMMIT_CHARS: usize = 40;

pub(super) fn kind(path: &StorePath<'_>) -> Option<(TargetKind, &'static str)> {
    if path.directory {
        return None;
    }
    let names: Vec<&str> = path.names.iter().map(String::as_str).collect();
    if let ["api", _, ..] = &names[..] {
        let document = Document { accept: "application/json", ..Document::PLAIN };
        return Some((TargetKind::Document(document), "application/json"));
    }
    let at = names.iter().position(|name| *name == "resolve")?;
    let (name, [_, revision, _, ..]) = names.split_at(at) else { return None };
    let is_repository = match name {
        [kind, _, _] => matches!(*kind, "datasets" | "spaces"),
        [_] | [_, _] => true,
        _ => false,
    };
    let lasts = revision.len() == COMMIT_CHARS && revision.bytes().all(|c| c.is_ascii_hexdigit());
    is_repository.then_some((TargetKind::Resolved { lasts }, UNKNOWN_TYPE))
}
