//! Shares the capacities of links among streams by max-min fairness: no stream can get more without taking
//! from one that has as little or less.
//!
//! Source: D. Bertsekas, R. Gallager, "Data Networks", 2nd ed., §6.5.2 (progressive filling). The rates of
//! all streams rise together from zero. A stream stops at its own limit, or when a link on its path is full;
//! the common rate at that moment is the level of the link. The order of these events is found with a heap,
//! since the level at which a link would fill only rises while others fill: the cost is O(n log n) in the
//! number of links on all paths, not a round over all links for each level.
//!
//! Streams that have one path and one limit are one [`Class`] with a weight, so that hundreds of thousands of
//! streams are tens of thousands of classes. A class has one path: shares of multipath transport follow from
//! its congestion control, not from max-min fairness.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Streams with one path and one limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// The links of the path, as a range of the list of links that [`MaxMin::share`] gets. An empty path
    /// bounds nothing.
    pub path: Range<u32>,
    /// The number of streams. A fraction of a stream takes that fraction of a stream's share.
    pub weight: f64,
    /// The most that one stream can take, in the unit of the capacities; infinite if there is no limit.
    pub limit: f64,
}

/// A link and the level at which it would be full.
#[derive(Clone, Copy, Debug)]
struct Filling {
    level: f64,
    link: u32,
}

impl PartialEq for Filling {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Filling {}

impl PartialOrd for Filling {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Filling {
    /// The least level is the greatest of a heap; of equal levels, the link with the least number.
    fn cmp(&self, other: &Self) -> Ordering {
        other.level.total_cmp(&self.level).then(other.link.cmp(&self.link))
    }
}

/// The state of a link while rates rise.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    /// What the streams that have stopped leave of the capacity.
    left: f64,
    /// The weight of the streams that still rise.
    rising: f64,
    /// The number of classes that still rise.
    classes: u32,
}

impl Room {
    fn level(&self) -> f64 {
        if self.classes == 0 { f64::INFINITY } else { self.left.max(0.0) / self.rising }
    }
}

/// An allocator. It keeps its memory from one call to the next.
#[derive(Clone, Debug, Default)]
pub struct MaxMin {
    rates: Vec<f64>,
    levels: Vec<f64>,
    rooms: Vec<Room>,
    /// The classes on each link, as compressed sparse rows.
    first: Vec<u32>,
    users: Vec<u32>,
    by_limit: Vec<u32>,
    heap: BinaryHeap<Filling>,
}

impl MaxMin {
    /// Creates an allocator.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Shares the capacities among classes whose paths are ranges of `links`. Equal inputs give equal bits.
    ///
    /// # Panics
    /// If a path is not within `links`, a link is not within `capacities`, or a weight is not positive.
    pub fn share(&mut self, capacities: &[f64], links: &[u32], classes: &[Class]) {
        self.begin(capacities, links, classes);
        let mut next = 0;
        loop {
            while self.by_limit.get(next).is_some_and(|class| self.rates[*class as usize] >= 0.0) {
                next += 1;
            }
            let Some(least) = self.by_limit.get(next).map(|class| *class as usize) else { break };
            // A link's true level is at least that in the heap.
            let full = loop {
                let Some(top) = self.heap.peek().copied() else { break None };
                let level = self.rooms[top.link as usize].level();
                if level <= top.level {
                    break Some(top);
                }
                self.heap.pop();
                if level.is_finite() {
                    self.heap.push(Filling { level, ..top });
                }
            };
            match full {
                Some(Filling { level, link }) if level < classes[least].limit => {
                    self.heap.pop();
                    self.fill(link, level, links, classes);
                }
                _ => self.stop(least, classes[least].limit, links, classes),
            }
        }
    }

    /// Returns the rate of one stream of each class; infinite where nothing limits it.
    #[must_use]
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// Returns the level of each link: the rate of those streams on it that the link limits; infinite for a
    /// link that limits no stream.
    #[must_use]
    pub fn levels(&self) -> &[f64] {
        &self.levels
    }

