//! A small file, and what tells that it is right.

use anabranch_mirror::digests::{Digests, Hasher};
use anabranch_mirror::metalink::Hashes;
use anabranch_mirror::url::Url;
use anabranch_mmtp::ContentId;

use crate::target::{FinalCheck, Mismatch, RootCheck};

/// A small file that is wanted.
pub(in crate::get) struct FileJob {
    /// Its path below the directory.
    pub(in crate::get) name: String,
    pub(in crate::get) bytes: u64,
    pub(in crate::get) hash: Hash,
    /// Where it is, the best first.
    pub(in crate::get) urls: Vec<Url>,
}

impl FileJob {
    /// Whether a web page under its name may be the file.
    pub(super) fn may_be_page(&self) -> bool {
        let end = self.name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        ["html", "htm", "xhtml"].contains(&end.as_str())
    }
}

/// What tells that a file is right: each hash that is there.
#[derive(Clone, Copy, Debug)]
pub(in crate::get) struct Hash {
    root: Option<[u8; 32]>,
    digests: Digests,
}

impl Hash {
    /// Those of a Metalink, if there is one.
    pub(in crate::get) fn of(hashes: &Hashes) -> Option<Self> {
        let Hashes { blake3: root, digests } = *hashes;
        (root.is_some() || !digests.is_empty()).then_some(Self { root, digests })
    }

    /// What is wrong with these bytes.
    pub(in crate::get) fn mismatch(&self, bytes: &[u8]) -> Option<Mismatch> {
        let (proof, root) = self.proof();
        let mut hasher = Hasher::of(&self.digests);
        hasher.update(bytes);
        let id = ContentId { root, length: bytes.len() as u64 };
        let found = if self.root.is_some() { *blake3::hash(bytes).as_bytes() } else { root };
        proof.mismatch(&id, found, &hasher.finish())
    }

    /// What a target holds the file against, and its root, which is zeros where it is not known.
    pub(in crate::get) fn proof(&self) -> (FinalCheck, [u8; 32]) {
        let check = if self.root.is_some() { RootCheck::Blocks } else { RootCheck::Unknown };
        (FinalCheck::of(check, self.digests), self.root.unwrap_or_default())
    }
}

/// Whether a `Content-Type` is that of a web page.
pub(in crate::get) fn is_page(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("text/html") || kind.eq_ignore_ascii_case("application/xhtml+xml")
}
