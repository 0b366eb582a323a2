//! What a connection delivers: its rate, its round trip, and the most that came within one.

use std::collections::VecDeque;

use anabranch_algo::{Rate, Span, Time};

/// How often in a round trip the delivered bytes are noted.
const MARKS: usize = 16;
/// The assumed time for a file before the first one has come.
const UNKNOWN: Span = Span::from_millis(300);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Delivery {
    /// Bytes of answers that have come, with their heads.
    pub(super) bytes: u64,
    /// Bytes a second; it rises at once and falls slowly.
    pub(super) rate: u64,
    /// The least time that a file took.
    latency: Option<Span>,
    pub(super) srtt: Span,
    /// Times and delivered bytes of about a round trip, oldest first.
    marks: VecDeque<(Time, u64)>,
    /// The most bytes that its TCP connection has brought within a round trip.
    pub(super) most_in_a_trip: u64,
    /// Files that came whole.
    answers: u64,
}

impl Delivery {
    /// Its round trip, with what waits on the way.
    pub(super) fn round_trip(&self) -> Span {
        self.srtt.max(self.latency.unwrap_or(Span::ZERO))
    }

    /// What a file has on average, its head among it.
    pub(super) fn mean_bytes(&self) -> Option<u64> {
        self.bytes.checked_div(self.answers)
    }

    /// The estimated time for a file of so many bytes without other requests.
    pub(super) fn time_for(&self, bytes: u64) -> Span {
        let first = self.latency.unwrap_or(UNKNOWN).max(self.srtt);
        if self.rate == 0 { first } else { first + Rate::from_bytes(self.rate).time_for(bytes) }
    }

    /// A new TCP connection begins slowly.
    pub(super) fn begin_slowly(&mut self) {
        (self.rate, self.most_in_a_trip) = (0, 0);
        self.marks.clear();
    }

    /// So many bytes more have come.
    pub(super) fn add(&mut self, now: Time, bytes: u64) {
        if bytes > 0 {
            self.mark(now, bytes);
        }
        self.bytes += bytes;
    }

    /// Notes that so many bytes more come now.
    fn mark(&mut self, now: Time, bytes: u64) {
        let trip = if self.srtt > Span::ZERO { self.srtt } else { self.latency.unwrap_or(UNKNOWN) };
        while self.marks.front().is_some_and(|(at, _)| now.since(*at) > trip) {
            self.marks.pop_front();
        }
        let every = Span::from_nanos(trip.as_nanos() / MARKS as u64);
        if self.marks.len() < 2 * MARKS && self.marks.back().is_none_or(|(at, _)| now.since(*at) >= every) {
            self.marks.push_back((now, self.bytes));
        }
        let before = self.marks.front().map_or(self.bytes, |(_, before)| *before);
        self.most_in_a_trip = self.most_in_a_trip.max(self.bytes + bytes - before);
    }

    /// A file came whole, `took` after it was requested, when `before` bytes had been delivered.
    pub(super) fn answered(&mut self, took: Span, before: u64) {
        self.answers += 1;
        self.latency = Some(self.latency.map_or(took, |least| least.min(took)));
        let rate = Rate::of(self.bytes - before, took).as_bytes();
        self.rate = if rate > self.rate { rate } else { self.rate - (self.rate - rate) / 8 };
    }
}
