//! The clock of a video player: what is in its buffer, and when it stands still. It is told the time.

use anabranch_algo::{Span, Time};

/// A player that begins with the first segment, and goes on after a stall with the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Player {
    /// The film that is in the buffer.
    buffered: Span,
    /// The time at which the state was right; `None` before the first segment.
    since: Option<Time>,
    /// When the first picture was shown.
    began: Option<Time>,
    stalled: Span,
    stalls: u32,
}

impl Player {
    /// Moves to the time `now`.
    pub fn advance(&mut self, now: Time) {
        let Some(since) = self.since.replace(now) else {
            self.since = None;
            return;
        };
        let passed = now.since(since);
        if passed <= self.buffered {
            self.buffered = self.buffered - passed;
            return;
        }
        // A stall begins where the buffer ran dry.
        if self.buffered > Span::ZERO {
            self.stalls += 1;
        }
        self.stalled = self.stalled + (passed - self.buffered);
        self.buffered = Span::ZERO;
    }

    /// Takes a segment of this length, which is whole now.
    pub fn segment(&mut self, now: Time, length: Span) {
        self.advance(now);
        self.since = Some(now);
        self.began = self.began.or(Some(now));
        self.buffered = self.buffered + length;
    }

    /// Returns the film in the buffer.
    #[must_use]
    pub const fn buffered(&self) -> Span {
        self.buffered
    }

    /// Returns when the first picture was shown.
    #[must_use]
    pub const fn began(&self) -> Option<Time> {
        self.began
    }

    /// Returns how often and how long the player stood still.
    #[must_use]
    pub const fn stalls(&self) -> (u32, Span) {
        (self.stalls, self.stalled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn a_buffer_that_runs_dry_is_a_stall() {
        let (mut player, two) = (Player::default(), Span::from_millis(2_000));
        player.advance(at(400));
        assert_eq!((player.began(), player.stalls()), (None, (0, Span::ZERO)));
        player.segment(at(500), two);
        player.segment(at(1_500), two);
        assert_eq!(player.buffered(), Span::from_millis(3_000));
        player.advance(at(4_500));
        assert_eq!((player.buffered(), player.stalls()), (Span::ZERO, (0, Span::ZERO)));
        player.segment(at(5_500), two);
        player.advance(at(6_500));
        player.segment(at(7_800), two);
        assert_eq!(player.began(), Some(at(500)));
        let (stalls, stalled) = player.stalls();
        assert_eq!(stalled, Span::from_millis(1_300));
        assert_eq!(stalls, 1, "the first ran dry exactly as it ended, the second within a step");
    }

    #[test]
    fn a_stall_over_several_looks_is_one() {
        let mut player = Player::default();
        player.segment(at(0), Span::from_millis(1_000));
        for look in [500, 1_500, 2_000, 2_500] {
            player.advance(at(look));
        }
        assert_eq!(player.stalls(), (1, Span::from_millis(1_500)));
    }
}
