//! The end: nobody has to be asked for anything any more, but some would need longer than others.

use algo::{Rate, Span, Time};
use mmtp::id::SEGMENT_BLOCKS;

use super::connection::FetchRole;
use super::{BLOCK, ConnectionId, Pool, RangeScheduler, State, TRIAL_BLOCKS};

/// Blocks that one request asks for a second time at most: a segment.
pub const DUPLICATE_BLOCKS_MAX: u64 = SEGMENT_BLOCKS;
/// Taking over the tail of a range must end the transfer earlier by this and the two round trips that a new
/// connection takes, because it may cost its owner one.
pub const SAVING_MIN: Span = super::RECONNECT_COST;
/// A copy must arrive earlier by this and an eighth.
const DUPLICATE_MARGIN: Span = Span::from_millis(10);
/// A connection that has to prove itself tries itself on what takes others this long.
const TRIAL_AFTER: Span = Span::from_secs(2);

/// A connection with ranges that are under way. What can be taken over or copied is the end of the last one.
struct StealTarget {
    connection: ConnectionId,
    /// Until it is through with all that it has, at its rate.
    left: Span,
    /// Bytes a second; zero if it has to prove itself.
    rate: u64,
}

impl RangeScheduler {
    /// Lets a free connection help others.
    pub(super) fn steal(&mut self, now: Time, p: ConnectionId, pool: &mut dyn Pool) {
        let me = &self.connections[p];
        let proven = me.state == State::Open && !me.trial;
        let Some(rate) = me.throughput.rate().filter(|_| proven) else {
            self.probe(now, p, pool);
            return;
        };
        for target in self.steal_targets(now, p, rate) {
            if self.steal_tail(now, p, rate, &target, pool) || self.duplicate(now, p, rate, &target, pool) {
                return;
            }
        }
    }

    /// Ranges of others, that which takes longest first. A connection that has not been measured is taken to
    /// be as fast as `rate`.
    fn steal_targets(&self, now: Time, p: ConnectionId, rate: u64) -> Vec<StealTarget> {
        let mut steal_targets: Vec<_> = (0..self.connections.len())
            .filter(|&q| q != p)
            .filter_map(|q| {
                let connection = &self.connections[q];
                let (_, fetch) = (connection.tail()?, connection.fetch.as_ref()?);
                let theirs = if connection.trial { 0 } else { connection.throughput.rate().unwrap_or(rate) };
                // What has been silent for a while is late by as much.
                let silent = now.since(fetch.last_rx);
                let left = Rate::from_bytes(theirs).time_for(connection.bytes_left()) + silent;
                Some(StealTarget { connection: q, left, rate: theirs })
            })
            .collect();
        steal_targets.sort_by_key(|target| (std::cmp::Reverse(target.left), target.connection));
        steal_targets
    }

    /// Takes over the tail of a range, so that both finish together.
    fn steal_tail(
        &mut self,
        now: Time,
        p: ConnectionId,
        rate: u64,
        target: &StealTarget,
        pool: &dyn Pool,
    ) -> bool {
        let (me, other) = (&self.connections[p], &self.connections[target.connection]);
        let Some(fetch) = other.tail() else { return false };
        if target.rate == 0 || target.left <= me.lead() {
            return false;
        }
        // (left - x / theirs) = lead + x / mine
        let both = u128::from(rate) + u128::from(target.rate);
        let time = u128::from((target.left - me.lead()).as_nanos());
        let bytes = u128::from(rate) * u128::from(target.rate) / both * time / 1_000_000_000;
        let blocks = fetch.blocks();
        // The block that is coming stays where it is. What is asked ahead may go as a whole: its turn is
        // later, and the connection goes then, for which the saving is enough.
        let coming = u64::from(other.fetch.as_ref().is_some_and(|current| current.id == fetch.id));
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
        let first = (split..blocks.end).rev().take_while(|g| pool.is_wanted_from(me.mirror, *g)).last();
        let Some(first) = first.filter(|first| saves(*first)) else { return false };
        if let Some(fetch) = self.connections[target.connection].tail_mut() {
            fetch.keep = first;
        }
        self.ask(now, p, first..blocks.end, FetchRole::Owner);
        true
    }

    /// Asks a second time for what is left of a range, if it would arrive later than from here.
    fn duplicate(
        &mut self,
        now: Time,
        p: ConnectionId,
        rate: u64,
        target: &StealTarget,
        pool: &dyn Pool,
    ) -> bool {
        let me = &self.connections[p];
        let Some(fetch) = self.connections[target.connection].tail().filter(|fetch| !fetch.duplicated) else {
            return false;
        };
        let blocks = fetch.blocks();
        let from = blocks.start.max(blocks.end.saturating_sub(DUPLICATE_BLOCKS_MAX));
        if target.left <= me.lead() + DUPLICATE_MARGIN {
            return false;
        }
        let Some(first) = (from..blocks.end).rev().take_while(|g| pool.is_wanted_from(me.mirror, *g)).last()
        else {
            return false;
        };
        let here = me.lead() + Rate::from_bytes(rate).time_for((blocks.end - first) * BLOCK);
        if target.left <= here + here.over(8) + DUPLICATE_MARGIN {
            return false;
        }
        self.request_duplicate(now, p, target.connection, first..blocks.end);
        true
    }

    /// A connection that has to prove itself, and has nothing of its own to do so with, tries itself on the
    /// last blocks of a range that takes long.
    fn probe(&mut self, now: Time, p: ConnectionId, pool: &dyn Pool) {
        let mirror = self.connections[p].mirror;
        for target in self.steal_targets(now, p, u64::MAX).iter().filter(|target| target.left >= TRIAL_AFTER)
        {
            let Some(fetch) = self.connections[target.connection].tail().filter(|fetch| !fetch.duplicated)
            else {
                continue;
            };
            let blocks = fetch.blocks();
            let from = blocks.start.max(blocks.end.saturating_sub(TRIAL_BLOCKS));
            let wanted = (from..blocks.end).rev().take_while(|g| pool.is_wanted_from(mirror, *g)).last();
            if let Some(first) = wanted {
                self.request_duplicate(now, p, target.connection, first..blocks.end);
                return;
            }
        }
    }

    fn request_duplicate(
        &mut self,
        now: Time,
        p: ConnectionId,
        q: ConnectionId,
        blocks: std::ops::Range<u64>,
    ) {
        let Some(fetch) = self.connections[q].tail_mut() else { return };
        fetch.duplicated = true;
        let of = fetch.id;
        self.ask(now, p, blocks, FetchRole::Duplicate(of));
    }
}
