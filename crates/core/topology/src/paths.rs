//! Finds the k shortest loopless paths: Yen, "Finding the K Shortest Loopless Paths in a Network", Management
//! Science 17(11), 1971. The saving of Lawler, Management Science 18(7), 1972, is included: a path is only
//! left where it has not been left before.
//!
//! Paths come in one order, which only the graph decides: by cost, then by the number of links, then by the
//! first id of a link that differs. So the same graph gives the same paths everywhere.
//!
//! One Dijkstra search backwards from the target gives the estimate for all A* searches of a request. So
//! these searches visit little more than the paths that they find.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use crate::graph::{Graph, Link, LinkId, NodeId};

/// The most paths that are searched for at once.
pub const PATHS_MAX: usize = 1_000;
/// The highest cost of one link; a higher one counts as this. It is more than an hour in nanoseconds.
pub const COST_MAX: u64 = 1 << 42;

/// The distance of a node that no path reaches.
pub(crate) const FAR: u128 = u128::MAX;

/// The cost of each link of a graph.
///
/// The lower half of a weight counts the links. It decides between equal costs, and makes every link cost
/// something.
#[derive(Clone, Debug)]
pub struct Costs {
    weights: Vec<u128>,
}

impl Costs {
    /// Gives every link the cost 1.
    #[must_use]
    pub fn hops(graph: &Graph) -> Self {
        Self::by(graph, |_, _| 1)
    }

    /// Uses the delay in nanoseconds as the cost.
    #[must_use]
    pub fn delay(graph: &Graph) -> Self {
        Self::by(graph, |_, link| link.delay_ns)
    }

    /// Uses the result of a function as the cost.
    #[must_use]
    pub fn by(graph: &Graph, cost: impl Fn(LinkId, &Link) -> u64) -> Self {
        let weight = |id: LinkId| u128::from(cost(id, graph.link(id)).min(COST_MAX)) << 32 | 1;
        Self { weights: graph.link_ids().map(weight).collect() }
    }

    pub(crate) fn weight(&self, link: LinkId) -> u128 {
        self.weights[link.index()]
    }

    /// Returns a path with its cost.
    pub(crate) fn path(&self, links: Vec<LinkId>) -> Path {
        let weight: u128 = links.iter().map(|id| self.weight(*id)).sum();
        Path { links, cost: (weight >> 32) as u64 }
    }
}

/// A path without loops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The links, from the source on.
    pub links: Vec<LinkId>,
    /// The sum of the links' costs.
    pub cost: u64,
}

impl AsRef<[LinkId]> for Path {
    fn as_ref(&self) -> &[LinkId] {
        &self.links
    }
}

impl Path {
    /// Returns the key by which paths are sorted: cost, number of links, ids of links.
    pub(crate) fn order(&self) -> (u64, usize, &[LinkId]) {
        (self.cost, self.links.len(), &self.links)
    }
}

/// A set of nodes that can be emptied at no cost.
#[derive(Clone, Debug)]
struct Marks {
    round: u32,
    of: Vec<u32>,
}

impl Marks {
    fn new(nodes: usize) -> Self {
        Self { round: 1, of: vec![0; nodes] }
    }

    fn clear(&mut self) {
        self.round = self.round.checked_add(1).unwrap_or_else(|| {
            self.of.fill(0);
            1
        });
    }

    fn add(&mut self, node: NodeId) -> bool {
        std::mem::replace(&mut self.of[node.index()], self.round) != self.round
    }

    fn has(&self, node: NodeId) -> bool {
        self.of[node.index()] == self.round
    }
}

/// A path that was found and not returned yet. It is the best of one part of all paths: those that begin with
/// its first `kept` links and do not go on by a link of `excluded`.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    weight: u128,
    links: Vec<LinkId>,
    kept: usize,
    excluded: Vec<LinkId>,
}

/// Finds paths in one graph. The memory for a search is kept between requests, and so are the distances to
/// the last target. So ask for all sources of one target in a row.
#[derive(Clone, Debug)]
pub struct Router<'g> {
    graph: &'g Graph,
    costs: Costs,
    /// The target of the distances in `rest`.
    target: Option<NodeId>,
    /// The distance of each node to `target`.
    rest: Vec<u128>,
    /// The nodes that the present search has reached.
    reached: Marks,
    /// The distance of each reached node from the start of the present search.
    distance: Vec<u128>,
    /// The nodes that lie on a shortest path of the present search.
    tight: Marks,
    /// The nodes that the present path has already visited.
    barred: Marks,
    heap: BinaryHeap<Reverse<(u128, NodeId)>>,
}

impl<'g> Router<'g> {
    /// Creates a router for a graph whose links have these costs.
    #[must_use]
    pub fn new(graph: &'g Graph, costs: Costs) -> Self {
        let nodes = graph.nodes().len();
        Self {
            graph,
            costs,
            target: None,
            rest: vec![FAR; nodes],
            reached: Marks::new(nodes),
            distance: vec![FAR; nodes],
            tight: Marks::new(nodes),
            barred: Marks::new(nodes),
            heap: BinaryHeap::new(),
        }
    }

