//! Nodes and directed links. Ids are dense, so that tables are indexed by them.

use std::collections::BTreeMap;

/// Nodes of a graph.
pub const NODES_MAX: usize = 1 << 20;
/// Directed links of a graph.
pub const LINKS_MAX: usize = 1 << 22;
/// Bytes of a node's name.
pub const NAME_MAX: usize = 200;
/// Nodes that an error names.
const CANDIDATES_MAX: usize = 5;
/// The longest delay of a link: an hour. The sum over a path of [`NODES_MAX`] links fits into 64 bits.
pub const DELAY_MAX_NS: u64 = 3_600_000_000_000;

/// A node, by its place in the order in which nodes were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A directed link, by its place in the order in which links were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl NodeId {
    /// As an index of a table.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    /// As an index of a table.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name, unlike that of any other node.
    pub name: String,
    /// Where it is, in degrees: latitude, longitude.
    pub place: Option<(f64, f64)>,
}

/// A link in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Where it begins.
    pub from: NodeId,
    /// Where it ends.
    pub to: NodeId,
    /// Bytes a second; `None` if nobody knows.
    pub capacity_bytes: Option<u64>,
    /// Propagation delay, nanoseconds.
    pub delay_ns: u64,
    /// The other direction of the same line.
    pub reverse: Option<LinkId>,
}

/// Why something cannot be added to a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// More than a limit allows.
    #[error("too many {0}, expected at most {1}")]
    TooMany(&'static str, usize),
    /// A name is empty, too long, or has control characters.
    #[error("{0:?} is no name of a node, expected 1 to {NAME_MAX} bytes without control characters")]
    Name(String),
    /// Two nodes have this name.
    #[error("two nodes have the name {0:?}, expected different ones")]
    Twice(String),
    /// A link names a node that is not there.
    #[error("there is no node {0}, expected 0 to {last}", last = i64::from(*.1) - 1)]
    NoNode(u32, u32),
    /// A link begins where it ends.
    #[error("a link from {0:?} to itself")]
    Loop(String),
    /// A delay is over [`DELAY_MAX_NS`].
    #[error("a delay of {0} ns, expected at most an hour")]
    Delay(u64),
}

/// Why a name means no node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// No name begins so.
    #[error("there is no node {0:?}")]
    None(String),
    /// Several names do, at least these.
    #[error("{0:?} may be any of several nodes: {names}", names = .1.join(", "))]
    Several(String, Vec<String>),
}

/// A graph that grows.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    nodes: Vec<Node>,
    links: Vec<Link>,
    by_name: BTreeMap<String, NodeId>,
}

impl Builder {
    /// An empty graph.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node.
    ///
    /// # Errors
    /// If there are [`NODES_MAX`], or the name is no name or taken.
    pub fn node(&mut self, name: &str, place: Option<(f64, f64)>) -> Result<NodeId, GraphError> {
        if self.nodes.len() >= NODES_MAX {
            return Err(GraphError::TooMany("nodes", NODES_MAX));
        }
        if name.is_empty() || name.len() > NAME_MAX || name.chars().any(char::is_control) {
            let shown: String = name.chars().take(NAME_MAX).collect();
            return Err(GraphError::Name(shown));
        }
        let id = NodeId(self.nodes.len() as u32);
        if self.by_name.contains_key(name) {
            return Err(GraphError::Twice(name.to_owned()));
        }
        self.by_name.insert(name.to_owned(), id);
        self.nodes.push(Node { name: name.to_owned(), place });
        Ok(id)
    }

    /// Whether a node has this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Adds a link in one direction.
    ///
    /// # Errors
    /// If there are [`LINKS_MAX`], an end is not there, both ends are one, or the delay is too long.
    pub fn link(
        &mut self,
        from: NodeId,
        to: NodeId,
        capacity_bytes: Option<u64>,
        delay_ns: u64,
    ) -> Result<LinkId, GraphError> {
        if self.links.len() >= LINKS_MAX {
            return Err(GraphError::TooMany("links", LINKS_MAX));
        }
        let count = self.nodes.len() as u32;
        if let Some(missing) = [from, to].into_iter().find(|node| node.0 >= count) {
            return Err(GraphError::NoNode(missing.0, count));
        }
        if from == to {
            return Err(GraphError::Loop(self.nodes[from.index()].name.clone()));
        }
        if delay_ns > DELAY_MAX_NS {
            return Err(GraphError::Delay(delay_ns));
        }
        let id = LinkId(self.links.len() as u32);
        self.links.push(Link { from, to, capacity_bytes, delay_ns, reverse: None });
        Ok(id)
    }

