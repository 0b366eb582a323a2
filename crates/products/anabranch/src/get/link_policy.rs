//! Keeps the conditions of the links that the user named (`backup`, `cost`, `cap`) during a transfer.
//!
//! [`Standby`] decides which links are held back, and [`Book`] counts what links with a cap have carried. The
//! event loop asks every [`LOOK_EVERY`] and tells the world which links are held back. For the stages, such a
//! link is one that is down.

use std::path::PathBuf;

use anabranch_algo::{Rate, Span, Time};
use anabranch_house::links::{Book, Change, Mode, Seen, Standby, Usage};
use anabranch_net::Egress;
use anabranch_net::via::Via;

use super::world::{Held, Hold, World, hold_of};
use crate::event::Observer;
use crate::format::bytes;
use crate::{Error, Result};

/// The time between two decisions.
const LOOK_EVERY: Span = Span::from_millis(100);
/// The time over which the rate of a transfer is measured.
const RATE_OVER: Span = Span::from_secs(1);
/// The part of its limit, in percent, at which a transfer has reached it: its links are not full then.
const LIMIT_PERCENT: u64 = 90;

/// The bytes that have arrived over each local end.
pub(super) type Carried = Vec<(Egress, u64)>;

/// The links that the user named, with their conditions.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    /// The local ends to use. If empty, every usable one is used.
    pub(super) ends: Vec<Egress>,
    /// How each of them is used.
    pub(super) named: Vec<Via>,
    pub(super) mode: Mode,
    /// The directory for the counts of caps.
    pub(super) state_dir: Option<PathBuf>,
    /// The rate that the whole transfer may have.
    pub(super) limit: Option<Rate>,
}

/// Decides over which links a transfer is carried now; see the [module](self).
pub(super) struct LinkPolicy {
    links: Links,
    standby: Standby,
    /// The local ends that the world holds back.
    held: Held,
    book: Option<Book>,
    look_at: Time,
    /// When the rate was last measured, and the bytes that all links had carried then.
    measured: Option<(Time, u64)>,
    is_full: bool,
}

impl LinkPolicy {
    /// Creates the policy; `None` if no link has a condition.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if a cap cannot be kept.
    pub(super) fn open(links: &Links) -> Result<Option<Self>> {
        let is_bound = |via: &Via| via.is_backup || via.cost > 0 || via.cap.is_some();
        if links.mode == Mode::Aggregate && !links.named.iter().any(is_bound) {
            return Ok(None);
        }
        let book = Book::open(&links.named, links.state_dir.as_deref());
        let book = book.map_err(|e| Error::usage(e.to_string()).because(e))?;
        let standby = Standby::new(&links.named, links.mode);
        let links = links.clone();
        let held = Held::new();
        Ok(Some(Self { links, standby, held, book, look_at: Time::ZERO, measured: None, is_full: false }))
    }

    /// Returns whether it is time to [look](Self::look).
    pub(super) fn is_due(&self, now: Time) -> bool {
        now >= self.look_at
    }

    /// Decides, and tells the world. `carried` are the bytes that have arrived over each local
    /// end; `None` if none are expected now. Returns whether something has changed.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if every link has carried its cap.
    pub(super) fn look(
        &mut self,
        now: Time,
        carried: Option<Carried>,
        world: &mut dyn World,
        observer: &mut Observer<'_>,
    ) -> Result<bool> {
        self.look_at = now + LOOK_EVERY;
        self.count(now, observer);
        self.measure(now, carried.as_ref());
        let usage = self.book.as_ref().map(Book::usage).unwrap_or_default();
        let is_spent = |via: &Via| usage.iter().any(|of| of.link == via.name && of.is_spent);
        let named = self.links.named.iter().zip(&self.links.ends);
        let seen: Vec<Seen> = named
            .map(|(via, end)| {
                let of_end =
                    |all: &Carried| all.iter().filter(|(e, _)| e == end).map(|(_, bytes)| bytes).sum();
                let bytes = carried.as_ref().map(of_end);
                Seen { is_up: world.exists(end), is_spent: is_spent(via), bytes }
            })
            .collect();
        if seen.iter().all(|seen| seen.is_spent) {
            return Err(all_spent(&usage));
        }
        self.standby.step(now, &seen, self.is_full);
        let held = self.held(&seen);
        if held == self.held {
            return Ok(false);
        }
        self.tell(&held, carried.is_some(), observer);
        world.hold(held.clone());
        self.held = held;
        Ok(true)
    }

