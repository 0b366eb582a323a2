//! How requests end: what becomes of their blocks, and of the prefetched requests behind them.

use anabranch_algo::{Rate, Span, Time};

use super::RangeScheduler;
use super::api::{Command, MirrorId, Pool};
use super::connection::{Fetch, FetchRole};
use crate::fetch_id::{ConnectionId, FetchId, connection_of};

impl RangeScheduler {
    /// Returns a request of a connection, be it the current one or a prefetched one.
    pub(super) fn fetch_mut(&mut self, id: FetchId) -> Option<&mut Fetch> {
        let connection = self.connections.get_mut(connection_of(id))?;
        connection.fetch.iter_mut().chain(&mut connection.prefetch).find(|fetch| fetch.id == id)
    }

    /// Cancels the current request of a connection if the rest of its answer is not worth reading. Called
    /// after each part of an answer.
    pub(super) fn continue_or_cancel(&mut self, p: ConnectionId, pool: &mut dyn Pool) {
        let Some(fetch) = &self.connections[p].fetch else { return };
        if fetch.at >= fetch.end {
            return;
        }
        match fetch.role {
            FetchRole::Owner | FetchRole::Duplicate(_) if fetch.blocks().is_empty() => {
                self.finish_early(p, pool);
            }
            FetchRole::Released => {
                if self.resume_stream(p, pool) {
                    return;
                }
                let Some(fetch) = &self.connections[p].fetch else { return };
                let next = fetch.blocks().start;
                let elsewhere = self.connections.iter().enumerate().any(|(q, other)| {
                    let mut own = other.fetch.iter().chain(&other.prefetch);
                    q != p && own.any(|f| f.role == FetchRole::Owner && f.blocks().contains(&next))
                });
                let wanted = pool.is_wanted_from(self.connections[p].mirror, next);
                if elsewhere || !wanted || fetch.blocks().is_empty() {
                    self.cancel(p, pool);
                }
            }
            _ => {}
        }
    }

    /// Ends a request that has delivered all blocks that it kept although its answer goes on. The rest of the
    /// answer is read and dropped if that is cheaper than a new TCP connection.
    fn finish_early(&mut self, p: ConnectionId, pool: &mut dyn Pool) {
        if self.prolong_stream(p, pool) {
            return;
        }
        let connection = &mut self.connections[p];
        let (reconnect, rate) = (connection.reconnect(), connection.throughput.rate().unwrap_or(0));
        let Some(fetch) = &mut connection.fetch else { return };
        let is_useless = |ahead: &&Fetch| ahead.blocks().is_empty();
        let more = !connection.prefetch.iter().all(|ahead| is_useless(&ahead));
        // The bytes of the prefetched answers that arrive before any useful byte.
        let useless: u64 =
            connection.prefetch.iter().take_while(is_useless).map(|ahead| ahead.end - ahead.at).sum();
        let silence = if fetch.has_head { Span::ZERO } else { connection.throughput.between() };
        let rest = Rate::from_bytes(rate).time_for(fetch.end - fetch.at + useless) + silence;
        let answers = fetch.has_head || fetch.early.is_some();
        if (more || pool.idle() > 0) && answers && rest <= reconnect {
            fetch.role = FetchRole::Drain;
        } else {
            if fetch.has_head {
                connection.on_success();
            }
            self.cancel(p, pool);
        }
    }

    /// Makes the first prefetched request the current one, after the current one has ended.
    pub(super) fn promote_prefetched(&mut self, now: Time, p: ConnectionId, pool: &mut dyn Pool) {
        let connection = &mut self.connections[p];
        let Some(mut next) = connection.prefetch.pop_front() else { return };
        debug_assert!(connection.fetch.is_none(), "one after the other");
        next.early = Some(now.since(next.asked_at));
        (next.asked_at, next.last_rx) = (now, now);
        connection.fetch = Some(next);
        self.continue_or_cancel(p, pool);
    }

