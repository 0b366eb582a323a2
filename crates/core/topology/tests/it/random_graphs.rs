//! Random numbers from a seed, and random graphs of them.

use anabranch_topology::graph::{Builder, Graph, NodeId};

/// SplitMix64 (Steele et al., OOPSLA 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Different numbers below `n`.
    pub(crate) fn some<const N: usize>(&mut self, n: usize) -> [usize; N] {
        let mut chosen = [usize::MAX; N];
        for place in 0..N {
            while chosen[place] == usize::MAX || chosen[..place].contains(&chosen[place]) {
                chosen[place] = self.below(n);
            }
        }
        chosen
    }
}

/// A ring with random lines across, `lines` in all, delays of 1 to 20 ms.
pub(crate) fn random_graph(random: &mut Random, nodes: usize, lines: usize) -> Graph {
    let mut builder = Builder::new();
    for node in 0..nodes {
        builder.node(&format!("n{node}"), None).expect("a node");
    }
    for line in 0..lines {
        let [a, b] = if line < nodes { [line, (line + 1) % nodes] } else { random.some(nodes) };
        let delay_ns = 1_000_000 + random.below(19_000_000) as u64;
        builder.line(NodeId(a as u32), NodeId(b as u32), Some(125_000_000), delay_ns).expect("a line");
    }
    builder.build()
}
