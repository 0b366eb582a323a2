//! The 15 networks of the dissertation's domain-scale study (§4.2.3, Table 4.2), from the Internet Topology
//! Zoo. The README of this crate names source and licence.

use crate::import::{self, Defaults, Network};

/// A built-in network.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// The name in the Topology Zoo.
    pub name: &'static str,
    /// The row of Table 4.2.
    pub table: Row,
    /// How this network differs from that row, and why.
    pub differs: Option<&'static str>,
    text: &'static str,
}

/// A row of Table 4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of lines, which the table calls edges.
    pub lines: usize,
    /// The number of access nodes, which have degree one.
    pub access_nodes: usize,
}

macro_rules! builtin {
    ($name:literal, $nodes:literal, $lines:literal, $access_nodes:literal, $differs:expr) => {
        Builtin {
            name: $name,
            table: Row { nodes: $nodes, lines: $lines, access_nodes: $access_nodes },
            differs: $differs,
            text: include_str!(concat!("../networks/", $name, ".net")),
        }
    };
}

/// All built-in networks, from the sparsest to the densest, in the order of Fig. 4.17.
pub const BUILTIN: &[Builtin] = &[
    builtin!("Uninett2011", 69, 98, 11, None),
    builtin!(
        "Bren",
        37,
        42,
        20,
        Some("the Topology Zoo has 38 lines; where four more come from is not known")
    ),
    builtin!("SwitchL3", 42, 63, 12, None),
    builtin!("PionierL3", 38, 52, 9, Some("ten nodes have one line, as in the Topology Zoo")),
    builtin!("Geant2012", 40, 61, 8, None),
    builtin!("Bics", 33, 48, 5, None),
    builtin!("Iij", 37, 65, 10, None),
    builtin!("Aarnet", 21, 26, 4, None),
    builtin!("Ans", 20, 27, 3, None),
    builtin!(
        "Internetmci",
        23,
        43,
        5,
        Some(
            "the Topology Zoo has 45 lines, 33 if parallel ones count once; with the 4 added neither gives 43"
        )
    ),
    builtin!("Nsfnet", 13, 15, 3, None),
    builtin!("Janetlense", 20, 40, 3, None),
    builtin!("Goodnet", 17, 31, 4, None),
    builtin!("Gridnet", 12, 23, 3, None),
    builtin!("Globalcenter", 12, 39, 3, None),
];

impl Builtin {
    /// Finds a network by its name, ignoring case.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        BUILTIN.iter().find(|network| network.name.eq_ignore_ascii_case(name))
    }

    /// Returns the network as a graph. Delays are those of light in fibre between the locations of the nodes.
    ///
    /// # Panics
    /// Never: a test reads all networks.
    #[must_use]
    pub fn network(&self, defaults: &Defaults) -> Network {
        import::read(self.text.as_bytes(), defaults).expect("what is built in is sound")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;

    fn row(graph: &Graph) -> Row {
        let access_nodes = graph.access_nodes().len();
        Row { nodes: graph.nodes().len(), lines: graph.lines(), access_nodes }
    }

    /// For 13 networks the nodes and lines match the table, and for 12 all three numbers.
    #[test]
    fn table_4_2() {
        let mut different = Vec::new();
        for builtin in BUILTIN {
            let network = builtin.network(&Defaults::default());
            assert_eq!(network.name, builtin.name);
            let ours = row(&network.graph);
            assert_eq!(ours == builtin.table, builtin.differs.is_none(), "{}: {ours:?}", builtin.name);
            if ours != builtin.table {
                different.push((builtin.name, ours));
            }
        }
        let bren = Row { nodes: 37, lines: 38, access_nodes: 20 };
        let internetmci = Row { nodes: 23, lines: 49, access_nodes: 5 };
        let pionier = Row { nodes: 38, lines: 52, access_nodes: 10 };
        assert_eq!(different, [("Bren", bren), ("PionierL3", pionier), ("Internetmci", internetmci)]);
        assert!(
            BUILTIN.is_sorted_by_key(|b| b.table.lines * 2 * 10_000 / (b.table.nodes * (b.table.nodes - 1)))
        );
    }

    #[test]
    fn every_node_reaches_every_other() {
        for builtin in BUILTIN {
            let graph = builtin.network(&Defaults::default()).graph;
            let (mut reached, mut todo) = (vec![false; graph.nodes().len()], vec![crate::graph::NodeId(0)]);
            while let Some(node) = todo.pop() {
                if !std::mem::replace(&mut reached[node.index()], true) {
                    todo.extend(graph.outgoing(node).iter().map(|id| graph.link(*id).to));
                }
            }
            assert!(reached.iter().all(|r| *r), "{}", builtin.name);
        }
    }

    #[test]
    fn names() {
        assert_eq!(Builtin::named("nsfnet").map(|b| b.name), Some("Nsfnet"));
        assert!(Builtin::named("arpanet").is_none());
    }
}
