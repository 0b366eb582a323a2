//! The names of objects: each is a hash of an object's bytes.

use std::fmt;

use anabranch_cache::digest::Digest;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::parse_root;

/// A name by which an object is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// The BLAKE3 hash, by which mmTP names contents.
    Root([u8; 32]),
    /// Another hash.
    Digest(Digest),
}

impl Name {
    /// Parses `b3:` and base32, or the name of a hash function, a colon and hexadecimal digits. Returns
    /// `None` if the text is neither.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match parse_root(text) {
            Ok(root) => Some(Self::Root(root)),
            Err(_) => Digest::parse(text).map(Self::Digest),
        }
    }

    /// Returns the bytes of the hash: 32 or 64.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        match self {
            Self::Root(bytes) => bytes,
            Self::Digest(digest) => digest.bytes(),
        }
    }

    /// Returns by what the name is looked for.
    pub(crate) fn key(&self) -> Key {
        Key::of(self.bytes())
    }
}

/// The first 16 bytes of a hash as two numbers, which are as good as random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) u64, pub(crate) u64);

impl Key {
    /// Returns the key of a hash of at least 16 bytes.
    pub(crate) fn of(hash: &[u8]) -> Self {
        let word = |at: usize| {
            let bytes = hash.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            u64::from_le_bytes(bytes.unwrap_or_default())
        };
        Self(word(0), word(8))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(root) => ContentId { root: *root, length: 0 }.fmt(f),
            Self::Digest(digest) => digest.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_as_it_is_written() {
        let root = Name::Root(*blake3::hash(b"x").as_bytes());
        let hex = "ab".repeat(32);
        for name in [root.to_string(), format!("sha256:{hex}"), format!("sha512-256:{hex}")] {
            assert_eq!(Name::parse(&name).map(|read| read.to_string()), Some(name));
        }
        assert!(matches!(Name::parse(&format!("sha512:{hex}{hex}")), Some(Name::Digest(Digest::Sha512(_)))));
        for bad in ["", "b3:", "sha256:", &hex, "md5:00", &format!("sha512:{hex}"), "sha256:zz"] {
            assert_eq!(Name::parse(bad), None, "{bad}");
        }
    }
}
