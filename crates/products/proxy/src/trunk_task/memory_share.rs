//! A trunk's part of the memory that all trunks share.

use std::task::{Context, Poll};

use anabranch_net::HeldPlace;

/// The smallest change that is passed on, so that the shared lock is seldom taken.
const STEP_BYTES: u64 = 64 << 10;

/// The trunk's place, and the number of bytes that was last passed on to it.
#[derive(Debug)]
pub(super) struct MemoryShare {
    place: Option<HeldPlace<String>>,
    told_bytes: u64,
}

impl MemoryShare {
    pub(super) const fn new(place: Option<HeldPlace<String>>) -> Self {
        Self { place, told_bytes: 0 }
    }

    /// Takes the number of bytes that the trunk holds now. Ready if the trunk has to free half of them;
    /// otherwise wakes `cx` when it has to.
    pub(super) fn poll_shed(&mut self, cx: &Context<'_>, held_bytes: usize) -> Poll<()> {
        let Some(place) = &self.place else { return Poll::Pending };
        let bytes = held_bytes as u64;
        let is_news = bytes.abs_diff(self.told_bytes) >= STEP_BYTES || bytes == 0 && self.told_bytes > 0;
        if is_news {
            if bytes < self.told_bytes {
                place.heard();
            }
            place.resize(bytes);
            self.told_bytes = bytes;
        }
        while place.poll_given_up(cx).is_ready() {
            self.told_bytes = 0;
            if bytes > 0 {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}
