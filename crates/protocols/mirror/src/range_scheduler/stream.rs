//! A server without ranges beside others that have them.
//!
//! It can only be asked for everything, once, from the first byte on. Of a content of some megabytes it
//! brings the beginning and the others the end. What it keeps is prolonged whenever it has brought that,
//! until what comes next is here or has been asked of somebody else. So nothing is asked of two, and how much
//! it brings is what it can. After a pause it goes on where it was, if nobody else has been asked for that.
//! Where its answer fails, the others bring the rest: to ask again would bring again what is here.
//!
//! What is here or has been asked of others before its turn is skipped, as long as the others leave it enough
//! behind that: where a get is resumed, or where it turns out late that a server has no ranges. Otherwise its
//! answer is given up.

use anabranch_algo::Time;

use super::RangeScheduler;
use super::api::Pool;
use super::connection::{BLOCK, Connection, Fetch, FetchRole};
use super::limits::{FIRST_BLOCKS, STREAM_FIRST_PART, STREAM_MIN_BLOCKS};
use crate::fetch_id::ConnectionId;

impl RangeScheduler {
    /// Asks a server without ranges for everything, if others have ranges; then lets these bring the end.
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

    /// Whether the answer of a server without ranges is worth reading from this block on up to the next one
    /// that nobody has been asked for: the others leave enough behind that, from the end, until it is there.
    fn is_worth_skipping(&self, p: ConnectionId, block: u64, pool: &dyn Pool) -> bool {
        let connection = &self.connections[p];
        let Some(next) = pool.next_idle(connection.mirror, block) else { return false };
        let skipped = next.saturating_sub(block);
        let others = || self.sharing().filter(|other| other.ranges);
        // Where no rate is known all are taken for alike.
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

    /// An answer that had stalled goes on; whether what comes next is its own again.
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

    /// Prolongs what the answer of a server without ranges is to bring; whether it goes on.
    pub(super) fn prolong_stream(&mut self, p: ConnectionId, pool: &mut dyn Pool) -> bool {
        if !self.connections[p].is_streaming() {
            return false;
        }
        // It has brought what it was to keep. After a pause that is the trial.
        self.connections[p].on_success();
        let connection = &self.connections[p];
        let Some(fetch) = &connection.fetch else { return false };
        // What came at once with the end of what it kept has been delivered already.
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
    /// Whether it is a server without ranges that brings the beginning while others bring the end.
    pub(super) fn is_streaming(&self) -> bool {
        self.fetch.as_ref().is_some_and(|fetch| fetch.streams && fetch.role == FetchRole::Owner)
    }

    /// Whether it is such a server, or was one until its answer stalled, and may go on.
    fn may_stream(&self) -> bool {
        let may = |fetch: &Fetch| matches!(fetch.role, FetchRole::Owner | FetchRole::Released);
        self.fetch.as_ref().is_some_and(|fetch| fetch.streams && may(fetch))
    }
}