    /// Adds a line: two links, one in each direction, that know each other. The one from `a` to `b` has the
    /// lower id.
    ///
    /// # Errors
    /// As [`link`](Self::link).
    pub fn line(
        &mut self,
        a: NodeId,
        b: NodeId,
        capacity_bytes: Option<u64>,
        delay_ns: u64,
    ) -> Result<LinkId, GraphError> {
        if self.links.len() + 2 > LINKS_MAX {
            return Err(GraphError::TooMany("links", LINKS_MAX));
        }
        let there = self.link(a, b, capacity_bytes, delay_ns)?;
        let back = self.link(b, a, capacity_bytes, delay_ns)?;
        self.links[there.index()].reverse = Some(back);
        self.links[back.index()].reverse = Some(there);
        Ok(there)
    }

    /// The graph as it is now.
    #[must_use]
    pub fn build(self) -> Graph {
        let Self { nodes, links, by_name } = self;
        let outgoing = Adjacency::new(nodes.len(), &links, |link| link.from);
        let incoming = Adjacency::new(nodes.len(), &links, |link| link.to);
        Graph { nodes, links, by_name, outgoing, incoming }
    }
}

/// The links at each node, in the order of their ids: compressed sparse rows.
#[derive(Clone, Debug)]
struct Adjacency {
    first: Vec<u32>,
    links: Vec<LinkId>,
}

impl Adjacency {
    fn new(nodes: usize, links: &[Link], end: impl Fn(&Link) -> NodeId) -> Self {
        let mut first = vec![0u32; nodes + 1];
        for link in links {
            first[end(link).index() + 1] += 1;
        }
        for node in 0..nodes {
            first[node + 1] += first[node];
        }
        let mut next = first.clone();
        let mut row = vec![LinkId(0); links.len()];
        for (id, link) in links.iter().enumerate() {
            let place = &mut next[end(link).index()];
            row[*place as usize] = LinkId(id as u32);
            *place += 1;
        }
        Self { first, links: row }
    }

    fn of(&self, node: NodeId) -> &[LinkId] {
        &self.links[self.first[node.index()] as usize..self.first[node.index() + 1] as usize]
    }
}

/// Nodes and directed links. Several links may lead from one node to another: they are different paths.
#[derive(Clone, Debug)]
pub struct Graph {
    nodes: Vec<Node>,
    links: Vec<Link>,
    by_name: BTreeMap<String, NodeId>,
    outgoing: Adjacency,
    incoming: Adjacency,
}

