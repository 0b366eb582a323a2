//! Shares a bounded resource fairly between clients.
//!
//! A server has bounded resources: unauthenticated connections, descriptors, threads, bytes of memory.
//! Without a rule, the first client could take all of a resource and lock the others out. This module has the
//! rule; the world asks it, and does what it decides.
//!
//! **Space: [`FairShare`].** A *place* is one or more units of the resource: a connection, a thread, bytes.
//! Its *holder* is the client that has it: known by its name, or by its address before it is authenticated.
//!
//! * A request gets a free place if there is one. So a single holder may have the whole resource.
//! * If no place is free, an existing place is given up. The holder with the most units gives way if it has
//!   more than the asking holder; the asking holder may also lose a place of its own. Of the places of one
//!   holder, and among holders with equal units, the place that has been silent longest goes first
//!   ([`FairShare::heard`]).
//! * [`Yields`] says how readily a place is given up. An unused place goes before all others, even if its
//!   holder has few. A used place goes only if its holder has at least two more than the asking holder, so
//!   that two holders do not take one place from each other in turn.
//! * A place that cannot be taken back, such as a thread that waits for the system, is never given up. A
//!   holder may have as many of these as are still free, so that one is left for the next holder (the
//!   *dynamic threshold* with α = 1: Choudhury and Hahne, IEEE/ACM Trans. Networking 6(2), 1998, equation 1).
//! * Otherwise the request is refused. Places given up and requests refused are counted:
//!   [`FairShare::counters`].
//!
//! **Time: [`Turns`].** Each holder has a queue of questions, and the queues are served in turn. So a holder
//! with a thousand questions delays the others by one question.
//!
//! **Limit.** A client with many names or addresses has many shares.

mod turns;

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::{IpAddr, Ipv6Addr};

pub use turns::Turns;

use crate::units::Time;

/// How readily a place is given up. Places of an earlier variant go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Yields {
    /// The place is unused: a connection before its first request, or between two requests.
    First,
    /// The place is used, and its client can get it again: a connection that takes its answer too slowly, a
    /// port for datagrams.
    Next,
    /// The place is used. It goes only if its holder has at least two more than the asking holder.
    IfOverShare,
    /// The place cannot be taken back.
    Never,
}

/// Returns the holder to share places by while a peer has not proven its identity: the IPv4 address, or the
/// /64 network of an IPv6 address, since one host has all addresses of such a network (RFC 4291, section
/// 2.5.4).
#[must_use]
pub fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
    }
}

/// A place that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u64);

/// No place is free, and none is given up for this holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The number of decisions of each kind.
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
    /// The units of the place; 0 after it was given up, until it is released.
    units: u64,
    yields: Yields,
    heard: Time,
}

/// The units and places of one holder.
#[derive(Clone, Debug, Default)]
struct Holding {
    units: u64,
    /// The units that are never given up.
    kept: u64,
    /// The places that may be given up, in the order in which they go.
    order: BTreeSet<(Yields, Time, Place)>,
}

/// A shared resource; see the [module](self).
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
    /// A resource of `capacity` units, all of them free.
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

    /// Grants a place of one unit to `holder`. Returns it, and the place that is given up for it.
    ///
    /// # Errors
    /// [`Full`] if no place is free and none is given up. It is counted.
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

    /// Records that the holder of a place has sent or moved something.
    pub fn heard(&mut self, now: Time, place: Place) {
        self.change(place, |held| held.heard = now);
    }

    /// Changes how readily a place is given up.
    pub fn set_yields(&mut self, place: Place, yields: Yields) {
        self.change(place, |held| held.yields = yields);
    }

    /// Sets the units of a place. If more units are used than there are, returns a place that is given up,
    /// maybe this one. Its holder frees all units that it can, and reports the rest by this function.
    pub fn resize(&mut self, place: Place, units: u64) -> Option<Place> {
        self.set_units(place, units);
        if self.used <= self.capacity {
            return None;
        }
        let holder = self.places.get(&place)?.holder.clone();
        self.give_way(&holder)
    }

    /// Frees a place.
    pub fn release(&mut self, place: Place) {
        self.set_units(place, 0);
        self.places.remove(&place);
    }

    /// Returns the units that are used.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Returns the units of a holder.
    #[must_use]
    pub fn units_of(&self, holder: &K) -> u64 {
        self.holdings.get(holder).map_or(0, |has| has.units)
    }

    /// Returns the number of decisions of each kind.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Chooses a place to give up for `asker`, takes its units away, and returns it.
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
        if before == after {
            return;
        }
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
