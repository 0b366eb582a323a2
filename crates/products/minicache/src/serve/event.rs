//! What the user of a cache is told.

use std::fmt;
use std::sync::Arc;

use crate::name::Name;

/// What is called with each event, on several threads.
pub(super) type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// Something that the user of a cache should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Bytes of an object are not what was written, so they were not sent.
    Damaged {
        /// The object.
        name: Name,
        /// The reason, in words.
        why: String,
    },
    /// An object could not be fetched.
    NotFetched {
        /// The object.
        name: Name,
        /// The reason, in words.
        why: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { name, why } => write!(f, "{name}: {why}; it was not sent"),
            Self::NotFetched { name, why } => write!(f, "{name} was not fetched: {why}"),
        }
    }
}
