//! Downloads from a server without ranges beside others that have ranges.
//!
//! The server can only be asked for the whole file, once, from the first byte on. Of a content of some
//! megabytes it delivers the beginning, and the other connections deliver the end. Whenever the server has
//! delivered the blocks that it is assigned, it is assigned more, until the next block is here or assigned to
//! another connection. So no block is requested twice, and a faster server delivers more blocks. After a
//! pause the answer goes on where it stopped, if that block is not assigned to another connection. If the
//! answer fails, the other connections deliver the rest, because a new request would fetch the same bytes
//! again.
//!
//! Some blocks may be here or assigned to others before the answer gets there: when a transfer is resumed, or
//! when it turns out late that a server has no ranges. The answer skips these blocks as long as enough blocks
//! are left behind them. Otherwise the answer is cancelled.

use anabranch_algo::Time;

use super::RangeScheduler;
use super::api::Pool;
use super::connection::{BLOCK, Connection, Fetch, FetchRole};
use super::limits::{FIRST_BLOCKS, STREAM_FIRST_PART, STREAM_MIN_BLOCKS};
use crate::fetch_id::ConnectionId;

impl RangeScheduler {
    /// Requests the whole file from a server without ranges if others have ranges, and makes the others
    /// deliver the end.
    pub(super) fn begin_stream(&mut self, now: Time, pool: &mut dyn Pool) {
        let is_free = |connection: &Connection| {
            !connection.ranges && !connection.whole_files.has_streamed && connection.is_free(now)
        };
        let is_beside = |connection: &Connection| connection.ranges && connection.is_usable();
        if self.blocks() >= STREAM_MIN_BLOCKS
            && self.connections.iter().any(is_beside)
            && !self.connections.iter().any(Connection::may_stream)
            && let Some(p) = self.connections.iter().position(is_free)
            && self.is_worth_skipping(p, 0, pool)
        {
            let first = FIRST_BLOCKS.min(self.blocks() / STREAM_FIRST_PART);
            let blocks = pool.take_at(self.connections[p].mirror, 0, first).unwrap_or(0..0);
            self.ask_up_to(now, p, blocks, self.length, FetchRole::Owner);
            self.connections[p].whole_files.has_streamed = true;
            pool.begin_whole(self.connections[p].mirror);
            self.connections[p].fetch.iter_mut().for_each(|fetch| fetch.streams = true);
        }
        pool.take_from_end(self.connections.iter().any(Connection::may_stream));
    }

    /// Whether connection `p`, whose server has no ranges, is to read and discard its answer from `block` to
    /// the next block that it can be assigned. It is, if the other connections, which take blocks from the
    /// end, will have left enough blocks when connection `p` arrives there.
    fn is_worth_skipping(&self, p: ConnectionId, block: u64, pool: &dyn Pool) -> bool {
        let connection = &self.connections[p];
        let Some(next) = pool.next_idle(connection.mirror, block) else { return false };
        let skipped = next.saturating_sub(block);
        let others = || self.sharing().filter(|other| other.ranges);
        // If no rate is known, all connections count as equally fast.
        let times = match (
            others().filter_map(|other| other.throughput.rate()).sum(),
            connection.throughput.rate(),
        ) {
            (rates @ 1.., Some(rate @ 1..)) => (rates, rate),
            _ => (others().count() as u64, 1),
        };
        let meanwhile = u128::from(skipped) * u128::from(times.0) / u128::from(times.1);
        let enough = if skipped == 0 { 1 } else { STREAM_MIN_BLOCKS };
        meanwhile + u128::from(enough) <= u128::from(pool.idle_for(connection.mirror))
    }

    /// Resumes an answer that had stalled. Returns whether its next block could be assigned to it again.
    pub(super) fn resume_stream(&mut self, p: ConnectionId, pool: &mut dyn Pool) -> bool {
        let connection = &self.connections[p];
        let Some(fetch) = connection.fetch.as_ref().filter(|fetch| fetch.streams) else { return false };
        let (mirror, next, size) = (connection.mirror, fetch.at / BLOCK, self.request_size(p, pool).max(1));
        let Some(blocks) = pool.take_at(mirror, next, size) else { return false };
        if let Some(fetch) = &mut self.connections[p].fetch {
            (fetch.role, fetch.keep) = (FetchRole::Owner, blocks.end);
        }
        true
    }

    /// Assigns more blocks to the answer of a server without ranges. Returns whether the answer goes on.
    pub(super) fn prolong_stream(&mut self, p: ConnectionId, pool: &mut dyn Pool) -> bool {
        if !self.connections[p].is_streaming() {
            return false;
        }
        // The answer has delivered its blocks. After a pause, this proves that the connection works again.
        self.connections[p].on_success();
        let connection = &self.connections[p];
        let Some(fetch) = &connection.fetch else { return false };
        // Blocks that arrived together with the end of its range have been delivered already.
        let next = fetch.keep.max(fetch.at / BLOCK);
        let (mirror, size) = (connection.mirror, self.request_size(p, pool).max(1));
        let Some(more) = pool.take_at(mirror, next, size) else {
            return self.is_worth_skipping(p, next, pool);
        };
        if let Some(fetch) = &mut self.connections[p].fetch {
            fetch.keep = more.end;
        }
        true
    }
}

impl Connection {
    /// Whether it is a server without ranges that delivers the beginning while others deliver the end.
    pub(super) fn is_streaming(&self) -> bool {
        self.fetch.as_ref().is_some_and(|fetch| fetch.streams && fetch.role == FetchRole::Owner)
    }

    /// Whether it is a server without ranges that delivers the beginning, or did so until its answer stalled.
    fn may_stream(&self) -> bool {
        let may = |fetch: &Fetch| matches!(fetch.role, FetchRole::Owner | FetchRole::Released);
        self.fetch.as_ref().is_some_and(|fetch| fetch.streams && may(fetch))
    }
}
