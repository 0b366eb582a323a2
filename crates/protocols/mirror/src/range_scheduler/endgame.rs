//! The end: everything has been requested, and some connections will finish later than others.

use std::ops::Range;

use anabranch_algo::{Rate, Span, Time};
use anabranch_mmtp::id::SEGMENT_BLOCKS;

use super::RangeScheduler;
use super::api::{MirrorId, Pool, State};
use super::connection::{BLOCK, FetchRole};
use super::limits::{DUPLICATE_BLOCKS_MAX, SAVING_MIN, TRIAL_BLOCKS};
use crate::fetch_id::{ConnectionId, FetchId};

/// A copy must arrive earlier by this and an eighth.
const DUPLICATE_MARGIN: Span = Span::from_millis(10);
/// A connection that failed gets a duplicate of what takes its owner longer than this.
const TRIAL_AFTER: Span = Span::from_secs(2);

/// A connection whose last range can be taken over, or duplicated, from its end.
struct StealTarget {
    connection: ConnectionId,
    /// That range, and its blocks.
    tail: FetchId,
    blocks: Range<u64>,
    /// A copy of it that is under way, and until when that is here.
    copy: Option<(FetchId, Span)>,
    /// Until it finishes all that it has, at its rate.
    left: Span,
    /// Bytes a second; zero if it failed.
    rate: u64,
}

impl RangeScheduler {
    /// Lets a free connection help others.
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

    /// The other connections, the one that finishes last first. One without a measured rate is taken to be as
    /// fast as `rate`.
    fn steal_targets(&self, now: Time, p: ConnectionId, rate: u64, pool: &dyn Pool) -> Vec<StealTarget> {
        let mirror = self.connections[p].mirror;
        let mut steal_targets: Vec<_> = (0..self.connections.len())
            .filter(|&q| q != p)
            .filter_map(|q| {
                let connection = &self.connections[q];
                let (tail, fetch) = (connection.tail(mirror, pool)?, connection.fetch.as_ref()?);
                let theirs = connection.throughput.rate().unwrap_or(rate);
                let theirs = if connection.is_proven() { theirs } else { 0 };
                // Silence adds to what it needs.
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

    /// The copy of a range, and how long it takes yet. One of a connection of which nothing is known is given
    /// a while.
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
        // (left - x / theirs) = lead + x / mine
        let both = u128::from(rate) + u128::from(target.rate);
        let time = u128::from((target.left - me.lead()).as_nanos());
        let bytes = u128::from(rate) * u128::from(target.rate) / both * time / 1_000_000_000;
        let blocks = &target.blocks;
        // The block that is arriving stays. A prefetched range may be taken as a whole: cancelling it costs
        // the connection, for which `SAVING_MIN` is enough.
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
        // What this mirror has brought, and only others can compare.
        for block in (wanted.end..blocks.end).filter(|block| pool.is_wanted(*block)).collect::<Vec<_>>() {
            pool.release(block..block + 1);
        }
        self.ask(now, p, wanted, FetchRole::Owner);
        true
    }

    /// Requests a second copy of the rest of a range, if it arrives here earlier; in place of one that takes
    /// much longer.
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

    /// A copy is asked for elsewhere.
    fn withdraw(&mut self, copy: FetchId, pool: &mut dyn Pool) {
        match self.answering(copy) {
            Some(p) => self.cancel(p, pool),
            None => self.release_fetch(copy, pool),
        }
    }

    /// Tries a connection that failed on a copy of the last blocks of a range that takes long.
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
    /// The last blocks of the range, at most `most`, that `mirror` can copy.
    fn to_copy(&self, mirror: MirrorId, most: u64, pool: &dyn Pool) -> Option<Range<u64>> {
        let from = self.blocks.start.max(self.blocks.end.saturating_sub(most));
        last_wanted(from..self.blocks.end, mirror, pool)
    }
}

/// The last of `blocks` that are all wanted from `mirror`. Where mirrors are compared, those behind them may
/// be wanted from others only.
fn last_wanted(blocks: Range<u64>, mirror: MirrorId, pool: &dyn Pool) -> Option<Range<u64>> {
    let mut wanted = blocks.rev().skip_while(|block| !pool.is_wanted_from(mirror, *block)).peekable();
    let last = *wanted.peek()?;
    let first = wanted.take_while(|block| pool.is_wanted_from(mirror, *block)).last()?;
    Some(first..last + 1)
}
