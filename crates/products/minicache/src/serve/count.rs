//! The numbers of a worker since its start.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// Requests.
    Requests,
    /// Requests that were answered with an object, or a part of one.
    Hits,
    /// Requests for objects that the image does not have.
    Misses,
    /// Bytes of objects that were sent.
    SentBytes,
    /// Times that bytes were not what was written.
    Damaged,
    /// Objects that were fetched from origins.
    Fetched,
    /// Bytes of these.
    FetchedBytes,
    /// Objects that could not be fetched.
    NotFetched,
    /// Connections that were refused, because there were too many.
    Refused,
    /// Packets that were sent by mmTP.
    MmtpPackets,
    /// Bytes of these.
    MmtpBytes,
}

/// Every number: its name, its help, and itself.
const ALL: &[(&str, &str, Count)] = &[
    ("requests", "Requests.", Count::Requests),
    ("hits", "Requests that were answered with an object or a part of one.", Count::Hits),
    ("misses", "Requests for objects that the image did not have.", Count::Misses),
    ("sent_bytes", "Bytes of objects that were sent.", Count::SentBytes),
    ("damaged", "Times that bytes in the image were not what was written.", Count::Damaged),
    ("fetched", "Objects that were fetched from origins.", Count::Fetched),
    ("fetched_bytes", "Bytes that were fetched from origins.", Count::FetchedBytes),
    ("not_fetched", "Objects that could not be fetched.", Count::NotFetched),
    ("refused", "Connections that were refused because there were too many.", Count::Refused),
    ("mmtp_packets", "Packets that were sent by mmTP.", Count::MmtpPackets),
    ("mmtp_bytes", "Bytes of packets that were sent by mmTP.", Count::MmtpBytes),
];

/// The numbers of a worker since its start.
#[derive(Debug, Default)]
pub(super) struct Counters([AtomicU64; ALL.len()]);

impl Counters {
    /// Adds one.
    pub(super) fn count(&self, what: Count) {
        self.add(what, 1);
    }

    /// Adds `number`.
    pub(super) fn add(&self, what: Count, number: u64) {
        self.0[what as usize].fetch_add(number, Ordering::Relaxed);
    }

    /// Returns every number: its name, its help, and itself.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        ALL.iter().map(|(name, help, what)| (*name, *help, self.0[*what as usize].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_own_place() {
        for (place, (_, _, what)) in ALL.iter().enumerate() {
            assert_eq!(*what as usize, place);
        }
    }
}
