//! Finds paths that share no link, or no node between the ends. For a pair this is Bhandari's algorithm
//! ("Survivable Networks", Kluwer 1999, ch. 3). For more paths it continues with successive shortest paths,
//! which give a flow of least cost (Suurballe, Networks 4, 1974). It uses reduced costs instead of negative
//! ones.
//!
//! The sum of the costs is the least that this many disjoint paths can have. The shortest path alone may not
//! be among them. If several sets are equally good, the choice depends on nothing but the graph.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::graph::{Graph, LinkId, NodeId};
use crate::paths::{Costs, FAR, PATHS_MAX, Path};

/// The parts that paths must not share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disjoint {
    /// Links. The two directions of a line are two links, and no set of least cost uses both.
    Links,
    /// Nodes between the ends, and so no links either.
    Nodes,
}

/// Finds at most `k` disjoint paths with the least sum of costs, in the order of [`crate::paths`]. Returns
/// fewer if there are no more. There is no path from a node to itself.
///
/// # Panics
/// If a node is not of this graph.
#[must_use]
pub fn disjoint_paths(
    graph: &Graph,
    costs: &Costs,
    from: NodeId,
    to: NodeId,
    k: usize,
    disjoint: Disjoint,
) -> Vec<Path> {
    assert!(from.index() < graph.nodes().len() && to.index() < graph.nodes().len(), "nodes of this graph");
    if from == to {
        return Vec::new();
    }
    let mut residual = Residual::new(graph, costs, from, to, disjoint);
    let flow = (0..k.min(PATHS_MAX)).take_while(|_| residual.augment()).count();
    let mut paths = residual.paths(graph, costs, from, to, flow);
    paths.sort_by(|a, b| a.order().cmp(&b.order()));
    paths
}

/// An arc of the residual graph. The next index holds its reverse.
#[derive(Clone, Copy, Debug)]
struct Arc {
    to: u32,
    weight: i128,
    is_free: bool,
}

/// The residual graph. If paths must not share nodes, each node is two vertices with one arc between them:
/// one for incoming links, one for outgoing links.
struct Residual {
    source: u32,
    sink: u32,
    arcs: Vec<Arc>,
    /// The link that each pair of arcs stands for.
    links: Vec<Option<LinkId>>,
    /// The arcs at each vertex, as compressed sparse rows.
    first: Vec<u32>,
    row: Vec<u32>,
    /// The potential of each vertex: the sum of its distances so far. With it no residual arc is negative.
    potential: Vec<i128>,
    distance: Vec<u128>,
    came_by: Vec<u32>,
}

impl Residual {
    fn new(graph: &Graph, costs: &Costs, from: NodeId, to: NodeId, disjoint: Disjoint) -> Self {
        let split = disjoint == Disjoint::Nodes;
        let (into, out_of) = match split {
            true => ((|node| 2 * node) as fn(u32) -> u32, (|node| 2 * node + 1) as fn(u32) -> u32),
            false => ((|node| node) as fn(u32) -> u32, (|node| node) as fn(u32) -> u32),
        };
        let (mut tails, mut arcs, mut links) = (Vec::new(), Vec::new(), Vec::new());
        let mut add = |tail: u32, head: u32, weight: u128, link: Option<LinkId>| {
            let weight = weight as i128;
            tails.extend([tail, head]);
            arcs.push(Arc { to: head, weight, is_free: true });
            arcs.push(Arc { to: tail, weight: -weight, is_free: false });
            links.push(link);
        };
        for id in graph.link_ids() {
            let link = graph.link(id);
            // No path needs to come back to its source, or to go on from its target.
            if link.to != from && link.from != to {
                add(out_of(link.from.0), into(link.to.0), costs.weight(id), Some(id));
            }
        }
        if split {
            graph.node_ids().for_each(|node| add(into(node.0), out_of(node.0), 0, None));
        }
        let vertices = graph.nodes().len() * if split { 2 } else { 1 };
        let mut first = vec![0u32; vertices + 1];
        tails.iter().for_each(|tail| first[*tail as usize + 1] += 1);
        (0..vertices).for_each(|vertex| first[vertex + 1] += first[vertex]);
        let (mut next, mut row) = (first.clone(), vec![0u32; tails.len()]);
        for (arc, tail) in tails.iter().enumerate() {
            row[next[*tail as usize] as usize] = arc as u32;
            next[*tail as usize] += 1;
        }
        Self {
            source: out_of(from.0),
            sink: into(to.0),
            arcs,
            links,
            first,
            row,
            potential: vec![0; vertices],
            distance: vec![FAR; vertices],
            came_by: vec![0; vertices],
        }
    }

