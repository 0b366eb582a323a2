//! Decides when data that one subflow carries goes out on another one, too, because it comes sooner there.
//!
//! A subflow that has room while there is nothing new to send costs nothing by carrying data once more. It
//! overtakes the subflow that carries the data,
//! * if the data would arrive sooner. The way there is taken to last a round trip without half of the
//!   shortest one: queues are on the way there, and the way back is half of a path without queues; or
//! * if the answer is overdue and a round trip is shorter than the retransmission timeout that the data
//!   would wait for otherwise.
//!
//! An answer is overdue when the smoothed round trip and four times its deviation have passed, as in the
//! retransmission timeout of RFC 6298 but without its least value of 200 ms, and at most the probe timeout
//! of RFC 8985. The peer answers a segment when the next one arrives, or after a delay. So the time counts
//! from when the next segment was sent on the subflow, or from the end of that delay. If data is overdue,
//! the next segment has not arrived either, or it would have been answered at once: from there on nothing is
//! allowed the delay.
//!
//! A backup overtakes only what is overdue: it may cost money.

use anabranch_algo::{Span, Time};

use crate::config::SUBFLOWS_MAX;

/// The state of a subflow that the rule needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// How long a segment is expected to take to the peer.
    pub(crate) one_way: Span,
    /// How long it is expected to take until the answer is here.
    pub(crate) round_trip: Span,
    /// How long after its cause an answer is overdue.
    pub(crate) overdue: Span,
    /// How long the peer may delay the answer to a lone segment.
    pub(crate) delay: Span,
    /// The retransmission timeout.
    pub(crate) timeout: Span,
    /// How many sequence numbers of the subflow are acknowledged.
    pub(crate) acked: u64,
}

/// The state of all subflows that carry data, by slot.
pub(crate) type Paces = [Option<Pace>; SUBFLOWS_MAX];

/// Data on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Underway {
    /// The subflow that has carried the data last.
    pub(crate) slot: usize,
    pub(crate) sent_at: Time,
    /// The number that the subflow acknowledges when the data has arrived.
    pub(crate) end: u64,
    /// When the subflow sent the next segment; [`Time::NEVER`] before that.
    pub(crate) followed_at: Time,
}

impl Underway {
    /// Creates data that the subflow in `slot` carries from `now` on. Its bytes still have to be added to
    /// `end`.
    pub(crate) const fn new(slot: usize, now: Time, end: u64) -> Self {
        Self { slot, sent_at: now, end, followed_at: Time::NEVER }
    }
}

/// Looks at data in order, oldest first, and tells what is overdue or overtaken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookout<'a> {
    now: Time,
    paces: &'a Paces,
    /// The subflows on which data is overdue, a bit each.
    overdue: u64,
}

impl<'a> Lookout<'a> {
    pub(crate) const fn new(now: Time, paces: &'a Paces) -> Self {
        Self { now, paces, overdue: 0 }
    }

    /// Notes that earlier data was overdue on the subflows in `slots`, a bit each.
    pub(crate) const fn note(&mut self, slots: u64) {
        self.overdue |= slots;
    }

    /// Returns the subflows on which data is overdue, a bit each.
    pub(crate) const fn overdue(&self) -> u64 {
        self.overdue
    }

    /// Returns the state of the subflow that carries the data, if it has not delivered it.
    fn carrier(&self, data: &Underway) -> Option<Pace> {
        self.paces.get(data.slot).copied().flatten().filter(|pace| pace.acked < data.end)
    }

    /// Returns when the answer is overdue; `None` if the data has been delivered.
    pub(crate) fn overdue_at(&mut self, data: &Underway) -> Option<Time> {
        let pace = self.carrier(data)?;
        let is_allowed = self.overdue & (1 << data.slot) == 0;
        let delay = if is_allowed { pace.delay } else { Span::ZERO };
        let at = data.followed_at.min(data.sent_at + delay) + pace.overdue;
        if at <= self.now {
            self.overdue |= 1 << data.slot;
        }
        Some(at)
    }

    /// Returns whether the subflow with the state `mover` overtakes the one that carries the data.
    pub(crate) fn is_overtaken(&mut self, data: &Underway, mover: &Pace, is_backup: bool) -> bool {
        let (Some(pace), Some(overdue_at)) = (self.carrier(data), self.overdue_at(data)) else {
            return false;
        };
        let comes_sooner = self.now + mover.one_way < data.sent_at + pace.one_way;
        let is_overdue = overdue_at <= self.now;
        (comes_sooner && !is_backup) || (is_overdue && mover.round_trip < pace.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Span = Span::from_millis;

    fn pace(one_way: u64, overdue: u64, timeout: u64) -> Pace {
        let (one_way, round_trip) = (MS(one_way), MS(2 * one_way));
        Pace { one_way, round_trip, overdue: MS(overdue), delay: MS(40), timeout: MS(timeout), acked: 10 }
    }

    fn paces(carrier: Pace) -> Paces {
        let mut paces = Paces::default();
        paces[0] = Some(carrier);
        paces
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + MS(ms)
    }

    #[test]
    fn data_goes_where_it_arrives_sooner() {
        let data = Underway::new(0, at(1_000), 20);
        let slow = paces(pace(65, 200, 400));
        let overtaken = |data: &Underway, ms: u64, one_way, is_backup| {
            Lookout::new(at(1_000 + ms), &slow).is_overtaken(data, &pace(one_way, 70, 200), is_backup)
        };
        assert!(overtaken(&data, 0, 25, false) && overtaken(&data, 39, 25, false));
        assert!(!overtaken(&data, 40, 25, false));
        assert!(!overtaken(&data, 0, 65, false), "not shorter");
        assert!(!overtaken(&data, 0, 25, true), "a backup waits until the answer is overdue");
        assert!(!overtaken(&Underway { end: 10, ..data }, 0, 25, false), "the data has arrived");
    }

    #[test]
    fn overdue_data_goes_anywhere_that_beats_the_timeout() {
        let lone = Underway::new(0, at(0), 20);
        let followed = Underway { followed_at: at(10), ..lone };
        let paces = paces(pace(25, 70, 250));
        let overtaken = |data: &Underway, ms, one_way| {
            Lookout::new(at(ms), &paces).is_overtaken(data, &pace(one_way, 200, 400), true)
        };
        // 70 ms after the next segment, or after the delay of 40 ms.
        assert!(!overtaken(&followed, 79, 65) && overtaken(&followed, 80, 65));
        assert!(!overtaken(&lone, 109, 65) && overtaken(&lone, 110, 65));
        assert!(!overtaken(&lone, 110, 125), "the timeout is as near");
        let elsewhere = Underway { slot: 1, ..lone };
        assert!(!overtaken(&elsewhere, 900, 1));
    }

    #[test]
    fn behind_overdue_data_there_is_no_delay_to_wait_for() {
        let (first, last) = (Underway { followed_at: at(0), ..Underway::new(0, at(0), 20) }, at(5));
        let last = Underway::new(0, last, 30);
        let paces = paces(pace(25, 70, 250));
        let mut lookout = Lookout::new(at(75), &paces);
        assert_eq!(lookout.overdue_at(&last), Some(at(115)));
        assert_eq!(lookout.overdue_at(&first), Some(at(70)));
        assert_eq!(lookout.overdue_at(&last), Some(at(75)));
    }
}
