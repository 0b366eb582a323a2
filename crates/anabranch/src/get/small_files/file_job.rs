//! A small file, and what tells that it is right.

use mirror::digests::{Digests, Hasher};
use mirror::url::Url;

use crate::target::FinalCheck;

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

/// What tells that a file is right.
#[derive(Clone, Copy, Debug)]
pub(in crate::get) enum Hash {
    Blake3([u8; 32]),
    Sha2(Digests),
}

impl Hash {
    pub(in crate::get) fn is_of(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Blake3(root) => blake3::hash(bytes) == *root,
            Self::Sha2(wanted) => {
                let mut hasher = Hasher::of(wanted);
                hasher.update(bytes);
                hasher.finish() == *wanted
            }
        }
    }

    /// The same as a target has it, with the root as far as it is known.
    pub(in crate::get) const fn proof(&self) -> (FinalCheck, [u8; 32]) {
        match self {
            Self::Blake3(root) => (FinalCheck::Root, *root),
            Self::Sha2(wanted) => (FinalCheck::Sha2(*wanted), [0; 32]),
        }
    }
}

/// Whether a `Content-Type` is that of a web page.
pub(super) fn is_page(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("text/html") || kind.eq_ignore_ascii_case("application/xhtml+xml")
}
