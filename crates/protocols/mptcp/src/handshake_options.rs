//! The options of Multipath TCP that decide to which connection a segment belongs, and what it becomes.

use anabranch_mptcp_wire::{Join, MpCapable, MptcpOption};

use crate::segment::Segment;

/// The version of the protocol.
pub(crate) const VERSION: u8 = 1;

/// The MP_CAPABLE of a segment.
pub(crate) fn capable(segment: &Segment) -> Option<MpCapable> {
    segment.options.iter().mptcp().find_map(|option| match option {
        MptcpOption::Capable(capable) => Some(capable),
        _ => None,
    })
}

/// The MP_JOIN of a segment.
pub(crate) fn join(segment: &Segment) -> Option<Join> {
    segment.options.iter().mptcp().find_map(|option| match option {
        MptcpOption::Join(join) => Some(join),
        _ => None,
    })
}
