//! The bytes of segments: a view of bytes that several owners share.

use std::fmt;
use std::sync::Arc;

/// A view of shared bytes. Cloning and cutting a view copies no bytes, so a byte that is sent on two subflows
/// and kept for retransmission is held once.
#[derive(Clone, Default)]
pub struct Payload {
    bytes: Option<Arc<[u8]>>,
    from: usize,
    to: usize,
}

impl Payload {
    /// Creates a payload with a copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::default();
        }
        Self { bytes: Some(Arc::from(bytes)), from: 0, to: bytes.len() }
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_deref().and_then(|bytes| bytes.get(self.from..self.to)).unwrap_or_default()
    }

    /// Returns the number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.to - self.from
    }

    /// Returns whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes the first `bytes` bytes, or all if there are fewer, and returns them.
    #[must_use]
    pub fn split_to(&mut self, bytes: usize) -> Self {
        let at = self.from + bytes.min(self.len());
        let front = Self { bytes: self.bytes.clone(), from: self.from, to: at };
        self.from = at;
        front
    }

    /// Drops the first `bytes` bytes, or all if there are fewer.
    pub fn skip(&mut self, bytes: usize) {
        self.from += bytes.min(self.len());
    }

    /// Keeps only the first `bytes` bytes.
    pub fn truncate(&mut self, bytes: usize) {
        self.to = self.to.min(self.from + bytes);
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        let to = bytes.len();
        Self { bytes: (to > 0).then(|| Arc::from(bytes)), from: 0, to }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}
impl Eq for Payload {}
