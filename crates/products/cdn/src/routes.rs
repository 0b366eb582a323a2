//! Finds the paths that traffic takes: those with the fewest autonomous systems of which each is paid to
//! carry it.
//!
//! A path is *valley-free* (L. Gao, "On inferring autonomous system relationships in the Internet", IEEE/ACM
//! ToN 9(6), 2001): it goes from customers to providers, then over at most one line between peers, then from
//! providers to customers. Of the shortest ones, a hash of the place and the target decides, as routers
//! decide by things that no graph has; so the lines of a place with several providers are all used. A line of
//! unknown relation may be crossed anywhere.

use std::ops::Range;

use crate::as_graph::{AsGraph, Relation, Role};

/// A path may still go up, or goes down.
const UP: usize = 0;
const DOWN: usize = 1;
const FAR: u32 = u32::MAX;

/// What the line is for somebody who crosses it from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    ToProvider,
    ToPeer,
    ToCustomer,
    Free,
}

impl Step {
    /// Returns the phase in which a path is after this step; `None` if it must not take it.
    const fn after(self, phase: usize) -> Option<usize> {
        match (self, phase) {
            (Self::ToProvider, UP) => Some(UP),
            (Self::ToProvider | Self::ToPeer, DOWN) => None,
            (Self::Free, phase) => Some(phase),
            _ => Some(DOWN),
        }
    }
}

/// A neighbour: the place, and what kind of step it is.
#[derive(Clone, Copy, Debug)]
struct Neighbour {
    place: u32,
    step: Step,
    /// The step that comes here from the neighbour, and its link.
    back: (Step, u32),
}

/// The paths from some places to some others. Links are directed: line i has the links 2i, from its first end
/// to its second, and 2i + 1.
#[derive(Clone, Debug)]
pub struct Routes {
    targets: usize,
    /// The links of all paths, one after the other.
    links: Vec<u32>,
    /// For each source and target: a range of `links`; `None` if there is no path.
    paths: Vec<Option<Range<u32>>>,
}

impl Routes {
    /// Finds the paths from all `sources` to all `targets`.
    #[must_use]
    pub fn new(graph: &AsGraph, sources: &[u32], targets: &[u32]) -> Self {
        let neighbours = neighbours(graph);
        let mut routes = Self { targets: targets.len(), links: Vec::new(), paths: Vec::new() };
        let mut search = Search::new(graph.ases().len());
        for source in sources {
            search.run(&neighbours, *source);
            for target in targets {
                let start = routes.links.len();
                let found = search.walk(&neighbours, *target, &mut routes.links);
                routes.links[start..].reverse();
                routes.paths.push(found.then_some(start as u32..routes.links.len() as u32));
            }
        }
        routes
    }

    /// Returns the links of all paths, of which [`path`](Self::path) names ranges.
    #[must_use]
    pub fn links(&self) -> &[u32] {
        &self.links
    }

    /// Returns the path from a source to a target, both by their place in the lists; `None` if there is none.
    ///
    /// # Panics
    /// If there is no such source or target.
    #[must_use]
    pub fn path(&self, source: usize, target: usize) -> Option<Range<u32>> {
        assert!(target < self.targets, "a target of these routes");
        self.paths[source * self.targets + target].clone()
    }
}

/// Returns the capacity of each directed link in Mbit/s: that of the file, or `core_mbits` between two
/// transit networks and `leaf_mbits` elsewhere.
#[must_use]
pub fn capacities(graph: &AsGraph, core_mbits: f64, leaf_mbits: f64) -> Vec<f64> {
    let is_transit = |end: u32| graph.ases()[end as usize].role == Role::Transit;
    let capacity = |line: &crate::as_graph::Line| {
        let is_core = is_transit(line.ends.0) && is_transit(line.ends.1);
        let mbits = line.capacity_mbits.unwrap_or(if is_core { core_mbits } else { leaf_mbits });
        [mbits; 2]
    };
    graph.lines().iter().flat_map(capacity).collect()
}

fn neighbours(graph: &AsGraph) -> Vec<Vec<Neighbour>> {
    let mut neighbours = vec![Vec::new(); graph.ases().len()];
    for (number, line) in (0u32..).zip(graph.lines()) {
        let (there, back) = match line.relation {
            Relation::Provider => (Step::ToCustomer, Step::ToProvider),
            Relation::Peer => (Step::ToPeer, Step::ToPeer),
            Relation::Unknown => (Step::Free, Step::Free),
        };
        let (a, b) = line.ends;
        let links = (2 * number, 2 * number + 1);
        neighbours[a as usize].push(Neighbour { place: b, step: there, back: (back, links.1) });
        neighbours[b as usize].push(Neighbour { place: a, step: back, back: (there, links.0) });
    }
    neighbours
}

