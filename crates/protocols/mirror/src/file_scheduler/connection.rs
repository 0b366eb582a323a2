//! One connection: its requests, how many bytes these may have, and when to try it again.

use std::collections::VecDeque;

use anabranch_algo::{Rate, Span, Time};

use super::api::{ConnectionReport, Counters, FileId, ServerId};
use crate::fetch_id::FetchId;
use crate::range_scheduler::{BUSY_MAX, RETRY_MAX, RETRY_MIN, State, backoff};

/// Bytes that a connection may be asked for at once, at least.
pub const WINDOW_MIN_BYTES: u64 = 256 << 10;
/// Bytes that a connection may be asked for at once, at most.
pub const WINDOW_MAX_BYTES: u64 = 8 << 20;
/// A connection with requests has failed when nothing comes for so long.
pub const UNRESPONSIVE_AFTER: Span = Span::from_secs(10);
/// The assumed size of an answer's head.
const HEAD_BYTES: u64 = 400;
/// A connection is slower than it seemed when nothing has come for so long, or for four round trips.
const SLOW_AFTER: Span = Span::from_secs(1);
/// How often in a round trip the delivered bytes are noted.
const MARKS: usize = 16;
/// The assumed time for a file before the first one has come.
const UNKNOWN: Span = Span::from_millis(300);

/// A file that a connection has been asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) id: FetchId,
    pub(super) file: FileId,
    pub(super) url_index: usize,
    /// The bytes of its answer, including the head.
    pub(super) bytes: u64,
    at: Time,
    got: u64,
    /// What the connection had delivered when this was requested.
    before: u64,
    /// Whether nothing else was under way on this connection meanwhile.
    pub(super) unpipelined: bool,
    /// Whether its answer has begun.
    begun: bool,
}

impl Request {
    pub(super) const fn new(id: FetchId, file: FileId, url_index: usize, bytes: u64, at: Time) -> Self {
        let bytes = bytes.saturating_add(HEAD_BYTES);
        Self { id, file, url_index, bytes, at, got: 0, before: 0, unpipelined: true, begun: false }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) server: ServerId,
    pub(super) state: State,
    /// In the order in which they were asked, which is that of the answers.
    pub(super) requests: VecDeque<Request>,
    /// Bytes of all requests.
    pub(super) asked_bytes: u64,
    delivered: u64,
    last_rx: Time,
    /// Bytes a second; it rises at once and falls slowly.
    pub(super) rate: u64,
    /// The least time that a file took.
    latency: Option<Span>,
    pub(super) srtt: Span,
    /// No request before this time.
    blocked_until: Time,
    /// It has to prove itself again with one file.
    trial: bool,
    /// One file at a time, because an answer among several was wrong.
    pub(super) sequential: bool,
    /// That wrong file, to be requested alone.
    pub(super) suspect: Option<FileId>,
    /// When it failed last. Failures of older requests do not count again.
    failed_at: Option<Time>,
    consecutive_failures: u32,
    pub(super) counters: Counters,
    /// The pair that this is one of.
    pub(super) pair: usize,
    /// Answers that its TCP connection has begun.
    pub(super) nth: u64,
    /// Whether the newest of them was the last: the next request opens another TCP connection.
    pub(super) last: bool,
    /// No answer has come since its turn began: it has no TCP connection, or an idle one.
    pub(super) fresh: bool,
    /// Times and delivered bytes of about a round trip, oldest first.
    marks: VecDeque<(Time, u64)>,
    /// The most bytes that its TCP connection has brought within a round trip.
    most_in_a_trip: u64,
    /// Files that came whole.
    answers: u64,
}

impl Connection {
    pub(super) fn new(server: ServerId, pair: usize) -> Self {
        Self {
            server,
            state: State::Opening,
            requests: VecDeque::new(),
            asked_bytes: 0,
            delivered: 0,
            last_rx: Time::ZERO,
            rate: 0,
            latency: None,
            srtt: Span::ZERO,
            blocked_until: Time::ZERO,
            trial: false,
            sequential: false,
            suspect: None,
            failed_at: None,
            consecutive_failures: 0,
            counters: Counters::default(),
            pair,
            nth: 0,
            last: false,
            fresh: true,
            marks: VecDeque::new(),
            most_in_a_trip: 0,
            answers: 0,
        }
    }

    /// Whether it may ever be asked again.
    pub(super) const fn is_usable(&self) -> bool {
        !matches!(self.state, State::Down | State::Closed)
    }

    /// Whether its last request did not fail.
    pub(super) const fn is_proven(&self) -> bool {
        !self.trial
    }

    /// Whether it has no request and may have one.
    pub(super) fn is_free(&self, now: Time) -> bool {
        self.is_usable() && now >= self.blocked_until && self.requests.is_empty()
    }

