//! The endgame: all blocks have been requested, and some connections will finish later than others.

use std::ops::Range;

use anabranch_algo::{Rate, Span, Time};
use anabranch_mmtp::id::SEGMENT_BLOCKS;

use super::RangeScheduler;
use super::api::{MirrorId, Pool, State};
use super::connection::{BLOCK, FetchRole};
use super::limits::{DUPLICATE_BLOCKS_MAX, SAVING_MIN, TRIAL_BLOCKS};
use crate::fetch_id::{ConnectionId, FetchId};

/// A second copy must save this time and an eighth of the time that the copy itself takes.
const DUPLICATE_MARGIN: Span = Span::from_millis(10);
/// A connection that failed is tried on a copy of blocks that will take their owner longer than this.
const TRIAL_AFTER: Span = Span::from_secs(2);

/// A connection whose last range another connection can take over or duplicate, from its end.
struct StealTarget {
    connection: ConnectionId,
    /// The request for its last range, whose end can be taken over, and the blocks of that range.
    tail: FetchId,
    blocks: Range<u64>,
    /// The request that already fetches a second copy of that range, and the time until the copy is complete.
    copy: Option<(FetchId, Span)>,
    /// The time until the connection has delivered all its requests, at its rate.
    left: Span,
    /// Its rate in bytes per second; zero if it failed.
    rate: u64,
}

impl RangeScheduler {
    /// Makes a free connection take over or duplicate blocks of another connection.
    pub(super) fn steal(&mut self, now: Time, p: ConnectionId, pool: &mut dyn Pool) {
        let me = &self.connections[p];
        let proven = me.state == State::Open && !me.backoff.trial;
        let Some(rate) = me.throughput.rate().filter(|_| proven) else {
            self.probe(now, p, pool);
            return;
        };
        for target in self.steal_targets(now, p, rate, pool) {
            if self.steal_tail(now, p, rate, &target, pool) || self.duplicate(now, p, rate, &target, pool) {
                return;
            }
        }
    }

    /// Returns the other connections that can be helped, the one that finishes last first. A connection
    /// without a measured rate counts as fast as `rate`.
    fn steal_targets(&self, now: Time, p: ConnectionId, rate: u64, pool: &dyn Pool) -> Vec<StealTarget> {
        let mirror = self.connections[p].mirror;
        let mut steal_targets: Vec<_> = (0..self.connections.len())
            .filter(|&q| q != p)
            .filter_map(|q| {
                let connection = &self.connections[q];
                let (tail, fetch) = (connection.tail(mirror, pool)?, connection.fetch.as_ref()?);
                let theirs = connection.throughput.rate().unwrap_or(rate);
                let theirs = if connection.is_proven() { theirs } else { 0 };
                // The silence so far adds to the time that the connection needs.
                let silent = now.since(fetch.last_rx);
                let left = Rate::from_bytes(theirs).time_for(connection.bytes_left()) + silent;
                let copy = self.copy_of(now, tail.id).filter(|_| tail.duplicated);
                Some(StealTarget {
                    connection: q,
                    tail: tail.id,
                    blocks: tail.blocks(),
                    copy,
                    left,
                    rate: theirs,
                })
            })
            .collect();
        steal_targets.sort_by_key(|target| (std::cmp::Reverse(target.left), target.connection));
        steal_targets
    }

    /// Returns the second copy of a range, and the time until it is complete. A copy on a connection of
    /// unknown rate counts as complete at once for [`TRIAL_AFTER`], and as never complete after that.
    fn copy_of(&self, now: Time, of: FetchId) -> Option<(FetchId, Span)> {
        self.connections.iter().find_map(|connection| {
            let mut all = connection.fetch.iter().chain(&connection.prefetch);
            let copy = all.find(|fetch| fetch.role == FetchRole::Duplicate(of))?;
            let silent = now.since(connection.fetch.as_ref().map_or(now, |current| current.last_rx));
            let left = match connection.throughput.rate() {
                Some(rate) => Rate::from_bytes(rate).time_for(connection.bytes_left()) + silent,
                None if now.since(copy.asked_at) < TRIAL_AFTER => Span::ZERO,
                None => Span::MAX,
            };
            Some((copy.id, left))
        })
    }

