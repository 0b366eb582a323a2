//! What comparisons with other mirrors wait for, where no hash of the parts is known.

use std::collections::BTreeSet;

use anabranch_algo::{Span, Time};
use anabranch_mirror::range_scheduler::MirrorId;
use anabranch_mmtp::id::BLOCK_BYTES;

/// How long comparisons with other mirrors are waited for when everything is here; after that only those that
/// answer make them.
pub(super) const COMPARE_FOR: Span = Span::from_secs(3);

/// What is waited for.
#[derive(Default)]
pub(super) struct ComparisonState {
    /// Since when only comparisons are missing, and since when these are waited for.
    pub(super) waiting: Option<(Time, Time)>,
    /// Since when mirrors are known to differ while parts are missing.
    pub(super) disputed: Option<Time>,
    /// Those who were left when comparisons were given up last.
    pub(super) lone: Option<BTreeSet<MirrorId>>,
    /// Whether it has been said that some are given up.
    pub(super) reported: bool,
    /// Where a mirror is tried alone.
    pub(super) alone: Option<Alone>,
    /// The one of which it is recorded that it is.
    pub(super) on_record: Option<MirrorId>,
}

/// What the mirror has brought that is tried alone.
#[derive(Clone, Copy)]
pub(super) struct Alone {
    pub(super) since: Time,
    /// Bytes that had come from it by then.
    pub(super) before: u64,
    /// Bytes that have come from it, and when the last of them came.
    pub(super) bytes: u64,
    pub(super) at: Time,
}

impl ComparisonState {
    /// When to look again.
    pub(super) fn deadline(&self, now: Time) -> Time {
        if self.waiting.is_some() || self.alone.is_some() || self.disputed.is_some() {
            now + COMPARE_FOR
        } else {
            Time::NEVER
        }
    }
}

/// Where a block is, for people.
pub(super) fn place_of(block: u64) -> String {
    format!("16 KiB from byte {} on", block * BLOCK_BYTES as u64)
}

/// What is said where something that was here comes again.
pub(super) fn dropped(block: u64) -> String {
    format!(
        "what an earlier run left is not what the mirrors have now, or may be wrong ({}): what came from \
         there is fetched again",
        place_of(block)
    )
}
