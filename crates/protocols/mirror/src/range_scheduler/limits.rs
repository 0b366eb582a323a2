//! The sizes of requests, and what a second request must save.

use anabranch_algo::Span;
use anabranch_mmtp::id::SEGMENT_BLOCKS;

use super::connection::{BLOCK, RECONNECT_COST};

/// The longest request, in time at the connection's rate, if the link is not idle between two answers. Short
/// ranges then cost nothing, and leave less to be taken over at the end.
pub const REQUEST_SPAN: Span = Span::from_secs(2);
/// The longest request where the link is idle between two answers.
pub const REQUEST_SPAN_MAX: Span = Span::from_secs(8);
/// The longest request in blocks: 64 MiB.
pub const REQUEST_BLOCKS_MAX: u64 = 64 * SEGMENT_BLOCKS;
/// What a connection that failed or stalled is asked for until it has answered: 64 KiB.
pub const TRIAL_BLOCKS: u64 = 4;
/// What a connection of unknown rate is asked for, at most: 8 MiB. Slow start is over by then.
pub const FIRST_BLOCKS: u64 = 8 * SEGMENT_BLOCKS;
/// Bytes a second below which a connection trickles: it is not waited for where others can bring or compare.
pub const TRICKLE: u64 = BLOCK;
/// A content of fewer blocks is not asked of a server without ranges beside others: 4 MiB.
pub const STREAM_MIN_BLOCKS: u64 = 4 * SEGMENT_BLOCKS;
/// Such a server is to bring this part of it at first, at most; the others this part of what they would be
/// asked for without it.
pub(super) const STREAM_FIRST_PART: u64 = 4;
/// Blocks that one request asks for a second time at most: a segment.
pub const DUPLICATE_BLOCKS_MAX: u64 = SEGMENT_BLOCKS;
/// Taking over the tail of a range may cost its owner a TCP connection. So it must end the transfer earlier
/// by this and two round trips.
pub const SAVING_MIN: Span = RECONNECT_COST;
