//! Decides which links of a transfer are held back: backups and costly links wait while others carry the
//! data, and spent links may carry no more. It reads no clock.
//!
//! A link *is out* while it is down, spent or silent. It is silent if it may carry data and has brought
//! nothing for [`SILENT_AFTER`]. It counts again when it has brought data for [`RETURNS_AFTER`] without a gap
//! of [`GAP`], so that a link that lets a packet through now and then does not stop its substitute.

use anabranch_algo::{Span, Time};
use anabranch_net::via::Via;

use crate::links::price::Price;

/// The time without a byte after which a link is silent.
const SILENT_AFTER: Span = Span::from_secs(3);
/// The time for which a silent link must bring data until it counts again.
const RETURNS_AFTER: Span = Span::from_secs(2);
/// A pause that ends this time.
const GAP: Span = Span::from_secs(1);

/// Says how the links that a user named work together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// All links carry data at once, but for the conditions of each.
    #[default]
    Aggregate,
    /// The first link carries data. The others do so while it is out, all at once.
    Backup,
    /// One link carries data: the first one that is not out.
    Sequential,
}

impl Mode {
    /// The names of all modes, as users write them.
    pub const NAMES: [(&'static str, Self); 3] =
        [("aggregate", Self::Aggregate), ("backup", Self::Backup), ("sequential", Self::Sequential)];

    /// Returns the links with the conditions that this mode adds to their own.
    fn applied(self, links: &[Via]) -> Vec<Via> {
        let mut links = links.to_vec();
        for (place, link) in links.iter_mut().enumerate() {
            match self {
                Self::Aggregate => {}
                Self::Backup => link.is_backup |= place > 0,
                Self::Sequential => link.cost = place as u32,
            }
        }
        links
    }
}

/// Says what is known of a link now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whether its interface or its address is there.
    pub is_up: bool,
    /// Whether it may carry no more in this period.
    pub is_spent: bool,
    /// The bytes that it has brought so far; `None` if nothing is expected of it now.
    pub bytes: Option<u64>,
}

#[derive(Debug, Default)]
struct Link {
    bytes: u64,
    /// When it last brought data, or when data was first expected of it.
    heard_at: Option<Time>,
    is_silent: bool,
    /// Since when a silent link has brought data again.
    returns_since: Option<Time>,
    is_held: bool,
}

/// The links of a transfer, and which of them are held back.
#[derive(Debug)]
pub struct Standby {
    mode: Mode,
    named: Vec<Via>,
    links: Vec<Link>,
    price: Price,
}

impl Standby {
    /// Creates the policy of these links.
    #[must_use]
    pub fn new(named: &[Via], mode: Mode) -> Self {
        let links = named.iter().map(|_| Link::default()).collect();
        Self { mode, named: mode.applied(named), links, price: Price::default() }
    }

    /// Takes what is known of each link, and whether those that carry data are full.
    pub fn step(&mut self, now: Time, seen: &[Seen], is_full: bool) {
        for (link, seen) in self.links.iter_mut().zip(seen) {
            link.hear(now, seen.bytes.filter(|_| !link.is_held && seen.is_up));
        }
        let is_out = |(link, seen): (&Link, &Seen)| !seen.is_up || seen.is_spent || link.is_silent;
        let out: Vec<bool> = self.links.iter().zip(seen).map(is_out).collect();
        // In sequence, the next link is not for a full one.
        let is_full = is_full && self.mode != Mode::Sequential;
        let backups = self.price.step(now, &self.named, &out, is_full);
        let has_other = out.iter().enumerate().any(|(place, out)| !out && !backups.contains(&place));
        for (place, (link, seen)) in self.links.iter_mut().zip(seen).enumerate() {
            link.is_held = seen.is_spent || (has_other && backups.contains(&place));
        }
    }