    /// Cancels all requests of a connection, which costs its TCP connection.
    pub(super) fn cancel(&mut self, p: ConnectionId, pool: &mut dyn Pool) {
        self.cancel_prefetch(p, pool);
        if let Some(fetch) = self.end_fetch(p, pool) {
            self.connections[p].cold = true;
            self.connections[p].counters.cancelled += 1;
            self.out.push_back(Command::Cancel { fetch });
        }
    }

    /// Cancels the prefetched requests of a connection, because its TCP connection ends.
    pub(super) fn cancel_prefetch(&mut self, p: ConnectionId, pool: &mut dyn Pool) {
        while let Some(fetch) = self.connections[p].prefetch.back().map(|ahead| ahead.id) {
            self.release_fetch(fetch, pool);
            self.connections[p].prefetch.pop_back();
            self.connections[p].counters.cancelled += 1;
            self.out.push_back(Command::Cancel { fetch });
        }
    }

    /// Ends the current request of a connection: its missing blocks go back to the pool.
    pub(super) fn end_fetch(&mut self, p: ConnectionId, pool: &mut dyn Pool) -> Option<FetchId> {
        let id = self.connections[p].fetch.as_ref().map(|fetch| fetch.id);
        if let Some(id) = id {
            self.release_fetch(id, pool);
        }
        let connection = &mut self.connections[p];
        connection.throughput.pause();
        let fetch = connection.fetch.take()?;
        if fetch.role == FetchRole::WholeFile || fetch.streams {
            pool.end_whole(connection.mirror);
        }
        if fetch.role == FetchRole::WholeFile && fetch.new_bytes == 0 && (1..fetch.end).contains(&fetch.at) {
            connection.whole_files.breaks_at = Some(fetch.at);
        }
        id
    }

    /// Returns the blocks of all requests of a connection to the pool.
    pub(super) fn release_all(&mut self, p: ConnectionId, pool: &mut dyn Pool) {
        let connection = &self.connections[p];
        // The current request comes last: a pool may assign first the blocks that came back last.
        let ids = connection.fetch.iter().chain(&connection.prefetch).rev().map(|fetch| fetch.id);
        for id in ids.collect::<Vec<_>>() {
            self.release_fetch(id, pool);
        }
    }

    /// Returns the blocks that a request owns to the pool. If the request is a duplicate, marks the original
    /// as not duplicated.
    pub(super) fn release_fetch(&mut self, id: FetchId, pool: &mut dyn Pool) {
        let Some(fetch) = self.fetch_mut(id) else { return };
        match std::mem::replace(&mut fetch.role, FetchRole::Released) {
            FetchRole::Owner => {
                let blocks = fetch.blocks();
                if !blocks.is_empty() {
                    pool.release(blocks);
                }
            }
            FetchRole::Duplicate(of) => {
                if let Some(other) = self.fetch_mut(of) {
                    other.duplicated = false;
                }
            }
            kept => fetch.role = kept,
        }
    }

    /// Cuts blocks that are not wanted from its mirror any more off the ends of a connection's ranges.
    pub(super) fn trim(&mut self, p: ConnectionId, pool: &mut dyn Pool) {
        let connection = &mut self.connections[p];
        let mirror = connection.mirror;
        for ahead in &mut connection.prefetch {
            ahead.trim(mirror, pool);
        }
        if connection.fetch.as_mut().is_some_and(|fetch| fetch.trim(mirror, pool)) {
            self.finish_early(p, pool);
        }
    }
}

impl Fetch {
    /// Cuts blocks that are not wanted from `mirror` any more off the end of the range. Returns whether no
    /// block is left although bytes of the answer have not arrived.
    fn trim(&mut self, mirror: MirrorId, pool: &mut dyn Pool) -> bool {
        if matches!(self.role, FetchRole::Drain | FetchRole::WholeFile) || self.at >= self.end {
            return false;
        }
        let mut left = self.blocks();
        while !left.is_empty() && !pool.is_wanted_from(mirror, left.end - 1) {
            left.end -= 1;
            self.keep = left.end;
            if self.role == FetchRole::Owner && pool.is_wanted(left.end) {
                pool.release(left.end..left.end + 1);
            }
        }
        left.is_empty()
    }
}
