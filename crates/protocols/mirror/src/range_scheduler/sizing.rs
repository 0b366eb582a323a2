//! The size of requests, including prefetched ones.
//!
//! With prefetch there is no gap between two answers. So ranges may be short, and the last blocks are shared
//! evenly. Some servers (and clients) do not let a request wait behind an answer: then the head of the next
//! range arrives a round trip after the end of the current one. The scheduler measures this gap
//! ([`Throughput::between`](super::throughput::Throughput)) and makes ranges long enough to make up for it.
//! The requests that a connection already has count towards its share.

use anabranch_algo::{Rate, Span, Time};
use anabranch_mmtp::id::SEGMENT_BLOCKS;

use super::RangeScheduler;
use super::api::{MirrorId, Pool, State};
use super::connection::{BLOCK, Connection, Fetch, FetchRole};
use super::limits::{
    FIRST_BLOCKS, REQUEST_BLOCKS_MAX, REQUEST_SPAN, REQUEST_SPAN_MAX, STREAM_FIRST_PART, TRIAL_BLOCKS,
    TRICKLE,
};
use crate::fetch_id::{ConnectionId, FetchId};

/// A range lasts at least this many times the gap between two answers. With shorter ranges the link would be
/// idle for more than a few percent of the time.
const GAPS_A_RANGE: u64 = 20;
/// While there is enough left to request, a range lasts up to this many times the gap between two answers.
const GAPS_A_RANGE_WANTED: u64 = 100;
/// Where mirrors are compared, a mirror whose rate is less than this fraction (one in four) of another
/// mirror's is used mainly to compare.
const SLOWER: u64 = 4;

/// The time after which a trickling connection that fetches the whole file is not waited for any more.
const WHOLE_FOR: Span = Span::from_secs(10);

/// Whether a connection is slower than [`TRICKLE`], so that a server without ranges is not kept in reserve
/// for it.
fn trickles(connection: &Connection) -> bool {
    connection.throughput.rate().is_some_and(|rate| rate < TRICKLE)
}

/// Whether a connection can be asked for ranges: it is usable, has ranges, does not trickle, its mirror is
/// not banned, and it does not have to prove itself. With `or_soon`, a connection also counts after its first
/// failure.
fn brings_ranges(connection: &Connection, pool: &dyn Pool, or_soon: bool) -> bool {
    let proven = connection.is_proven() || or_soon && connection.has_failed_once();
    let brings = proven && !trickles(connection);
    connection.ranges && connection.is_usable() && brings && pool.may_bring(connection.mirror)
}

impl RangeScheduler {
    /// Gives a free connection a request if blocks are missing.
    pub(super) fn assign(&mut self, now: Time, p: ConnectionId, pool: &mut dyn Pool) {
        if !self.connections[p].ranges {
            self.assign_whole_file(now, p, pool);
            return;
        }
        let request_size = self.request_size(p, pool).max(1);
        match pool.take(self.connections[p].mirror, request_size) {
            Some(blocks) => self.ask(now, p, blocks, FetchRole::Owner),
            None => self.steal(now, p, pool),
        }
    }

    /// Requests the next ranges from a connection whose current answer will soon end, unless it has its share
    /// and nothing to compare.
    pub(super) fn prefetch(&mut self, now: Time, p: ConnectionId, pool: &mut dyn Pool) {
        while self.connections[p].prefetch_at() <= now && pool.idle() > 0 {
            let (mirror, size) = (self.connections[p].mirror, self.request_size(p, pool));
            let Some(blocks) = (size > 0).then(|| pool.take(mirror, size)).flatten() else { return };
            self.ask(now, p, blocks, FetchRole::Owner);
        }
    }

    /// Shortens the range of a slow connection where mirrors are compared, because a mirror compares nothing
    /// while it is busy with a range. A connection that turns out to be slow in its long first range keeps
    /// the blocks that it can deliver in [`REQUEST_SPAN`]. The rest goes back to the pool.
    pub(super) fn shorten(&mut self, p: ConnectionId, pool: &mut dyn Pool) {
        let connection = &self.connections[p];
        let Some(rate) = connection.throughput.rate().filter(|_| pool.compares()) else { return };
        let owned = connection.fetch.as_ref().filter(|fetch| fetch.role == FetchRole::Owner);
        let Some(blocks) = owned.map(Fetch::blocks) else { return };
        let keeps = Rate::from_bytes(rate).bytes_in(REQUEST_SPAN) / BLOCK + 1;
        if blocks.end - blocks.start <= 2 * keeps.max(TRIAL_BLOCKS) {
            return;
        }
        let is_outrun = self.connections.iter().any(|other| {
            let theirs = other.throughput.rate().filter(|_| other.state == State::Open);
            other.mirror != connection.mirror && theirs.is_some_and(|theirs| theirs / SLOWER > rate)
        });
        if let Some(fetch) = self.connections[p].fetch.as_mut().filter(|_| is_outrun) {
            fetch.keep = blocks.start + keeps;
            pool.release(fetch.keep..blocks.end);
        }
    }

    /// Handles a server that was asked for a range and sends the whole file. If another connection can be
    /// asked for ranges, cancels the answer; otherwise reads it.
    pub(super) fn whole(&mut self, now: Time, fetch: FetchId, pool: &mut dyn Pool) {
        self.head(now, fetch);
        let Some(p) = self.answering(fetch) else { return };
        if self.connections[p].is_streaming() {
            return;
        }
        self.without_ranges(self.connections[p].mirror);
        if self.connections.iter().any(|connection| brings_ranges(connection, pool, false)) {
            self.cancel(p, pool);
            return;
        }
        self.cancel_prefetch(p, pool);
        self.release_all(p, pool);
        let (length, blocks) = (self.length, self.blocks());
        pool.begin_whole(self.connections[p].mirror);
        if let Some(fetch) = &mut self.connections[p].fetch {
            (fetch.role, fetch.end, fetch.keep) = (FetchRole::WholeFile, length, blocks);
            fetch.answer_end = length;
        }
    }

