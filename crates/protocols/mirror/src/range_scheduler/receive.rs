//! Answers: their heads, their blocks, their ends, and failures.

use anabranch_algo::Time;

use super::RangeScheduler;
use super::api::{Failure, Pool, State};
use super::connection::{BLOCK, Fetch, FetchRole};
use crate::fetch_id::{ConnectionId, FetchId};

/// How often a server without ranges may send the whole file while blocks are still missing afterwards.
const WHOLE_FILE_TRIES_MAX: u32 = 3;

impl RangeScheduler {
    /// Handles the head of an answer.
    pub(super) fn head(&mut self, now: Time, fetch: FetchId) {
        let Some(p) = self.answering(fetch) else { return };
        let connection = &mut self.connections[p];
        let (before, round_trip) = (connection.state, connection.round_trip());
        let Some(fetch) = &mut connection.fetch else { return };
        if !std::mem::replace(&mut fetch.has_head, true) {
            let after = now.since(fetch.asked_at);
            fetch.answer_end = fetch.end;
            match fetch.early {
                // This is the rest of a range, so the silence before it counts in the rate.
                None if fetch.got > 0 => connection.throughput.go_on(after),
                None => connection.throughput.begin(now, after, connection.cold),
                // A request that was prefetched too late does not show how the server handles an early one.
                Some(early) => connection.throughput.resume(now, (early >= round_trip).then_some(after)),
            }
        }
        (fetch.last_rx, connection.heard_at) = (now, now);
        (connection.state, connection.cold) = (State::Open, false);
        // The connection answers, so its back-off is over.
        connection.backoff.until = Time::ZERO;
        self.set_state(p, before);
    }

    /// Handles the next bytes of an answer: delivers complete blocks to the pool.
    pub(super) fn body(&mut self, now: Time, fetch: FetchId, bytes: &[u8], pool: &mut dyn Pool) {
        self.head_if_none(now, fetch);
        let Some(p) = self.answering(fetch) else { return };
        let (length, before) = (self.length, self.connections[p].state);
        let connection = &mut self.connections[p];
        let Some(fetch) = &mut connection.fetch else { return };
        // The caller reports no more than was requested. Anything beyond is dropped.
        let beyond = usize::try_from(fetch.end - fetch.at).unwrap_or(usize::MAX);
        let mut rest = &bytes[..bytes.len().min(beyond)];
        connection.throughput.add(now, rest.len() as u64, before == State::Stalled);
        (fetch.last_rx, connection.heard_at) = (now, now);
        (connection.state, connection.backoff.until) = (State::Open, Time::ZERO);
        fetch.got += rest.len() as u64;
        connection.counters.received_bytes += rest.len() as u64;
        while !rest.is_empty() {
            let block = fetch.at / BLOCK;
            let have = fetch.partial.len();
            let len = length.saturating_sub(block * BLOCK).min(BLOCK) as usize;
            let (piece, after) = rest.split_at(rest.len().min(len - have));
            (rest, fetch.at) = (after, fetch.at + piece.len() as u64);
            if connection.whole_files.breaks_at.is_some() {
                connection.counters.vain_bytes += piece.len() as u64;
            }
            let whole = have + piece.len() == len;
            if have > 0 || !whole {
                fetch.partial.extend_from_slice(piece);
            }
            if !whole {
                break;
            }
            if pool.is_wanted_from(connection.mirror, block) {
                pool.deliver(connection.mirror, block, if have > 0 { &fetch.partial } else { piece });
                connection.counters.bytes += len as u64;
                fetch.new_bytes += len as u64;
                connection.whole_files.breaks_at = None;
            } else {
                connection.counters.duplicate_bytes += len as u64;
                if fetch.role == FetchRole::Owner && pool.is_wanted(block) {
                    // Another mirror has to deliver this block.
                    pool.release(block..block + 1);
                }
            }
            fetch.partial.clear();
        }
        self.set_state(p, before);
        self.continue_or_cancel(p, pool);
    }

    /// Treats the first bytes of a body as the head if no head was reported.
    fn head_if_none(&mut self, now: Time, fetch: FetchId) {
        let p = self.answering(fetch);
        if p.and_then(|p| self.connections[p].fetch.as_ref()).is_some_and(|fetch| !fetch.has_head) {
            self.head(now, fetch);
        }
    }

    /// Handles the end of an answer.
    pub(super) fn done(&mut self, now: Time, fetch: FetchId, pool: &mut dyn Pool) {
        let Some(p) = self.answering(fetch) else { return };
        let Some(fetch) = &self.connections[p].fetch else { return };
        if fetch.at < fetch.answer_end || !fetch.has_head {
            // The answer was shorter than its head announced.
            self.failed(now, p, Failure::Broken, pool);
            return;
        }
        if self.ask_for_rest(now, p) {
            return;
        }
        let Some(fetch) = &self.connections[p].fetch else { return };
        let (whole, got) = (fetch.role == FetchRole::WholeFile, fetch.got);
        self.end_fetch(p, pool);
        self.connections[p].on_success();
        if whole && pool.idle_for(self.connections[p].mirror) > 0 {
            // The whole file arrived, and some of it was wrong. It may be right another time, but the number
            // of tries is limited.
            self.connections[p].whole_files.failed += 1;
            if self.connections[p].whole_files.failed >= WHOLE_FILE_TRIES_MAX {
                self.close_mirror(self.connections[p].mirror, pool);
                return;
            }
            let before = self.connections[p].state;
            self.connections[p].fail(now, got.min(1));
            self.set_state(p, before);
        }
        self.promote_prefetched(now, p, pool);
    }

    /// Handles a request that was not answered, or whose answer broke off.
    pub(super) fn failed(&mut self, now: Time, p: ConnectionId, failure: Failure, pool: &mut dyn Pool) {
        let got = self.connections[p].fetch.as_ref().map_or(0, Fetch::progress_bytes);
        // The prefetched ranges would be requested again in full over a new TCP connection, but this
        // connection has to prove itself with less.
        self.cancel_prefetch(p, pool);
        self.end_fetch(p, pool);
        let before = self.connections[p].state;
        match failure {
            Failure::Broken => self.connections[p].fail(now, got),
            Failure::Busy { retry } => self.connections[p].busy(now, retry),
            // The request was for the whole file, which the server refuses, too.
            Failure::NoRanges if !self.connections[p].ranges => self.connections[p].fail(now, 0),
            Failure::NoRanges => {
                self.connections[p].counters.failures += 1;
                self.without_ranges(self.connections[p].mirror);
            }
            Failure::Useless => {
                self.connections[p].counters.failures += 1;
                self.close_mirror(self.connections[p].mirror, pool);
                return;
            }
        }
        self.set_state(p, before);
    }
}