    /// Returns whether the link with this index is held back.
    #[must_use]
    pub fn is_held(&self, place: usize) -> bool {
        self.links.get(place).is_some_and(|link| link.is_held)
    }
}

impl Link {
    /// Takes the bytes that the link has brought so far; `None` if nothing is expected of it.
    fn hear(&mut self, now: Time, bytes: Option<u64>) {
        let Some(bytes) = bytes else {
            *self = Self { is_held: self.is_held, ..Self::default() };
            return;
        };
        // Each part of a transfer counts anew.
        self.bytes = if bytes < self.bytes { 0 } else { self.bytes };
        let heard_at = *self.heard_at.get_or_insert(now);
        if bytes <= self.bytes {
            if now.since(heard_at) >= SILENT_AFTER {
                (self.is_silent, self.returns_since) = (true, None);
            }
            return;
        }
        (self.bytes, self.heard_at) = (bytes, Some(now));
        if now.since(heard_at) >= GAP {
            self.returns_since = None;
        }
        let since = *self.returns_since.get_or_insert(now);
        if now.since(since) >= RETURNS_AFTER {
            self.is_silent = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Links that are told to the policy every 100 ms.
    struct Bed {
        policy: Standby,
        now: u64,
        seen: Vec<Seen>,
        /// Whether each link brings data when it may.
        works: Vec<bool>,
        is_full: bool,
    }

    impl Bed {
        fn new(mode: Mode, links: &[&str]) -> Self {
            let links: Vec<Via> = links.iter().map(|text| text.parse().unwrap()).collect();
            let seen = vec![Seen { is_up: true, is_spent: false, bytes: Some(0) }; links.len()];
            let policy = Standby::new(&links, mode);
            Self { policy, now: 0, works: vec![true; links.len()], seen, is_full: true }
        }

        fn held(&self) -> Vec<usize> {
            (0..self.seen.len()).filter(|place| self.policy.is_held(*place)).collect()
        }

        /// Lets time pass, and returns the links that are held back then.
        fn pass(&mut self, millis: u64) -> Vec<usize> {
            let until = self.now + millis;
            loop {
                self.policy.step(Time::from_nanos(self.now * 1_000_000), &self.seen, self.is_full);
                if self.now >= until {
                    return self.held();
                }
                self.now += 100;
                for (place, seen) in self.seen.iter_mut().enumerate() {
                    let carries = self.works[place] && seen.is_up && !self.policy.is_held(place);
                    seen.bytes = seen.bytes.map(|bytes| bytes + u64::from(carries) * 1_000);
                }
            }
        }
    }

    #[test]
    fn a_backup_carries_only_while_the_others_are_down_or_silent() {
        let mut bed = Bed::new(Mode::Aggregate, &["wlan0", "eth0", "wwan0:backup"]);
        assert_eq!(bed.pass(60_000), [2]);
        bed.seen[0].is_up = false;
        assert_eq!(bed.pass(10_000), [2], "one other is enough");
        bed.works[1] = false;
        assert_eq!(bed.pass(2_900), [2]);
        assert_eq!(bed.pass(200), [0; 0]);
        bed.works[1] = true;
        assert_eq!(bed.pass(1_900), [0; 0]);
        assert_eq!(bed.pass(300), [2]);
        bed.seen[1].is_up = false;
        assert_eq!(bed.pass(0), [0; 0], "what is down is seen at once");
        bed.seen[0].is_up = true;
        assert_eq!(bed.pass(0), [2]);
    }

    #[test]
    fn a_link_that_lets_little_through_does_not_stop_its_substitute() {
        let mut bed = Bed::new(Mode::Aggregate, &["wlan0", "wwan0:backup"]);
        bed.works[0] = false;
        assert_eq!(bed.pass(3_100), [0; 0]);
        for _ in 0..10 {
            bed.works[0] = true;
            assert_eq!(bed.pass(500), [0; 0]);
            bed.works[0] = false;
            assert_eq!(bed.pass(1_500), [0; 0]);
        }
    }

    #[test]
    fn a_count_that_begins_anew_is_no_silence() {
        let mut bed = Bed::new(Mode::Aggregate, &["wlan0", "wwan0:backup"]);
        assert_eq!(bed.pass(20_000), [1]);
        for expected in [Some(0), None] {
            bed.seen[0].bytes = expected;
            assert_eq!(bed.pass(200), [1]);
            bed.seen[0].bytes = Some(0);
            assert_eq!(bed.pass(10_000), [1]);
        }
    }

    #[test]
    fn a_costly_link_joins_when_the_cheaper_are_full() {
        let mut bed = Bed::new(Mode::Aggregate, &["a", "b:cost=5"]);
        assert_eq!(bed.pass(1_900), [1]);
        assert_eq!(bed.pass(200), [0; 0]);
        bed.is_full = false;
        assert_eq!(bed.pass(10_100), [1]);
        assert_eq!(bed.pass(60_000), [1]);
    }

    #[test]
    fn a_spent_link_carries_nothing_even_if_it_is_the_last() {
        let mut bed = Bed::new(Mode::Aggregate, &["a", "b:backup"]);
        bed.seen[1].is_spent = true;
        bed.seen[0].is_up = false;
        assert_eq!(bed.pass(10_000), [1]);
        bed.seen[1].is_spent = false;
        assert_eq!(bed.pass(100), [0; 0]);
    }

    #[test]
    fn modes_put_links_in_order() {
        let mut bed = Bed::new(Mode::Backup, &["a", "b", "c"]);
        assert_eq!(bed.pass(10_000), [1, 2]);
        bed.seen[0].is_up = false;
        assert_eq!(bed.pass(100), [0; 0]);
        let mut bed = Bed::new(Mode::Sequential, &["a", "b", "c"]);
        assert_eq!(bed.pass(60_000), [1, 2]);
        bed.seen[0].is_up = false;
        assert_eq!(bed.pass(100), [2], "one at a time");
        bed.seen[1].is_spent = true;
        assert_eq!(bed.pass(100), [1]);
    }

    #[test]
    fn nothing_is_silent_while_nothing_is_expected() {
        let mut bed = Bed::new(Mode::Aggregate, &["a", "b:backup"]);
        bed.seen.iter_mut().for_each(|seen| seen.bytes = None);
        assert_eq!(bed.pass(60_000), [1]);
        bed.seen.iter_mut().for_each(|seen| seen.bytes = Some(0));
        bed.works[0] = false;
        assert_eq!(bed.pass(2_900), [1]);
        assert_eq!(bed.pass(200), [0; 0]);
    }
}