    /// Whether it need not wait before its next request.
    pub(super) fn is_ready(&self, now: Time) -> bool {
        self.is_usable() && now >= self.blocked_until
    }

    /// Whether it may be asked for more than one file.
    pub(super) fn may_pipeline(&self, outstanding_max: usize) -> bool {
        !self.trial && !self.sequential && self.requests.len() < outstanding_max
    }

    /// The bytes it may be asked for at once if it has the link for itself: twice what it delivers in a round
    /// trip, as far as known.
    pub(super) fn window(&self) -> u64 {
        let twice = u128::from(self.rate) * u128::from(self.round_trip().as_nanos()) * 2 / 1_000_000_000;
        u64::try_from(twice).unwrap_or(u64::MAX).clamp(WINDOW_MIN_BYTES, WINDOW_MAX_BYTES)
    }

    /// Its round trip, with what waits on the way.
    pub(super) fn round_trip(&self) -> Span {
        self.srtt.max(self.latency.unwrap_or(Span::ZERO))
    }

    /// What a file has on average, its head among it.
    pub(super) fn mean_bytes(&self) -> Option<u64> {
        self.delivered.checked_div(self.answers)
    }

    /// Requests whose answer has not begun.
    pub(super) fn waiting(&self) -> u64 {
        self.requests.iter().filter(|request| !request.begun).count() as u64
    }

    /// Whether the last answer of its TCP connection has begun and nothing is asked behind it.
    pub(super) fn is_at_its_end(&self) -> bool {
        self.last && !self.requests.is_empty() && self.waiting() == 0
    }

    /// Whether its TCP connection has brought so many bytes within a round trip.
    pub(super) const fn is_fast(&self, bytes: u64) -> bool {
        self.most_in_a_trip >= bytes
    }

    /// The number on its TCP connection of the newest request.
    pub(super) fn last_request_number(&self) -> u64 {
        if self.last { self.waiting() } else { self.nth + self.waiting() }
    }

    /// An answer has begun, the `nth` of its TCP connection. If this is a new one and the one before ended
    /// without notice, returns the number of answers of the one before.
    pub(super) fn on_head(&mut self, n: usize, nth: u64, last: bool) -> Option<u64> {
        let is_new = nth <= self.nth;
        let ended = (is_new && !self.last).then_some(self.nth);
        if is_new {
            // It begins slowly.
            (self.rate, self.most_in_a_trip) = (0, 0);
            self.marks.clear();
        }
        (self.nth, self.last, self.fresh) = (nth, last, false);
        if let Some(request) = self.requests.get_mut(n) {
            request.begun = true;
        }
        ended
    }

    /// An estimate of the bytes in flight from its server. A new TCP connection sends twice what came in the
    /// last round trip, until everything requested is in flight. Bytes come in bursts, so the maximum counts.
    pub(super) fn in_flight_bytes(&self) -> u64 {
        self.asked_bytes.min(self.most_in_a_trip.saturating_mul(2))
    }

    pub(super) fn ask(&mut self, mut request: Request) {
        request.before = self.delivered;
        if !self.requests.is_empty() {
            request.unpipelined = false;
            self.requests.iter_mut().for_each(|other| other.unpipelined = false);
        }
        self.asked_bytes += request.bytes;
        self.requests.push_back(request);
    }

    /// More of an answer has come.
    pub(super) fn on_data(&mut self, now: Time, n: usize, bytes: u64) {
        (self.last_rx, self.state) = (now, State::Open);
        if bytes > 0 {
            self.mark(now, bytes);
        }
        self.delivered += bytes;
        self.counters.received_bytes += bytes;
        if let Some(request) = self.requests.get_mut(n) {
            request.got += bytes;
        }
    }

    /// Notes that so many bytes more come now.
    fn mark(&mut self, now: Time, bytes: u64) {
        let trip = if self.srtt > Span::ZERO { self.srtt } else { self.latency.unwrap_or(UNKNOWN) };
        while self.marks.front().is_some_and(|(at, _)| now.since(*at) > trip) {
            self.marks.pop_front();
        }
        let every = Span::from_nanos(trip.as_nanos() / MARKS as u64);
        if self.marks.len() < 2 * MARKS && self.marks.back().is_none_or(|(at, _)| now.since(*at) >= every) {
            self.marks.push_back((now, self.delivered));
        }
        let before = self.marks.front().map_or(self.delivered, |(_, before)| *before);
        self.most_in_a_trip = self.most_in_a_trip.max(self.delivered + bytes - before);
    }

