//! One connection: its measured rate, its receive window, its requests, and when to try it again.

use std::collections::VecDeque;
use std::ops::Range;

use anabranch_algo::{Rate, Span, Time};
use anabranch_mmtp::id::BLOCK_BYTES;

use super::api::{ConnectionConfig, ConnectionReport, Counters, MirrorId, Pool, State};
use super::throughput::Throughput;
use crate::backoff::{BUSY_MAX, Backoff, RETRY_MAX, RETRY_MIN};
use crate::fetch_id::{ConnectionId, FetchId};
use crate::receive_windows::ReceiveWindows;

/// The first wait after a stall, in which the connection may recover by itself. Each further wait in a row is
/// twice as long.
pub const STALL_RETRY_MIN: Span = Span::from_secs(2);
/// The longest wait after a stall.
pub const STALL_RETRY_MAX: Span = Span::from_secs(16);
/// The time that a new TCP connection costs besides its round trips, because of slow start.
pub const RECONNECT_COST: Span = Span::from_millis(50);
/// The next range is requested when the rest of the current one takes two round trips and this margin. The
/// request takes one round trip, the answer may begin slowly, and the time is checked only now and then.
pub const PREFETCH_MARGIN: Span = Span::from_millis(50);
/// The most prefetched requests of a connection. It has more than one only if they are short, such as single
/// blocks for comparison. All those that wait should fit, and a long range behind them: else the link is
/// idle for a round trip.
const PREFETCHED_MAX: usize = 16;
/// A request that delivered this many bytes before it failed counts as one that was answered.
const PROGRESS_BYTES: u64 = 1 << 20;

pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchRole {
    /// The request owns its blocks: it took them from the pool, and no other request has them.
    Owner,
    /// The request fetches a second copy of blocks that the given request owns.
    Duplicate(FetchId),
    /// The blocks of the request are back in the pool. Blocks that still arrive are used if they are wanted.
    Released,
    /// Other connections deliver the rest of the answer. It is read and dropped because this is cheaper than
    /// a new TCP connection.
    Drain,
    /// The request fetches the whole file, from a server without ranges.
    WholeFile,
}

/// An outstanding request.
#[derive(Clone, Debug)]
pub(super) struct Fetch {
    pub(super) id: FetchId,
    pub(super) role: FetchRole,
    /// The offset of the next byte that arrives.
    pub(super) at: u64,
    /// The offset after the last byte that was requested.
    pub(super) end: u64,
    /// The offset after the last byte of the answer; equal to `at` until the answer has begun.
    pub(super) answer_end: u64,
    /// The block after the last one that it still has to deliver. Other connections may have taken over the
    /// blocks from here to `end`.
    pub(super) keep: u64,
    /// Whether it fetches the beginning of the file from a server without ranges, while others deliver the
    /// end.
    pub(super) streams: bool,
    /// Whether another request fetches a second copy of the rest.
    pub(super) duplicated: bool,
    /// When its turn began: when it was sent, or when the answer before it ended.
    pub(super) asked_at: Time,
    pub(super) last_rx: Time,
    /// How long before its turn it was sent; `None` if it was not prefetched.
    pub(super) early: Option<Span>,
    pub(super) has_head: bool,
    pub(super) got: u64,
    /// The bytes of blocks that were wanted when they arrived, out of `got`.
    pub(super) new_bytes: u64,
    /// The bytes that have arrived of an incomplete block.
    pub(super) partial: Vec<u8>,
}

impl Fetch {
    /// Returns the blocks that it still has to deliver, beginning with the one that is arriving.
    pub(super) fn blocks(&self) -> Range<u64> {
        let first = if self.at >= self.end { self.keep } else { self.at / BLOCK };
        first.min(self.keep)..self.keep
    }

    /// Whether it owns a block that is wanted from `mirror`.
    fn can_lose(&self, mirror: MirrorId, pool: &dyn Pool) -> bool {
        let mut from_end = self.blocks().rev();
        self.role == FetchRole::Owner && from_end.any(|block| pool.is_wanted_from(mirror, block))
    }

    /// Whether it still has to deliver everything that was requested: no other connection took over a part.
    fn is_whole(&self) -> bool {
        self.keep.saturating_mul(BLOCK) >= self.end
    }

    /// Returns the bytes that count as progress. From a server without ranges, only new bytes count.
    pub(super) fn progress_bytes(&self) -> u64 {
        if self.role == FetchRole::WholeFile { self.new_bytes } else { self.got }
    }

    /// Whether its answer has begun and is as long as requested.
    const fn is_answered(&self) -> bool {
        self.has_head && self.answer_end >= self.end
    }

    /// Returns the number of bytes that have to arrive until it has delivered all its blocks.
    pub(super) fn bytes_left(&self) -> u64 {
        self.keep.saturating_mul(BLOCK).min(self.end).saturating_sub(self.at)
    }
}