    /// Returns the local ends that are held back now.
    fn held(&self, seen: &[Seen]) -> Held {
        let hold = |(place, end): (usize, &Egress)| {
            let hold = if seen[place].is_spent { Hold::Spent } else { Hold::Waits };
            self.standby.is_held(place).then(|| (end.clone(), hold))
        };
        self.links.ends.iter().enumerate().filter_map(hold).collect()
    }

    /// Reports which links are used now that were not, and, `during` a transfer, which are not any more.
    /// Links that have carried their caps are reported elsewhere.
    fn tell(&self, held: &Held, during: bool, observer: &mut Observer<'_>) {
        for (via, end) in self.links.named.iter().zip(&self.links.ends) {
            let says = match (hold_of(&self.held, end), hold_of(held, end)) {
                (Some(Hold::Waits), None) => "is used now: no better one can do more",
                (Some(Hold::Spent), None) => "is used again",
                (None, Some(Hold::Waits)) if during => "waits: a better one carries the data",
                _ => continue,
            };
            observer.notice(&format!("the link {} {says}", via.name));
        }
    }

    /// Counts the bytes of links with caps, and reports those that may carry no more.
    fn count(&mut self, now: Time, observer: &mut Observer<'_>) {
        let Some(book) = &mut self.book else { return };
        let changes = book.step(now, |why| observer.notice(&why));
        for change in changes {
            let Change::Spent(place) = change else { continue };
            let Some(Via { name, .. }) = self.links.named.get(place) else { continue };
            if let Some(usage) = book.usage().iter().find(|usage| usage.link == *name) {
                observer.notice(&format!("{}: it is not used any more", carried_text(usage)));
            }
        }
    }

    /// Measures whether links are full: a transfer asks for all that they carry, unless it has reached its
    /// own limit.
    fn measure(&mut self, now: Time, carried: Option<&Carried>) {
        let Some(carried) = carried else {
            (self.measured, self.is_full) = (None, false);
            return;
        };
        let bytes = carried.iter().map(|(_, bytes)| bytes).sum();
        let Some((at, before)) = self.measured else {
            (self.measured, self.is_full) = (Some((now, bytes)), true);
            return;
        };
        if now.since(at) < RATE_OVER {
            return;
        }
        let rate = Rate::of(bytes.saturating_sub(before), now.since(at));
        let has_reached =
            |limit: Rate| u128::from(rate.as_bytes()) * 100 >= u128::from(limit.as_bytes() * LIMIT_PERCENT);
        (self.measured, self.is_full) = (Some((now, bytes)), !self.links.limit.is_some_and(has_reached));
    }
}

impl Drop for LinkPolicy {
    /// Stores what the links have carried.
    fn drop(&mut self) {
        if let Some(book) = &mut self.book {
            book.save(self.look_at, drop);
        }
    }
}

/// Says what a link with a cap has carried.
fn carried_text(usage: &Usage) -> String {
    format!("the link {} has carried {} of {}", usage.link, bytes(usage.bytes), usage.cap)
}

fn all_spent(usage: &[Usage]) -> Error {
    let all: Vec<String> = usage.iter().filter(|usage| usage.is_spent).map(carried_text).collect();
    Error::unreachable(format!("no link may carry more in this period: {}", all.join(", ")))
}

