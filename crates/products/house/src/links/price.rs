//! Decides by cost which links carry data: the cheapest ones, and the next more expensive ones when those are
//! full. It reads no clock.
//!
//! A *tier* is the links of one cost. When the links that carry data have been full for [`JOINS_AFTER`], the
//! next tier joins, and one more after each such time. When they have not been full for [`LEAVES_AFTER`], the
//! last tier leaves.

use anabranch_algo::{Span, Time};

use anabranch_net::via::Via;

/// The time for which links must be full until the next tier joins.
const JOINS_AFTER: Span = Span::from_secs(2);
/// The time for which no link may be full until the last tier leaves.
const LEAVES_AFTER: Span = Span::from_secs(10);

/// The tiers that carry data now.
#[derive(Debug, Default)]
pub struct Price {
    /// The number of tiers beyond the cheapest that have joined.
    joined: usize,
    full_since: Option<Time>,
    /// When links were last full, or when a tier last left.
    calm_since: Option<Time>,
}

impl Price {
    /// Takes whether the links that carry data are full now. Returns the indices of links that carry data
    /// only while no other can: the backups that the user named, and the links that cost too much. `is_out`
    /// marks links that cannot be used.
    #[must_use]
    pub fn step(&mut self, now: Time, links: &[Via], is_out: &[bool], is_full: bool) -> Vec<usize> {
        let usable = || links.iter().zip(is_out).filter(|(link, out)| !**out && !link.is_backup);
        let mut costs: Vec<u32> = usable().map(|(link, _)| link.cost).collect();
        costs.sort_unstable();
        costs.dedup();
        if is_full {
            let since = *self.full_since.get_or_insert(now);
            self.calm_since = None;
            if now.since(since) >= JOINS_AFTER && self.joined + 1 < costs.len() {
                (self.joined, self.full_since) = (self.joined + 1, Some(now));
            }
        } else {
            self.full_since = None;
            let since = *self.calm_since.get_or_insert(now);
            if now.since(since) >= LEAVES_AFTER {
                (self.joined, self.calm_since) = (self.joined.saturating_sub(1), Some(now));
            }
        }
        self.joined = self.joined.min(costs.len().saturating_sub(1));
        let most = costs.get(self.joined).copied().unwrap_or(u32::MAX);
        let is_backup = |link: &Via| link.is_backup || link.cost > most;
        links.iter().enumerate().filter(|(_, link)| is_backup(link)).map(|(place, _)| place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn tiers_join_while_links_are_full_and_leave_when_they_are_not() {
        let links = ["a", "b:cost=5", "c:cost=9", "d:backup"].map(|text| text.parse().unwrap());
        let mut price = Price::default();
        let mut step = |millis, is_full| price.step(at(millis), &links, &[false; 4], is_full);
        assert_eq!(step(0, false), [1, 2, 3]);
        assert_eq!(step(100, true), [1, 2, 3]);
        assert_eq!(step(2_000, true), [1, 2, 3]);
        assert_eq!(step(2_100, true), [2, 3]);
        assert_eq!(step(4_000, true), [2, 3]);
        // A moment without a full link restarts the time.
        assert_eq!(step(4_050, false), [2, 3]);
        assert_eq!(step(4_150, true), [2, 3]);
        assert_eq!(step(6_150, true), [3]);
        assert_eq!(step(60_000, true), [3], "a backup does not join");
        assert_eq!(step(60_100, false), [3]);
        assert_eq!(step(70_000, false), [3]);
        assert_eq!(step(70_100, false), [2, 3]);
        assert_eq!(step(80_100, false), [1, 2, 3]);
        assert_eq!(step(99_000, false), [1, 2, 3]);
    }

    #[test]
    fn when_the_cheap_ones_are_out_the_next_are_the_cheapest() {
        let links = ["a", "b:cost=5", "c:cost=9"].map(|text| text.parse().unwrap());
        let mut price = Price::default();
        assert_eq!(price.step(at(0), &links, &[true, false, false], false), [2]);
        assert_eq!(price.step(at(1), &links, &[true, true, false], false), [0; 0]);
        assert_eq!(price.step(at(2), &links, &[true; 3], false), [0; 0]);
        assert_eq!(price.step(at(3), &links, &[false; 3], false), [1, 2]);
        // All links cost the same, so none is held back.
        let links = ["a:cost=2", "b:cost=2"].map(|text| text.parse().unwrap());
        assert_eq!(price.step(at(4), &links, &[false; 2], false), [0; 0]);
    }
}