/// What became of answers with the whole file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WholeFiles {
    /// How often the whole file arrived and blocks were still missing afterwards.
    pub(super) failed: u32,
    /// Whether the connection was asked for the whole file beside other connections that have ranges.
    pub(super) has_streamed: bool,
    /// The offset at which the last answer broke off, if it was a whole file without new bytes.
    pub(super) breaks_at: Option<u64>,
}

/// One connection of the range scheduler; see the [module](self).
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) mirror: MirrorId,
    pub(super) ranges: bool,
    pub(super) state: State,
    /// The current request.
    pub(super) fetch: Option<Fetch>,
    /// The prefetched requests behind `fetch` on the same TCP connection, the next one first. Their answers
    /// have not begun. Empty if there is no `fetch`.
    pub(super) prefetch: VecDeque<Fetch>,
    pub(super) throughput: Throughput,
    /// The smoothed round-trip time that TCP measures; zero before the first sample.
    pub(super) srtt: Span,
    /// When it is tried again, and whether it gets small ranges until it has answered one.
    pub(super) backoff: Backoff,
    /// Whether its next request needs a new TCP connection.
    pub(super) cold: bool,
    pub(super) heard_at: Time,
    pub(super) whole_files: WholeFiles,
    /// The most blocks of one request: as many as its last answer had that was shorter than requested.
    pub(super) request_blocks_max: u64,
    pub(super) counters: Counters,
    config: ConnectionConfig,
}

impl Connection {
    pub(super) fn new(config: &ConnectionConfig) -> Self {
        Self {
            mirror: config.mirror,
            ranges: config.ranges,
            state: State::Opening,
            fetch: None,
            prefetch: VecDeque::new(),
            throughput: Throughput::after(config.delay),
            srtt: Span::ZERO,
            backoff: Backoff::default(),
            cold: true,
            heard_at: Time::ZERO,
            whole_files: WholeFiles::default(),
            request_blocks_max: u64::MAX,
            counters: Counters::default(),
            config: *config,
        }
    }

    /// Forgets all measurements, because its interface is back, perhaps in another network.
    pub(super) fn restart(&mut self) {
        *self = Self { counters: self.counters, ..Self::new(&self.config) };
    }

    /// Whether it is neither down nor closed.
    pub(super) const fn is_usable(&self) -> bool {
        !matches!(self.state, State::Down | State::Closed)
    }

    /// Whether it has no request and may get one now.
    pub(super) fn is_free(&self, now: Time) -> bool {
        self.is_usable() && self.fetch.is_none() && self.backoff.is_over(now)
    }

    /// Returns the number of blocks that all its requests still have to deliver.
    pub(super) fn blocks_left(&self) -> u64 {
        let blocks = self.fetch.iter().chain(&self.prefetch).map(Fetch::blocks);
        blocks.map(|blocks| blocks.end - blocks.start).sum()
    }

    /// Returns the number of bytes that have to arrive until it has delivered all blocks of its requests.
    pub(super) fn bytes_left(&self) -> u64 {
        let all = self.fetch.iter().chain(&self.prefetch);
        // For the last request that still has blocks to deliver, count only the bytes that it keeps. For
        // every request before it, count all bytes that have not arrived, because they come first.
        let (bytes, _) = all.fold((0, 0), |(bytes, before), fetch| {
            let bytes = if fetch.blocks().is_empty() { bytes } else { before + fetch.bytes_left() };
            (bytes, before + fetch.end - fetch.at)
        });
        bytes
    }

    /// Returns the last request that owns a block wanted from `mirror`. Where mirrors are compared, a range
    /// may be wanted only from the mirror of its owner.
    pub(super) fn tail(&self, mirror: MirrorId, pool: &dyn Pool) -> Option<&Fetch> {
        self.fetch.iter().chain(&self.prefetch).rfind(|fetch| fetch.can_lose(mirror, pool))
    }

    /// Returns how long before the end of an answer the next range is requested.
    pub(super) fn prefetch_lead(&self) -> Span {
        self.round_trip().times(2) + PREFETCH_MARGIN
    }

