//! Limits on the size of requests, and the time that a second request must save.

use anabranch_algo::Span;
use anabranch_mmtp::id::SEGMENT_BLOCKS;

use super::connection::{BLOCK, RECONNECT_COST};

/// The longest request if the link is not idle between two answers, as time at the connection's rate. Short
/// ranges then cost nothing, and leave less to be taken over at the end.
pub const REQUEST_SPAN: Span = Span::from_secs(2);
/// The longest request if the link is idle between two answers, as time at the connection's rate.
pub const REQUEST_SPAN_MAX: Span = Span::from_secs(8);
/// The longest request in blocks: 64 MiB.
pub const REQUEST_BLOCKS_MAX: u64 = 64 * SEGMENT_BLOCKS;
/// The size of requests to a connection that failed or stalled, until it has answered one: 64 KiB.
pub const TRIAL_BLOCKS: u64 = 4;
/// The largest request to a connection of unknown rate: 8 MiB. Slow start is over by then.
pub const FIRST_BLOCKS: u64 = 8 * SEGMENT_BLOCKS;
/// The rate in bytes per second below which a connection counts as trickling. The scheduler does not wait for
/// it where other connections can deliver or compare the blocks.
pub const TRICKLE: u64 = BLOCK;
/// The shortest content in blocks for which a server without ranges is used beside others: 4 MiB.
pub const STREAM_MIN_BLOCKS: u64 = 4 * SEGMENT_BLOCKS;
/// A server without ranges is assigned at most this fraction (one in four) of the content at first.
/// Meanwhile, the first request to any other connection of unknown rate is reduced to the same fraction of
/// its size.
pub(super) const STREAM_FIRST_PART: u64 = 4;
/// The most blocks of a request for a second copy: one segment.
pub const DUPLICATE_BLOCKS_MAX: u64 = SEGMENT_BLOCKS;
/// Taking over the tail of a range may cost its owner a TCP connection. So it must save this time and two
/// round trips.
pub const SAVING_MIN: Span = RECONNECT_COST;
