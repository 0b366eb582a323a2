//! A small file and its expected hashes.

use anabranch_mirror::digests::{Digests, Hasher};
use anabranch_mirror::metalink::Hashes;
use anabranch_mirror::url::Url;
use anabranch_mmtp::ContentId;

use crate::target::{FinalCheck, Mismatch, RootCheck};

/// A small file that is wanted.
pub(in crate::get) struct FileJob {
    /// The path of the file below the directory.
    pub(in crate::get) name: String,
    pub(in crate::get) bytes: u64,
    pub(in crate::get) hash: Hash,
    /// The URLs of the file, the best first.
    pub(in crate::get) urls: Vec<Url>,
}

impl FileJob {
    /// Whether the file may be a web page, judged by the ending of its name.
    pub(super) fn may_be_page(&self) -> bool {
        let end = self.name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        ["html", "htm", "xhtml"].contains(&end.as_str())
    }
}

/// The expected hashes of a file: at least one.
#[derive(Clone, Copy, Debug)]
pub(in crate::get) struct Hash {
    root: Option<[u8; 32]>,
    digests: Digests,
}

impl Hash {
    /// Returns the hashes that a Metalink states, or `None` if it states none.
    pub(in crate::get) fn of(hashes: &Hashes) -> Option<Self> {
        let Hashes { blake3: root, digests } = *hashes;
        (root.is_some() || !digests.is_empty()).then_some(Self { root, digests })
    }

    /// Returns how these bytes differ from the expected hashes, or `None` if they match.
    pub(in crate::get) fn mismatch(&self, bytes: &[u8]) -> Option<Mismatch> {
        let (proof, root) = self.proof();
        let mut hasher = Hasher::of(&self.digests);
        hasher.update(bytes);
        let id = ContentId { root, length: bytes.len() as u64 };
        let found = if self.root.is_some() { *blake3::hash(bytes).as_bytes() } else { root };
        proof.mismatch(&id, found, &hasher.finish())
    }

    /// Returns the check that a target makes and the root hash, which is zeros if it is not known.
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