    pub(super) fn without_ranges(&mut self, mirror: MirrorId) {
        for connection in self.connections.iter_mut().filter(|connection| connection.mirror == mirror) {
            connection.ranges = false;
        }
    }

    /// Requests the whole file from a server without ranges, if no other connection can be used. Another
    /// connection that already fetches the whole file cannot be used if it has stalled or trickles. If this
    /// server broke off before, the request would fetch the same bytes again. So the scheduler then waits for
    /// connections that have failed only once.
    fn assign_whole_file(&mut self, now: Time, p: ConnectionId, pool: &mut dyn Pool) {
        let again = self.connections[p].counters.failures > 0;
        let others = self.connections.iter().enumerate().any(|(q, connection)| {
            let whole = connection.fetch.as_ref().is_some_and(|fetch| {
                let is_slow = trickles(connection) && now.since(fetch.asked_at) >= WHOLE_FOR;
                fetch.role == FetchRole::WholeFile && connection.state != State::Stalled && !is_slow
            });
            let ranges = brings_ranges(connection, pool, again);
            q != p && (whole || connection.is_streaming() || ranges)
        });
        let mirror = self.connections[p].mirror;
        if others || !pool.may_bring(mirror) {
            return;
        }
        // Trickling connections are not waited for: their blocks go back to the pool.
        for q in 0..self.connections.len() {
            if trickles(&self.connections[q]) && pool.idle_for(mirror) == 0 {
                self.release_all(q, pool);
            }
        }
        if pool.idle_for(mirror) > 0 {
            pool.begin_whole(mirror);
            self.ask(now, p, 0..self.blocks(), FetchRole::WholeFile);
        }
    }

    /// Returns the connections that share the blocks that are left. A connection that failed leaves its share
    /// to the others until it answers again, because it may never recover.
    pub(super) fn sharing(&self) -> impl Iterator<Item = &Connection> {
        let shares = |connection: &&Connection| {
            connection.is_usable() && connection.is_proven() && connection.state != State::Failing
        };
        self.connections.iter().filter(shares)
    }

    /// Returns the number of blocks to request from connection `p` in addition to its requests; none if it
    /// has its share and nothing to compare. Blocks to compare are requested beyond the share.
    pub(super) fn request_size(&self, p: ConnectionId, pool: &dyn Pool) -> u64 {
        let connection = &self.connections[p];
        let size = match self.share(p, pool) {
            0 => u64::from(pool.comparisons_for(connection.mirror) > 0),
            share => share,
        };
        size.min(connection.request_blocks_max)
    }

    /// Returns the number of blocks to request from connection `p` in addition to its requests, before
    /// `request_blocks_max` limits it.
    fn share(&self, p: ConnectionId, pool: &dyn Pool) -> u64 {
        let connection = &self.connections[p];
        if connection.backoff.trial {
            return TRIAL_BLOCKS;
        }
        let pending: u64 = self.connections.iter().map(Connection::blocks_left).sum();
        let (idle, all) = (pool.idle(), pool.idle().saturating_add(pending));
        // A slow mirror that is busy with a long range compares nothing meanwhile.
        let floor = if pool.compares() { TRIAL_BLOCKS } else { SEGMENT_BLOCKS };
        let (Some(rate), Some(pace)) = (connection.throughput.rate(), connection.throughput.pace()) else {
            let sharing = self.sharing().count().max(1) as u64;
            let first = FIRST_BLOCKS.min(all / sharing / 2);
            // While an answer with the whole file delivers the beginning, no connection can take over the
            // tail of this first range if that answer ends within it.
            let is_streaming = self.connections.iter().any(Connection::is_streaming);
            return if is_streaming { first / STREAM_FIRST_PART } else { first }.max(TRIAL_BLOCKS);
        };
        let rates: u64 = self.sharing().filter_map(|connection| connection.throughput.rate()).sum();
        let fair = |blocks: u64| {
            let part = u128::from(blocks) * u128::from(rate) / u128::from(rates.max(rate));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        let in_span = |rate: u64, span: Span| Rate::from_bytes(rate).bytes_in(span) / BLOCK;
        // The part of the gap that prefetch does not hide; zero until it is measured.
        let gap = connection.throughput.between();
        let worth_a_gap = in_span(rate, gap.times(GAPS_A_RANGE));
        // With fewer blocks, the request after the next one would be late.
        let worth_asking = in_span(pace, connection.prefetch_lead());
        let least = worth_a_gap.max(worth_asking).clamp(floor, REQUEST_BLOCKS_MAX);
        let span = gap.times(GAPS_A_RANGE_WANTED).clamp(REQUEST_SPAN, REQUEST_SPAN_MAX);
        let most = in_span(rate, span).min(REQUEST_BLOCKS_MAX);
        // Fewer ranges have fewer gaps, and the endgame takes over blocks that are too many.
        let part = if worth_a_gap > SEGMENT_BLOCKS { fair(idle) / 8 * 7 } else { fair(idle) / 2 };
        // A slow connection gets only blocks that it can deliver before the end of the transfer.
        part.min(most).max(least).min(fair(all).saturating_sub(connection.blocks_left()))
    }
}
