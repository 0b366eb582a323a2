//! Makes the answer of a topology manager: the paths from one node to another with their groups and
//! forwarding identifiers (dissertation §4.2.1).

use crate::disjoint::{Disjoint, disjoint_paths};
use crate::graph::{Graph, LinkId, NodeId};
use crate::groups::Grouping;
use crate::paths::{Costs, Path, Router};
use crate::tags::{EncodeError, Encoded, Tags};

/// How paths are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The k shortest loopless paths (Yen).
    Shortest,
    /// Paths without a common link, with the least sum of costs (Bhandari).
    LinkDisjoint,
    /// Paths without a common node between the ends, with the least sum of costs.
    NodeDisjoint,
}

/// A path that a sender can use.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The links of the path and their cost.
    pub path: Path,
    /// The group of the path, counted from 0. Paths of one group share a link, or are joined by paths that
    /// do.
    pub group: u32,
    /// The sum of the links' delays in nanoseconds.
    pub delay_ns: u64,
    /// The least known capacity among the links in bytes per second.
    pub capacity_bytes: Option<u64>,
    /// The identifier of packets on this path, or the error if the path does not fit into one.
    pub forward: Result<Encoded, EncodeError>,
    /// The identifier for the way back over the same lines; `None` if a link has no other direction.
    pub backward: Option<Result<Encoded, EncodeError>>,
}

/// Answers requests for paths of one graph.
#[derive(Clone, Debug)]
pub struct Planner<'g> {
    graph: &'g Graph,
    costs: Costs,
    tags: Tags,
    router: Router<'g>,
    grouping: Grouping,
}

impl<'g> Planner<'g> {
    /// Creates a planner for a graph whose links have these costs and tags.
    #[must_use]
    pub fn new(graph: &'g Graph, costs: Costs, tags: Tags) -> Self {
        let router = Router::new(graph, costs.clone());
        Self { graph, costs, tags, router, grouping: Grouping::new(graph.links().len()) }
    }

    /// Returns at most `k` paths, in the order of [`crate::paths`].
    ///
    /// # Panics
    /// If a node is not of this graph.
    pub fn plan(&mut self, from: NodeId, to: NodeId, k: usize, policy: Policy) -> Vec<Planned> {
        let disjoint = |disjoint| disjoint_paths(self.graph, &self.costs, from, to, k, disjoint);
        let paths = match policy {
            Policy::Shortest => self.router.shortest(from, to, k),
            Policy::LinkDisjoint => disjoint(Disjoint::Links),
            Policy::NodeDisjoint => disjoint(Disjoint::Nodes),
        };
        let groups = self.grouping.group_ids(&paths);
        let planned = |(path, group): (Path, u32)| Planned {
            group,
            delay_ns: self.graph.delay_ns(&path.links),
            capacity_bytes: self.graph.capacity_bytes(&path.links),
            forward: self.tags.encode(self.graph, &path.links),
            backward: self.reversed(&path.links).map(|back| self.tags.encode(self.graph, &back)),
            path,
        };
        paths.into_iter().zip(groups).map(planned).collect()
    }

    fn reversed(&self, path: &[LinkId]) -> Option<Vec<LinkId>> {
        path.iter().rev().map(|id| self.graph.link(*id).reverse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::Defaults;
    use crate::zoo::Builtin;

    #[test]
    fn paths_of_a_real_network() {
        let graph = Builtin::named("Geant2012").expect("built in").network(&Defaults::default()).graph;
        let mut planner = Planner::new(&graph, Costs::delay(&graph), Tags::of(&graph, 1));
        let (from, to) = (graph.find("IE").expect("Ireland"), graph.find("TR").expect("Turkey"));
        let pair = planner.plan(from, to, 2, Policy::NodeDisjoint);
        assert_eq!(pair.iter().map(|p| p.group).collect::<Vec<_>>(), [0, 1]);
        let shortest = planner.plan(from, to, 3, Policy::Shortest);
        assert!(shortest.iter().all(|p| p.delay_ns == p.path.cost && p.path.cost <= pair[1].path.cost));
        for planned in pair.iter().chain(&shortest) {
            for encoded in [planned.forward, planned.backward.expect("lines have two directions")] {
                let encoded = encoded.expect("it fits");
                assert_eq!(
                    (encoded.false_positives, encoded.fid.bits().ones() as usize),
                    (0, planned.path.links.len())
                );
            }
        }
    }
}