    /// Takes over the tail of a range, so that both connections finish together.
    fn steal_tail(
        &mut self,
        now: Time,
        p: ConnectionId,
        rate: u64,
        target: &StealTarget,
        pool: &mut dyn Pool,
    ) -> bool {
        let (me, other) = (&self.connections[p], &self.connections[target.connection]);
        if target.rate == 0 || target.left <= me.lead() {
            return false;
        }
        // The split solves: left - x / theirs = lead + x / mine.
        let both = u128::from(rate) + u128::from(target.rate);
        let time = u128::from((target.left - me.lead()).as_nanos());
        let bytes = u128::from(rate) * u128::from(target.rate) / both * time / 1_000_000_000;
        let blocks = &target.blocks;
        // The block that is arriving stays with its owner. A prefetched range may be taken over completely.
        // Cancelling it costs its owner the TCP connection, for which a saving of `SAVING_MIN` is enough.
        let coming = u64::from(other.fetch.as_ref().is_some_and(|current| current.id == target.tail));
        let free = (blocks.end - blocks.start).saturating_sub(coming);
        let take = u64::try_from(bytes / u128::from(BLOCK)).unwrap_or(u64::MAX).min(free);
        let mut split = blocks.end - take;
        if take >= 2 * SEGMENT_BLOCKS {
            split = split.next_multiple_of(SEGMENT_BLOCKS);
        }
        let saves = |first: u64| {
            let saved = Rate::from_bytes(target.rate).time_for((blocks.end - first) * BLOCK);
            saved >= other.round_trip().times(2) + SAVING_MIN
        };
        if !saves(split) {
            return false;
        }
        let wanted = last_wanted(split..blocks.end, me.mirror, pool).filter(|wanted| saves(wanted.start));
        let Some(wanted) = wanted else { return false };
        if let Some(fetch) = self.fetch_mut(target.tail) {
            fetch.keep = wanted.start;
        }
        // Blocks that this mirror has delivered and only others can compare go back to the pool.
        for block in (wanted.end..blocks.end).filter(|block| pool.is_wanted(*block)).collect::<Vec<_>>() {
            pool.release(block..block + 1);
        }
        self.ask(now, p, wanted, FetchRole::Owner);
        true
    }

    /// Requests a second copy of the rest of a range, if the copy is complete earlier. If there is a second
    /// copy already, the new one must be much faster; it replaces the other.
    fn duplicate(
        &mut self,
        now: Time,
        p: ConnectionId,
        rate: u64,
        target: &StealTarget,
        pool: &mut dyn Pool,
    ) -> bool {
        let me = &self.connections[p];
        let left = target.copy.map_or(target.left, |(_, left)| left.min(target.left));
        if left <= me.lead() + DUPLICATE_MARGIN {
            return false;
        }
        let Some(blocks) = target.to_copy(me.mirror, DUPLICATE_BLOCKS_MAX, pool) else { return false };
        let here = me.lead() + Rate::from_bytes(rate).time_for((blocks.end - blocks.start) * BLOCK);
        let margin = if target.copy.is_some() { here + SAVING_MIN } else { here.over(8) + DUPLICATE_MARGIN };
        if left <= here + margin {
            return false;
        }
        if let Some((copy, _)) = target.copy {
            self.withdraw(copy, pool);
        }
        self.request_duplicate(now, p, target.tail, blocks);
        true
    }

    /// Gives up a second copy, because another connection fetches one.
    fn withdraw(&mut self, copy: FetchId, pool: &mut dyn Pool) {
        match self.answering(copy) {
            Some(p) => self.cancel(p, pool),
            None => self.release_fetch(copy, pool),
        }
    }

    /// Tries a connection that failed, or whose rate is unknown, on a copy of the last blocks of a slow
    /// range.
    fn probe(&mut self, now: Time, p: ConnectionId, pool: &dyn Pool) {
        let mirror = self.connections[p].mirror;
        let mut targets = self.steal_targets(now, p, u64::MAX, pool);
        targets.retain(|target| target.left >= TRIAL_AFTER);
        let found = targets.iter().filter(|target| target.copy.is_none()).find_map(|target| {
            let blocks = target.to_copy(mirror, TRIAL_BLOCKS, pool)?;
            Some((target.tail, blocks))
        });
        if let Some((tail, blocks)) = found {
            self.request_duplicate(now, p, tail, blocks);
        }
    }

    fn request_duplicate(&mut self, now: Time, p: ConnectionId, of: FetchId, blocks: Range<u64>) {
        let Some(fetch) = self.fetch_mut(of) else { return };
        fetch.duplicated = true;
        self.ask(now, p, blocks, FetchRole::Duplicate(of));
    }
}

impl StealTarget {
    /// Returns the last blocks of the range that are wanted from `mirror`, at most `most`.
    fn to_copy(&self, mirror: MirrorId, most: u64, pool: &dyn Pool) -> Option<Range<u64>> {
        let from = self.blocks.start.max(self.blocks.end.saturating_sub(most));
        last_wanted(from..self.blocks.end, mirror, pool)
    }
}

/// Returns the last run of `blocks` in which all are wanted from `mirror`. Where mirrors are compared, blocks
/// behind that run may be wanted from other mirrors only.
fn last_wanted(blocks: Range<u64>, mirror: MirrorId, pool: &dyn Pool) -> Option<Range<u64>> {
    let mut wanted = blocks.rev().skip_while(|block| !pool.is_wanted_from(mirror, *block)).peekable();
    let last = *wanted.peek()?;
    let first = wanted.take_while(|block| pool.is_wanted_from(mirror, *block)).last()?;
    Some(first..last + 1)
}