impl Graph {
    /// All nodes, by their ids.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All links, by their ids.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// A node of this graph.
    ///
    /// # Panics
    /// If it is of another graph.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// A link of this graph.
    ///
    /// # Panics
    /// If it is of another graph.
    #[must_use]
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.index()]
    }

    /// The ids of all nodes.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// The ids of all links.
    pub fn link_ids(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..self.links.len() as u32).map(LinkId)
    }

    /// The links that begin at a node, in the order of their ids.
    #[must_use]
    pub fn outgoing(&self, node: NodeId) -> &[LinkId] {
        self.outgoing.of(node)
    }

    /// The links that end at a node, in the order of their ids.
    #[must_use]
    pub fn incoming(&self, node: NodeId) -> &[LinkId] {
        self.incoming.of(node)
    }

    /// The node of this name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// The node that a person means: of this name, or the only one whose name begins so, whatever the case of
    /// letters.
    ///
    /// # Errors
    /// If there is none, or more than one.
    pub fn find(&self, name: &str) -> Result<NodeId, FindError> {
        if let Some(id) = self.by_name(name) {
            return Ok(id);
        }
        let lower = name.to_lowercase();
        let begins = |id: &NodeId| self.node(*id).name.to_lowercase().starts_with(&lower);
        let found: Vec<NodeId> = self.node_ids().filter(begins).take(CANDIDATES_MAX + 1).collect();
        match found[..] {
            [id] => Ok(id),
            [] => Err(FindError::None(name.to_owned())),
            _ => {
                let names = found.iter().take(CANDIDATES_MAX).map(|id| self.node(*id).name.clone());
                Err(FindError::Several(name.to_owned(), names.collect()))
            }
        }
    }

    /// Lines between nodes: links that know their other direction count once with it.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.link_ids().filter(|id| self.link(*id).reverse.is_none_or(|reverse| *id < reverse)).count()
    }

    /// How dense it is: 2 × lines / (nodes × (nodes − 1)), 0 below two nodes (dissertation §4.2.3, footnote
    /// 14).
    #[must_use]
    pub fn density(&self) -> f64 {
        let nodes = self.nodes.len() as f64;
        if nodes < 2.0 { 0.0 } else { 2.0 * self.lines() as f64 / (nodes * (nodes - 1.0)) }
    }

    /// Nodes with one neighbour: access nodes, in the words of the dissertation (§4.2.3, footnote 15).
    #[must_use]
    pub fn access_nodes(&self) -> Vec<NodeId> {
        let has_one = |node: &NodeId| {
            let mut ends = self.outgoing(*node).iter().map(|id| self.link(*id).to);
            ends.next().is_some_and(|first| ends.all(|end| end == first))
        };
        self.node_ids().filter(has_one).collect()
    }

    /// The nodes that a path visits, with both ends.
    #[must_use]
    pub fn visits(&self, path: &[LinkId]) -> Vec<NodeId> {
        let first = path.first().map(|id| self.link(*id).from);
        first.into_iter().chain(path.iter().map(|id| self.link(*id).to)).collect()
    }

    /// The sum of a path's delays, nanoseconds.
    #[must_use]
    pub fn delay_ns(&self, path: &[LinkId]) -> u64 {
        path.iter().map(|id| self.link(*id).delay_ns).sum()
    }

    /// The least capacity on a path, bytes a second, among the links whose capacity is known.
    #[must_use]
    pub fn capacity_bytes(&self, path: &[LinkId]) -> Option<u64> {
        path.iter().filter_map(|id| self.link(*id).capacity_bytes).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacency_is_in_the_order_of_ids() {
        let mut builder = Builder::new();
        let nodes: Vec<_> = (0..4).map(|n| builder.node(&format!("n{n}"), None).expect("a node")).collect();
        let line = |b: &mut Builder, x: usize, y: usize| b.line(nodes[x], nodes[y], None, 1).expect("a line");
        let (a, b, c) = (line(&mut builder, 0, 1), line(&mut builder, 2, 0), line(&mut builder, 0, 1));
        let graph = builder.build();
        let back = |id: LinkId| graph.link(id).reverse.expect("a line has two directions");
        assert_eq!(graph.outgoing(nodes[0]), [a, back(b), c]);
        assert_eq!(graph.incoming(nodes[0]), [back(a), b, back(c)]);
        assert_eq!(graph.outgoing(nodes[3]), []);
        assert_eq!((graph.lines(), graph.links().len()), (3, 6));
        assert_eq!(graph.access_nodes(), [nodes[1], nodes[2]]);
        assert_eq!(graph.visits(&[b, a]), [nodes[2], nodes[0], nodes[1]]);
        assert_eq!(graph.by_name("n2"), Some(nodes[2]));
    }

    #[test]
    fn a_node_is_found_by_the_beginning_of_its_name() {
        let mut builder = Builder::new();
        let ids = ["Oslo", "Oslo 2", "Bergen"].map(|name| builder.node(name, None).expect("a node"));
        let graph = builder.build();
        assert_eq!(graph.find("Oslo"), Ok(ids[0]));
        assert_eq!(graph.find("ber"), Ok(ids[2]));
        assert_eq!(graph.find("Trondheim"), Err(FindError::None("Trondheim".into())));
        let several = FindError::Several("os".into(), vec!["Oslo".into(), "Oslo 2".into()]);
        assert_eq!(graph.find("os"), Err(several));
    }

    #[test]
    fn what_no_graph_has_is_refused() {
        let mut builder = Builder::new();
        let a = builder.node("a", None).expect("a node");
        let b = builder.node("b", None).expect("a node");
        assert_eq!(builder.node("a", None), Err(GraphError::Twice("a".into())));
        for name in ["", "a\nb", &"x".repeat(NAME_MAX + 1)] {
            assert!(matches!(builder.node(name, None), Err(GraphError::Name(_))), "{name}");
        }
        assert_eq!(builder.line(a, a, None, 0), Err(GraphError::Loop("a".into())));
        assert_eq!(builder.line(a, NodeId(7), None, 0), Err(GraphError::NoNode(7, 2)));
        assert_eq!(builder.link(a, b, None, DELAY_MAX_NS + 1), Err(GraphError::Delay(DELAY_MAX_NS + 1)));
        assert_eq!(builder.build().links().len(), 0);
    }
}