/// A search from one source: how far each place is, in each phase.
struct Search {
    source: u32,
    distances: [Vec<u32>; 2],
    queue: Vec<(u32, usize)>,
}

impl Search {
    fn new(places: usize) -> Self {
        Self { source: 0, distances: [vec![FAR; places], vec![FAR; places]], queue: Vec::new() }
    }

    fn run(&mut self, neighbours: &[Vec<Neighbour>], source: u32) {
        self.distances.iter_mut().for_each(|distances| distances.fill(FAR));
        self.source = source;
        self.distances[UP][source as usize] = 0;
        self.queue.clear();
        self.queue.push((source, UP));
        let mut next = 0;
        while let Some((place, phase)) = self.queue.get(next).copied() {
            next += 1;
            let distance = self.distances[phase][place as usize] + 1;
            for neighbour in &neighbours[place as usize] {
                let Some(after) = neighbour.step.after(phase) else { continue };
                let known = &mut self.distances[after][neighbour.place as usize];
                if *known == FAR {
                    *known = distance;
                    self.queue.push((neighbour.place, after));
                }
            }
        }
    }

    /// Appends the links of the path to the target, the last first; whether there is a path.
    fn walk(&self, neighbours: &[Vec<Neighbour>], target: u32, links: &mut Vec<u32>) -> bool {
        let distance = |place: u32, phase: usize| self.distances[phase][place as usize];
        let (mut place, mut phase) = (target, usize::from(distance(target, DOWN) < distance(target, UP)));
        let mut left = distance(target, phase);
        if left == FAR {
            return false;
        }
        while left > 0 {
            let mut best: Option<(u64, u32, u32, usize)> = None;
            for neighbour in &neighbours[place as usize] {
                for before in [UP, DOWN] {
                    let leads = neighbour.back.0.after(before) == Some(phase);
                    if leads && distance(neighbour.place, before) == left - 1 {
                        let order = mix(u64::from(neighbour.back.1) << 32 | u64::from(target));
                        let option = (order, neighbour.back.1, neighbour.place, before);
                        best = Some(best.map_or(option, |best| best.min(option)));
                    }
                }
            }
            let (_, link, from, before) = best.expect("a place at a distance has one before it");
            links.push(link);
            (place, phase) = (from, before);
            left -= 1;
        }
        true
    }
}

/// Mixes the bits of a number (the finaliser of SplitMix64).
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links_file;

    fn visits(graph: &AsGraph, from: &str, to: &str) -> Option<Vec<String>> {
        let index = |name: &str| graph.by_name(name).expect("a place");
        let routes = Routes::new(graph, &[index(from)], &[index(to)]);
        let path = routes.path(0, 0)?;
        let end = |link: &u32| {
            let (a, b) = graph.lines()[*link as usize / 2].ends;
            graph.ases()[if link.is_multiple_of(2) { b } else { a } as usize].name.clone()
        };
        Some(routes.links()[path.start as usize..path.end as usize].iter().map(end).collect())
    }

    /// Two customers of different providers: the path between them goes up, over the peers, and down; not
    /// through a third customer of both, although that is as short; and not over two lines of peers.
    #[test]
    fn peers_carry_only_what_they_are_paid_for() {
        let text = "p|a|-1\nq|b|-1\np|c|-1\nq|c|-1\np|q|0\nq|r|0\nr|d|-1\n";
        let graph = links_file::read(text).expect("a graph");
        let names = |path: &[&str]| Some(path.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(visits(&graph, "a", "b"), names(&["p", "q", "b"]));
        assert_eq!(visits(&graph, "c", "d"), names(&["q", "r", "d"]));
        assert_eq!(visits(&graph, "a", "d"), None);
        assert_eq!(visits(&graph, "a", "a"), names(&[]));
        let unknown =
            links_file::read(&text.replace('|', " ").replace("-1", "").replace(" 0", "")).expect("one");
        assert_eq!(visits(&unknown, "a", "d"), names(&["p", "q", "r", "d"]));
    }

    #[test]
    fn capacities_follow_from_roles() {
        let mut graph = links_file::read("p q peer\np a provider\nq b 400M\n").expect("a graph");
        graph.classify(1, || false);
        graph.set_role(graph.by_name("q").expect("a place"), Role::Transit);
        let capacities = capacities(&graph, 40_000.0, 10_000.0);
        assert_eq!(capacities, [40_000.0, 40_000.0, 10_000.0, 10_000.0, 400.0, 400.0]);
    }
}
