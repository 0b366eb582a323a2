//! A fair share of what is bounded for all: who may have a place, and who gives one up.
//!
//! Everything that a server holds for others has a limit: connections that have not shown whose they are,
//! descriptors, threads, bytes of memory. If the first who comes may have all of it, one client locks the
//! others out. This module decides instead; the world asks it, and does what it says.
//!
//! **Space: [`FairShare`].** A *place* is one unit of the resource or several: a connection, a thread, bytes.
//! Its *holder* is who shares: a client by its name, or a host by its address while there is no name.
//!
//! * Who asks while there is a free place gets it. So a holder that is alone may have everything.
//! * If there is none, another place is given up for it. The holder that has most gives way, if it has more
//!   than the one who asks; the one who asks may also lose a place of its own. Of the places of a holder, and
//!   among holders that have the same, the one goes that has been silent for longest ([`FairShare::heard`]).
//! * [`Yields`] says how readily a place is given up. One of no use goes before all others, also that of a
//!   holder that has little. One that is in use goes only if its holder has at least two more than the one
//!   who asks, so that two holders do not take the same place from each other in turn.
//! * What cannot be taken back, as a thread that waits for the system, is never given up. Of such places a
//!   holder may have as many as are still free, so there is one left for a holder that comes later (the
//!   *dynamic threshold* with α = 1: Choudhury and Hahne, IEEE/ACM Trans. Networking 6(2), 1998, equation 1).
//! * Otherwise the one who asks is refused. Both are counted: [`FairShare::counters`].
//!
//! **Time: [`Turns`].** What waits for its turn waits in a queue for each holder. The queues are served one
//! after the other. So a holder with a thousand questions delays the others by one question.
//!
//! What this cannot do: those who have many names or addresses have many shares.

mod turns;

use alloc::collections::{BTreeMap, BTreeSet};

pub use turns::Turns;

use crate::units::Time;

/// How readily a place is given up; those that go first are first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Yields {
    /// Little is lost with it: a connection before its first word, or between two requests.
    First,
    /// It is used, and what is lost can be made again: a connection that takes its answer too slowly, a port
    /// for datagrams.
    Next,
    /// It is used: it goes only if its holder has at least two more than the one who asks.
    IfOverShare,
    /// It cannot be taken back.
    Never,
}

/// A place that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u64);

/// No place is free, and none is given up for this holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What was decided in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Places that were given up for others.
    pub gave_way: u64,
    /// Holders that got no place.
    pub refused: u64,
}

#[derive(Clone, Debug)]
struct Held<K> {
    holder: K,
    /// 0: it was given up, and not released yet.
    units: u64,
    yields: Yields,
    heard: Time,
}

/// What one holder has.
#[derive(Clone, Debug, Default)]
struct Holding {
    units: u64,
    /// Those of them that are never given up.
    kept: u64,
    /// Places that may be given up, in this order.
    order: BTreeSet<(Yields, Time, Place)>,
}

/// A resource that all share; see the [module](self).
#[derive(Clone, Debug)]
pub struct FairShare<K> {
    capacity: u64,
    used: u64,
    next: u64,
    places: BTreeMap<Place, Held<K>>,
    holdings: BTreeMap<K, Holding>,
    counters: Counters,
}

impl<K: Ord + Clone> FairShare<K> {
    /// One of so many units.
    #[must_use]
    pub const fn new(capacity: u64) -> Self {
        Self {
            capacity,
            used: 0,
            next: 0,
            places: BTreeMap::new(),
            holdings: BTreeMap::new(),
            counters: Counters { gave_way: 0, refused: 0 },
        }
    }

    /// A place of one unit for `holder`, and the place that is given up for it.
    ///
    /// # Errors
    /// [`Full`], which is counted.
    pub fn ask(&mut self, now: Time, holder: K, yields: Yields) -> Result<(Place, Option<Place>), Full> {
        let free = self.capacity.saturating_sub(self.used);
        let kept = self.holdings.get(&holder).map_or(0, |has| has.kept);
        let fits = if yields == Yields::Never { free > kept } else { free > 0 };
        let gives_way = if fits { None } else { self.give_way(&holder) };
        if !fits && gives_way.is_none() {
            self.counters.refused += 1;
            return Err(Full);
        }
        let place = Place(self.next);
        self.next += 1;
        self.places.insert(place, Held { holder, units: 0, yields, heard: now });
        self.set_units(place, 1);
        Ok((place, gives_way))
    }

    /// The holder of a place has said or moved something.
    pub fn heard(&mut self, now: Time, place: Place) {
        self.change(place, |held| held.heard = now);
    }

    /// The place is given up more readily now, or less.
    pub fn set_yields(&mut self, place: Place, yields: Yields) {
        self.change(place, |held| held.yields = yields);
    }

    /// The place has so many units now. If that is more than there are, a place is given up, maybe this one:
    /// its holder frees what it can, and says what is left by this function.
    pub fn resize(&mut self, place: Place, units: u64) -> Option<Place> {
        self.set_units(place, units);
        let holder = self.places.get(&place)?.holder.clone();
        if self.used > self.capacity { self.give_way(&holder) } else { None }
    }

    /// The place is free again.
    pub fn release(&mut self, place: Place) {
        self.set_units(place, 0);
        self.places.remove(&place);
    }

    /// Units that are held.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Units that a holder has.
    #[must_use]
    pub fn units_of(&self, holder: &K) -> u64 {
        self.holdings.get(holder).map_or(0, |has| has.units)
    }

    /// What was decided in all.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// The place that is given up for a holder, if there is one. It has no units any more.
    fn give_way(&mut self, asker: &K) -> Option<Place> {
        let its = self.units_of(asker);
        let offers = self.holdings.iter().filter_map(|(holder, has)| {
            let (yields, heard, place) = *has.order.first()?;
            let margin = if yields == Yields::IfOverShare { 2 } else { 1 };
            let is_own = holder == asker && yields != Yields::IfOverShare;
            let gives = is_own || holder != asker && has.units >= its.saturating_add(margin);
            let of_some_use = yields != Yields::First;
            gives.then_some((of_some_use, core::cmp::Reverse(has.units), yields, heard, place))
        });
        let (.., place) = offers.min()?;
        self.set_units(place, 0);
        self.counters.gave_way += 1;
        Some(place)
    }

    fn set_units(&mut self, place: Place, units: u64) {
        self.change(place, |held| held.units = units);
    }

    /// Takes a place out of its holder's sums, changes it, and puts it back.
    fn change(&mut self, place: Place, change: impl FnOnce(&mut Held<K>)) {
        let Some(held) = self.places.get_mut(&place) else { return };
        let before = (held.units, held.yields, held.heard);
        change(held);
        let after = (held.units, held.yields, held.heard);
        let has = self.holdings.entry(held.holder.clone()).or_default();
        let kept = |(units, yields, _): (u64, Yields, Time)| if yields == Yields::Never { units } else { 0 };
        has.units = has.units - before.0 + after.0;
        has.kept = has.kept - kept(before) + kept(after);
        self.used = self.used - before.0 + after.0;
        let entry = |(units, yields, heard): (u64, Yields, Time)| {
            (units > 0 && yields != Yields::Never).then_some((yields, heard, place))
        };
        if let Some(entry) = entry(before) {
            has.order.remove(&entry);
        }
        has.order.extend(entry(after));
        if has.units == 0 {
            self.holdings.remove(&held.holder);
        }
    }
}

#[cfg(test)]
mod tests;
