//! Decides which trunk a stream is opened on, and when to open and close trunks. It reads no clock.
//!
//! A lost packet delays all streams of its trunk, and streams share its congestion window. So a trunk that
//! moves no bytes is preferred. If all move bytes, another trunk is opened for later streams. A trunk that
//! leaves something unanswered is passed over while there is another.

pub mod servers;

use anabranch_algo::{Span, Time};

/// The time without an answer, plus four round trips, after which a trunk gets no new streams.
const SUSPECT_AFTER: Span = Span::from_secs(1);
const SUSPECT_RTTS: u64 = 4;

/// The state of a trunk on which decisions are based.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Whether the connection exists and neither side has said that it goes away.
    pub takes_streams: bool,
    /// The number of open streams.
    pub open_streams: u32,
    /// The number of streams that the server allows.
    pub streams_max: u32,
    /// The number of streams that moved bytes recently.
    pub moving_streams: u32,
    /// The smoothed round-trip time, if it has been measured.
    pub rtt: Option<Span>,
    /// How long something that this end sent has waited for any answer.
    pub unanswered: Span,
}

impl Load {
    /// Whether one more stream can be opened.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.takes_streams && self.open_streams < self.streams_max
    }

    /// Whether the trunk seems to be dead.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.unanswered > SUSPECT_AFTER + self.rtt.unwrap_or(Span::ZERO).times(SUSPECT_RTTS)
    }
}

/// The limits on the number of trunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of trunks that are kept even if they are idle.
    pub warm: usize,
    /// The most trunks, including those that are being opened.
    pub most: usize,
    /// The time after which an idle trunk beyond the warm ones is closed.
    pub idle: Span,
}

impl Default for Limits {
    /// Returns 2 warm trunks, 16 at most, and a minute.
    fn default() -> Self {
        Self { warm: 2, most: 16, idle: Span::from_secs(60) }
    }
}

/// The decision for a new stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The index of the trunk to open the stream on; `None` means to wait for one.
    pub trunk: Option<usize>,
    /// Whether to open one more trunk.
    pub opens_another: bool,
}

/// Chooses the trunk for a new stream. `opening` is the number of trunks that are being opened.
#[must_use]
pub fn choose(limits: &Limits, loads: &[Load], opening: usize) -> Choice {
    // Trunks that seem to be dead come last. Then fewer moving streams, fewer streams and a shorter round
    // trip count.
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

/// Whether there are fewer trunks than should be kept warm.
#[must_use]
pub fn wants_warm(limits: &Limits, loads: &[Load], opening: usize) -> bool {
    let good = loads.iter().filter(|load| load.has_room() && !load.is_suspect()).count();
    good + opening < limits.warm.min(limits.most)
}

/// Whether one more trunk may be opened. At most as many open at a time as exist, or one, so that a burst of
/// streams does not open all at once.
fn wants_more(limits: &Limits, loads: &[Load], opening: usize) -> bool {
    // Trunks that seem to be dead do not count, because they may stay for minutes.
    let good = loads.iter().filter(|load| load.takes_streams && !load.is_suspect()).count();
    good + opening < limits.most && opening <= good
}

/// Returns the trunk to close, if one may be closed. `idle_since[n]` is when the last stream of trunk n
/// ended, or [`Time::NEVER`] while it has streams.
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
