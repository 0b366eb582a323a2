//! Which trunk a stream is opened on; when one more is wanted, when one may go. A decision: numbers in,
//! numbers out.
//!
//! A lost packet delays all streams of its trunk, and streams share its congestion window. So one that moves
//! no bytes is preferred; where all of them do, another is opened for those that follow. A trunk that leaves
//! something of ours unanswered is passed over as long as there is another.

use anabranch_algo::{Span, Time};

/// A trunk that has not answered for so long, and four round trips more, gets no new streams.
const SUSPECT_AFTER: Span = Span::from_secs(1);
const SUSPECT_RTTS: u64 = 4;

/// What the decision is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Neither side goes away, and the connection is there.
    pub takes_streams: bool,
    /// Streams that are open; and that the server allows.
    pub open_streams: u32,
    /// See `open_streams`.
    pub streams_max: u32,
    /// Streams that have moved bytes of late.
    pub moving_streams: u32,
    /// The smoothed round-trip time, if it was measured.
    pub rtt: Option<Span>,
    /// How long something of ours has waited for any word.
    pub unanswered: Span,
}

impl Load {
    fn has_room(&self) -> bool {
        self.takes_streams && self.open_streams < self.streams_max
    }

    /// Whether it seems to be dead.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.unanswered > SUSPECT_AFTER + self.rtt.unwrap_or(Span::ZERO).times(SUSPECT_RTTS)
    }
}

/// How many trunks there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Trunks that are kept though they are idle.
    pub warm: usize,
    /// Trunks at most, those that are being opened among them.
    pub most: usize,
    /// An idle trunk beyond the warm ones goes after so long.
    pub idle: Span,
}

impl Default for Limits {
    /// 2 that are warm, 16 at most, a minute.
    fn default() -> Self {
        Self { warm: 2, most: 16, idle: Span::from_secs(60) }
    }
}

/// What to do for a new stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The trunk to open it on, by its place in the list; `None`: wait for one.
    pub trunk: Option<usize>,
    /// Whether one more is to be opened.
    pub opens_another: bool,
}

/// Chooses the trunk for a new stream; `opening` more are on their way.
#[must_use]
pub fn choose(limits: &Limits, loads: &[Load], opening: usize) -> Choice {
    // Those that seem to be dead come last; then fewer bytes, fewer streams, a shorter way count.
    let key = |load: &Load| {
        let rtt = load.rtt.unwrap_or(Span::MAX);
        (load.is_suspect(), load.moving_streams, load.open_streams, rtt)
    };
    let with_room = loads.iter().enumerate().filter(|(_, load)| load.has_room());
    let best = with_room.min_by_key(|(_, load)| key(load));
    let is_good = best.is_some_and(|(_, load)| !load.is_suspect() && load.moving_streams == 0);
    let trunk = best.map(|(place, _)| place);
    Choice { trunk, opens_another: !is_good && wants_more(limits, loads, opening) }
}

/// Whether there are fewer trunks than are to be warm.
#[must_use]
pub fn wants_warm(limits: &Limits, loads: &[Load], opening: usize) -> bool {
    let good = loads.iter().filter(|load| load.has_room() && !load.is_suspect()).count();
    good + opening < limits.warm.min(limits.most)
}

/// As many at a time as there are, or one: a burst of streams does not open all that there may be at once.
fn wants_more(limits: &Limits, loads: &[Load], opening: usize) -> bool {
    // Those that seem to be dead do not count: they may stay for minutes.
    let good = loads.iter().filter(|load| load.takes_streams && !load.is_suspect()).count();
    good + opening < limits.most && opening <= good
}

/// The trunk to close, if one may go: `idle_since[n]` is when trunk n had its last stream, or
/// [`Time::NEVER`] while it has some.
#[must_use]
pub fn surplus(limits: &Limits, now: Time, loads: &[Load], idle_since: &[Time]) -> Option<usize> {
    let good = loads.iter().filter(|load| load.takes_streams && !load.is_suspect()).count();
    if good <= limits.warm {
        return None;
    }
    let idle =
        loads.iter().zip(idle_since).enumerate().filter(|(_, (load, since))| {
            load.takes_streams && load.open_streams == 0 && **since != Time::NEVER
        });
    let oldest = idle.min_by_key(|(_, (_, since))| **since)?;
    (now.since(*oldest.1.1) >= limits.idle).then_some(oldest.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Load = Load {
        takes_streams: true,
        open_streams: 0,
        streams_max: 4_096,
        moving_streams: 0,
        rtt: Some(Span::from_millis(20)),
        unanswered: Span::ZERO,
    };
    const BUSY: Load = Load { open_streams: 1, moving_streams: 1, ..FREE };
    const SUSPECT: Load = Load { unanswered: Span::from_millis(1_200), ..FREE };
    const FULL: Load = Load { open_streams: 4_096, ..FREE };
    const CLOSING: Load = Load { takes_streams: false, ..FREE };

    fn chosen(loads: &[Load], opening: usize) -> (Option<usize>, bool) {
        let choice = choose(&Limits::default(), loads, opening);
        (choice.trunk, choice.opens_another)
    }

    #[test]
    fn an_idle_trunk_is_preferred_and_where_there_is_none_another_is_opened() {
        assert_eq!(chosen(&[], 0), (None, true));
        assert_eq!(chosen(&[], 1), (None, false));
        assert_eq!(chosen(&[BUSY, FREE], 0), (Some(1), false));
        assert_eq!(chosen(&[BUSY, Load { moving_streams: 3, ..BUSY }], 0), (Some(0), true));
        assert_eq!(chosen(&[BUSY; 16], 0), (Some(0), false), "no more than there may be");
        assert_eq!(chosen(&[BUSY; 15], 1), (Some(0), false));
        assert_eq!(chosen(&[FULL, CLOSING], 0), (None, true));
        let many = Load { open_streams: 7, ..FREE };
        assert_eq!(chosen(&[many, FREE], 0), (Some(1), false), "fewer streams of those that are idle");
    }

    #[test]
    fn a_trunk_that_does_not_answer_is_passed_over() {
        assert_eq!(chosen(&[SUSPECT, BUSY], 0), (Some(1), true));
        assert_eq!(chosen(&[SUSPECT], 0), (Some(0), true), "better than none");
        assert!(chosen(&[SUSPECT; 16], 0).1, "the dead do not keep others out");
        let far = Load { rtt: Some(Span::from_millis(600)), ..SUSPECT };
        assert_eq!(chosen(&[far], 0), (Some(0), false), "a long way takes its time");
    }

    #[test]
    fn two_are_kept_warm_and_what_is_beyond_goes_after_a_minute() {
        let limits = Limits::default();
        assert!(wants_warm(&limits, &[FREE], 0) && !wants_warm(&limits, &[FREE], 1));
        assert!(!wants_warm(&limits, &[FREE, BUSY], 0) && wants_warm(&limits, &[FREE, SUSPECT], 0));
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        let idle = [at(10), Time::NEVER, at(5)];
        assert_eq!(surplus(&limits, at(64), &[FREE, BUSY, FREE], &idle), None);
        assert_eq!(surplus(&limits, at(65), &[FREE, BUSY, FREE], &idle), Some(2));
        assert_eq!(surplus(&limits, at(99), &[FREE, BUSY, SUSPECT], &idle), None, "two are left");
        assert_eq!(surplus(&limits, at(99), &[FREE, FREE], &idle[..2]), None);
    }
}
