//! The size of requests, and of prefetched ones.
//!
//! With prefetch there is no gap between two answers, so ranges may be short, and the end is shared evenly.
//! Some servers (and clients) do not let a request wait behind an answer: then the head of the next range
//! comes a round trip after the end of this one. This gap is measured
//! ([`Throughput::between`](super::throughput::Throughput)), and ranges are long enough to make up for it.
//! What a connection already has counts as part of its share.

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

/// A range lasts so many times the gap between two answers. Otherwise the link would be idle for more than a
/// few percent of the time.
const GAPS_A_RANGE: u64 = 20;
/// The same while there is enough left to request.
const GAPS_A_RANGE_WANTED: u64 = 100;
/// Where mirrors are compared, one that is so many times slower than another is there to compare.
const SLOWER: u64 = 4;

/// One that has been asked for everything so long ago, and trickles, is not waited for.
const WHOLE_FOR: Span = Span::from_secs(10);

/// Whether it brings so little that a server without ranges is not kept in reserve for it.
fn trickles(connection: &Connection) -> bool {
    connection.throughput.rate().is_some_and(|rate| rate < TRICKLE)
}

/// Whether a connection can be asked for ranges of what is missing. One whose mirror may bring nothing, for
/// another one is tried alone, cannot. One that has to prove itself cannot either, except `or_soon` after its
/// first failure.
fn brings_ranges(connection: &Connection, pool: &dyn Pool, or_soon: bool) -> bool {
    let proven = connection.is_proven() || or_soon && connection.has_failed_once();
    let brings = proven && !trickles(connection);
    connection.ranges && connection.is_usable() && brings && pool.may_bring(connection.mirror)
}

impl RangeScheduler {
    /// Gives a free connection something to do, if there is something.
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

    /// Asks a connection that will soon be done for its next range, if its share is not used up.
    pub(super) fn prefetch(&mut self, now: Time, p: ConnectionId, pool: &mut dyn Pool) {
        if pool.idle() == 0 {
            return;
        }
        let request_size = self.request_size(p, pool);
        if request_size > 0
            && let Some(blocks) = pool.take(self.connections[p].mirror, request_size)
        {
            self.ask(now, p, blocks, FetchRole::Owner);
        }
    }

    /// As long as a mirror is busy with a range, it compares nothing. One that turns out to be slow in its
    /// first range, which is long, keeps what it brings in [`REQUEST_SPAN`]. The others get the rest.
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

    /// A server that seemed to have ranges sends everything. If another connection can be asked, it is.
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

    /// A server without ranges is asked for everything, if no other connection can be used: one that sends
    /// everything already, and has stalled or trickles, cannot. Where it broke off itself, asking again
    /// brings again what is here: then one that has stalled once is waited for.
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
        // What one that trickles has been asked for is not waited for.
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

    /// The connections that share what is left. One that failed leaves its share to the others until it
    /// answers again: however fast it was, it may never come back.
    pub(super) fn sharing(&self) -> impl Iterator<Item = &Connection> {
        let shares = |connection: &&Connection| {
            connection.is_usable() && connection.is_proven() && connection.state != State::Failing
        };
        self.connections.iter().filter(shares)
    }

    /// Blocks to ask connection `p` for besides those it has; none if it has its share.
    pub(super) fn request_size(&self, p: ConnectionId, pool: &dyn Pool) -> u64 {
        self.share(p, pool).min(self.connections[p].request_blocks_max)
    }

    /// The same, however little the server sends at once.
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
            // Nobody can take the tail of it over where the answer that brings the beginning ends in it.
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
        // With fewer, the request after the next would be too late.
        let worth_asking = in_span(pace, connection.prefetch_lead());
        let least = worth_a_gap.max(worth_asking).clamp(floor, REQUEST_BLOCKS_MAX);
        let span = gap.times(GAPS_A_RANGE_WANTED).clamp(REQUEST_SPAN, REQUEST_SPAN_MAX);
        let most = in_span(rate, span).min(REQUEST_BLOCKS_MAX);
        // Fewer ranges have fewer gaps; the endgame takes over what is too much.
        let part = if worth_a_gap > SEGMENT_BLOCKS { fair(idle) / 8 * 7 } else { fair(idle) / 2 };
        // A slow connection gets only what it can bring before the end of the transfer.
        part.min(most).max(least).min(fair(all).saturating_sub(connection.blocks_left()))
    }
}
