//! Random graphs from a seed.

use anabranch_algo::SplitMix64;
use anabranch_topology::graph::{Builder, Graph, NodeId};

/// Different numbers below `n`.
pub(crate) fn some<const N: usize>(random: &mut SplitMix64, n: usize) -> [usize; N] {
    let mut chosen = [usize::MAX; N];
    for place in 0..N {
        while chosen[place] == usize::MAX || chosen[..place].contains(&chosen[place]) {
            chosen[place] = random.index(n);
        }
    }
    chosen
}

/// A ring with random lines across, `lines` in all, delays of 1 to 20 ms.
pub(crate) fn random_graph(random: &mut SplitMix64, nodes: usize, lines: usize) -> Graph {
    let mut builder = Builder::new();
    for node in 0..nodes {
        builder.node(&format!("n{node}"), None).expect("a node");
    }
    for line in 0..lines {
        let [a, b] = if line < nodes { [line, (line + 1) % nodes] } else { some(random, nodes) };
        let delay_ns = 1_000_000 + random.index(19_000_000) as u64;
        builder.line(NodeId(a as u32), NodeId(b as u32), Some(125_000_000), delay_ns).expect("a line");
    }
    builder.build()
}