    /// A request is over.
    pub(super) fn take(&mut self, n: usize) -> Option<Request> {
        let request = self.requests.remove(n)?;
        self.asked_bytes -= request.bytes;
        Some(request)
    }

    /// All requests are over.
    pub(super) fn clear(&mut self) -> VecDeque<Request> {
        self.asked_bytes = 0;
        std::mem::take(&mut self.requests)
    }

    /// A request was answered to its end.
    pub(super) fn answered(&mut self, now: Time, n: usize) -> Option<Request> {
        self.on_data(now, n, 0);
        self.delivered += HEAD_BYTES;
        let request = self.take(n)?;
        self.answers += 1;
        let took = now.since(request.at);
        self.latency = Some(self.latency.map_or(took, |least| least.min(took)));
        let rate = Rate::of(self.delivered - request.before, took).as_bytes();
        self.rate = if rate > self.rate { rate } else { self.rate - (self.rate - rate) / 8 };
        self.on_success();
        Some(request)
    }

    /// It answers.
    pub(super) const fn on_success(&mut self) {
        (self.trial, self.fresh, self.consecutive_failures) = (false, false, 0);
    }

    /// Whether this failure is a new one, not that of an earlier request.
    pub(super) fn is_new_failure(&self, request: &Request) -> bool {
        self.failed_at.is_none_or(|failed| request.at > failed)
    }

    pub(super) fn fail(&mut self, now: Time) {
        self.blocked_until =
            self.blocked_until.max(now + backoff(RETRY_MIN, self.consecutive_failures, RETRY_MAX));
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        (self.trial, self.failed_at, self.state) = (true, Some(now), State::Failing);
    }

    /// It asked to be left alone. Repeated requests lengthen the wait. Answers to requests that were sent
    /// together count once (`is_new_failure`).
    pub(super) fn busy(&mut self, now: Time, retry: Span, is_new_failure: bool) {
        self.blocked_until = self.blocked_until.max(now + retry.min(BUSY_MAX));
        if is_new_failure {
            self.fail(now);
        }
        (self.trial, self.state) = (true, State::Busy);
    }

    /// When the wait for it began.
    fn waiting_since(&self) -> Option<Time> {
        Some(self.last_rx.max(self.requests.front()?.at))
    }

    /// The world has not read until now.
    pub(super) fn resumed(&mut self, now: Time) {
        self.last_rx = now;
    }

    /// Whether it has failed by its silence; if so, counts it.
    pub(super) fn is_unresponsive(&mut self, now: Time) -> bool {
        let unresponsive = self.waiting_since().is_some_and(|since| now.since(since) >= UNRESPONSIVE_AFTER);
        self.counters.stalls += u64::from(unresponsive);
        unresponsive
    }

    /// When it fails by its silence, or its wait ends.
    pub(super) fn due(&self, now: Time) -> Time {
        let unresponsive = self.waiting_since().map_or(Time::NEVER, |since| since + UNRESPONSIVE_AFTER);
        let held =
            if self.is_usable() && self.blocked_until > now { self.blocked_until } else { Time::NEVER };
        unresponsive.min(held)
    }

    /// Whether nothing has come for longer than it should take.
    pub(super) fn is_slow(&self, now: Time) -> bool {
        let slow = SLOW_AFTER.max(self.srtt.times(4));
        self.waiting_since().is_some_and(|since| now.since(since) >= slow)
    }

    /// The estimated time until each of its requests is answered.
    pub(super) fn answers(&self, now: Time) -> impl DoubleEndedIterator<Item = (Span, &Request)> {
        let is_slow = self.is_slow(now);
        let rate = if is_slow { 0 } else { self.rate };
        let mut ahead = 0;
        let all = self.requests.iter().map(move |request| {
            ahead += request.bytes.saturating_sub(request.got);
            let left = match rate {
                // It has just begun, or it has stopped.
                0 if is_slow => UNRESPONSIVE_AFTER,
                0 => Span::ZERO,
                rate => Rate::from_bytes(rate).time_for(ahead),
            };
            (left, request)
        });
        all.collect::<Vec<_>>().into_iter()
    }

    /// The estimated time for a file of so many bytes without other requests.
    pub(super) fn would_take(&self, bytes: u64) -> Span {
        let first = self.latency.unwrap_or(UNKNOWN).max(self.srtt);
        if self.rate == 0 { first } else { first + Rate::from_bytes(self.rate).time_for(bytes) }
    }

    pub(super) fn report(&self) -> ConnectionReport {
        ConnectionReport {
            server: self.server,
            state: self.state,
            rate: self.rate,
            srtt: self.srtt,
            window_bytes: self.window(),
            outstanding: self.requests.len(),
            blocked_until: self.blocked_until,
            counters: self.counters,
        }
    }
}
