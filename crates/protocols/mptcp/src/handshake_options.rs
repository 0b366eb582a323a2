//! The options of Multipath TCP that decide to which connection a segment belongs and whether it begins a
//! subflow.

use anabranch_mptcp_wire::{Join, MpCapable, MptcpOption};

use crate::segment::Segment;

/// The version of Multipath TCP.
pub(crate) const VERSION: u8 = 1;

/// Returns the MP_CAPABLE of a segment, if it has one.
pub(crate) fn capable(segment: &Segment) -> Option<MpCapable> {
    segment.options.iter().mptcp().find_map(|option| match option {
        MptcpOption::Capable(capable) => Some(capable),
        _ => None,
    })
}

/// Returns the MP_JOIN of a segment, if it has one.
pub(crate) fn join(segment: &Segment) -> Option<Join> {
    segment.options.iter().mptcp().find_map(|option| match option {
        MptcpOption::Join(join) => Some(join),
        _ => None,
    })
}
