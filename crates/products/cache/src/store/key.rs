//! The names of objects.

use crate::digest::Digest;

/// The name of an object in a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// Returns the key of an object that has this hash. It is the same whatever URL the object came from.
    #[must_use]
    pub fn of_digest(digest: &Digest) -> Self {
        Self(digest.to_string().replace(':', "-"))
    }

    /// Returns the key of the object at a URL.
    #[must_use]
    pub fn of_url(url: &str) -> Self {
        Self(format!("url-{}", blake3::hash(url.as_bytes()).to_hex()))
    }

    /// Returns the key of the same object for clients with these credentials.
    #[must_use]
    pub fn of_one(&self, credentials: &str) -> Self {
        let secret = blake3::derive_key("anabranch 2026-11-30 objects of one client", credentials.as_bytes());
        Self(format!("own-{}", blake3::keyed_hash(&secret, self.0.as_bytes()).to_hex()))
    }

    /// Returns the key that a file's name is, if it is one.
    pub(super) fn of_file(name: &str) -> Option<Self> {
        let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        (name.len() > 8 && name.bytes().all(fits)).then(|| Self(name.to_owned()))
    }

    /// Returns whether the key says nothing about the bytes: it is made from a URL, or is for one client.
    pub(super) const fn is_opaque(&self) -> bool {
        matches!(self.0.as_bytes(), [b'u', b'r', b'l', b'-', ..] | [b'o', b'w', b'n', b'-', ..])
    }

    /// Returns the text of the key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
