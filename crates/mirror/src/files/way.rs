//! One way: what it has been asked for, how much that may be, when to try it again.

use std::collections::VecDeque;

use algo::{Rate, Span, Time};

use super::{Counters, FileId, ServerId, WayReport};
use crate::plan::{BUSY_MAX, FetchId, RETRY_MAX, RETRY_MIN, State, WayId, backoff};

/// Files that a way is asked for at once.
pub const OUTSTANDING_MAX: usize = 128;
/// Bytes that a way may be asked for at once, at least.
pub const WINDOW_MIN_BYTES: u64 = 256 << 10;
/// Bytes that a way may be asked for at once, at most.
pub const WINDOW_MAX_BYTES: u64 = 8 << 20;
/// A way that has been asked and from which nothing comes for so long has failed.
pub const SILENT_AFTER: Span = Span::from_secs(10);
/// What the head of an answer is taken to have.
const HEAD_BYTES: u64 = 400;
/// When a way is taken to be slower than it seemed: nothing has come for so long, or for four round trips.
const QUIET_AFTER: Span = Span::from_secs(1);
/// What a way is taken to need for a file when it has not brought any.
const UNKNOWN: Span = Span::from_millis(300);

/// A file that a way has been asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) id: FetchId,
    pub(super) file: FileId,
    pub(super) place: usize,
    /// What it is to bring, the head among it.
    pub(super) bytes: u64,
    at: Time,
    got: u64,
    /// What the way had delivered when this was asked.
    before: u64,
    /// Whether nothing else was under way on this way meanwhile.
    pub(super) alone: bool,
}