    /// Returns when to request the next range. Never unless the current request owns its blocks and its
    /// answer has begun with the full length, or is one block, on a TCP connection that has answered before
    /// and from a server that never sent less than requested: else blocks for comparison would take a round
    /// trip each. Also never if the connection has to prove itself, if it has
    /// [`PREFETCHED_MAX`] prefetched requests, or if another connection has taken over a part of one of its
    /// ranges.
    pub(super) fn prefetch_at(&self) -> Time {
        let proven = self.ranges
            && !self.backoff.trial
            && self.state == State::Open
            && self.prefetch.len() < PREFETCHED_MAX
            && self.prefetch.iter().all(Fetch::is_whole);
        // The answer comes in full, as far as is known: it has begun so, or it is one block on a TCP
        // connection that has answered before, and from a server that never sent less.
        let keeps_to_it = !self.cold && self.request_blocks_max == u64::MAX;
        let comes_in_full =
            |fetch: &Fetch| fetch.is_answered() || keeps_to_it && fetch.end - fetch.at <= BLOCK;
        let answers = |fetch: &&Fetch| {
            proven && fetch.role == FetchRole::Owner && comes_in_full(fetch) && fetch.is_whole()
        };
        let (Some(fetch), Some(pace)) = (self.fetch.as_ref().filter(answers), self.throughput.pace()) else {
            return Time::NEVER;
        };
        let left = Rate::from_bytes(pace).time_for(self.bytes_left());
        fetch.last_rx + (left - self.prefetch_lead())
    }

    /// Returns the smoothed round-trip time. If it is not known, returns the time from a request to its head.
    pub(super) fn round_trip(&self) -> Span {
        if self.srtt > Span::ZERO { self.srtt } else { self.throughput.first_byte() }
    }

    /// Returns the time that a new TCP connection costs.
    pub(super) fn reconnect(&self) -> Span {
        self.round_trip().times(2) + RECONNECT_COST
    }

    /// Returns the time until the first byte of the answer to a request that is sent now.
    pub(super) fn lead(&self) -> Span {
        let connect = if self.cold { self.round_trip().times(2) } else { Span::ZERO };
        self.throughput.first_byte() + connect
    }

    /// Returns when its current request counts as stalled. Never if it has none or is stalled already.
    pub(super) fn stalls_at(&self) -> Time {
        match &self.fetch {
            Some(fetch) if self.state != State::Stalled => {
                fetch.last_rx + self.throughput.stall_timeout(fetch.has_head, self.cold)
            }
            _ => Time::NEVER,
        }
    }

    /// Records that its current request has stopped answering.
    pub(super) fn stall(&mut self, now: Time) {
        // A test request without an answer has waited for its timeout already. The wait after it doubles.
        self.backoff.trial = true;
        let wait = self.backoff.wait(STALL_RETRY_MIN, STALL_RETRY_MAX);
        self.back_off(now + wait, State::Stalled);
        self.counters.stalls += 1;
    }

    /// Records that its request has failed after `got` bytes (for a whole file, only new bytes count). Some
    /// servers limit the bytes of one connection, so a connection that has delivered much is asked again at
    /// once.
    pub(super) fn fail(&mut self, now: Time, got: u64) {
        if got >= PROGRESS_BYTES {
            (self.state, self.backoff.until) = (State::Failing, now);
            self.on_success();
        } else {
            let wait = self.backoff.wait(RETRY_MIN, RETRY_MAX);
            self.backoff.trial = true;
            self.back_off(now + wait, State::Failing);
        }
        self.cold = true;
        self.counters.failures += 1;
    }

    /// Records that the server asked for a pause of `retry`. Such answers in a row lengthen the wait. The
    /// next request is not smaller: some servers limit the number of requests, and then few requests have to
    /// fetch much.
    pub(super) fn busy(&mut self, now: Time, retry: Span) {
        let wait = retry.min(BUSY_MAX).max(self.backoff.wait(RETRY_MIN, RETRY_MAX));
        self.back_off(now + wait, State::Busy);
        self.counters.failures += 1;
    }

    /// Gives the connection no request before `blocked_until`.
    fn back_off(&mut self, blocked_until: Time, state: State) {
        self.backoff.hold(blocked_until);
        self.state = state;
    }

    /// Whether its last request was answered, as far as is known: it did not fail or stall, and the server
    /// did not ask for a pause.
    pub(super) fn is_proven(&self) -> bool {
        !self.backoff.trial && self.state != State::Busy
    }

    /// Whether its last request failed or stalled, and the one before did not. It is then tried again within
    /// seconds. False if its server asked for a pause, which may take minutes.
    pub(super) fn has_failed_once(&self) -> bool {
        self.backoff.failures() == 1 && self.state != State::Busy
    }

    /// Records that a request was answered completely.
    pub(super) const fn on_success(&mut self) {
        self.backoff.on_success();
    }

    pub(super) fn report(&self, me: ConnectionId, windows: &ReceiveWindows) -> ConnectionReport {
        ConnectionReport {
            mirror: self.mirror,
            group: windows.group(me),
            state: self.state,
            rate: self.throughput.rate(),
            first_byte: self.throughput.first_byte(),
            srtt: self.srtt,
            cwnd: windows.packets(me),
            window: windows.window(me),
            fetching: self.fetch.as_ref().map(|fetch| fetch.at..fetch.end),
            blocked_until: self.backoff.until,
            heard_at: self.heard_at,
            ranges: self.ranges,
            breaks_at_byte: self.whole_files.breaks_at,
            counters: self.counters,
        }
    }
}