    fn begin(&mut self, capacities: &[f64], links: &[u32], classes: &[Class]) {
        self.rates.clear();
        self.rates.resize(classes.len(), -1.0);
        self.levels.clear();
        self.levels.resize(capacities.len(), f64::INFINITY);
        self.rooms.clear();
        self.rooms.extend(capacities.iter().map(|left| Room { left: *left, ..Room::default() }));
        for class in classes {
            assert!(class.weight > 0.0, "a class has streams");
            for link in path(links, class) {
                let room = &mut self.rooms[*link as usize];
                room.rising += class.weight;
                room.classes += 1;
            }
        }
        self.first.clear();
        self.first.push(0);
        let mut count = 0;
        for room in &self.rooms {
            count += room.classes;
            self.first.push(count);
        }
        self.users.clear();
        self.users.resize(count as usize, 0);
        let mut place = self.first.clone();
        for (number, class) in classes.iter().enumerate() {
            for link in path(links, class) {
                let place = &mut place[*link as usize];
                self.users[*place as usize] = number as u32;
                *place += 1;
            }
        }
        self.by_limit.clear();
        self.by_limit.extend(0..classes.len() as u32);
        self.by_limit
            .sort_by(|a, b| classes[*a as usize].limit.total_cmp(&classes[*b as usize].limit).then(a.cmp(b)));
        self.heap.clear();
        let filling = |(link, room): (usize, &Room)| Filling { level: room.level(), link: link as u32 };
        self.heap.extend(self.rooms.iter().enumerate().map(filling).filter(|f| f.level.is_finite()));
    }

    /// Stops all classes that still rise over a link, which is full at this level.
    fn fill(&mut self, link: u32, level: f64, links: &[u32], classes: &[Class]) {
        self.levels[link as usize] = level;
        for place in self.first[link as usize]..self.first[link as usize + 1] {
            let class = self.users[place as usize] as usize;
            if self.rates[class] < 0.0 {
                self.stop(class, level, links, classes);
            }
        }
    }

