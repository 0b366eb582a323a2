//! One connection: its rate and window, what it has been asked for, when to try it again.

use std::collections::VecDeque;
use std::ops::Range;

use anabranch_algo::{Rate, Span, Time};
use anabranch_mmtp::id::BLOCK_BYTES;

use super::api::{ConnectionConfig, ConnectionReport, Counters, MirrorId, Pool, State};
use super::throughput::Throughput;
use crate::backoff::{BUSY_MAX, Backoff, RETRY_MAX, RETRY_MIN};
use crate::fetch_id::{ConnectionId, FetchId};
use crate::receive_windows::ReceiveWindows;

/// The first wait after a stall, in which the connection may come back by itself; doubles too.
pub const STALL_RETRY_MIN: Span = Span::from_secs(2);
/// The longest wait after a stall.
pub const STALL_RETRY_MAX: Span = Span::from_secs(16);
/// What a new TCP connection needs besides its round trips: slow start.
pub const RECONNECT_COST: Span = Span::from_millis(50);
/// The next range is asked for when the rest of this one takes two round trips and this: the request takes
/// one, the answer may begin slowly, and the time is checked only now and then.
pub const PREFETCH_MARGIN: Span = Span::from_millis(50);
/// Ranges that may be asked for ahead: more than one if they are short, as one block that is compared is.
const PREFETCHED_MAX: usize = 4;
/// A request that brought so many bytes before it failed counts as one that was answered.
const PROGRESS_BYTES: u64 = 1 << 20;

pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchRole {
    /// Its blocks were taken from the pool: nobody else has them.
    Owner,
    /// A second copy of what another request owns.
    Duplicate(FetchId),
    /// Its blocks are back in the pool; what still comes is used if it is wanted.
    Released,
    /// Other connections bring the rest of the answer. It is read because this is cheaper than a new TCP
    /// connection.
    Drain,
    /// The whole file, from a server without ranges.
    WholeFile,
}

/// A request under way.
#[derive(Clone, Debug)]
pub(super) struct Fetch {
    pub(super) id: FetchId,
    pub(super) role: FetchRole,
    /// The next byte that comes.
    pub(super) at: u64,
    /// The byte after the last one asked for.
    pub(super) end: u64,
    /// The byte after the last one of the answer that has begun; before that, the next byte that comes.
    pub(super) answer_end: u64,
    /// The block after the last one that it keeps. Other connections may have taken over those from here to
    /// `end`.
    pub(super) keep: u64,
    /// It is the answer of a server without ranges, of which others bring the end.
    pub(super) streams: bool,
    /// Another connection has been asked for the rest of it, too.
    pub(super) duplicated: bool,
    /// When its turn began: when it was sent, or when the answer before it ended.
    pub(super) asked_at: Time,
    pub(super) last_rx: Time,
    /// How long before its turn it was sent; none if it was not sent ahead.
    pub(super) early: Option<Span>,
    pub(super) has_head: bool,
    pub(super) got: u64,
    /// Of it, bytes that were wanted.
    pub(super) new_bytes: u64,
    /// The beginning of the block that is coming.
    pub(super) partial: Vec<u8>,
}

impl Fetch {
    /// The blocks it is still to bring, the one that is coming first.
    pub(super) fn blocks(&self) -> Range<u64> {
        let first = if self.at >= self.end { self.keep } else { self.at / BLOCK };
        first.min(self.keep)..self.keep
    }

    /// Whether it owns a block that `mirror` could bring.
    fn can_lose(&self, mirror: MirrorId, pool: &dyn Pool) -> bool {
        let mut from_end = self.blocks().rev();
        self.role == FetchRole::Owner && from_end.any(|block| pool.is_wanted_from(mirror, block))
    }

    /// Whether it keeps all that was asked for.
    fn is_whole(&self) -> bool {
        self.keep.saturating_mul(BLOCK) >= self.end
    }

    /// The bytes that count as progress: only new ones, if the server has no ranges.
    pub(super) fn progress_bytes(&self) -> u64 {
        if self.role == FetchRole::WholeFile { self.new_bytes } else { self.got }
    }

    /// Whether the answer that has begun brings all that was asked for.
    const fn is_answered(&self) -> bool {
        self.has_head && self.answer_end >= self.end
    }

    /// Bytes until it has brought them.
    pub(super) fn bytes_left(&self) -> u64 {
        self.keep.saturating_mul(BLOCK).min(self.end).saturating_sub(self.at)
    }
}

