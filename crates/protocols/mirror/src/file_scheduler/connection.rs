//! One connection: its requests, how many bytes these may have, and when to try it again.

use std::collections::VecDeque;

use anabranch_algo::{Rate, Span, Time};

use super::api::{ConnectionReport, Counters, FileId, ServerId};
use super::delivery::Delivery;
use crate::backoff::{BUSY_MAX, Backoff, RETRY_MAX, RETRY_MIN};
use crate::fetch_id::FetchId;
use crate::range_scheduler::State;

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
    last_rx: Time,
    pub(super) delivery: Delivery,
    /// When it is asked again, and whether it has to prove itself with one file.
    backoff: Backoff,
    /// One file at a time, because an answer among several was wrong.
    pub(super) sequential: bool,
    /// That wrong file, to be requested alone.
    pub(super) suspect: Option<FileId>,
    /// When it failed last. Failures of older requests do not count again.
    failed_at: Option<Time>,
    pub(super) counters: Counters,
    /// The pair that this is one of.
    pub(super) pair: usize,
    /// Answers that its TCP connection has begun.
    pub(super) nth: u64,
    /// Whether the newest of them was the last: the next request opens another TCP connection.
    pub(super) last: bool,
    /// No answer has come since its turn began: it has no TCP connection, or an idle one.
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

    /// Whether it has no request and may have one.
    pub(super) fn is_free(&self, now: Time) -> bool {
        self.is_ready(now) && self.requests.is_empty()
    }

    /// Whether it need not wait before its next request.
    pub(super) fn is_ready(&self, now: Time) -> bool {
        self.is_usable() && self.backoff.is_over(now)
    }

    /// Whether it may be asked for more than one file.
    pub(super) fn may_pipeline(&self, outstanding_max: usize) -> bool {
        !self.backoff.trial && !self.sequential && self.requests.len() < outstanding_max
    }

    /// The bytes it may be asked for at once if it has the link for itself: twice what it delivers in a round
    /// trip, as far as known.
    pub(super) fn window(&self) -> u64 {
        let twice = u128::from(self.delivery.rate) * u128::from(self.delivery.round_trip().as_nanos()) * 2
            / 1_000_000_000;
        u64::try_from(twice).unwrap_or(u64::MAX).clamp(WINDOW_MIN_BYTES, WINDOW_MAX_BYTES)
    }

    /// Requests whose answer has not begun.
    pub(super) fn waiting(&self) -> u64 {
        self.requests.iter().filter(|request| !request.begun).count() as u64
    }

    /// Whether the last answer of its TCP connection has begun and nothing is asked behind it.
    pub(super) fn is_at_its_end(&self) -> bool {
        self.last && !self.requests.is_empty() && self.waiting() == 0
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
            self.delivery.begin_slowly();
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

    /// More of an answer has come.
    pub(super) fn on_data(&mut self, now: Time, n: usize, bytes: u64) {
        (self.last_rx, self.state) = (now, State::Open);
        self.delivery.add(now, bytes);
        self.counters.received_bytes += bytes;
        if let Some(request) = self.requests.get_mut(n) {
            request.got += bytes;
        }
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
        self.delivery.bytes += HEAD_BYTES;
        let request = self.take(n)?;
        self.delivery.answered(now.since(request.at), request.before);
        self.on_success();
        Some(request)
    }

    /// It answers.
    pub(super) const fn on_success(&mut self) {
        self.backoff.on_success();
        self.fresh = false;
    }

    /// Whether this failure is a new one, not that of an earlier request.
    pub(super) fn is_new_failure(&self, request: &Request) -> bool {
        self.failed_at.is_none_or(|failed| request.at > failed)
    }

    pub(super) fn fail(&mut self, now: Time) {
        self.backoff.hold(self.backoff.until.max(now + self.backoff.wait(RETRY_MIN, RETRY_MAX)));
        (self.backoff.trial, self.failed_at, self.state) = (true, Some(now), State::Failing);
    }

    /// It asked to be left alone. Repeated requests lengthen the wait. Answers to requests that were sent
    /// together count once (`is_new_failure`).
    pub(super) fn busy(&mut self, now: Time, retry: Span, is_new_failure: bool) {
        self.backoff.until = self.backoff.until.max(now + retry.min(BUSY_MAX));
        if is_new_failure {
            self.fail(now);
        }
        (self.backoff.trial, self.state) = (true, State::Busy);
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
            if self.is_usable() && self.backoff.until > now { self.backoff.until } else { Time::NEVER };
        unresponsive.min(held)
    }

    /// Whether nothing has come for longer than it should take.
    pub(super) fn is_slow(&self, now: Time) -> bool {
        let slow = SLOW_AFTER.max(self.delivery.srtt.times(4));
        self.waiting_since().is_some_and(|since| now.since(since) >= slow)
    }

    /// The estimated time until each of its requests is answered.
    pub(super) fn answers(&self, now: Time) -> impl DoubleEndedIterator<Item = (Span, &Request)> {
        let is_slow = self.is_slow(now);
        let rate = if is_slow { 0 } else { self.delivery.rate };
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