    /// Stops a class at this rate.
    fn stop(&mut self, class: usize, rate: f64, links: &[u32], classes: &[Class]) {
        self.rates[class] = rate;
        for link in path(links, &classes[class]) {
            let room = &mut self.rooms[*link as usize];
            room.left -= rate * classes[class].weight;
            room.rising -= classes[class].weight;
            room.classes -= 1;
        }
    }
}

fn path<'a>(links: &'a [u32], class: &Class) -> &'a [u32] {
    &links[class.path.start as usize..class.path.end as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns what a link carries, and the weight of the streams on it that still rise.
    fn load(link: u32, links: &[u32], classes: &[Class], rates: &[f64], rising: &[bool]) -> (f64, f64) {
        let (mut used, mut weight) = (0.0, 0.0);
        for (number, class) in classes.iter().enumerate() {
            if path(links, class).contains(&link) {
                used += class.weight * rates[number];
                weight += if rising[number] { class.weight } else { 0.0 };
            }
        }
        (used, weight)
    }

    /// Returns the rates by the definition: raises all streams that can rise, by the same step, until a link
    /// or a limit stops some, and looks at every link again.
    fn brute_force(capacities: &[f64], links: &[u32], classes: &[Class]) -> Vec<f64> {
        let mut rates = vec![0.0; classes.len()];
        let mut rising = vec![true; classes.len()];
        while rising.contains(&true) {
            let mut step = f64::INFINITY;
            for (link, capacity) in capacities.iter().enumerate() {
                let (used, weight) = load(link as u32, links, classes, &rates, &rising);
                if weight > 0.0 {
                    step = step.min((capacity - used).max(0.0) / weight);
                }
            }
            for class in (0..classes.len()).filter(|class| rising[*class]) {
                step = step.min(classes[class].limit - rates[class]);
            }
            for class in (0..classes.len()).filter(|class| rising[*class]) {
                rates[class] += step;
            }
            if step.is_infinite() {
                break;
            }
            let is_full = |link: &u32| {
                let capacity = capacities[*link as usize];
                load(*link, links, classes, &rates, &rising).0 >= capacity * (1.0 - 1e-9) - 1e-9
            };
            let stops = |class: usize| {
                let it = &classes[class];
                rates[class] >= it.limit - 1e-9 || path(links, it).iter().any(is_full)
            };
            let stopped: Vec<bool> = (0..classes.len()).map(stops).collect();
            rising.iter_mut().zip(stopped).for_each(|(rising, stopped)| *rising &= !stopped);
        }
        rates
    }

    /// Draws a network: capacities, and classes with a set of links, a weight and a limit.
    fn networks() -> impl Strategy<Value = (Vec<f64>, Vec<u32>, Vec<Class>)> {
        (1..8usize).prop_flat_map(|count| {
            let class = (
                proptest::collection::btree_set(0..count as u32, 0..=count),
                1..6u32,
                prop_oneof![Just(f64::INFINITY), (1..40u32).prop_map(f64::from)],
            );
            let capacities = proptest::collection::vec((0..60u32).prop_map(f64::from), count);
            (capacities, proptest::collection::vec(class, 0..12)).prop_map(|(capacities, drawn)| {
                let (mut links, mut classes) = (Vec::new(), Vec::new());
                for (on, weight, limit) in drawn {
                    let start = links.len() as u32;
                    links.extend(on);
                    let path = start..links.len() as u32;
                    classes.push(Class { path, weight: f64::from(weight) / 2.0, limit });
                }
                (capacities, links, classes)
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn small_networks_are_shared_as_by_brute_force((capacities, links, classes) in networks()) {
            let mut shares = MaxMin::new();
            shares.share(&capacities, &links, &classes);
            let expected = brute_force(&capacities, &links, &classes);
            for (rate, expected) in shares.rates().iter().zip(&expected) {
                prop_assert!(
                    rate == expected || (rate - expected).abs() <= 1e-6 * expected.max(1.0),
                    "{:?} {expected:?}", shares.rates()
                );
            }
            // A stream that a full link stops has the level of that link, and no link carries too much.
            for (link, capacity) in capacities.iter().enumerate() {
                let used: f64 = classes.iter().zip(shares.rates())
                    .filter(|(class, _)| path(&links, class).contains(&(link as u32)))
                    .map(|(class, rate)| class.weight * rate).sum();
                prop_assert!(used <= capacity + 1e-6, "{link}: {used} of {capacity}");
            }
            for (class, rate) in classes.iter().zip(shares.rates()) {
                let levels = path(&links, class).iter().map(|link| shares.levels()[*link as usize]);
                let bound = levels.fold(class.limit, f64::min);
                prop_assert!(*rate <= bound + 1e-9 && (rate.is_infinite() || *rate >= bound - 1e-6));
            }
        }
    }

    /// The example of Bertsekas and Gallager, Fig. 6.21 (1), in other numbers: what a stream cannot use
    /// because of another link goes to its neighbours.
    #[test]
    fn what_is_left_goes_to_the_others() {
        let links = [0, 0, 1, 1];
        let class = |path: Range<u32>, limit| Class { path, weight: 1.0, limit };
        let classes = [class(0..1, f64::INFINITY), class(1..3, f64::INFINITY), class(3..4, 2.0)];
        let mut shares = MaxMin::new();
        shares.share(&[12.0, 5.0], &links, &classes);
        assert_eq!(shares.rates(), [9.0, 3.0, 2.0]);
        assert_eq!(shares.levels(), [9.0, 3.0]);
        shares.share(&[], &[], &[class(0..0, 7.0), class(0..0, f64::INFINITY)]);
        assert_eq!(shares.rates(), [7.0, f64::INFINITY]);
    }
}
