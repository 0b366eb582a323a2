//! Finds paths that share a link, and so may share a bottleneck (dissertation §4.2.1, Fig. 4.8).
//!
//! Two paths are in one group if they share a link, or if a third path is in one group with both. So each
//! path is in exactly one group. Links are directed: the two directions of a line are different links, each
//! with its own queue.

use crate::graph::LinkId;

const NOBODY: u32 = u32::MAX;

/// Forms groups of paths of one graph. It keeps a table of links, so that a call costs O(k·h) for k paths of
/// h links, whatever the size of the graph.
#[derive(Clone, Debug)]
pub struct Grouping {
    /// For each link, the first path that uses it.
    first: Vec<u32>,
}

impl Grouping {
    /// Creates the table for paths over links with ids below `links`.
    #[must_use]
    pub fn new(links: usize) -> Self {
        Self { first: vec![NOBODY; links] }
    }

    /// Returns the group of each path, numbered from 0 in the order in which groups first occur. A path
    /// without links is alone in its group.
    ///
    /// # Panics
    /// If the id of a link is not below the number given to [`new`](Self::new).
    pub fn group_ids<P: AsRef<[LinkId]>>(&mut self, paths: &[P]) -> Vec<u32> {
        // This is union–find with path halving; the lower index becomes the root.
        let mut parent: Vec<u32> = (0..paths.len() as u32).collect();
        for (path, links) in paths.iter().enumerate() {
            for link in links.as_ref() {
                let first = &mut self.first[link.index()];
                if *first == NOBODY {
                    *first = path as u32;
                } else {
                    let (a, b) = (root(&mut parent, *first), root(&mut parent, path as u32));
                    parent[a.max(b) as usize] = a.min(b);
                }
            }
        }
        for link in paths.iter().flat_map(AsRef::as_ref) {
            self.first[link.index()] = NOBODY;
        }
        let mut ids = vec![NOBODY; paths.len()];
        let mut next = 0;
        for path in 0..paths.len() {
            let root = root(&mut parent, path as u32) as usize;
            if ids[root] == NOBODY {
                ids[root] = next;
                next += 1;
            }
            ids[path] = ids[root];
        }
        ids
    }
}

fn root(parent: &mut [u32], mut path: u32) -> u32 {
    while parent[path as usize] != path {
        let above = parent[parent[path as usize] as usize];
        parent[path as usize] = above;
        path = above;
    }
    path
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(paths: &[&[u32]]) -> Vec<u32> {
        let paths: Vec<Vec<LinkId>> = paths.iter().map(|p| p.iter().copied().map(LinkId).collect()).collect();
        Grouping::new(64).group_ids(&paths)
    }

    /// The three cases of Fig. 4.8: all paths are disjoint; A and B share a link; A and B share one, and B
    /// and C share another.
    #[test]
    fn figure_4_8() {
        assert_eq!(ids(&[&[0, 1], &[2, 3], &[4, 5]]), [0, 1, 2]);
        assert_eq!(ids(&[&[0, 1, 2], &[3, 1, 4], &[5, 6, 7]]), [0, 0, 1]);
        assert_eq!(ids(&[&[0, 1, 2], &[3, 1, 4], &[5, 4, 7]]), [0, 0, 0]);
    }

    #[test]
    fn empty_paths_are_alone() {
        assert_eq!(ids(&[]), Vec::<u32>::new());
        assert_eq!(ids(&[&[], &[1], &[], &[1]]), [0, 1, 2, 1]);
    }

    proptest! {
        /// Compares with the transitive closure of "shares a link", computed pair by pair. Uses the table
        /// twice.
        #[test]
        fn as_brute_force(paths in prop::collection::vec(prop::collection::vec(0u32..40, 0..6), 0..12)) {
            let links: Vec<Vec<LinkId>> =
                paths.iter().map(|p| p.iter().copied().map(LinkId).collect()).collect();
            let n = paths.len();
            let mut same: Vec<Vec<bool>> = (0..n)
                .map(|a| (0..n).map(|b| a == b || links[a].iter().any(|l| links[b].contains(l))).collect())
                .collect();
            for via in 0..n {
                for a in 0..n {
                    for b in 0..n {
                        same[a][b] |= same[a][via] && same[via][b];
                    }
                }
            }
            let mut grouping = Grouping::new(40);
            let ids = grouping.group_ids(&links);
            prop_assert_eq!(&ids, &grouping.group_ids(&links));
            let mut next = 0;
            for a in 0..n {
                for b in 0..n {
                    prop_assert_eq!(ids[a] == ids[b], same[a][b]);
                }
                prop_assert!(ids[a] <= next);
                next = next.max(ids[a] + 1);
            }
        }
    }
}