/// Returns the local ends from which servers may be asked, the best first: links that wait come last, and
/// spent ones are left out.
pub(super) fn to_ask_from(named: &[Egress], world: &dyn World) -> Vec<Egress> {
    let mut ends: Vec<Egress> =
        named.iter().filter(|via| world.held(via) != Some(Hold::Spent)).cloned().collect();
    ends.sort_by_key(|via| world.held(via).is_some());
    if ends.is_empty() { vec![Egress::any()] } else { ends }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use bytes::Bytes;

    use super::*;
    use crate::get::fetch::fetch_in;
    use crate::get::testing::{Mirror, Rng, Servers, SimWorld, Weather, run_dir};
    use crate::{Control, Event, Get, Stop};

    const LENGTH: usize = 4_000_000;
    /// The rate of a connection, bytes a second.
    const RATE: u64 = 500_000;

    struct Ended {
        result: Result<()>,
        /// The bytes that came over each link.
        came: Vec<u64>,
        said: String,
    }

    const fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    /// Fetches a file from one mirror over two links, which change as `changes` says.
    fn get(links: [&str; 2], mode: Mode, changes: &[(Time, usize, bool)]) -> Ended {
        let content = Bytes::from(Rng::new(1).bytes(LENGTH));
        let mirror = Mirror::of(BTreeMap::from([("/f".to_owned(), content)])).but(|_, reply| reply.at(RATE));
        let servers = Servers::from([("a.test".to_owned(), Rc::new(mirror))]);
        let dir = run_dir();
        let get =
            Get::new(["http://a.test/f"]).expect("a URL").mode(mode).state_dir(dir.path().join("state"));
        let get = links.into_iter().fold(get, Get::via);
        let request = get.to_file(dir.path().join("f")).request();
        let stop = Stop::new().expect("descriptors");
        let mut said = String::new();
        let mut listener = |event| {
            if let Event::Notice(text) = event {
                said += &format!("{text}\n");
            }
            Control::Continue
        };
        let weather = Weather { changes: changes.iter().copied().collect(), ..Weather::default() };
        let silence = Span::from_secs(60);
        let mut world = SimWorld::new(7, weather, stop.clone(), (servers, silence), (&[], &Rc::default()));
        let mut observer = Observer::new(&mut listener, stop, Span::from_millis(200));
        let result = request.and_then(|(request, locators)| {
            fetch_in(&mut world, &request, locators, &mut observer).map(drop)
        });
        Ended { result, came: world.came, said }
    }

    #[test]
    fn a_backup_brings_nothing_while_the_other_works() {
        let ended = get(["127.0.0.1", "127.0.0.2:backup"], Mode::Aggregate, &[]);
        ended.result.unwrap();
        assert_eq!(ended.came[1], 0, "{}", ended.said);
        let named = get(["127.0.0.1", "127.0.0.2"], Mode::Backup, &[]);
        named.result.unwrap();
        assert_eq!(named.came[1], 0, "{}", named.said);
    }

    #[test]
    fn a_backup_takes_over_and_gives_back() {
        let changes = [(at(2), 0, false), (at(4), 0, true)];
        let ended = get(["127.0.0.1", "127.0.0.2:backup"], Mode::Aggregate, &changes);
        ended.result.unwrap();
        let (first, backup) = (ended.came[0], ended.came[1]);
        // Two of eight seconds are the backup's, at the same rate.
        assert!((600_000..1_300_000).contains(&backup), "{first} {backup}: {}", ended.said);
        assert!(ended.said.contains("the link 127.0.0.2 is used now"), "{}", ended.said);
        assert!(ended.said.contains("the link 127.0.0.2 waits"), "{}", ended.said);
        assert!(first + backup < LENGTH as u64 * 115 / 100, "{first} {backup}");
    }

    #[test]
    fn a_costly_link_joins_when_the_cheap_one_is_full() {
        let ended = get(["127.0.0.1", "127.0.0.2:cost=5"], Mode::Aggregate, &[]);
        ended.result.unwrap();
        let part = ended.came[1] * 100 / ended.came[0];
        // Of five seconds, the first two are without it.
        assert!((40..75).contains(&part), "{:?}: {}", ended.came, ended.said);
        let both = get(["127.0.0.1", "127.0.0.2"], Mode::Sequential, &[]);
        both.result.unwrap();
        assert_eq!(both.came[1], 0, "{}", both.said);
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        // A transfer may use more links than the kernel's Multipath TCP.
        let many = (1..20)
            .fold(Get::new(["http://a.test/f"]).expect("a URL"), |get, n| get.via(format!("127.0.0.{n}")));
        assert!(many.to_file("f").request().is_ok());
        for (links, says) in [
            (["lo:cap=1GB/day", "lo:backup"], "named twice"),
            (["127.0.0.1:cap=1GB/day", "127.0.0.2"], "name the interface"),
            (["127.0.0.1:backup", "127.0.0.2:backup"], "every link is a backup"),
            (["127.0.0.1:price=2", "127.0.0.2"], "expected backup"),
        ] {
            let error = get(links, Mode::Aggregate, &[]).result.unwrap_err().to_string();
            assert!(error.contains(says), "{links:?}: {error}");
        }
    }
}
