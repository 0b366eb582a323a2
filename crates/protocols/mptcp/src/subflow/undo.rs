//! Timeouts that were wrong: nothing was lost, the round trip took longer (RFC 5682, RFC 3522, RFC 4015).
//!
//! A timeout declares lost all that is in flight and leaves a window of one packet. What is acknowledged
//! after it shows whether that was right:
//! * A segment that was sent again is acknowledged: by its echoed timestamp for the first transmission, then
//!   the timeout was wrong; for the second, then it was right (RFC 3522 section 3.2).
//! * Without timestamps: the second acknowledgement that brings news is for a segment that was not sent again
//!   since (RFC 5682 section 2.1, step 3). Segments that had arrived before the timeout would have been
//!   acknowledged by the first one.
//! * Neither, and all that was sent before the timeout is acknowledged: it stays.

use anabranch_algo::Time;
use anabranch_algo::control::Algorithm;
use anabranch_algo::subflow::Saved;

/// A timeout that may have been wrong.
#[derive(Clone, Debug)]
pub(super) struct Undo {
    saved: Saved<Algorithm>,
    /// When the first timeout in a row was.
    at: Time,
    /// The number that was to be sent next.
    recover: u64,
    /// Whether an acknowledgement has brought news since.
    has_news: bool,
    /// What the acknowledgement that is being taken shows.
    was_right: bool,
    was_wrong: Option<Time>,
}

/// A segment that has arrived, as far as it tells something of a timeout.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// When the transmission that arrived was sent.
    pub(super) sent_at: Time,
    /// When the last transmission was sent.
    pub(super) last_sent_at: Time,
    /// The segment's number.
    pub(super) seq: u64,
    /// Whether it is certain which transmission arrived.
    pub(super) is_certain: bool,
}

/// What is to be done about a timeout.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "it is made once a timeout, and moved once")]
pub(super) enum Verdict {
    Open,
    /// It was right, or cannot be told from one that was.
    Stays,
    /// It was wrong: what it took away, when it was, and when a transmission was sent that arrived late.
    Wrong(Saved<Algorithm>, Time, Time),
}

impl Undo {
    pub(super) const fn new(saved: Saved<Algorithm>, at: Time, recover: u64) -> Self {
        Self { saved, at, recover, has_news: false, was_right: false, was_wrong: None }
    }

    /// A segment has arrived that had not before.
    pub(super) fn arrived(&mut self, evidence: &Evidence) {
        let Evidence { sent_at, last_sent_at, seq, is_certain } = *evidence;
        if seq >= self.recover {
            return;
        }
        let was_sent_again = last_sent_at >= self.at;
        if sent_at >= self.at {
            self.was_right |= is_certain;
        } else if was_sent_again || self.has_news {
            self.was_wrong.get_or_insert(sent_at);
        }
    }

    /// All of an acknowledgement has been looked at; `una`: the first number that it does not acknowledge.
    pub(super) fn decide(&mut self, una: u64, is_news: bool) -> Verdict {
        self.has_news |= is_news;
        match self.was_wrong.filter(|_| !self.was_right) {
            Some(sent_at) => Verdict::Wrong(self.saved, self.at, sent_at),
            None if self.was_right || una >= self.recover => Verdict::Stays,
            None => Verdict::Open,
        }
    }
}
