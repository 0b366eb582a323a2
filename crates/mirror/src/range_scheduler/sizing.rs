//! How much a connection is asked for at once, and for what it is asked ahead.
//!
//! Who asks ahead has no gap between two answers, so ranges may be short, and the end is shared evenly. Not
//! every server (or client) lets requests wait behind an answer: then the head of the next range comes a
//! round trip after the end of this one. That silence is measured
//! ([`Throughput::between`](super::throughput::Throughput)), and ranges are as long as it asks for. What a
//! connection has of its own already counts as a part of its share.

use algo::{Rate, Span, Time};
use mmtp::id::SEGMENT_BLOCKS;

use super::connection::{Connection, FetchRole};
use super::{BLOCK, ConnectionId, FetchId, MirrorId, Pool, RangeScheduler};

/// The most that is asked for at once, in time at the connection's rate, if the link is not idle between two
/// answers: then short ranges cost nothing, and leave less to be taken over at the end.
pub const REQUEST_SPAN: Span = Span::from_secs(2);
/// The same however long the link is idle in between.
pub const REQUEST_SPAN_MAX: Span = Span::from_secs(8);
/// The same in blocks: 64 MiB.
pub const REQUEST_BLOCKS_MAX: u64 = 64 * SEGMENT_BLOCKS;
/// What a connection that failed or stalled is asked for until it has answered: 64 KiB.
pub const TRIAL_BLOCKS: u64 = 4;
/// What a connection of unknown rate is asked for, at most: 8 MiB. Slow start is over by then.
pub const FIRST_BLOCKS: u64 = 8 * SEGMENT_BLOCKS;
/// A range is worth so many times the silence between two answers, or the link would be idle for more than
/// a few percent of the time. Shorter ranges would share the end more evenly; that is done by taking over.
const GAPS_A_RANGE: u64 = 20;
/// The same while there is enough to be asked for.
const GAPS_A_RANGE_WANTED: u64 = 100;

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

    /// Asks a connection that will soon be through for the next range, if there is one that is its part.
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

    /// A server that was taken to have ranges sends everything. Where another can be asked, that one is.
    pub(super) fn whole(&mut self, now: Time, fetch: FetchId, pool: &mut dyn Pool) {
        self.head(now, fetch);
        let Some(p) = self.connection_of(fetch) else { return };
        self.without_ranges(self.connections[p].mirror);
        if self
            .connections
            .iter()
            .any(|connection| connection.ranges && connection.is_usable() && !connection.trial)
        {
            self.cancel(p, pool);
            return;
        }
        self.cancel_prefetch(p, pool);
        self.release_all(p, pool);
        let (length, blocks) = (self.length, self.blocks());
        if let Some(fetch) = &mut self.connections[p].fetch {
            (fetch.role, fetch.end, fetch.keep) = (FetchRole::WholeFile, length, blocks);
        }
    }

    pub(super) fn without_ranges(&mut self, mirror: MirrorId) {
        for connection in self.connections.iter_mut().filter(|connection| connection.mirror == mirror) {
            connection.ranges = false;
        }
    }

    /// A server without ranges is asked for everything, if no other connection can be used.
    fn assign_whole_file(&mut self, now: Time, p: ConnectionId, pool: &mut dyn Pool) {
        let others = self.connections.iter().enumerate().any(|(q, connection)| {
            let whole = connection.fetch.as_ref().is_some_and(|fetch| fetch.role == FetchRole::WholeFile);
            q != p && (whole || (connection.ranges && connection.is_usable() && !connection.trial))
        });
        if !others && pool.idle_for(self.connections[p].mirror) > 0 {
            self.ask(now, p, 0..self.blocks(), FetchRole::WholeFile);
        }
    }

    /// Blocks to ask connection `p` for besides what it has; none if what it has is its part of everything.
    fn request_size(&self, p: ConnectionId, pool: &dyn Pool) -> u64 {
        let connection = &self.connections[p];
        if connection.trial {
            return TRIAL_BLOCKS;
        }
        let pending: u64 = self.connections.iter().map(Connection::blocks_left).sum();
        let (idle, all) = (pool.idle(), pool.idle().saturating_add(pending));
        let (Some(rate), Some(pace)) = (connection.throughput.rate(), connection.throughput.pace()) else {
            let usable =
                self.connections.iter().filter(|connection| connection.is_usable()).count().max(1) as u64;
            return FIRST_BLOCKS.min((all / usable / 2).max(TRIAL_BLOCKS));
        };
        let rates: u64 = self
            .connections
            .iter()
            .filter(|connection| connection.is_usable())
            .filter_map(|connection| connection.throughput.rate())
            .sum();
        let fair = |blocks: u64| {
            let part = u128::from(blocks) * u128::from(rate) / u128::from(rates.max(rate));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        let in_span = |rate: u64, span: Span| Rate::from_bytes(rate).bytes_in(span) / BLOCK;
        // What a request that is asked ahead does not save. Where that is not known yet, it is taken to save
        // everything: the next range knows better.
        let gap = connection.throughput.between();
        let worth_a_gap = in_span(rate, gap.times(GAPS_A_RANGE));
        // With less, the one after the next would be asked too late.
        let worth_asking = in_span(pace, connection.prefetch_lead());
        let least = worth_a_gap.max(worth_asking).clamp(SEGMENT_BLOCKS, REQUEST_BLOCKS_MAX);
        let span = gap.times(GAPS_A_RANGE_WANTED).clamp(REQUEST_SPAN, REQUEST_SPAN_MAX);
        let most = in_span(rate, span).min(REQUEST_BLOCKS_MAX);
        // The fewer ranges, the fewer gaps; what is too much is taken over at the end.
        let part = if worth_a_gap > SEGMENT_BLOCKS { fair(idle) / 8 * 7 } else { fair(idle) / 2 };
        // What is slow takes no more than it can bring before everything is here.
        part.min(most).max(least).min(fair(all).saturating_sub(connection.blocks_left()))
    }
}
