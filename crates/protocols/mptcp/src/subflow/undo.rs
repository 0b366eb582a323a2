//! Recognises timeouts that were wrong: nothing was lost, the round trip took longer (RFC 5682, RFC 3522, RFC
//! 4015).
//!
//! A timeout declares lost everything in flight and leaves a window of one packet. The acknowledgements after
//! the timeout show whether it was right:
//! * A segment that was sent again is acknowledged. If its echoed timestamp is that of the first
//!   transmission, the timeout was wrong; if it is that of the second, the timeout was right (RFC 3522
//!   section 3.2).
//! * Without timestamps: if the second acknowledgement with news is for a segment that was not sent again
//!   since, the timeout was wrong (RFC 5682 section 2.1, step 3). Segments that had arrived before the
//!   timeout would have been acknowledged by the first one.
//! * If everything sent before the timeout is acknowledged without either sign, the timeout stays.

use anabranch_algo::Time;
use anabranch_algo::control::Algorithm;
use anabranch_algo::subflow::Saved;

/// A timeout that may have been wrong.
#[derive(Clone, Debug)]
pub(super) struct Undo {
    saved: Saved<Algorithm>,
    /// The time of the first timeout in a row.
    at: Time,
    /// The sequence number that was next to be sent at the timeout.
    recover: u64,
    /// Whether an acknowledgement has brought news since the timeout.
    has_news: bool,
    /// Whether the acknowledgement that is being processed shows that the timeout was right.
    was_right: bool,
    was_wrong: Option<Time>,
}

/// A segment that has arrived, with the facts that tell whether a timeout was right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// When the transmission that arrived was sent.
    pub(super) sent_at: Time,
    /// When the segment was last sent.
    pub(super) last_sent_at: Time,
    /// The segment's sequence number.
    pub(super) seq: u64,
    /// Whether it is certain which transmission arrived.
    pub(super) is_certain: bool,
}

/// The decision about a timeout.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "it is made once a timeout, and moved once")]
pub(super) enum Verdict {
    Open,
    /// The timeout was right, or nothing shows that it was wrong.
    Stays,
    /// The timeout was wrong. The values are the state before it, its time, and the time at which a
    /// transmission was sent that arrived late.
    Wrong(Saved<Algorithm>, Time, Time),
}

impl Undo {
    pub(super) const fn new(saved: Saved<Algorithm>, at: Time, recover: u64) -> Self {
        Self { saved, at, recover, has_news: false, was_right: false, was_wrong: None }
    }

    /// Takes a segment that has been acknowledged for the first time.
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

    /// Decides about the timeout after a whole acknowledgement. `una` is the first number that is not
    /// acknowledged.
    pub(super) fn decide(&mut self, una: u64, is_news: bool) -> Verdict {
        self.has_news |= is_news;
        match self.was_wrong.filter(|_| !self.was_right) {
            Some(sent_at) => Verdict::Wrong(self.saved, self.at, sent_at),
            None if self.was_right || una >= self.recover => Verdict::Stays,
            None => Verdict::Open,
        }
    }
}
