//! Handles a server that sends less of a range than was requested (RFC 9110 section 15.3.7). Some servers
//! limit the bytes of one answer.
//!
//! The missing rest is requested from the byte where the answer ended, also in the middle of a block, so that
//! even a limit of less than a block works. Prefetched requests would be answered before that rest. So if
//! there are any, the missing blocks go back to the pool instead.

use anabranch_algo::Time;

use super::RangeScheduler;
use super::api::{Command, Failure, Pool};
use super::connection::{BLOCK, FetchRole};
use crate::fetch_id::{ConnectionId, FetchId, fetch_id};

impl RangeScheduler {
    /// Handles the head of an answer that ends at `end`, before the end of the range.
    pub(super) fn short(&mut self, now: Time, fetch: FetchId, end: u64, pool: &mut dyn Pool) {
        self.head(now, fetch);
        let Some(p) = self.answering(fetch) else { return };
        let connection = &mut self.connections[p];
        let Some(fetch) = &mut connection.fetch else { return };
        if end <= fetch.at {
            // The rest would be requested again and again without progress.
            self.failed(now, p, Failure::Broken, pool);
            return;
        }
        fetch.answer_end = end.min(fetch.end);
        connection.request_blocks_max = ((fetch.answer_end - fetch.at) / BLOCK).max(1);
        if connection.prefetch.is_empty() {
            return;
        }
        fetch.end = fetch.answer_end;
        let whole = (fetch.end / BLOCK).max(fetch.at / BLOCK);
        let missing = whole.min(fetch.keep)..fetch.keep;
        fetch.keep = missing.start;
        if fetch.role == FetchRole::Owner && !missing.is_empty() {
            pool.release(missing);
        }
    }

    /// Requests the rest of the range, after an answer has ended. Returns false if no rest has to be
    /// requested.
    pub(super) fn ask_for_rest(&mut self, now: Time, p: ConnectionId) -> bool {
        let id = fetch_id(self.asked, p);
        let connection = &mut self.connections[p];
        let Some(fetch) = &mut connection.fetch else { return false };
        if !fetch.streams {
            // Blocks behind `keep` are delivered by other connections.
            fetch.end = fetch.end.min(fetch.keep.saturating_mul(BLOCK));
        }
        let is_over = matches!(fetch.role, FetchRole::Released | FetchRole::Drain);
        if is_over || fetch.at >= fetch.end {
            return false;
        }
        let before = std::mem::replace(&mut fetch.id, id);
        (fetch.answer_end, fetch.has_head, fetch.early) = (fetch.at, false, None);
        (fetch.asked_at, fetch.last_rx) = (now, now);
        let (first_byte, end_byte) = (fetch.at, fetch.end);
        connection.counters.fetches += 1;
        connection.on_success();
        self.asked += 1;
        self.out.push_back(Command::Fetch { connection: p, fetch: id, first_byte, end_byte });
        // The second copies of the old request are now copies of the new one.
        let all =
            self.connections.iter_mut().flat_map(|other| other.fetch.iter_mut().chain(&mut other.prefetch));
        for copy in all.filter(|copy| copy.role == FetchRole::Duplicate(before)) {
            copy.role = FetchRole::Duplicate(id);
        }
        true
    }
}
