//! Reads networks from text: GML and GraphML as the Internet Topology Zoo writes them (Knight et al., IEEE
//! JSAC 29(9), 2011), and our own form. The text may come from outside: no text causes a panic, and
//! everything has a limit.
//!
//! Our form has one statement per line; `#` begins a comment. Nodes are numbered from 0 in their order. The
//! capacity (bits per second) and the delay of a link are optional:
//!
//! ```text
//! network Nsfnet
//! node SEQSUINET, Rice University, Houston @ 29.76328 -95.36327
//! node access
//! link 0 1 155M 5ms
//! ```
//!
//! A line without a delay between two nodes with locations gets the delay of light in fibre along the great
//! circle.

mod gml;
mod graphml;
mod text;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::graph::{Builder, DELAY_MAX_NS, Graph, GraphError, NAME_MAX, NodeId};

/// The most bytes of a text.
pub const TEXT_MAX: usize = 16 << 20;
/// The deepest nesting of lists or elements.
pub const DEPTH_MAX: usize = 32;
/// The highest capacity that is believed, in bits per second.
pub const CAPACITY_MAX_BITS: f64 = 1e15;
/// The most nodes, and the most lines, of a text.
pub const ITEMS_MAX: usize = 1 << 18;

/// The most characters of a text from outside that an error repeats.
const QUOTED_CHARS: usize = 60;
/// The delay of light in fibre, at two thirds of its speed in vacuum: nanoseconds per kilometre.
const FIBRE_NS_PER_KM: f64 = 5_000.0;
const EARTH_RADIUS_KM: f64 = 6_371.0;

/// The values of lines whose text gives none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// The delay in nanoseconds of a line whose delay is neither given nor follows from locations. More than
    /// an hour counts as an hour.
    pub delay_ns: u64,
    /// The capacity in bytes per second.
    pub capacity_bytes: Option<u64>,
}

impl Default for Defaults {
    /// Returns a delay of 5 ms, as the dissertation's links have (§4.2.3), and no capacity.
    fn default() -> Self {
        Self { delay_ns: 5_000_000, capacity_bytes: None }
    }
}

/// A network that was read from a text.
#[derive(Clone, Debug)]
pub struct Network {
    /// The name; empty if the text gives none.
    pub name: String,
    /// The nodes and lines. A line is a pair of links, or a single link if the text calls the graph directed.
    pub graph: Graph,
    /// The number of ignored lines from a node to itself.
    pub ignored_loops: usize,
}

/// The reason why a text is not a usable network, and the line of the fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{kind}", if *line > 0 { format!("line {line}: ") } else { String::new() })]
pub struct ImportError {
    /// The line of the text, counted from 1; 0 if the error is about the whole text.
    pub line: usize,
    /// The kind of error.
    pub kind: ImportErrorKind,
}

/// The kind of error in a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportErrorKind {
    /// The text is longer than [`TEXT_MAX`].
    #[error("the text has {0} bytes, expected at most {TEXT_MAX}")]
    TooLong(usize),
    /// The text has more of these than the limit.
    #[error("too many {0}, expected at most {1}")]
    TooMany(&'static str, usize),
    /// The text is not UTF-8.
    #[error("not UTF-8, expected text")]
    Encoding,
    /// Something else should stand at this point.
    #[error("{found:?}, expected {expected}")]
    Expected {
        /// The expected content.
        expected: &'static str,
        /// The content that was found.
        found: String,
    },
    /// The text is not well-formed XML, for this reason.
    #[error("not well-formed XML ({0})")]
    Xml(String),
    /// Two nodes have this id.
    #[error("two nodes have the id {0:?}")]
    Twice(String),
    /// A line ends at a node that does not exist.
    #[error("there is no node {0:?}")]
    NoNode(String),
    /// The text has no node.
    #[error("no node in it, expected at least one")]
    Empty,
    /// The graph refuses a node or a link.
    #[error("{0}")]
    Graph(GraphError),
}

impl From<GraphError> for ImportErrorKind {
    fn from(error: GraphError) -> Self {
        Self::Graph(error)
    }
}

/// Reads a network in one of the three forms, which is detected from the text.
///
/// # Errors
/// If `bytes` are a network in none of them.
pub fn read(bytes: &[u8], defaults: &Defaults) -> Result<Network, ImportError> {
    let bad = |line, kind| ImportError { line, kind };
    if bytes.len() > TEXT_MAX {
        return Err(bad(0, ImportErrorKind::TooLong(bytes.len())));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|e| bad(line_at(bytes, e.valid_up_to()), ImportErrorKind::Encoding))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let begins = text.trim_start();
    let raw = if begins.starts_with('<') {
        graphml::read(text)
    } else if text::is_statement(begins) {
        text::read(text)
    } else {
        gml::read(text)
    }?;
    raw.build(defaults)
}

/// Writes a network in our own form. [`read`] gives the same network again, except for bits of a capacity
/// below a byte.
#[must_use]
pub fn write(name: &str, graph: &Graph) -> String {
    text::write(name, graph)
}

fn line_at(bytes: &[u8], at: usize) -> usize {
    1 + bytes.iter().take(at).filter(|b| **b == b'\n').count()
}

/// Returns the beginning of a text from outside, for an error.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn expected<T>(expected: &'static str, found: &str) -> Result<T, ImportErrorKind> {
    Err(ImportErrorKind::Expected { expected, found: quoted(found) })
}

