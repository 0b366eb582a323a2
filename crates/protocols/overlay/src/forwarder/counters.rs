//! Counts the frames of a forwarder, and the reasons for which frames were dropped.

use std::collections::BTreeMap;

use anabranch_topology::fid::Refusal;

/// Why a frame is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// The frame came from an address at which there is no neighbour.
    Stranger,
    /// The bytes are no frame.
    Malformed,
    /// The frame has crossed as many links as it may.
    HopLimit,
    /// The FID is not that of a path: it is of another kind, too full, or has bits of no link or of several
    /// links of this node. Or the frame has more hops left than any way has links.
    Forged,
    /// The FID has no link of this node, and the frame is not for this node.
    NoLink,
    /// The way back does not lead over the line that the frame came by, or leads over others as well.
    WayBack,
    /// The frame is for a port of a host to which nothing is sent.
    Port,
    /// The FID is of an epoch that is over or has not begun.
    Epoch,
    /// The FID has no key, in a domain where only frames for a service may have none.
    Unkeyed,
    /// The frame exceeds the rate limit of a line.
    RateLimit,
}

impl DropReason {
    /// All reasons.
    pub const ALL: [Self; 10] = [
        Self::Stranger,
        Self::Malformed,
        Self::HopLimit,
        Self::Forged,
        Self::NoLink,
        Self::WayBack,
        Self::Port,
        Self::Epoch,
        Self::Unkeyed,
        Self::RateLimit,
    ];

    /// Returns the reason's stable name for counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stranger => "stranger",
            Self::Malformed => "malformed",
            Self::HopLimit => "hop-limit",
            Self::Forged => "forged-fid",
            Self::NoLink => "no-link",
            Self::WayBack => "bad-way-back",
            Self::Port => "bad-port",
            Self::Epoch => "other-epoch",
            Self::Unkeyed => "unkeyed-fid",
            Self::RateLimit => "rate-limit",
        }
    }
}

impl From<Refusal> for DropReason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::HopLimit => Self::HopLimit,
            Refusal::Epoch => Self::Epoch,
            _ => Self::Forged,
        }
    }
}

/// Counts frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames sent on, counted once for each line that they went over.
    pub forwarded: u64,
    /// The bytes of these frames.
    pub forwarded_bytes: u64,
    /// Frames that were dropped, by reason.
    pub dropped: BTreeMap<DropReason, u64>,
}