impl Request {
    pub(super) const fn new(id: FetchId, file: FileId, place: usize, bytes: u64, at: Time) -> Self {
        Self { id, file, place, bytes: bytes.saturating_add(HEAD_BYTES), at, got: 0, before: 0, alone: true }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Way {
    pub(super) server: ServerId,
    pub(super) state: State,
    /// In the order in which they were asked, which is that of the answers.
    pub(super) requests: VecDeque<Request>,
    /// Bytes of all requests.
    asked_bytes: u64,
    delivered: u64,
    heard_at: Time,
    /// Bytes a second; it rises at once and falls slowly.
    rate: u64,
    /// The least time that a file took.
    latency: Option<Span>,
    pub(super) srtt: Span,
    /// No request before this time.
    hold: Time,
    /// It has to prove itself again: one file.
    trial: bool,
    /// One file at a time: what came when there were several was not right.
    pub(super) single: bool,
    /// The file that was not right then, to be asked for alone.
    pub(super) doubted: Option<FileId>,
    /// When it failed last: what was asked before says nothing new.
    failed_at: Option<Time>,
    in_a_row: u32,
    pub(super) counters: Counters,
    /// The way that this is a second lane of.
    pub(super) first: Option<WayId>,
    /// Files that came whole.
    pub(super) answers: u64,
}

impl Way {
    pub(super) fn new(server: ServerId) -> Self {
        Self {
            server,
            state: State::Opening,
            requests: VecDeque::new(),
            asked_bytes: 0,
            delivered: 0,
            heard_at: Time::ZERO,
            rate: 0,
            latency: None,
            srtt: Span::ZERO,
            hold: Time::ZERO,
            trial: false,
            single: false,
            doubted: None,
            failed_at: None,
            in_a_row: 0,
            counters: Counters::default(),
            first: None,
            answers: 0,
        }
    }

    /// Whether it may ever be asked again.
    pub(super) const fn is_usable(&self) -> bool {
        !matches!(self.state, State::Down | State::Closed)
    }

    /// Whether it has nothing to do and could have.
    pub(super) fn is_free(&self, now: Time) -> bool {
        self.is_usable() && now >= self.hold && self.requests.is_empty()
    }

    /// Whether it may be asked for a file of so many bytes now.
    pub(super) fn has_room(&self, now: Time, bytes: u64) -> bool {
        if self.requests.is_empty() {
            return self.is_free(now);
        }
        self.is_usable()
            && now >= self.hold
            && !self.trial
            && !self.single
            && self.requests.len() < OUTSTANDING_MAX
            && self.asked_bytes + bytes <= self.window()
    }

    /// Twice what it delivers in a round trip, as far as that is known.
    fn window(&self) -> u64 {
        let trip = self.srtt.max(self.latency.unwrap_or(Span::ZERO));
        let twice = u128::from(self.rate) * u128::from(trip.as_nanos()) * 2 / 1_000_000_000;
        u64::try_from(twice).unwrap_or(u64::MAX).clamp(WINDOW_MIN_BYTES, WINDOW_MAX_BYTES)
    }

    pub(super) fn ask(&mut self, mut request: Request) {
        request.before = self.delivered;
        if !self.requests.is_empty() {
            request.alone = false;
            self.requests.iter_mut().for_each(|other| other.alone = false);
        }
        self.asked_bytes += request.bytes;
        self.requests.push_back(request);
    }

    /// More of an answer has come.
    pub(super) fn heard(&mut self, now: Time, n: usize, bytes: u64) {
        (self.heard_at, self.state) = (now, State::Open);
        self.delivered += bytes;
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
        self.heard(now, n, 0);
        self.delivered += HEAD_BYTES;
        let request = self.take(n)?;
        self.answers += 1;
        let took = now.since(request.at);
        self.latency = Some(self.latency.map_or(took, |least| least.min(took)));
        let rate = Rate::of(self.delivered - request.before, took).as_bytes();
        self.rate = if rate > self.rate { rate } else { self.rate - (self.rate - rate) / 8 };
        self.proved();
        Some(request)
    }

    /// It answers.
    pub(super) const fn proved(&mut self) {
        (self.trial, self.in_a_row) = (false, 0);
    }

    /// Whether a failure of this request is not that of an earlier one.
    pub(super) fn is_news(&self, request: &Request) -> bool {
        self.failed_at.is_none_or(|failed| request.at > failed)
    }

    pub(super) fn fail(&mut self, now: Time) {
        self.hold = self.hold.max(now + backoff(RETRY_MIN, self.in_a_row, RETRY_MAX));
        self.in_a_row = self.in_a_row.saturating_add(1);
        (self.trial, self.failed_at, self.state) = (true, Some(now), State::Failing);
    }

    pub(super) fn busy(&mut self, now: Time, retry: Span) {
        self.hold = self.hold.max(now + retry.clamp(RETRY_MIN, BUSY_MAX));
        (self.trial, self.state) = (true, State::Busy);
    }

    /// Since when it has been waited for.
    fn waiting_since(&self) -> Option<Time> {
        Some(self.heard_at.max(self.requests.front()?.at))
    }

    /// What has come until now could not be seen before.
    pub(super) fn resumed(&mut self, now: Time) {
        self.heard_at = now;
    }

    /// Whether nothing has come for so long that nothing will; then that is counted.
    pub(super) fn is_silent(&mut self, now: Time) -> bool {
        let silent = self.waiting_since().is_some_and(|since| now.since(since) >= SILENT_AFTER);
        self.counters.stalls += u64::from(silent);
        silent
    }

    /// When something is to be done about it, should nothing happen.
    pub(super) fn due(&self, now: Time) -> Time {
        let silent = self.waiting_since().map_or(Time::NEVER, |since| since + SILENT_AFTER);
        let held = if self.is_usable() && self.hold > now { self.hold } else { Time::NEVER };
        silent.min(held)
    }

    /// How long until each of its requests is answered, as it seems.
    pub(super) fn answers(&self, now: Time) -> impl DoubleEndedIterator<Item = (Span, &Request)> {
        let quiet = QUIET_AFTER.max(self.srtt.times(4));
        let is_quiet = self.waiting_since().is_some_and(|since| now.since(since) >= quiet);
        let rate = if is_quiet { 0 } else { self.rate };
        let mut ahead = 0;
        let all = self.requests.iter().map(move |request| {
            ahead += request.bytes.saturating_sub(request.got);
            let left = match rate {
                // It has just begun, or it has stopped.
                0 if is_quiet => SILENT_AFTER,
                0 => Span::ZERO,
                rate => Rate::from_bytes(rate).time_for(ahead),
            };
            (left, request)
        });
        all.collect::<Vec<_>>().into_iter()
    }

    /// How long a file of so many bytes would take from here if nothing else were asked.
    pub(super) fn would_take(&self, bytes: u64) -> Span {
        let first = self.latency.unwrap_or(UNKNOWN).max(self.srtt);
        if self.rate == 0 { first } else { first + Rate::from_bytes(self.rate).time_for(bytes) }
    }

    pub(super) fn report(&self) -> WayReport {
        WayReport {
            server: self.server,
            state: self.state,
            rate: self.rate,
            srtt: self.srtt,
            window_bytes: self.window(),
            outstanding: self.requests.len(),
            hold: self.hold,
            counters: self.counters,
        }
    }
}
