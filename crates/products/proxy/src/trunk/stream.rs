//! What one end keeps of a stream: small, for there are many that do nothing.

use anabranch_algo::{Span, Time};

use crate::trunk::chunks::Chunks;
use crate::trunk::frame::Reason;

/// The window of a stream at most, in bytes.
pub(super) const WINDOW_MAX: u32 = 16 * 1024 * 1024;
/// Credit is given back as soon as it is this part of the window.
const CREDIT_PART: u32 = 4;
/// A window that is used up within so many round trips is too small.
const GROWS_WITHIN_RTTS: u64 = 2;

/// One end of a stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// What came and was not read.
    pub(super) received: Chunks,
    /// What was written and not sent.
    pub(super) queued: Chunks,
    /// Bytes that may be written beyond those that are queued.
    pub(super) credit: u32,
    /// Bytes that the peer may send.
    pub(super) granted: u32,
    /// Bytes that the peer may send, or that were not read.
    pub(super) window: u32,
    /// Bytes read since `window_began`, when the first of them came.
    window_read: u32,
    window_began: Time,
    /// When it had bytes last, as `Activity` counts.
    pub(super) active_epoch: u32,
    /// It was reset, by either side.
    pub(super) reset: Option<Reason>,
    /// The peer has sent its last bytes.
    pub(super) is_all_received: bool,
    /// The last bytes were written; and sent.
    pub(super) is_all_written: bool,
    pub(super) is_all_sent: bool,
    /// OPEN was sent, or came.
    pub(super) is_announced: bool,
    /// A reply to OPEN is wanted and was not given.
    pub(super) wants_reply: bool,
    /// Nobody reads or writes it any more.
    pub(super) is_released: bool,
    /// It is counted among those that are open.
    pub(super) is_counted: bool,
    /// It is in the schedule; in the list of credit.
    pub(super) is_scheduled: bool,
    pub(super) is_credit_listed: bool,
    /// Somebody found nothing to read; no room to write.
    pub(super) awaits_bytes: bool,
    pub(super) awaits_room: bool,
}

impl Stream {
    pub(super) fn new(window: u32, credit: u32) -> Self {
        Self { window, granted: window, credit, awaits_bytes: true, is_counted: true, ..Self::default() }
    }

    /// Whether nothing more can go in either direction.
    pub(super) const fn has_ended(&self) -> bool {
        self.reset.is_some() || (self.is_all_received && self.is_all_sent)
    }

    /// Whether it has bytes, or the end of them, to send.
    pub(super) const fn has_to_send(&self) -> bool {
        self.reset.is_none() && (!self.queued.is_empty() || (self.is_all_written && !self.is_all_sent))
    }

    /// Bytes that the peer may have, and does not know of yet.
    pub(super) fn credit_due(&self) -> u32 {
        let used = self.granted.saturating_add(u32::try_from(self.received.len()).unwrap_or(u32::MAX));
        self.window.saturating_sub(used)
    }

    /// Whether it is worth a frame.
    pub(super) fn is_credit_due(&self) -> bool {
        let is_wanted = !self.is_all_received && self.reset.is_none() && !self.is_released;
        is_wanted && self.credit_due() >= self.window / CREDIT_PART
    }

    /// The first bytes of a window came, or more.
    pub(super) fn note_received(&mut self, now: Time) {
        if self.window_read == 0 && self.received.is_empty() {
            self.window_began = now;
        }
    }

    /// `bytes` were read. Returns by how much the window should grow.
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
