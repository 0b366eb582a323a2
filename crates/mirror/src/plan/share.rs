//! How much a way is asked for at once, and for what it is asked ahead.
//!
//! Who asks ahead has no gap between two answers, so ranges may be short, and the end is shared evenly. Not
//! every server (or client) lets requests wait behind an answer: then the head of the next range comes a
//! round trip after the end of this one. That silence is measured ([`Flow::between`](super::flow::Flow)), and
//! ranges are as long as it asks for. What a way has of its own already counts as a part of its share.

use algo::{Rate, Span, Time};
use mmtp::id::SEGMENT_BLOCKS;

use super::way::{Purpose, Way};
use super::{BLOCK, FetchId, MirrorId, Mirrors, Pool, WayId};

/// The most that is asked for at once, in time at the way's rate, if the link is not idle between two
/// answers: then short ranges cost nothing, and leave less to be taken over at the end.
pub const ASK_SPAN: Span = Span::from_secs(2);
/// The same however long the link is idle in between.
pub const ASK_SPAN_MAX: Span = Span::from_secs(8);
/// The same in blocks: 64 MiB.
pub const ASK_BLOCKS_MAX: u64 = 64 * SEGMENT_BLOCKS;
/// What a way that failed or stalled is asked for until it has answered: 64 KiB.
pub const TRIAL_BLOCKS: u64 = 4;
/// What a way of unknown rate is asked for, at most: 8 MiB. Slow start is over by then.
pub const FIRST_BLOCKS: u64 = 8 * SEGMENT_BLOCKS;
/// A range is worth so many times the silence between two answers, or the link would be idle for more than
/// a few percent of the time. Shorter ranges would share the end more evenly; that is done by taking over.
const GAPS_A_RANGE: u64 = 20;
/// The same while there is enough to be asked for.
const GAPS_A_RANGE_WANTED: u64 = 100;

impl Mirrors {
    /// Gives a free way something to do, if there is something.
    pub(super) fn employ(&mut self, now: Time, p: WayId, pool: &mut dyn Pool) {
        if !self.ways[p].ranges {
            self.employ_whole(now, p, pool);
            return;
        }
        let appetite = self.appetite(p, pool).max(1);
        match pool.take(self.ways[p].mirror, appetite) {
            Some(blocks) => self.ask(now, p, blocks, Purpose::Own),
            None => self.help(now, p, pool),
        }
    }

    /// Asks a way that will soon be through for the next range, if there is one that is its part.
    pub(super) fn follow(&mut self, now: Time, p: WayId, pool: &mut dyn Pool) {
        if pool.idle() == 0 {
            return;
        }
        let appetite = self.appetite(p, pool);
        if appetite > 0
            && let Some(blocks) = pool.take(self.ways[p].mirror, appetite)
        {
            self.ask(now, p, blocks, Purpose::Own);
        }
    }

    /// A server that was taken to have ranges sends everything. Where another can be asked, that one is.
    pub(super) fn whole(&mut self, now: Time, fetch: FetchId, pool: &mut dyn Pool) {
        self.head(now, fetch);
        let Some(p) = self.way_of(fetch) else { return };
        self.without_ranges(self.ways[p].mirror);
        if self.ways.iter().any(|way| way.ranges && way.is_usable() && !way.trial) {
            self.cancel(p, pool);
            return;
        }
        self.drop_ahead(p, pool);
        self.disown_all(p, pool);
        let (length, blocks) = (self.length, self.blocks());
        if let Some(fetch) = &mut self.ways[p].fetch {
            (fetch.purpose, fetch.end, fetch.keep) = (Purpose::Whole, length, blocks);
        }
    }

    pub(super) fn without_ranges(&mut self, mirror: MirrorId) {
        for way in self.ways.iter_mut().filter(|way| way.mirror == mirror) {
            way.ranges = false;
        }
    }

    /// A server without ranges is asked for everything, if no other way can be used.
    fn employ_whole(&mut self, now: Time, p: WayId, pool: &mut dyn Pool) {
        let others = self.ways.iter().enumerate().any(|(q, way)| {
            let whole = way.fetch.as_ref().is_some_and(|fetch| fetch.purpose == Purpose::Whole);
            q != p && (whole || (way.ranges && way.is_usable() && !way.trial))
        });
        if !others && pool.idle_for(self.ways[p].mirror) > 0 {
            self.ask(now, p, 0..self.blocks(), Purpose::Whole);
        }
    }

    /// Blocks to ask way `p` for besides what it has; none if what it has is its part of everything.
    fn appetite(&self, p: WayId, pool: &dyn Pool) -> u64 {
        let way = &self.ways[p];
        if way.trial {
            return TRIAL_BLOCKS;
        }
        let pending: u64 = self.ways.iter().map(Way::blocks_left).sum();
        let (idle, all) = (pool.idle(), pool.idle().saturating_add(pending));
        let (Some(rate), Some(pace)) = (way.flow.rate(), way.flow.pace()) else {
            let usable = self.ways.iter().filter(|way| way.is_usable()).count().max(1) as u64;
            return FIRST_BLOCKS.min((all / usable / 2).max(TRIAL_BLOCKS));
        };
        let rates: u64 =
            self.ways.iter().filter(|way| way.is_usable()).filter_map(|way| way.flow.rate()).sum();
        let fair = |blocks: u64| {
            let part = u128::from(blocks) * u128::from(rate) / u128::from(rates.max(rate));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        let in_span = |rate: u64, span: Span| Rate::from_bytes(rate).bytes_in(span) / BLOCK;
        // What a request that is asked ahead does not save. Where that is not known yet, it is taken to save
        // everything: the next range knows better.
        let gap = way.flow.between();
        let worth_a_gap = in_span(rate, gap.times(GAPS_A_RANGE));
        // With less, the one after the next would be asked too late.
        let worth_asking = in_span(pace, way.ahead_span());
        let least = worth_a_gap.max(worth_asking).clamp(SEGMENT_BLOCKS, ASK_BLOCKS_MAX);
        let span = gap.times(GAPS_A_RANGE_WANTED).clamp(ASK_SPAN, ASK_SPAN_MAX);
        let most = in_span(rate, span).min(ASK_BLOCKS_MAX);
        // The fewer ranges, the fewer gaps; what is too much is taken over at the end.
        let part = if worth_a_gap > SEGMENT_BLOCKS { fair(idle) / 8 * 7 } else { fair(idle) / 2 };
        // What is slow takes no more than it can bring before everything is here.
        part.min(most).max(least).min(fair(all).saturating_sub(way.blocks_left()))
    }
}
