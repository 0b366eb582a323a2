//! Measures what a connection delivers: its rate, its round-trip time, and the most bytes within a round
//! trip.

use std::collections::VecDeque;

use anabranch_algo::{Rate, Span, Time};

/// How often in a round trip the number of delivered bytes is recorded.
const MARKS: usize = 16;
/// The assumed time for a file until the first one has arrived.
const UNKNOWN: Span = Span::from_millis(300);

/// The measurements of one connection; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Delivery {
    /// Bytes of all answers that have arrived, with the assumed size of the heads of complete answers.
    pub(super) bytes: u64,
    /// The rate in bytes per second. It rises at once and falls slowly.
    pub(super) rate: u64,
    /// The shortest time between a request and the end of its answer.
    latency: Option<Span>,
    pub(super) srtt: Span,
    /// Records of the last round trip or so: the time, and the bytes delivered until then. The oldest is
    /// first.
    marks: VecDeque<(Time, u64)>,
    /// The most bytes that the current TCP connection has delivered within a round trip.
    pub(super) most_in_a_trip: u64,
    /// The number of complete files.
    answers: u64,
}

impl Delivery {
    /// Returns the larger of the smoothed round-trip time, which includes queues on the way, and the shortest
    /// time that a file took.
    pub(super) fn round_trip(&self) -> Span {
        self.srtt.max(self.latency.unwrap_or(Span::ZERO))
    }

    /// Returns the average bytes of a file, including the head of its answer.
    pub(super) fn mean_bytes(&self) -> Option<u64> {
        self.bytes.checked_div(self.answers)
    }

    /// Estimates the time for a file of `bytes` bytes without other requests.
    pub(super) fn time_for(&self, bytes: u64) -> Span {
        let first = self.latency.unwrap_or(UNKNOWN).max(self.srtt);
        if self.rate == 0 { first } else { first + Rate::from_bytes(self.rate).time_for(bytes) }
    }

    /// Forgets the rate, because a new TCP connection begins slowly.
    pub(super) fn begin_slowly(&mut self) {
        (self.rate, self.most_in_a_trip) = (0, 0);
        self.marks.clear();
    }

    /// Records that `bytes` more bytes have arrived.
    pub(super) fn add(&mut self, now: Time, bytes: u64) {
        if bytes > 0 {
            self.mark(now, bytes);
        }
        self.bytes += bytes;
    }

    /// Records the bytes delivered so far if the last record is old enough, and updates `most_in_a_trip`.
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

    /// Records that a whole file has arrived, `took` after its request. At the time of the request, `before`
    /// bytes had been delivered.
    pub(super) fn answered(&mut self, took: Span, before: u64) {
        self.answers += 1;
        self.latency = Some(self.latency.map_or(took, |least| least.min(took)));
        let rate = Rate::of(self.bytes - before, took).as_bytes();
        self.rate = if rate > self.rate { rate } else { self.rate - (self.rate - rate) / 8 };
    }
}
