//! The state of one end of a stream. It is small, because many streams are idle.

use anabranch_algo::{Span, Time};

use crate::trunk::chunks::Chunks;
use crate::trunk::frame::Reason;

/// The largest window of a stream, in bytes.
pub(super) const WINDOW_MAX: u32 = 16 * 1024 * 1024;
/// The part of the window from which credit is returned.
const CREDIT_PART: u32 = 4;
/// The number of round trips: a window that is used up within them is too small.
const GROWS_WITHIN_RTTS: u64 = 2;

/// One end of a stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// The bytes that were received and not read.
    pub(super) received: Chunks,
    /// The bytes that were written and not sent.
    pub(super) queued: Chunks,
    /// The number of bytes that may be written beyond the queued ones.
    pub(super) credit: u32,
    /// The number of bytes that the other side may send.
    pub(super) granted: u32,
    /// The most bytes that the other side may send or that are not read yet.
    pub(super) window: u32,
    /// The bytes read since `window_began`, and when the first of them arrived.
    window_read: u32,
    window_began: Time,
    /// The epoch of `Activity` in which the stream last had bytes.
    pub(super) active_epoch: u32,
    /// The reason of the reset, if either side has reset the stream.
    pub(super) reset: Option<Reason>,
    /// Whether the other side has sent its last bytes.
    pub(super) is_all_received: bool,
    /// Whether the last bytes were written, and whether they were sent.
    pub(super) is_all_written: bool,
    pub(super) is_all_sent: bool,
    /// Whether OPEN was sent or has arrived.
    pub(super) is_announced: bool,
    /// Whether a reply to OPEN is wanted and was not given yet.
    pub(super) wants_reply: bool,
    /// Whether the distance of the origin is wanted and was not told yet.
    pub(super) wants_distance: bool,
    /// Whether the stream's user has released it.
    pub(super) is_released: bool,
    /// Whether the stream is counted among the open ones.
    pub(super) is_counted: bool,
    /// Whether the stream is in the schedule, and in the list of credit.
    pub(super) is_scheduled: bool,
    pub(super) is_credit_listed: bool,
    /// Whether a reader waits for bytes, and whether a writer waits for room.
    pub(super) awaits_bytes: bool,
    pub(super) awaits_room: bool,
}

impl Stream {
    pub(super) fn new(window: u32, credit: u32) -> Self {
        Self { window, granted: window, credit, awaits_bytes: true, is_counted: true, ..Self::default() }
    }

    /// Whether nothing more can be sent in either direction.
    pub(super) const fn has_ended(&self) -> bool {
        self.reset.is_some() || (self.is_all_received && self.is_all_sent)
    }

    /// Whether the stream has bytes, or its end, to send.
    pub(super) const fn has_to_send(&self) -> bool {
        self.reset.is_none() && (!self.queued.is_empty() || (self.is_all_written && !self.is_all_sent))
    }

    /// Returns the bytes that the other side may send beyond the credit that it knows of.
    pub(super) fn credit_due(&self) -> u32 {
        let used = self.granted.saturating_add(u32::try_from(self.received.len()).unwrap_or(u32::MAX));
        self.window.saturating_sub(used)
    }

    /// Whether the credit to return is enough for a frame.
    pub(super) fn is_credit_due(&self) -> bool {
        let is_wanted = !self.is_all_received && self.reset.is_none() && !self.is_released;
        is_wanted && self.credit_due() >= self.window / CREDIT_PART
    }

    /// Notes that bytes arrived. The window's time starts with its first bytes.
    pub(super) fn note_received(&mut self, now: Time) {
        if self.window_read == 0 && self.received.is_empty() {
            self.window_began = now;
        }
    }

    /// Notes that `bytes` were read. Returns by how much the window should grow.
    pub(super) fn note_read(&mut self, now: Time, bytes: u32, rtt: Option<Span>) -> u32 {
        self.window_read = self.window_read.saturating_add(bytes);
        if self.window_read < self.window {
            return 0;
        }
        let took = now.since(self.window_began);
        (self.window_read, self.window_began) = (0, now);
        let is_small = rtt.is_some_and(|rtt| took <= rtt.times(GROWS_WITHIN_RTTS));
        if is_small { self.window.min(WINDOW_MAX - self.window.min(WINDOW_MAX)) } else { 0 }
    }
}
