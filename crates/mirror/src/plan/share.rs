//! How much a way is asked for at once.

use algo::{Span, Time};
use mmtp::id::SEGMENT_GROUPS;

use super::way::Purpose;
use super::{FetchId, GROUP, MirrorId, Mirrors, Pool, WayId};

/// The most that is asked for at once, in time at the way's rate.
pub const ASK_SPAN_MAX: Span = Span::from_secs(8);
/// The same in groups: 64 MiB.
pub const ASK_GROUPS_MAX: u64 = 64 * SEGMENT_GROUPS;
/// What a way that failed or stalled is asked for until it has answered: 64 KiB.
pub const TRIAL_GROUPS: u64 = 4;
/// What a way of unknown rate is asked for, at most: 8 MiB. Slow start is over by then.
pub const FIRST_GROUPS: u64 = 8 * SEGMENT_GROUPS;
/// A range is worth so many times the silence between two requests, or the link would be idle for more than
/// a few percent of the time. Shorter ranges would share the end more evenly; that is done by taking over.
const GAPS_A_RANGE: u64 = 20;

impl Mirrors {
    /// Gives a free way something to do, if there is something.
    pub(super) fn employ(&mut self, now: Time, p: WayId, pool: &mut dyn Pool) {
        if !self.ways[p].ranges {
            self.employ_whole(now, p, pool);
            return;
        }
        let appetite = self.appetite(p, pool);
        match pool.take(self.ways[p].mirror, appetite) {
            Some(groups) => drop(self.ask(now, p, groups, Purpose::Own)),
            None => self.help(now, p, pool),
        }
    }

    /// A server that was taken to have ranges sends everything. Where another can be asked, that one is.
    pub(super) fn whole(&mut self, now: Time, fetch: FetchId, pool: &mut dyn Pool) {
        self.head(now, fetch);
        let Some(p) = self.way_of(fetch) else { return };
        self.without_ranges(self.ways[p].mirror);
        if self.ways.iter().any(|way| way.ranges && way.is_usable()) {
            self.cancel(p, pool);
            return;
        }
        self.disown(p, pool);
        let (length, groups) = (self.length, self.groups());
        if let Some(fetch) = &mut self.ways[p].fetch {
            (fetch.purpose, fetch.end, fetch.keep) = (Purpose::Whole, length, groups);
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
        if !others && pool.idle() > 0 {
            self.ask(now, p, 0..self.groups(), Purpose::Whole);
        }
    }

    /// Groups to ask way `p` for: at least one.
    fn appetite(&self, p: WayId, pool: &dyn Pool) -> u64 {
        let way = &self.ways[p];
        if way.trial {
            return TRIAL_GROUPS;
        }
        let pending: u64 = self
            .ways
            .iter()
            .filter_map(|way| way.fetch.as_ref())
            .map(|f| f.groups().end - f.groups().start)
            .sum();
        let (idle, all) = (pool.idle(), pool.idle().saturating_add(pending));
        let Some(rate) = way.flow.rate() else {
            let usable = self.ways.iter().filter(|way| way.is_usable()).count().max(1) as u64;
            return FIRST_GROUPS.min((all / usable / 2).max(TRIAL_GROUPS));
        };
        let rates: u64 =
            self.ways.iter().filter(|way| way.is_usable()).filter_map(|way| way.flow.rate()).sum();
        let fair = |groups: u64| {
            let part = u128::from(groups) * u128::from(rate) / u128::from(rates.max(rate));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        let in_span = |span: Span| algo::Rate::from_bytes(rate).bytes_in(span) / GROUP;
        let worth_a_gap = in_span(way.flow.first_byte().times(GAPS_A_RANGE)).min(ASK_GROUPS_MAX);
        let most = in_span(ASK_SPAN_MAX).min(ASK_GROUPS_MAX);
        let guided = (fair(idle) / 8 * 7).min(most).max(worth_a_gap).max(SEGMENT_GROUPS);
        // What is slow takes no more than it can bring before everything is here.
        guided.min(fair(all)).max(1)
    }
}