/// What became of answers that are the whole file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WholeFiles {
    /// How often it sent the whole file and blocks were still missing afterwards.
    pub(super) failed: u32,
    /// It was asked for everything beside others that have ranges.
    pub(super) has_streamed: bool,
    /// Where its last answer broke off, if it was a whole file that brought nothing new.
    pub(super) breaks_at: Option<u64>,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) mirror: MirrorId,
    pub(super) ranges: bool,
    pub(super) state: State,
    /// The current request.
    pub(super) fetch: Option<Fetch>,
    /// The prefetched requests behind it on the same TCP connection, the next one first. Their answers have
    /// not begun. Only with `fetch`.
    pub(super) prefetch: VecDeque<Fetch>,
    pub(super) throughput: Throughput,
    /// The smoothed round-trip time that TCP measures; zero before the first sample.
    pub(super) srtt: Span,
    /// When it is tried again, and whether it gets small ranges until it has answered one.
    pub(super) backoff: Backoff,
    /// Its next request needs a new TCP connection.
    pub(super) cold: bool,
    pub(super) heard_at: Time,
    pub(super) whole_files: WholeFiles,
    /// The most blocks that it is asked for at once: those of its last answer that was shorter than asked.
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

    /// Its interface is back, perhaps in another network: forgets all measurements.
    pub(super) fn restart(&mut self) {
        *self = Self { counters: self.counters, ..Self::new(&self.config) };
    }

    /// Whether it is neither down nor closed.
    pub(super) const fn is_usable(&self) -> bool {
        !matches!(self.state, State::Down | State::Closed)
    }

    /// Whether it may be asked for something now.
    pub(super) fn is_free(&self, now: Time) -> bool {
        self.is_usable() && self.fetch.is_none() && self.backoff.is_over(now)
    }

    /// The blocks it is still to bring.
    pub(super) fn blocks_left(&self) -> u64 {
        let blocks = self.fetch.iter().chain(&self.prefetch).map(Fetch::blocks);
        blocks.map(|blocks| blocks.end - blocks.start).sum()
    }

    /// Bytes until it has brought them.
    pub(super) fn bytes_left(&self) -> u64 {
        let all = self.fetch.iter().chain(&self.prefetch);
        // Of the last that is of use, what it keeps; all that was asked for before it.
        let (bytes, _) = all.fold((0, 0), |(bytes, before), fetch| {
            let bytes = if fetch.blocks().is_empty() { bytes } else { before + fetch.bytes_left() };
            (bytes, before + fetch.end - fetch.at)
        });
        bytes
    }

    /// The last range that it owns and of which `mirror` could bring something. Where mirrors are compared, a
    /// range may be for its owner alone.
    pub(super) fn tail(&self, mirror: MirrorId, pool: &dyn Pool) -> Option<&Fetch> {
        self.fetch.iter().chain(&self.prefetch).rfind(|fetch| fetch.can_lose(mirror, pool))
    }

    /// How long before the end of an answer the next range is asked for.
    pub(super) fn prefetch_lead(&self) -> Span {
        self.round_trip().times(2) + PREFETCH_MARGIN
    }

    /// When to ask it for the next range. Never if it has [`PREFETCHED_MAX`], has to prove itself, has not
    /// begun its first answer, or lost a part of its ranges to others.
    pub(super) fn prefetch_at(&self) -> Time {
        let proven = self.ranges
            && !self.backoff.trial
            && self.state == State::Open
            && self.prefetch.len() < PREFETCHED_MAX
            && self.prefetch.iter().all(Fetch::is_whole);
        let answers = |fetch: &&Fetch| {
            proven && fetch.role == FetchRole::Owner && fetch.is_answered() && fetch.is_whole()
        };
        let (Some(fetch), Some(pace)) = (self.fetch.as_ref().filter(answers), self.throughput.pace()) else {
            return Time::NEVER;
        };
        let left = Rate::from_bytes(pace).time_for(self.bytes_left());
        fetch.last_rx + (left - self.prefetch_lead())
    }

    /// The round trip, as far as it is known: the connection's, or what answers take to begin.
    pub(super) fn round_trip(&self) -> Span {
        if self.srtt > Span::ZERO { self.srtt } else { self.throughput.first_byte() }
    }

    /// The cost of a new TCP connection.
    pub(super) fn reconnect(&self) -> Span {
        self.round_trip().times(2) + RECONNECT_COST
    }

    /// The time until the first byte of a request that is sent now.
    pub(super) fn lead(&self) -> Span {
        let connect = if self.cold { self.round_trip().times(2) } else { Span::ZERO };
        self.throughput.first_byte() + connect
    }

    /// When its request counts as stalled; never if there is none or it already does.
    pub(super) fn stalls_at(&self) -> Time {
        match &self.fetch {
            Some(fetch) if self.state != State::Stalled => {
                fetch.last_rx + self.throughput.stall_timeout(fetch.has_head, self.cold)
            }
            _ => Time::NEVER,
        }
    }

    /// Its request has stopped answering.
    pub(super) fn stall(&mut self, now: Time) {
        // A trial without an answer has waited for its timeout. The wait after it doubles.
        self.backoff.trial = true;
        let wait = self.backoff.wait(STALL_RETRY_MIN, STALL_RETRY_MAX);
        self.back_off(now + wait, State::Stalled);
        self.counters.stalls += 1;
    }

    /// Its request has failed after `got` bytes: of a whole file, those that nobody had brought before. Some
    /// servers limit what one connection brings: one that has brought much is asked again at once.
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

    /// It asked to be left alone. Repeated requests lengthen the wait. The next one is no smaller: some
    /// servers limit how many there are, and then few have to bring much.
    pub(super) fn busy(&mut self, now: Time, retry: Span) {
        let wait = retry.min(BUSY_MAX).max(self.backoff.wait(RETRY_MIN, RETRY_MAX));
        self.back_off(now + wait, State::Busy);
        self.counters.failures += 1;
    }

    /// No request before `blocked_until`.
    fn back_off(&mut self, blocked_until: Time, state: State) {
        self.backoff.hold(blocked_until);
        self.state = state;
    }

    /// Whether it brings what it is asked for, as far as is known: its last request did not fail, stall, or
    /// come at a bad time.
    pub(super) fn is_proven(&self) -> bool {
        !self.backoff.trial && self.state != State::Busy
    }

    /// Whether its last request failed or stalled, and the one before did not: it is tried again within
    /// seconds. One that asked to be left alone may take minutes.
    pub(super) fn has_failed_once(&self) -> bool {
        self.backoff.failures() == 1 && self.state != State::Busy
    }

    /// A request was answered to its end.
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
