//! The caps of links: counts the bytes that each has carried in its period, and decides whether it may carry
//! more. It reads no clock and no file.
//!
//! The count is the interface's own counter (`IFLA_STATS64`) in both directions, with headers and with the
//! traffic of other programs, because a contract counts all of them. The counter continues while no client
//! runs, so the next client learns the missed bytes. Several programs may count one link: each continues from
//! what the last of them has stored.
//!
//! A link is spent as soon as the bytes of the last second, carried once more, would exceed its cap: that
//! much may still arrive while the link is taken away.

use std::collections::{BTreeMap, VecDeque};

use anabranch_algo::{Span, Time};
use anabranch_net::via::{Cap, Via};
use serde::{Deserialize, Serialize};

use crate::links::calendar::Bounds as _;

/// The time whose bytes are kept as the margin before the cap.
const MARGIN: Span = Span::from_secs(1);

/// The bytes that a link with a cap has carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The name of the interface.
    pub link: String,
    /// The bytes in this period, both directions together.
    pub bytes: u64,
    /// The cap of the link.
    pub cap: Cap,
    /// When the next period begins, in seconds since 1970-01-01.
    pub period_ends_s: i64,
    /// Whether the link is unused until then.
    pub is_spent: bool,
}

/// The counter of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Counter {
    /// The bytes of both directions.
    pub(crate) bytes: u64,
    /// Identifies the counter. Another one, after a restart of the host or of the interface, began at 0.
    pub(crate) of: String,
}

/// The stored count of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Account {
    /// When the period began, in seconds since 1970-01-01.
    pub(crate) period_began: i64,
    /// The bytes since then.
    pub(crate) bytes: u64,
    /// The counter when it was last read.
    pub(crate) counter: Option<Counter>,
    /// The cap in bytes at which the link was spent in this period. With a higher cap it may carry more.
    pub(crate) spent_at: Option<u64>,
}

#[derive(Debug)]
struct Capped {
    /// The link's index among all links.
    place: usize,
    name: String,
    cap: Cap,
    account: Account,
    /// Whether the bytes up to the next count say nothing about the present rate: they came before this
    /// program counted, or another program has counted them.
    is_behind: bool,
    /// Whether the link was last reported as spent.
    is_told: bool,
    /// The bytes of recent readings, with their times.
    recent: VecDeque<(Time, u64)>,
    is_spent: bool,
}

/// A change of a link, with the link's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The link may carry no more in this period.
    Spent(usize),
    /// A new period has begun, so the link may carry data again.
    Renewed(usize),
}

/// Returns the name of the account of a link: each of its periods has an account of its own, as programs may
/// have caps of different periods.
fn key(link: &str, cap: Cap) -> String {
    format!("{link} {}", cap.period)
}

const NEW: Account = Account { period_began: i64::MIN, bytes: 0, counter: None, spent_at: None };

/// The links that have caps.
#[derive(Debug)]
pub(crate) struct Caps {
    capped: Vec<Capped>,
    /// The accounts of links that are not named now, kept because they may be named again.
    others: BTreeMap<String, Account>,
}

impl Caps {
    /// Creates the caps of these links with their stored accounts.
    pub(crate) fn new(links: &[Via], mut known: BTreeMap<String, Account>) -> Self {
        let capped = links.iter().enumerate().filter_map(|(place, link)| {
            let cap = link.cap?;
            let account = known.remove(&key(&link.name, cap));
            let account = account.unwrap_or(NEW);
            let is_spent = account.spent_at.is_some_and(|at| at >= cap.bytes);
            let (name, recent) = (link.name.clone(), VecDeque::new());
            Some(Capped { place, name, cap, account, is_behind: true, is_told: false, recent, is_spent })
        });
        Self { capped: capped.collect(), others: known }
    }

    /// Continues from the accounts that another program has stored since. The next count adds what the
    /// interfaces have carried after that.
    pub(crate) fn adopt(&mut self, mut known: BTreeMap<String, Account>) {
        for link in &mut self.capped {
            if let Some(account) = known.remove(&key(&link.name, link.cap)) {
                link.is_spent = account.spent_at.is_some_and(|at| at >= link.cap.bytes);
                (link.account, link.is_behind) = (account, true);
            }
        }
        self.others = known;
    }

    /// Returns the accounts to store.
    pub(crate) fn accounts(&self) -> BTreeMap<String, Account> {
        let own = self.capped.iter().map(|link| (key(&link.name, link.cap), link.account.clone()));
        self.others.clone().into_iter().chain(own).collect()
    }

