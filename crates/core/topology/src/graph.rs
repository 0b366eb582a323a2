//! Graphs of nodes and directed links. Ids are dense, so that they can index tables.

use std::collections::BTreeMap;

/// The most nodes of a graph.
pub const NODES_MAX: usize = 1 << 20;
/// The most directed links of a graph.
pub const LINKS_MAX: usize = 1 << 22;
/// The most bytes of a node's name.
pub const NAME_MAX: usize = 200;
/// The most nodes that an error names.
const CANDIDATES_MAX: usize = 5;
/// The longest delay of a link: an hour. The sum over a path of [`NODES_MAX`] links fits in 64 bits.
pub const DELAY_MAX_NS: u64 = 3_600_000_000_000;

/// The number of a node, in the order in which nodes were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// The number of a directed link, in the order in which links were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl NodeId {
    /// Returns the id as the index of a table.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    /// Returns the id as the index of a table.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A node of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The name, which no other node has.
    pub name: String,
    /// The location in degrees: latitude, longitude.
    pub place: Option<(f64, f64)>,
}

/// A link in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The node where the link begins.
    pub from: NodeId,
    /// The node where the link ends.
    pub to: NodeId,
    /// The capacity in bytes per second; `None` if it is unknown.
    pub capacity_bytes: Option<u64>,
    /// The propagation delay in nanoseconds.
    pub delay_ns: u64,
    /// The link in the other direction of the same line.
    pub reverse: Option<LinkId>,
}

/// The reason why something cannot be added to a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// There are more of these than the limit allows.
    #[error("too many {0}, expected at most {1}")]
    TooMany(&'static str, usize),
    /// The name is empty, too long, or has control characters.
    #[error("{0:?} is no name of a node, expected 1 to {NAME_MAX} bytes without control characters")]
    Name(String),
    /// Two nodes have this name.
    #[error("two nodes have the name {0:?}, expected different ones")]
    Twice(String),
    /// A link names a node that does not exist.
    #[error("there is no node {0}, expected 0 to {last}", last = i64::from(*.1) - 1)]
    NoNode(u32, u32),
    /// A link begins and ends at the same node.
    #[error("a link from {0:?} to itself")]
    Loop(String),
    /// The delay is over [`DELAY_MAX_NS`].
    #[error("a delay of {0} ns, expected at most an hour")]
    Delay(u64),
}

/// The reason why a name does not select a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// No node's name begins like this.
    #[error("there is no node {0:?}")]
    None(String),
    /// The names of several nodes begin like this, among them those listed.
    #[error("{0:?} may be any of several nodes: {names}", names = .1.join(", "))]
    Several(String, Vec<String>),
}

/// A graph that is being built.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    nodes: Vec<Node>,
    links: Vec<Link>,
    by_name: BTreeMap<String, NodeId>,
}

impl Builder {
    /// Creates an empty graph.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node.
    ///
    /// # Errors
    /// If there are already [`NODES_MAX`] nodes, or the name is not allowed or already used.
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
    /// If there are already [`LINKS_MAX`] links, an end does not exist, both ends are the same node, or the
    /// delay is too long.
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

    /// Adds a line: two links, one in each direction, that refer to each other. The link from `a` to `b` has
    /// the lower id.
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

    /// Returns the finished graph.
    #[must_use]
    pub fn build(self) -> Graph {
        let Self { nodes, links, by_name } = self;
        let outgoing = Adjacency::new(nodes.len(), &links, |link| link.from);
        let incoming = Adjacency::new(nodes.len(), &links, |link| link.to);
        Graph { nodes, links, by_name, outgoing, incoming }
    }
}

/// The links at each node, in the order of their ids, as compressed sparse rows.
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

/// A graph of nodes and directed links. Several links may lead from one node to another; paths over them are
/// different paths.
#[derive(Clone, Debug)]
pub struct Graph {
    nodes: Vec<Node>,
    links: Vec<Link>,
    by_name: BTreeMap<String, NodeId>,
    outgoing: Adjacency,
    incoming: Adjacency,
}

impl Graph {
    /// Returns all nodes; their ids are the indices.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns all links; their ids are the indices.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Returns a node of this graph.
    ///
    /// # Panics
    /// If the id is of another graph and too large.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Returns a link of this graph.
    ///
    /// # Panics
    /// If the id is of another graph and too large.
    #[must_use]
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.index()]
    }

    /// Iterates over the ids of all nodes.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// Iterates over the ids of all links.
    pub fn link_ids(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..self.links.len() as u32).map(LinkId)
    }

    /// Returns the links that begin at a node, in the order of their ids.
    #[must_use]
    pub fn outgoing(&self, node: NodeId) -> &[LinkId] {
        self.outgoing.of(node)
    }

    /// Returns the links that end at a node, in the order of their ids.
    #[must_use]
    pub fn incoming(&self, node: NodeId) -> &[LinkId] {
        self.incoming.of(node)
    }

    /// Returns the node with this name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// Finds the node that a person means: the node with this name, or else the only node whose name begins
    /// like this, ignoring case.
    ///
    /// # Errors
    /// If no node's name begins like this, or more than one does.
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

    /// Counts the lines between nodes. Two links that are the directions of one line count once.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.link_ids().filter(|id| self.link(*id).reverse.is_none_or(|reverse| *id < reverse)).count()
    }

    /// Returns the density: 2 × lines / (nodes × (nodes − 1)), or 0 for fewer than two nodes (dissertation
    /// §4.2.3, footnote 14).
    #[must_use]
    pub fn density(&self) -> f64 {
        let nodes = self.nodes.len() as f64;
        if nodes < 2.0 { 0.0 } else { 2.0 * self.lines() as f64 / (nodes * (nodes - 1.0)) }
    }

    /// Returns the nodes with exactly one neighbour. The dissertation calls them access nodes (§4.2.3,
    /// footnote 15).
    #[must_use]
    pub fn access_nodes(&self) -> Vec<NodeId> {
        let has_one = |node: &NodeId| {
            let mut ends = self.outgoing(*node).iter().map(|id| self.link(*id).to);
            ends.next().is_some_and(|first| ends.all(|end| end == first))
        };
        self.node_ids().filter(has_one).collect()
    }

    /// Returns the nodes that a path visits, both ends included.
    #[must_use]
    pub fn visits(&self, path: &[LinkId]) -> Vec<NodeId> {
        let first = path.first().map(|id| self.link(*id).from);
        first.into_iter().chain(path.iter().map(|id| self.link(*id).to)).collect()
    }

    /// Returns the sum of a path's delays in nanoseconds.
    #[must_use]
    pub fn delay_ns(&self, path: &[LinkId]) -> u64 {
        path.iter().map(|id| self.link(*id).delay_ns).sum()
    }

    /// Returns the least known capacity on a path in bytes per second.
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
