//! The end: nobody has to be asked for anything any more, but some would need longer than others.

use algo::{Rate, Span, Time};
use mmtp::id::SEGMENT_BLOCKS;

use super::way::Purpose;
use super::{BLOCK, Mirrors, Pool, State, TRIAL_BLOCKS, WayId};

/// Blocks that one request asks for a second time at most: a segment.
pub const COPY_BLOCKS_MAX: u64 = SEGMENT_BLOCKS;
/// Taking over the tail of a range must end the transfer earlier by this and the two round trips that a new
/// connection takes, because it may cost its owner one.
pub const SAVING_MIN: Span = super::RECONNECT;
/// A copy must arrive earlier by this and an eighth.
const COPY_MARGIN: Span = Span::from_millis(10);
/// A way that has to prove itself tries itself on what takes others this long.
const TRIAL_AFTER: Span = Span::from_secs(2);

/// A way with ranges that are under way. What can be taken over or copied is the end of the last one.
struct Victim {
    way: WayId,
    /// Until it is through with all that it has, at its rate.
    left: Span,
    /// Bytes a second; zero if it has to prove itself.
    rate: u64,
}

impl Mirrors {
    /// Lets a free way help others.
    pub(super) fn help(&mut self, now: Time, p: WayId, pool: &mut dyn Pool) {
        let me = &self.ways[p];
        let proven = me.state == State::Open && !me.trial;
        let Some(rate) = me.flow.rate().filter(|_| proven) else {
            self.try_on_others(now, p, pool);
            return;
        };
        for victim in self.victims(now, p, rate) {
            if self.take_over(now, p, rate, &victim, pool) || self.copy(now, p, rate, &victim, pool) {
                return;
            }
        }
    }

    /// Ranges of others, that which takes longest first. A way that has not been measured is taken to be as
    /// fast as `rate`.
    fn victims(&self, now: Time, p: WayId, rate: u64) -> Vec<Victim> {
        let mut victims: Vec<_> = (0..self.ways.len())
            .filter(|&q| q != p)
            .filter_map(|q| {
                let way = &self.ways[q];
                let (_, fetch) = (way.tail()?, way.fetch.as_ref()?);
                let theirs = if way.trial { 0 } else { way.flow.rate().unwrap_or(rate) };
                // What has been silent for a while is late by as much.
                let silent = now.since(fetch.heard);
                let left = Rate::from_bytes(theirs).time_for(way.bytes_left()) + silent;
                Some(Victim { way: q, left, rate: theirs })
            })
            .collect();
        victims.sort_by_key(|victim| (std::cmp::Reverse(victim.left), victim.way));
        victims
    }

    /// Takes over the tail of a range, so that both finish together.
    fn take_over(&mut self, now: Time, p: WayId, rate: u64, victim: &Victim, pool: &dyn Pool) -> bool {
        let (me, other) = (&self.ways[p], &self.ways[victim.way]);
        let Some(fetch) = other.tail() else { return false };
        if victim.rate == 0 || victim.left <= me.lead() {
            return false;
        }
        // (left - x / theirs) = lead + x / mine
        let both = u128::from(rate) + u128::from(victim.rate);
        let time = u128::from((victim.left - me.lead()).as_nanos());
        let bytes = u128::from(rate) * u128::from(victim.rate) / both * time / 1_000_000_000;
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
            let saved = Rate::from_bytes(victim.rate).time_for((blocks.end - first) * BLOCK);
            saved >= other.round_trip().times(2) + SAVING_MIN
        };
        if !saves(split) {
            return false;
        }
        let first = (split..blocks.end).rev().take_while(|g| pool.is_wanted_from(me.mirror, *g)).last();
        let Some(first) = first.filter(|first| saves(*first)) else { return false };
        if let Some(fetch) = self.ways[victim.way].tail_mut() {
            fetch.keep = first;
        }
        self.ask(now, p, first..blocks.end, Purpose::Own);
        true
    }

    /// Asks a second time for what is left of a range, if it would arrive later than from here.
    fn copy(&mut self, now: Time, p: WayId, rate: u64, victim: &Victim, pool: &dyn Pool) -> bool {
        let me = &self.ways[p];
        let Some(fetch) = self.ways[victim.way].tail().filter(|fetch| !fetch.doubled) else {
            return false;
        };
        let blocks = fetch.blocks();
        let from = blocks.start.max(blocks.end.saturating_sub(COPY_BLOCKS_MAX));
        if victim.left <= me.lead() + COPY_MARGIN {
            return false;
        }
        let Some(first) = (from..blocks.end).rev().take_while(|g| pool.is_wanted_from(me.mirror, *g)).last()
        else {
            return false;
        };
        let here = me.lead() + Rate::from_bytes(rate).time_for((blocks.end - first) * BLOCK);
        if victim.left <= here + here.over(8) + COPY_MARGIN {
            return false;
        }
        self.copy_of(now, p, victim.way, first..blocks.end);
        true
    }

    /// A way that has to prove itself, and has nothing of its own to do so with, tries itself on the last
    /// blocks of a range that takes long.
    fn try_on_others(&mut self, now: Time, p: WayId, pool: &dyn Pool) {
        let mirror = self.ways[p].mirror;
        for victim in self.victims(now, p, u64::MAX).iter().filter(|victim| victim.left >= TRIAL_AFTER) {
            let Some(fetch) = self.ways[victim.way].tail().filter(|fetch| !fetch.doubled) else {
                continue;
            };
            let blocks = fetch.blocks();
            let from = blocks.start.max(blocks.end.saturating_sub(TRIAL_BLOCKS));
            let wanted = (from..blocks.end).rev().take_while(|g| pool.is_wanted_from(mirror, *g)).last();
            if let Some(first) = wanted {
                self.copy_of(now, p, victim.way, first..blocks.end);
                return;
            }
        }
    }

    fn copy_of(&mut self, now: Time, p: WayId, q: WayId, blocks: std::ops::Range<u64>) {
        let Some(fetch) = self.ways[q].tail_mut() else { return };
        fetch.doubled = true;
        let of = fetch.id;
        self.ask(now, p, blocks, Purpose::Copy(of));
    }
}
