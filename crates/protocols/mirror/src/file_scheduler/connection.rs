//! One connection: its outstanding requests, how many bytes these may have, and when to try it again.

use std::collections::VecDeque;

use anabranch_algo::{Rate, Span, Time};

use super::api::{ConnectionReport, Counters, FileId, ServerId};
use super::delivery::Delivery;
use crate::backoff::{BUSY_MAX, Backoff, RETRY_MAX, RETRY_MIN};
use crate::fetch_id::FetchId;
use crate::range_scheduler::State;

/// The lower bound of the bytes that a connection may have outstanding.
pub const WINDOW_MIN_BYTES: u64 = 256 << 10;
/// The upper bound of the bytes that a connection may have outstanding.
pub const WINDOW_MAX_BYTES: u64 = 8 << 20;
/// How long a connection with requests may be silent until it counts as failed.
pub const UNRESPONSIVE_AFTER: Span = Span::from_secs(10);
/// The assumed size of an answer's head, in bytes.
pub(super) const HEAD_BYTES: u64 = 400;
/// The silence after which a connection counts as slow, or four round trips if that is longer.
const SLOW_AFTER: Span = Span::from_secs(1);

/// An outstanding request for a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) id: FetchId,
    pub(super) file: FileId,
    pub(super) url_index: usize,
    /// The expected bytes of the answer, including the head.
    pub(super) bytes: u64,
    at: Time,
    got: u64,
    /// The bytes that the connection had delivered when this request was made.
    before: u64,
    /// Whether no other request has been outstanding on this connection since this one was made.
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

/// One connection of the file scheduler; see the [module](self).
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) server: ServerId,
    pub(super) state: State,
    /// The outstanding requests, in the order in which they were made. Answers come in the same order.
    pub(super) requests: VecDeque<Request>,
    /// The expected bytes of all outstanding requests.
    pub(super) asked_bytes: u64,
    last_rx: Time,
    pub(super) delivery: Delivery,
    /// When it may be asked again, and whether it gets only one file until it has answered.
    backoff: Backoff,
    /// Whether it gets one file at a time, because one of several outstanding answers was wrong.
    pub(super) sequential: bool,
    /// The file of that wrong answer, which is to be requested alone.
    pub(super) suspect: Option<FileId>,
    /// The time of the last failure. Failures of requests that were made before it do not count again.
    failed_at: Option<Time>,
    pub(super) counters: Counters,
    /// The index of its [`ConnectionPair`](super::connection_pair::ConnectionPair).
    pub(super) pair: usize,
    /// The number of answers that have begun on the current TCP connection.
    pub(super) nth: u64,
    /// Whether the server announced the newest answer as the last on its TCP connection. The next request
    /// then opens a new TCP connection.
    pub(super) last: bool,
    /// Whether no answer has arrived since it was added, lost the turn, or answered all requests that its TCP
    /// connection takes. It then has no TCP connection, or an idle one.
    pub(super) fresh: bool,
}

impl Connection {
    pub(super) fn new(server: ServerId, pair: usize) -> Self {
        Self {
            server,
            state: State::Opening,
            requests: VecDeque::new(),
            asked_bytes: 0,
            last_rx: Time::ZERO,
            delivery: Delivery::default(),
            backoff: Backoff::default(),
            sequential: false,
            suspect: None,
            failed_at: None,
            counters: Counters::default(),
            pair,
            nth: 0,
            last: false,
            fresh: true,
        }
    }

    /// Whether it may ever be asked again.
    pub(super) const fn is_usable(&self) -> bool {
        !matches!(self.state, State::Down | State::Closed)
    }

    /// Whether its last request did not fail.
    pub(super) const fn is_proven(&self) -> bool {
        !self.backoff.trial
    }

    /// Whether it has no request and may get one now.
    pub(super) fn is_free(&self, now: Time) -> bool {
        self.is_ready(now) && self.requests.is_empty()
    }