    /// Returns the usage of each link with a cap.
    pub(crate) fn usage(&self) -> Vec<Usage> {
        let of = |link: &Capped| Usage {
            link: link.name.clone(),
            bytes: link.account.bytes,
            cap: link.cap,
            period_ends_s: link.cap.period.end(link.account.period_began.max(0)),
            is_spent: link.is_spent,
        };
        self.capped.iter().map(of).collect()
    }

    /// Counts the bytes of all links since the last call, and returns the links that have changed. `counter`
    /// returns the counter of an interface, or `None` if the interface does not exist. `unix_s` is the date
    /// in seconds since 1970-01-01.
    pub(crate) fn count(
        &mut self,
        now: Time,
        unix_s: i64,
        mut counter: impl FnMut(&str) -> Option<Counter>,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        for link in &mut self.capped {
            link.count(now, unix_s, counter(&link.name));
            match (std::mem::replace(&mut link.is_told, link.is_spent), link.is_spent) {
                (false, true) => changes.push(Change::Spent(link.place)),
                (true, false) => changes.push(Change::Renewed(link.place)),
                _ => {}
            }
        }
        changes
    }
}

impl Capped {
    fn count(&mut self, now: Time, unix_s: i64, counter: Option<Counter>) {
        let (account, began) = (&mut self.account, self.cap.period.begin(unix_s));
        // A clock that is set back begins no new period: the bytes would be forgotten when it is set right
        // again.
        let is_new = began > account.period_began;
        let is_behind = std::mem::take(&mut self.is_behind);
        if is_new {
            (account.period_began, account.bytes) = (began, 0);
            (account.spent_at, self.is_spent) = (None, false);
        }
        if let Some(counter) = counter {
            let more = match &account.counter {
                // It is unknown how many of these bytes belong to the period that ended.
                _ if is_new && is_behind => 0,
                Some(old) if old.of == counter.of && old.bytes <= counter.bytes => counter.bytes - old.bytes,
                Some(_) => counter.bytes,
                None => 0,
            };
            account.counter = Some(counter);
            account.bytes = account.bytes.saturating_add(more);
            if !is_behind {
                self.recent.push_back((now, more));
            }
        }
        while self.recent.front().is_some_and(|(at, _)| now.since(*at) > MARGIN) {
            self.recent.pop_front();
        }
        let margin: u64 = self.recent.iter().map(|(_, bytes)| bytes).sum();
        self.is_spent |= account.bytes.saturating_add(margin) >= self.cap.bytes;
        account.spent_at = self.is_spent.then_some(self.cap.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time 2026-11-24 10:20:00, and the first of the next month.
    const NOW: i64 = 1_795_515_600;
    const DECEMBER: i64 = 1_796_083_200;

    const fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn caps(known: BTreeMap<String, Account>) -> Caps {
        Caps::new(&["wlan0".parse().unwrap(), "wwan0:cap=10MB/month".parse().unwrap()], known)
    }

    fn shows(bytes: u64) -> impl FnMut(&str) -> Option<Counter> {
        move |name| (name == "wwan0").then(|| Counter { bytes, of: "boot 1".into() })
    }

    #[test]
    fn a_link_is_spent_a_second_before_its_cap_and_renewed_with_the_month() {
        let mut caps = caps(BTreeMap::new());
        assert_eq!(caps.count(at(0), NOW, shows(7_000_000)), [], "what was before is not counted");
        let mut spent = None;
        for step in 1..=100_u64 {
            if caps.count(at(step * 100), NOW, shows(7_000_000 + step * 100_000)) == [Change::Spent(1)] {
                spent = Some(step);
            }
        }
        assert_eq!(spent, Some(89), "at 9 MB with a megabyte a second");
        let usage = &caps.usage()[0];
        assert_eq!((usage.bytes, usage.period_ends_s, usage.is_spent), (10_000_000, DECEMBER, true));
        assert_eq!(caps.count(at(20_000), DECEMBER - 1, shows(17_000_000)), []);
        assert_eq!(caps.count(at(21_000), DECEMBER, shows(17_000_100)), [Change::Renewed(1)]);
        assert_eq!(caps.usage()[0].bytes, 100);
    }

    #[test]
    fn it_is_kept_over_restarts_and_what_was_missed_is_counted() {
        let mut before = caps(BTreeMap::new());
        before.count(at(0), NOW, shows(0));
        before.count(at(100), NOW, shows(2_000_000));
        // The client was killed, and the interface carried two more megabytes before the next client began.
        let mut next = caps(before.accounts());
        assert_eq!(next.count(at(0), NOW + 60, shows(4_000_000)), []);
        assert_eq!(next.usage()[0].bytes, 4_000_000);
        // The host was restarted, so the counter began at 0.
        let mut next = caps(next.accounts());
        let rebooted = |bytes| move |_: &str| Some(Counter { bytes, of: "boot 2".into() });
        assert_eq!(next.count(at(0), NOW + 90, rebooted(500_000)), []);
        assert_eq!(next.usage()[0].bytes, 4_500_000);
        assert_eq!(next.count(at(1), NOW + 90, rebooted(6_100_000)), [Change::Spent(1)]);
        let mut next = caps(next.accounts());
        assert_eq!(next.count(at(0), NOW + 99, rebooted(6_100_000)), [Change::Spent(1)], "it stays so");
        // With a higher cap, the link may carry more.
        let higher = "wwan0:cap=20MB/month".parse().unwrap();
        let mut more = Caps::new(&["wlan0".parse().unwrap(), higher], next.accounts());
        assert_eq!(more.count(at(0), NOW + 99, rebooted(6_100_000)), []);
        // No client ran when the month ended, so it is unknown which bytes belong to which month.
        let mut next = caps(next.accounts());
        assert_eq!(next.count(at(0), DECEMBER + 1, rebooted(9_000_000)), []);
        assert_eq!(next.usage()[0].bytes, 0);
    }

    #[test]
    fn a_clock_that_is_set_back_forgets_nothing() {
        let mut caps = caps(BTreeMap::new());
        caps.count(at(0), NOW, shows(0));
        caps.count(at(100), NOW, shows(5_000_000));
        // A host without a clock battery starts in 1970 until it learns the date.
        caps.count(at(200), 0, shows(5_100_000));
        caps.count(at(300), NOW, shows(5_200_000));
        assert_eq!(caps.usage()[0].bytes, 5_200_000);
        // The interface is gone for a while.
        caps.count(at(400), NOW, |_| None);
        caps.count(at(500), NOW, |_| Some(Counter { bytes: 50, of: "index 9".into() }));
        assert_eq!(caps.usage()[0].bytes, 5_200_050);
    }

    #[test]
    fn two_programs_count_each_byte_once() {
        let (mut one, mut two) = (caps(BTreeMap::new()), caps(BTreeMap::new()));
        one.count(at(0), NOW, shows(0));
        two.adopt(one.accounts());
        for step in 1..=80_u64 {
            one.count(at(step * 100), NOW, shows(step * 100_000));
            two.count(at(step * 100), NOW, shows(step * 100_000));
            if step % 10 == 0 {
                two.adopt(one.accounts());
            }
        }
        two.count(at(8_000), NOW, shows(8_000_000));
        assert_eq!((one.usage()[0].bytes, two.usage()[0].bytes), (8_000_000, 8_000_000));
        one.count(at(9_000), NOW, shows(10_000_000));
        two.adopt(one.accounts());
        assert_eq!(two.count(at(9_000), NOW, shows(10_000_000)), [Change::Spent(1)]);
        assert_eq!(two.count(at(9_100), NOW, shows(10_000_000)), [], "it is told once");
    }

    #[test]
    fn caps_of_different_periods_do_not_disturb_each_other() {
        let mut month = caps(BTreeMap::new());
        month.count(at(0), NOW, shows(0));
        month.count(at(100), NOW, shows(5_000_000));
        let mut day = Caps::new(&["wwan0:cap=1GB/day".parse().unwrap()], month.accounts());
        day.count(at(200), NOW, shows(6_000_000));
        month.adopt(day.accounts());
        month.count(at(200), NOW, shows(6_000_000));
        assert_eq!((month.usage()[0].bytes, day.usage()[0].bytes), (6_000_000, 0));
    }

    #[test]
    fn links_that_are_not_named_keep_their_accounts() {
        let mut caps = caps(BTreeMap::new());
        caps.count(at(0), NOW, shows(0));
        caps.count(at(10), NOW, shows(77));
        let without = Caps::new(&["wlan0".parse().unwrap()], caps.accounts());
        assert_eq!(without.usage(), []);
        assert_eq!(without.accounts(), caps.accounts());
    }
}
