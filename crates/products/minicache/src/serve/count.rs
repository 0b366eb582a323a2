//! The numbers of a worker since its start.

use anabranch_net::counters::Counted;

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

impl Counted for Count {
    const ALL: &'static [(&'static str, &'static str, Self)] = &[
        ("requests", "Requests.", Self::Requests),
        ("hits", "Requests that were answered with an object or a part of one.", Self::Hits),
        ("misses", "Requests for objects that the image did not have.", Self::Misses),
        ("sent_bytes", "Bytes of objects that were sent.", Self::SentBytes),
        ("damaged", "Times that bytes in the image were not what was written.", Self::Damaged),
        ("fetched", "Objects that were fetched from origins.", Self::Fetched),
        ("fetched_bytes", "Bytes that were fetched from origins.", Self::FetchedBytes),
        ("not_fetched", "Objects that could not be fetched.", Self::NotFetched),
        ("refused", "Connections that were refused because there were too many.", Self::Refused),
        ("mmtp_packets", "Packets that were sent by mmTP.", Self::MmtpPackets),
        ("mmtp_bytes", "Bytes of packets that were sent by mmTP.", Self::MmtpBytes),
    ];

    fn place(self) -> usize {
        self as usize
    }
}

/// The numbers of a worker since its start.
pub(super) type Counters = anabranch_net::counters::Counters<Count>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_own_place() {
        anabranch_net::counters::check::<Count>();
    }
}
