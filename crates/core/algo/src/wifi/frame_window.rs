//! The share of frames that an AP delivers at the first attempt: equation (2.2) of the source.
//!
//! A receiver sees only frames that arrive. How many attempts were lost follows from two fields of the
//! frame's header: the retry bit, set in every attempt but the first, and the sequence number, whose gaps are
//! packets that the AP gave up. Of the frames of the last half second, N0 came without the retry bit, N1 with
//! it, and Nlost are missing; N0 / (N0 + N1 + Nlost) is an unbiased estimate of the probability that an
//! attempt succeeds, if attempts are lost independently. With a hidden terminal they are not, and it is too
//! high by about a tenth.
//!
//! Frames of an 802.11n aggregate are sent again after later ones have arrived. So a late frame takes back
//! the loss for which its absence was counted, and a frame that arrives twice (its acknowledgement was lost)
//! counts once.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Probability;
use crate::{Span, Time};

/// The time for which frames count.
const WINDOW: Span = Span::from_millis(500);
/// The most APs of a window.
pub const APS_MAX: usize = 64;
/// The most frames of a window, of 8 bytes each: half a second of 802.11n with four spatial streams. With
/// more, the oldest frame goes early.
pub const FRAMES_MAX: usize = 25_000;
/// The longest gap in the sequence numbers that counts as lost packets: the longest window of a block
/// acknowledgement. After a longer one the AP has sent to others, or was restarted.
pub const GAP_MAX: u16 = 64;
/// The number of sequence numbers of 802.11.
const SEQUENCES: u16 = 1 << 12;

/// A frame that counts. An entry takes 8 bytes.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// The low bits of the time of arrival, in µs. The window is much shorter than their range.
    at_us: u32,
    ap: u8,
    retry: bool,
    /// The change of the number of missing packets: the length of the gap before the frame, or −1 for a late
    /// frame.
    lost: i8,
}

/// What is known of an AP.
#[derive(Clone, Copy, Debug, Default)]
struct Ap {
    counts: [u32; 2],
    lost: i64,
    /// The newest sequence number, and which of the [`GAP_MAX`] numbers up to it have come: bit i is the
    /// number i before it.
    newest: Option<(u16, u64)>,
}

/// The numbers of frames of an AP in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Frames that came at the first attempt (N0).
    pub first: u32,
    /// Frames that came with the retry bit (N1).
    pub retried: u32,
    /// Packets that never came (Nlost).
    pub lost: u32,
}

impl FrameCounts {
    /// Returns the probability that an attempt succeeds, by equation (2.2); `None` without frames.
    #[must_use]
    pub fn delivery(&self) -> Option<Probability> {
        let all = u64::from(self.first) + u64::from(self.retried) + u64::from(self.lost);
        (all > 0).then(|| Probability::of(self.first.into(), all))
    }
}

/// The frames of the APs of a channel in the last `WINDOW`. The first lines of the file describe it.
#[derive(Clone, Debug, Default)]
pub struct FrameWindow {
    frames: VecDeque<Frame>,
    aps: Vec<Ap>,
    /// The latest time that was told, in µs.
    now_us: u64,
}

impl FrameWindow {
    /// Creates a window without APs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an AP. Returns its number, from 0; `None` if there are [`APS_MAX`] already.
    pub fn add(&mut self) -> Option<usize> {
        if self.aps.len() >= APS_MAX {
            return None;
        }
        self.aps.push(Ap::default());
        Some(self.aps.len() - 1)
    }

    /// Records a frame of `ap` that arrived at `now`, with its sequence number (of which 12 bits count) and
    /// its retry bit. A frame of an unknown AP is ignored.
    pub fn record(&mut self, now: Time, ap: usize, sequence: u16, retry: bool) {
        self.expire(now);
        let Some(known) = self.aps.get_mut(ap) else { return };
        let Some(lost) = known.sequence(sequence % SEQUENCES) else { return };
        known.counts[usize::from(retry)] += 1;
        known.lost += i64::from(lost);
        if self.frames.len() >= FRAMES_MAX {
            self.forget_oldest();
        }
        self.frames.push_back(Frame { at_us: self.now_us as u32, ap: ap as u8, retry, lost });
    }

    /// Forgets the frames that are older than `WINDOW` at `now`. A time before an earlier one counts as
    /// that one.
    pub fn expire(&mut self, now: Time) {
        let now_us = (now.as_nanos() / 1_000).max(self.now_us);
        // After a pause of more than the range of `at_us` the low bits say nothing.
        if now_us - self.now_us > WINDOW.as_micros() {
            while self.forget_oldest() {}
        }
        self.now_us = now_us;
        while let Some(oldest) = self.frames.front()
            && u64::from((now_us as u32).wrapping_sub(oldest.at_us)) > WINDOW.as_micros()
        {
            self.forget_oldest();
        }
    }

    /// Forgets the oldest frame; returns whether there was one.
    fn forget_oldest(&mut self) -> bool {
        let Some(frame) = self.frames.pop_front() else { return false };
        if let Some(ap) = self.aps.get_mut(usize::from(frame.ap)) {
            ap.counts[usize::from(frame.retry)] -= 1;
            ap.lost -= i64::from(frame.lost);
        }
        true
    }

    /// Returns the counts of an AP as of the latest time that was told; zeros for an unknown AP.
    #[must_use]
    pub fn counts(&self, ap: usize) -> FrameCounts {
        let Some(known) = self.aps.get(ap) else { return FrameCounts::default() };
        let [first, retried] = known.counts;
        // A late frame may be in the window when the gap that it belongs to no longer is.
        let lost = u32::try_from(known.lost.max(0)).unwrap_or(u32::MAX);
        FrameCounts { first, retried, lost }
    }
}

impl Ap {
    /// Takes note of a sequence number. Returns the change of the number of missing packets; `None` if the
    /// frame has come before.
    fn sequence(&mut self, sequence: u16) -> Option<i8> {
        let Some((newest, come)) = &mut self.newest else {
            self.newest = Some((sequence, u64::MAX));
            return Some(0);
        };
        let ahead = sequence.wrapping_sub(*newest) % SEQUENCES;
        let behind = newest.wrapping_sub(sequence) % SEQUENCES;
        if behind < GAP_MAX {
            let bit = 1 << behind;
            let again = *come & bit != 0;
            *come |= bit;
            return (!again).then_some(-1);
        }
        let is_gap = ahead <= GAP_MAX;
        *come = if is_gap { come.checked_shl(ahead.into()).unwrap_or(0) | 1 } else { u64::MAX };
        *newest = sequence;
        Some(if is_gap { (ahead - 1) as i8 } else { 0 })
    }
}