    /// Sends one more path through the graph. Returns `false` if none fits.
    fn augment(&mut self) -> bool {
        self.distance.fill(FAR);
        self.distance[self.source as usize] = 0;
        let mut heap = BinaryHeap::from([Reverse((0u128, self.source))]);
        while let Some(Reverse((distance, vertex))) = heap.pop() {
            if distance > self.distance[vertex as usize] {
                continue;
            }
            // The other vertices are at least as far away. Potentials need no more than that.
            if vertex == self.sink {
                break;
            }
            for place in self.first[vertex as usize]..self.first[vertex as usize + 1] {
                let number = self.row[place as usize];
                let arc = self.arcs[number as usize];
                if !arc.is_free {
                    continue;
                }
                let reduced = arc.weight + self.potential[vertex as usize] - self.potential[arc.to as usize];
                debug_assert!(reduced >= 0, "a shortest path was taken");
                let longer = distance + reduced as u128;
                if longer < self.distance[arc.to as usize] {
                    self.distance[arc.to as usize] = longer;
                    self.came_by[arc.to as usize] = number;
                    heap.push(Reverse((longer, arc.to)));
                }
            }
        }
        let far = self.distance[self.sink as usize];
        if far == FAR {
            return false;
        }
        for (potential, distance) in self.potential.iter_mut().zip(&self.distance) {
            *potential += (*distance).min(far) as i128;
        }
        let mut vertex = self.sink;
        while vertex != self.source {
            let number = self.came_by[vertex as usize] as usize;
            self.arcs[number].is_free = false;
            self.arcs[number ^ 1].is_free = true;
            vertex = self.arcs[number ^ 1].to;
        }
        true
    }

    /// Returns the paths that the flow consists of. The flow has no cycle, because each link costs something.
    fn paths(&self, graph: &Graph, costs: &Costs, from: NodeId, to: NodeId, flow: usize) -> Vec<Path> {
        let mut used = vec![false; graph.links().len()];
        for (pair, link) in self.links.iter().enumerate() {
            if let Some(id) = link {
                used[id.index()] = self.arcs[2 * pair + 1].is_free;
            }
        }
        let mut path = || {
            let (mut links, mut node) = (Vec::new(), from);
            while node != to {
                let next = graph.outgoing(node).iter().find(|id| used[id.index()]);
                let next = *next.expect("what flows into a node flows out of it");
                used[next.index()] = false;
                links.push(next);
                node = graph.link(next).to;
            }
            costs.path(links)
        };
        (0..flow).map(|_| path()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::paths::tests::{all_paths, graphs};

    /// Finds the least sum of costs (combined with the number of links) of `k` disjoint paths by trying all
    /// sets.
    fn least(graph: &Graph, costs: &Costs, all: &[Path], k: usize, disjoint: Disjoint) -> Option<u128> {
        fn go(
            all: &[Path],
            k: usize,
            ok: &dyn Fn(&Path, &Path) -> bool,
            chosen: &mut Vec<usize>,
            w: &[u128],
        ) -> Option<u128> {
            if k == 0 {
                return Some(0);
            }
            let start = chosen.last().map_or(0, |last| last + 1);
            let mut best: Option<u128> = None;
            for next in start..all.len() {
                if chosen.iter().all(|c| ok(&all[*c], &all[next])) {
                    chosen.push(next);
                    let sum = go(all, k - 1, ok, chosen, w).map(|rest| rest + w[next]);
                    chosen.pop();
                    best = [best, sum].into_iter().flatten().min();
                }
            }
            best
        }
        let inner = |path: &Path| {
            let visits = graph.visits(&path.links);
            visits[1..visits.len() - 1].to_vec()
        };
        let ok = |a: &Path, b: &Path| {
            let links = a.links.iter().all(|l| !b.links.contains(l));
            links && (disjoint == Disjoint::Links || inner(a).iter().all(|n| !inner(b).contains(n)))
        };
        let weight = |path: &Path| path.links.iter().map(|l| costs.weight(*l)).sum();
        let weights: Vec<u128> = all.iter().map(weight).collect();
        go(all, k, &ok, &mut Vec::new(), &weights)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]
        #[test]
        fn the_least_sum_of_disjoint_paths(graph in graphs(), k in 1usize..4, nodes: bool) {
            let costs = Costs::delay(&graph);
            let disjoint = if nodes { Disjoint::Nodes } else { Disjoint::Links };
            let (from, to) = (NodeId(0), NodeId(1));
            let all = all_paths(&graph, &costs, from, to);
            prop_assume!(all.len() <= 40);
            let found = disjoint_paths(&graph, &costs, from, to, k, disjoint);
            for path in &found {
                prop_assert!(all.contains(path), "a loopless path");
            }
            let sum = |n: usize| least(&graph, &costs, &all, n, disjoint);
            let weight = |path: &Path| path.links.iter().map(|l| costs.weight(*l)).sum::<u128>();
            prop_assert_eq!(Some(found.iter().map(weight).sum()), sum(found.len()));
            prop_assert!(least(&graph, &costs, &found, found.len(), disjoint).is_some(), "disjoint");
            prop_assert!(found.len() == k || sum(found.len() + 1).is_none(), "as many as there are");
        }
    }
}
