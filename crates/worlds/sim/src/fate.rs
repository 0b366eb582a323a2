//! Defines what a queue discipline decides about an arriving packet.

/// Says whether an arriving packet is queued, marked or dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is queued.
    Queued,
    /// It is marked and queued.
    Marked,
    /// It is dropped.
    Dropped,
}
