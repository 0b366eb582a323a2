//! Makes a graph of autonomous systems for a study without a file: as large as that of the paper, and equal
//! for equal seeds.
//!
//! The paper takes a part of the Internet of 2016 "comparable to a large country" (000 §3.4.1.1) and prints
//! its size: 1,187 autonomous systems with 2,880 lines, 239 of them content providers and 871 access
//! networks. The shape is ours: a clique of peers in the middle; the other transit networks buy from two that
//! are there before them, those with many customers more often (preferential attachment); every leaf buys
//! from two transit networks likewise; the lines that are left connect transit networks as peers.

use anabranch_sim::Rng;

use crate::as_graph::{AsGraph, AsGraphError, Line, Relation, Role};

/// Providers of a leaf, and of a transit network outside the clique.
const PROVIDERS: usize = 2;
/// Transit networks in the clique.
const CLIQUE: usize = 10;

/// The size of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Size {
    /// Content providers.
    pub content: usize,
    /// Access networks.
    pub access: usize,
    /// Transit networks.
    pub transit: usize,
    /// Lines of all kinds.
    pub lines: usize,
}

impl Default for Size {
    /// The size that the paper prints.
    fn default() -> Self {
        Self { content: 239, access: 871, transit: 77, lines: 2_880 }
    }
}

/// The reason why there is no graph of a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Something is missing.
    #[error("expected at least one content provider, one access network and {PROVIDERS} transit networks")]
    Nothing,
    /// The number of lines does not fit.
    #[error("{lines} lines, expected {least} to {most} for so many networks")]
    Lines {
        /// The number of lines that were asked for.
        lines: usize,
        /// The least number that connects everything.
        least: usize,
        /// The most lines between that many transit networks and leaves.
        most: usize,
    },
    /// There are too many networks.
    #[error(transparent)]
    Graph(#[from] AsGraphError),
}

impl Size {
    /// Makes the graph that this seed decides.
    ///
    /// # Errors
    /// If there is no such graph.
    pub fn graph(&self, seed: u64) -> Result<AsGraph, SizeError> {
        if self.content == 0 || self.access == 0 || self.transit < PROVIDERS {
            return Err(SizeError::Nothing);
        }
        for (what, count) in [("places", self.content), ("places", self.access), ("places", self.transit)] {
            if count > crate::as_graph::ASES_MAX {
                return Err(AsGraphError::TooMany(what, crate::as_graph::ASES_MAX).into());
            }
        }
        let clique = CLIQUE.min(self.transit);
        let pairs = |n: usize| n * (n - 1) / 2;
        let leaves = PROVIDERS * (self.content + self.access);
        let least = leaves + pairs(clique) + PROVIDERS * (self.transit - clique);
        let most = leaves + pairs(self.transit);
        if !(least..=most).contains(&self.lines) {
            return Err(SizeError::Lines { lines: self.lines, least, most });
        }
        let mut rng = Rng::stream(seed, "graph");
        let mut graph = AsGraph::new();
        for number in 1..=self.transit + self.content + self.access {
            graph.add(&number.to_string())?;
        }
        let transit = self.transit as u32;
        // Each transit network once, and once more for each customer.
        let mut tickets: Vec<u32> = (0..clique as u32).collect();
        for a in 0..clique as u32 {
            for b in a + 1..clique as u32 {
                connect(&mut graph, a, b, Relation::Peer)?;
            }
        }
        let leaves = transit + (self.content + self.access) as u32;
        for customer in clique as u32..leaves {
            let mut left = PROVIDERS;
            while left > 0 {
                let provider = tickets[rng.below(tickets.len() as u64) as usize];
                if !graph.connected(provider, customer) {
                    connect(&mut graph, provider, customer, Relation::Provider)?;
                    tickets.push(provider);
                    left -= 1;
                }
            }
            if customer < transit {
                tickets.push(customer);
            }
        }
        set_roles(&mut graph, self);
        while graph.lines().len() < self.lines {
            let (a, b) = (rng.below(u64::from(transit)) as u32, rng.below(u64::from(transit)) as u32);
            if a != b && !graph.connected(a, b) {
                connect(&mut graph, a, b, Relation::Peer)?;
            }
        }
        Ok(graph)
    }
}

fn set_roles(graph: &mut AsGraph, size: &Size) {
    for index in 0..graph.ases().len() {
        let role = match index {
            index if index < size.transit => Role::Transit,
            index if index < size.transit + size.content => Role::Content,
            _ => Role::Access,
        };
        graph.set_role(index as u32, role);
    }
}

fn connect(graph: &mut AsGraph, a: u32, b: u32, relation: Relation) -> Result<(), AsGraphError> {
    graph.connect(Line { ends: (a, b), relation, capacity_mbits: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::Routes;

    #[test]
    fn the_size_of_the_paper() {
        let size = Size::default();
        let graph = size.graph(1).expect("a graph");
        let count = |role| graph.with_role(role).count();
        assert_eq!((graph.ases().len(), graph.lines().len()), (1_187, 2_880));
        assert_eq!((count(Role::Content), count(Role::Access), count(Role::Transit)), (239, 871, 77));
        assert_eq!(size.graph(1), Ok(graph.clone()));
        assert_ne!(size.graph(2), Ok(graph.clone()));
        let (from, to) = (graph.with_role(Role::Content), graph.with_role(Role::Access));
        let (from, to): (Vec<u32>, Vec<u32>) = (from.collect(), to.collect());
        let routes = Routes::new(&graph, &from, &to);
        let mut links = 0;
        for source in 0..from.len() {
            for target in 0..to.len() {
                links += routes.path(source, target).expect("all are connected").len();
            }
        }
        let mean = links as f64 / (from.len() * to.len()) as f64;
        assert!((2.0..5.0).contains(&mean), "{mean}");
    }

    #[test]
    fn sizes_that_no_graph_has() {
        let size = Size { lines: 10, ..Size::default() };
        let error = size.graph(1).expect_err("too few lines");
        assert_eq!(error.to_string(), "10 lines, expected 2399 to 5146 for so many networks");
        assert_eq!(Size { content: 0, ..size }.graph(1), Err(SizeError::Nothing));
        assert!(Size { access: usize::MAX, ..size }.graph(1).is_err());
    }
}