    /// Whether it may get a request now: it is usable and its back-off is over.
    pub(super) fn is_ready(&self, now: Time) -> bool {
        self.is_usable() && self.backoff.is_over(now)
    }

    /// Whether it may have one more request beside those outstanding.
    pub(super) fn may_pipeline(&self, outstanding_max: usize) -> bool {
        !self.backoff.trial && !self.sequential && self.requests.len() < outstanding_max
    }

    /// Returns the bytes that it may have outstanding if it has the link for itself: twice the bytes that it
    /// delivers in a round trip, as far as known.
    pub(super) fn window(&self) -> u64 {
        let twice = u128::from(self.delivery.rate) * u128::from(self.delivery.round_trip().as_nanos()) * 2
            / 1_000_000_000;
        u64::try_from(twice).unwrap_or(u64::MAX).clamp(WINDOW_MIN_BYTES, WINDOW_MAX_BYTES)
    }

    /// Returns the number of requests whose answer has not begun.
    pub(super) fn waiting(&self) -> u64 {
        self.requests.iter().filter(|request| !request.begun).count() as u64
    }

    /// Whether the last answer of its TCP connection has begun and no request is queued behind it.
    pub(super) fn is_at_its_end(&self) -> bool {
        self.last && !self.requests.is_empty() && self.waiting() == 0
    }

    /// Returns the number of the newest request, counted from the first request on its TCP connection.
    pub(super) fn last_request_number(&self) -> u64 {
        if self.last { self.waiting() } else { self.nth + self.waiting() }
    }

    /// Records that the answer to request `n` of the queue has begun, the `nth` answer of its TCP connection.
    /// If this TCP connection is new and the previous one ended without notice, returns the previous one's
    /// number of answers.
    pub(super) fn on_head(&mut self, n: usize, nth: u64, last: bool) -> Option<u64> {
        let is_new = nth <= self.nth;
        let ended = (is_new && !self.last).then_some(self.nth);
        if is_new {
            self.delivery.begin_slowly();
        }
        (self.nth, self.last, self.fresh) = (nth, last, false);
        if let Some(request) = self.requests.get_mut(n) {
            request.begun = true;
        }
        ended
    }

    /// Estimates the bytes in flight from the server. A server sends on a new TCP connection twice the bytes
    /// of the round trip before, until everything requested is in flight. Bytes arrive in bursts, so the
    /// estimate uses the most bytes of any round trip.
    pub(super) fn in_flight_bytes(&self) -> u64 {
        self.asked_bytes.min(self.delivery.most_in_a_trip.saturating_mul(2))
    }

    pub(super) fn ask(&mut self, mut request: Request) {
        request.before = self.delivery.bytes;
        if !self.requests.is_empty() {
            request.unpipelined = false;
            self.requests.iter_mut().for_each(|other| other.unpipelined = false);
        }
        self.asked_bytes += request.bytes;
        self.requests.push_back(request);
    }

    /// Records that `bytes` more bytes of the answer to request `n` of the queue have arrived.
    pub(super) fn on_data(&mut self, now: Time, n: usize, bytes: u64) {
        (self.last_rx, self.state) = (now, State::Open);
        self.delivery.add(now, bytes);
        self.counters.received_bytes += bytes;
        if let Some(request) = self.requests.get_mut(n) {
            request.got += bytes;
        }
    }

    /// Removes request `n` from the queue.
    pub(super) fn take(&mut self, n: usize) -> Option<Request> {
        let request = self.requests.remove(n)?;
        self.asked_bytes -= request.bytes;
        Some(request)
    }

    /// Removes all requests from the queue and returns them.
    pub(super) fn clear(&mut self) -> VecDeque<Request> {
        self.asked_bytes = 0;
        std::mem::take(&mut self.requests)
    }

    /// Removes request `n`, which was answered completely, and counts its answer in the measurements.
    pub(super) fn answered(&mut self, now: Time, n: usize) -> Option<Request> {
        self.on_data(now, n, 0);
        self.delivery.bytes += HEAD_BYTES;
        let request = self.take(n)?;
        self.delivery.answered(now.since(request.at), request.before);
        self.on_success();
        Some(request)
    }

