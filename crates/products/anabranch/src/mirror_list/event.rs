//! What is told while a list is made.

use crate::HashProgress;

/// What happens while a list is made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// How far hashing is; every 100 ms while it lasts.
    Hashing(HashProgress),
    /// Something that the person who waits should know: one sentence.
    Notice(String),
}