    /// Returns the first `k` of all loopless paths (at most [`PATHS_MAX`]), in the order that the
    /// [module](self) gives. Returns fewer if there are no more. There is no path from a node to itself.
    ///
    /// # Panics
    /// If a node is not of this graph.
    pub fn shortest(&mut self, from: NodeId, to: NodeId, k: usize) -> Vec<Path> {
        let k = k.min(PATHS_MAX);
        let (mut found, mut candidates) = (Vec::new(), BTreeSet::new());
        if k == 0 || from == to {
            return found;
        }
        self.aim(to);
        self.barred.clear();
        let first = self.search(from, to, &[]);
        candidates.extend(first.map(|(weight, links)| Candidate {
            weight,
            links,
            kept: 0,
            excluded: Vec::new(),
        }));
        while let Some(best) = candidates.pop_first() {
            if found.len() + 1 < k {
                self.branch(from, to, &best, &mut candidates);
                // Drop candidates that can no longer be returned.
                while candidates.len() > k - found.len() - 1 {
                    candidates.pop_last();
                }
            }
            found.push(self.costs.path(best.links));
            if found.len() == k {
                break;
            }
        }
        found
    }

    /// Computes the distance of every node to `to`.
    fn aim(&mut self, to: NodeId) {
        if self.target == Some(to) {
            return;
        }
        self.target = Some(to);
        self.rest.fill(FAR);
        self.rest[to.index()] = 0;
        self.heap.clear();
        self.heap.push(Reverse((0, to)));
        while let Some(Reverse((distance, node))) = self.heap.pop() {
            if distance > self.rest[node.index()] {
                continue;
            }
            for id in self.graph.incoming(node) {
                let before = self.graph.link(*id).from;
                let longer = distance + self.costs.weight(*id);
                if longer < self.rest[before.index()] {
                    self.rest[before.index()] = longer;
                    self.heap.push(Reverse((longer, before)));
                }
            }
        }
    }

    /// Divides the paths that `best` was the best of into parts, and adds the best path of each part to
    /// `candidates`.
    fn branch(&mut self, from: NodeId, to: NodeId, best: &Candidate, candidates: &mut BTreeSet<Candidate>) {
        self.barred.clear();
        let (mut start, mut weight) = (from, 0);
        for (kept, link) in best.links.iter().enumerate() {
            if kept >= best.kept {
                let mut excluded = if kept == best.kept { best.excluded.clone() } else { Vec::new() };
                excluded.push(*link);
                if let Some((rest, way)) = self.search(start, to, &excluded) {
                    let links = best.links[..kept].iter().copied().chain(way).collect();
                    candidates.insert(Candidate { weight: weight + rest, links, kept, excluded });
                }
            }
            self.barred.add(start);
            weight += self.costs.weight(*link);
            start = self.graph.link(*link).to;
        }
    }

    /// Returns the first path, in the order of the module, that visits no barred node and does not begin with
    /// an excluded link.
    fn search(&mut self, from: NodeId, to: NodeId, excluded: &[LinkId]) -> Option<(u128, Vec<LinkId>)> {
        let (graph, mut shortest) = (self.graph, FAR);
        self.reached.clear();
        self.heap.clear();
        if self.rest[from.index()] != FAR {
            self.reached.add(from);
            self.distance[from.index()] = 0;
            self.heap.push(Reverse((self.rest[from.index()], from)));
        }
        // The search visits all nodes on paths of the least weight, not only those of the first such path.
        while let Some(Reverse((estimate, node))) = self.heap.pop() {
            if estimate > shortest {
                break;
            }
            let distance = self.distance[node.index()];
            if estimate > distance + self.rest[node.index()] {
                continue;
            }
            if node == to {
                shortest = distance;
                continue;
            }
            for id in graph.outgoing(node) {
                let next = graph.link(*id).to;
                let rest = self.rest[next.index()];
                if rest == FAR || self.barred.has(next) || node == from && excluded.contains(id) {
                    continue;
                }
                let longer = distance + self.costs.weight(*id);
                if self.reached.add(next) || longer < self.distance[next.index()] {
                    self.distance[next.index()] = longer;
                    self.heap.push(Reverse((longer + rest, next)));
                }
            }
        }
        (shortest != FAR).then(|| (shortest, self.walk(from, to, excluded)))
    }

    /// Whether a link is part of a shortest path of the present search, judging by its two ends.
    fn is_tight(&self, id: LinkId, from: NodeId, excluded: &[LinkId]) -> bool {
        let link = self.graph.link(id);
        let is_there = |node| self.reached.has(node) && !self.barred.has(node);
        is_there(link.from)
            && is_there(link.to)
            && self.distance[link.from.index()] + self.costs.weight(id) == self.distance[link.to.index()]
            && !(link.from == from && excluded.contains(&id))
    }

    /// Returns that one of the shortest paths of the present search whose links have the lowest ids.
    fn walk(&mut self, from: NodeId, to: NodeId, excluded: &[LinkId]) -> Vec<LinkId> {
        let graph = self.graph;
        self.tight.clear();
        self.tight.add(to);
        let mut stack = vec![to];
        while let Some(node) = stack.pop() {
            for id in graph.incoming(node) {
                let before = graph.link(*id).from;
                if self.is_tight(*id, from, excluded) && self.tight.add(before) {
                    stack.push(before);
                }
            }
        }
        let (mut links, mut node) = (Vec::new(), from);
        while node != to {
            let goes =
                |id: &&LinkId| self.tight.has(graph.link(**id).to) && self.is_tight(**id, from, excluded);
            let next = *graph.outgoing(node).iter().find(goes).expect("a shortest path goes on");
            links.push(next);
            node = graph.link(next).to;
        }
        links
    }
}

#[cfg(test)]
pub(crate) mod tests;