    /// Records that the server answers, which resets the count of failures.
    pub(super) const fn on_success(&mut self) {
        self.backoff.on_success();
        self.fresh = false;
    }

    /// Whether the failure of `request` counts: the request was made after the last failure that counted.
    pub(super) fn is_new_failure(&self, request: &Request) -> bool {
        self.failed_at.is_none_or(|failed| request.at > failed)
    }

    pub(super) fn fail(&mut self, now: Time) {
        self.backoff.hold(self.backoff.until.max(now + self.backoff.wait(RETRY_MIN, RETRY_MAX)));
        (self.backoff.trial, self.failed_at, self.state) = (true, Some(now), State::Failing);
    }

    /// Records that the server asked for a pause of `retry`. Such answers in a row lengthen the wait. Answers
    /// to requests that were sent together count once (`is_new_failure`).
    pub(super) fn busy(&mut self, now: Time, retry: Span, is_new_failure: bool) {
        self.backoff.until = self.backoff.until.max(now + retry.min(BUSY_MAX));
        if is_new_failure {
            self.fail(now);
        }
        (self.backoff.trial, self.state) = (true, State::Busy);
    }

    /// Returns when the silence began that the oldest request is waiting in. `None` if there is no request.
    fn waiting_since(&self) -> Option<Time> {
        Some(self.last_rx.max(self.requests.front()?.at))
    }

    /// Restarts the measurement of silence, because the caller did not read until now.
    pub(super) fn resumed(&mut self, now: Time) {
        self.last_rx = now;
    }

    /// Whether it has been silent for [`UNRESPONSIVE_AFTER`]. If so, counts a stall.
    pub(super) fn is_unresponsive(&mut self, now: Time) -> bool {
        let unresponsive = self.waiting_since().is_some_and(|since| now.since(since) >= UNRESPONSIVE_AFTER);
        self.counters.stalls += u64::from(unresponsive);
        unresponsive
    }

    /// Returns the earlier of the time when its silence becomes a failure and the time when its back-off
    /// ends.
    pub(super) fn due(&self, now: Time) -> Time {
        let unresponsive = self.waiting_since().map_or(Time::NEVER, |since| since + UNRESPONSIVE_AFTER);
        let held =
            if self.is_usable() && self.backoff.until > now { self.backoff.until } else { Time::NEVER };
        unresponsive.min(held)
    }

    /// Whether it counts as slow: it has been silent for [`SLOW_AFTER`] and for four round trips although
    /// requests are outstanding.
    pub(super) fn is_slow(&self, now: Time) -> bool {
        let slow = SLOW_AFTER.max(self.delivery.srtt.times(4));
        self.waiting_since().is_some_and(|since| now.since(since) >= slow)
    }

    /// Estimates, for each request, the time until its answer is complete.
    pub(super) fn answers(&self, now: Time) -> impl DoubleEndedIterator<Item = (Span, &Request)> {
        let is_slow = self.is_slow(now);
        let rate = if is_slow { 0 } else { self.delivery.rate };
        let mut ahead = 0;
        let all = self.requests.iter().map(move |request| {
            ahead += request.bytes.saturating_sub(request.got);
            let left = match rate {
                // The connection is slow, or its rate is not known yet.
                0 if is_slow => UNRESPONSIVE_AFTER,
                0 => Span::ZERO,
                rate => Rate::from_bytes(rate).time_for(ahead),
            };
            (left, request)
        });
        all.collect::<Vec<_>>().into_iter()
    }

    pub(super) fn report(&self) -> ConnectionReport {
        ConnectionReport {
            server: self.server,
            state: self.state,
            rate: self.delivery.rate,
            srtt: self.delivery.srtt,
            window_bytes: self.window(),
            outstanding: self.requests.len(),
            blocked_until: self.backoff.until,
            counters: self.counters,
        }
    }
}