/// Converts a capacity from bits to bytes per second. Returns `None`, for unknown, if no link can have this
/// capacity.
fn capacity_bytes(bits: f64) -> Option<u64> {
    (8.0..=CAPACITY_MAX_BITS).contains(&bits).then_some((bits / 8.0) as u64)
}

fn degrees(text: &str, max: f64) -> Result<f64, ImportErrorKind> {
    match text.parse::<f64>() {
        Ok(value) if value.abs() <= max => Ok(value),
        _ => expected("degrees", text),
    }
}

/// The contents of a text before they become a graph.
#[derive(Clone, Debug, Default)]
struct Raw {
    name: String,
    directed: bool,
    nodes: Vec<RawNode>,
    edges: Vec<RawEdge>,
}

#[derive(Clone, Debug, Default)]
struct RawNode {
    id: String,
    label: String,
    latitude: Option<f64>,
    longitude: Option<f64>,
    line: usize,
}

#[derive(Clone, Debug, Default)]
struct RawEdge {
    source: String,
    target: String,
    capacity_bytes: Option<u64>,
    delay_ns: Option<u64>,
    line: usize,
}

impl Raw {
    fn add_node(&mut self, node: RawNode) -> Result<(), ImportErrorKind> {
        if self.nodes.len() >= ITEMS_MAX {
            return Err(ImportErrorKind::TooMany("nodes", ITEMS_MAX));
        }
        self.nodes.push(node);
        Ok(())
    }

    fn add_edge(&mut self, edge: RawEdge) -> Result<(), ImportErrorKind> {
        if self.edges.len() >= ITEMS_MAX {
            return Err(ImportErrorKind::TooMany("lines", ITEMS_MAX));
        }
        self.edges.push(edge);
        Ok(())
    }

    fn build(self, defaults: &Defaults) -> Result<Network, ImportError> {
        if self.nodes.is_empty() {
            return Err(ImportError { line: 0, kind: ImportErrorKind::Empty });
        }
        let mut builder = Builder::new();
        let (mut ids, mut names, mut places) = (BTreeMap::new(), Names::default(), Vec::new());
        for node in self.nodes {
            let bad = |kind| ImportError { line: node.line, kind };
            let place = node.latitude.zip(node.longitude);
            let name = names.unlike(&builder, &node.label, &node.id);
            let id = builder.node(&name, place).map_err(|e| bad(e.into()))?;
            places.push(place);
            match ids.entry(node.id) {
                Entry::Vacant(free) => free.insert(id),
                Entry::Occupied(taken) => return Err(bad(ImportErrorKind::Twice(quoted(taken.key())))),
            };
        }
        let mut ignored_loops = 0;
        for edge in self.edges {
            let bad = |kind| ImportError { line: edge.line, kind };
            let end =
                |id: &String| ids.get(id).copied().ok_or_else(|| bad(ImportErrorKind::NoNode(quoted(id))));
            let (from, to): (NodeId, NodeId) = (end(&edge.source)?, end(&edge.target)?);
            if from == to {
                ignored_loops += 1;
                continue;
            }
            let by_place = places[from.index()].zip(places[to.index()]).map(|(a, b)| fibre_ns(a, b));
            let delay_ns = edge.delay_ns.or(by_place).unwrap_or(defaults.delay_ns.min(DELAY_MAX_NS));
            let capacity = edge.capacity_bytes.or(defaults.capacity_bytes);
            let added = match self.directed {
                true => builder.link(from, to, capacity, delay_ns),
                false => builder.line(from, to, capacity, delay_ns),
            };
            added.map_err(|e| bad(e.into()))?;
        }
        Ok(Network { name: one_line(&self.name), graph: builder.build(), ignored_loops })
    }
}

/// Replaces the control characters of a text, which a line or a terminal would obey.
fn one_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    line.trim().to_owned()
}

/// Makes names from labels such that no two nodes share one.
#[derive(Default)]
struct Names {
    /// The last number that each label was given.
    count: BTreeMap<String, usize>,
}

impl Names {
    fn unlike(&mut self, builder: &Builder, label: &str, id: &str) -> String {
        // This leaves room for " #" and a number.
        const MAX: usize = NAME_MAX - 12;
        let cut = |text: &str, max: usize| {
            let text = one_line(text);
            let end = (0..=text.len().min(max)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text[..end].trim().to_owned()
        };
        let name = match cut(label, NAME_MAX) {
            label if label.is_empty() => cut(&format!("node {id}"), NAME_MAX),
            label => label,
        };
        // A unique name stays as it is, however long.
        if !builder.has(&name) {
            return name;
        }
        let label = cut(&name, MAX);
        let count = self.count.entry(label.clone()).or_insert(1);
        loop {
            *count += 1;
            let name = format!("{label} #{count}");
            if !builder.has(&name) {
                return name;
            }
        }
    }
}

/// Returns how long light takes in fibre between two locations (latitude and longitude in degrees), in
/// nanoseconds.
fn fibre_ns(a: (f64, f64), b: (f64, f64)) -> u64 {
    let (lat_a, lat_b) = (a.0.to_radians(), b.0.to_radians());
    let half = |x: f64| (x / 2.0).sin().powi(2);
    let haversine = half(lat_b - lat_a) + lat_a.cos() * lat_b.cos() * half((b.1 - a.1).to_radians());
    let km = 2.0 * EARTH_RADIUS_KM * haversine.clamp(0.0, 1.0).sqrt().asin();
    (km * FIBRE_NS_PER_KM) as u64
}

#[cfg(test)]
mod tests;
