//! What the user of a cache is told.

use std::fmt;

/// Something that the user of a cache should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A source sent wrong bytes.
    WrongBytes {
        /// The source: a host, or a URL.
        source: String,
        /// What was wrong with them.
        why: String,
    },
    /// A block of an object in the store was damaged.
    Damaged {
        /// The object: the first of its URLs.
        url: String,
        /// The number of the block.
        block: u64,
        /// Whether it was fetched anew. If not, the object was removed.
        repaired: bool,
    },
    /// A request was refused, because its sources or the store failed.
    Failed {
        /// The path of the request.
        path: String,
        /// The reason, in words.
        why: String,
    },
    /// The store could not take an object that had been fetched.
    NotStored {
        /// The object: the first of its URLs.
        url: String,
        /// The reason, in words.
        why: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongBytes { source, why } => write!(f, "{source} sent wrong bytes: {why}"),
            Self::Damaged { url, block, repaired } => {
                let then =
                    if *repaired { "was fetched anew" } else { "cannot be had: the object was removed" };
                write!(f, "{url}: block {block} was damaged in the store, and {then}")
            }
            Self::Failed { path, why } => write!(f, "{path}: {why}"),
            Self::NotStored { url, why } => write!(f, "{url} was not stored: {why}"),
        }
    }
}
