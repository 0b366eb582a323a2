//! What went through a forwarder, and why some of it went nowhere.

use std::collections::BTreeMap;

use anabranch_topology::fid::Refusal;

/// Why a frame goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// It came from an address at which no neighbour is.
    Stranger,
    /// It is no frame.
    Malformed,
    /// It has crossed all the links that it may.
    HopLimit,
    /// Its FID is none of a path: of another kind, too full, with bits of no link or of several
    /// links of this node; or it has more hops left than any way has links.
    Forged,
    /// No link of this node is in its FID, and it is not for this node.
    NoLink,
    /// Its way back does not lead over the line that it came by, and over no other.
    WayBack,
    /// It is for a port of a host that nothing is sent to.
    Port,
    /// Its FID is of an epoch that is over, or of one that has not begun.
    Epoch,
    /// Its FID has no key, in a domain where only what is for a service may have none.
    Unkeyed,
    /// The line has a rate limit.
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

    /// A stable name for counters.
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

/// What went through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames sent on, once for each line that they went over.
    pub forwarded: u64,
    /// Their bytes.
    pub forwarded_bytes: u64,
    /// Frames that went nowhere, by reason.
    pub dropped: BTreeMap<DropReason, u64>,
}
