//! A list whose items have numbers, so that one that moves changes no other's number, as a rule.

use std::collections::BTreeMap;

use crate::gid::Gid;

/// The distance between two neighbours that nothing was put between.
const GAP: i64 = 1 << 20;

/// A list of jobs, each at a place: a number that is greater for later ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Order(BTreeMap<i64, Gid>);

impl Order {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Gid> {
        self.0.values().copied()
    }

    /// Returns the first item.
    pub(super) fn first(&self) -> Option<Gid> {
        self.0.values().next().copied()
    }

    /// Returns the number of items before `place`.
    pub(super) fn index_of(&self, place: i64) -> usize {
        self.0.range(..place).count()
    }

    /// Adds an item at a place that was its own before, if it is free.
    pub(super) fn restore(&mut self, gid: Gid, place: i64) -> i64 {
        match self.0.contains_key(&place) {
            true => self.push(gid),
            false => {
                self.0.insert(place, gid);
                place
            }
        }
    }

    /// Adds an item at the end and returns its place.
    pub(super) fn push(&mut self, gid: Gid) -> i64 {
        let place = self.0.last_key_value().map_or(0, |(last, _)| last.saturating_add(GAP));
        self.0.insert(place, gid);
        place
    }

    pub(super) fn remove(&mut self, place: i64) {
        self.0.remove(&place);
    }

    /// Adds an item so that `index` items are before it, or at the end if there are fewer. Returns the
    /// places of all items that have a new one, which is the item itself, or all items if there was no free
    /// number between its neighbours.
    pub(super) fn insert(&mut self, index: usize, gid: Gid) -> Vec<(Gid, i64)> {
        let mut around = self.0.keys().skip(index.saturating_sub(1)).copied();
        let before = if index == 0 { None } else { around.next() };
        let place = match (before, around.next()) {
            (_, None) => {
                let place = self.push(gid);
                return vec![(gid, place)];
            }
            (None, Some(after)) => after.checked_sub(GAP),
            (Some(before), Some(after)) => Some(before + (after - before) / 2).filter(|mid| *mid > before),
        };
        if let Some(place) = place {
            self.0.insert(place, gid);
            return vec![(gid, place)];
        }
        let mut items: Vec<Gid> = self.iter().collect();
        items.insert(index, gid);
        self.0 = items.into_iter().enumerate().map(|(i, gid)| (i as i64 * GAP, gid)).collect();
        self.0.iter().map(|(place, gid)| (*gid, *place)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_list(steps in prop::collection::vec((0_usize..6, any::<bool>()), 1..200)) {
            let (mut order, mut list, mut places) = (Order::default(), Vec::new(), BTreeMap::new());
            for (number, (index, goes)) in (1..).zip(steps) {
                if goes && index < list.len() {
                    let gid = list.remove(index);
                    order.remove(places.remove(&gid).expect("it has a place"));
                    continue;
                }
                let gid = Gid::new(number).expect("not zero");
                places.extend(order.insert(index, gid));
                list.insert(index.min(list.len()), gid);
            }
            prop_assert_eq!(order.iter().collect::<Vec<_>>(), list.clone());
            for (index, gid) in list.iter().enumerate() {
                prop_assert_eq!(order.index_of(places[gid]), index);
            }
        }
    }
}
