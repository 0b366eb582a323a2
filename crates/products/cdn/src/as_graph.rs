//! Holds the graph of autonomous systems: who is connected to whom, who pays whom, and what each one is.

use std::collections::BTreeMap;

/// Most autonomous systems of a graph. The Internet has about 80,000.
pub const ASES_MAX: usize = 200_000;
/// Most lines of a graph. CAIDA's files have about 500,000.
pub const LINES_MAX: usize = 2_000_000;
/// Longest name of a place, bytes.
pub const NAME_MAX: usize = 100;

/// What an autonomous system is in the study (000 §3.4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It carries the traffic of others.
    Transit,
    /// It may have origin servers.
    Content,
    /// It has viewers, and may have a cache.
    Access,
}

impl Role {
    /// Returns the name of the role.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transit => "transit",
            Self::Content => "content",
            Self::Access => "access",
        }
    }
}

/// What the first end of a line is to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The first sells transit to the second.
    Provider,
    /// Both carry traffic of their customers only.
    Peer,
    /// The file does not say: anything may cross the line.
    Unknown,
}

/// A line between two autonomous systems, which carries traffic in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Both ends, as indices of [`AsGraph::ases`].
    pub ends: (u32, u32),
    /// What the first end is to the second.
    pub relation: Relation,
    /// Capacity of each direction, Mbit/s; `None` if it follows from what the ends are.
    pub capacity_mbits: Option<f64>,
}

/// An autonomous system, or any other place of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct As {
    /// Its number in decimal digits, or its name.
    pub name: String,
    /// What it is.
    pub role: Role,
}

/// Autonomous systems and the lines between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AsGraph {
    ases: Vec<As>,
    lines: Vec<Line>,
    by_name: BTreeMap<String, u32>,
    by_ends: BTreeMap<(u32, u32), u32>,
}

/// The reason why something cannot be added to a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AsGraphError {
    /// The name is empty, too long, or has control characters.
    #[error("{0:?} is no name of a place, expected 1 to {NAME_MAX} bytes without control characters")]
    Name(String),
    /// There are more of these than the limit allows.
    #[error("too many {0}, expected at most {1}")]
    TooMany(&'static str, usize),
    /// A line begins and ends at the same place.
    #[error("a line from {0:?} to itself")]
    Loop(String),
    /// Two lines connect the same places and say different things.
    #[error("{0:?} and {1:?} are connected twice with different relations or capacities; keep one line")]
    Twice(String, String),
}

impl AsGraph {
    /// Creates an empty graph.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns all autonomous systems.
    #[must_use]
    pub fn ases(&self) -> &[As] {
        &self.ases
    }

    /// Returns all lines.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Returns the index of the place with this name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Returns the indices of all places with this role, ascending.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.ases).filter(move |(_, it)| it.role == role).map(|(index, _)| index)
    }

    /// Returns the place with this name; adds it, as an access network, if there is none.
    ///
    /// # Errors
    /// If the name is not allowed, or there are already [`ASES_MAX`] places.
    pub fn add(&mut self, name: &str) -> Result<u32, AsGraphError> {
        if let Some(index) = self.by_name(name) {
            return Ok(index);
        }
        if name.is_empty() || name.len() > NAME_MAX || name.chars().any(char::is_control) {
            return Err(AsGraphError::Name(name.chars().take(NAME_MAX).collect()));
        }
        if self.ases.len() >= ASES_MAX {
            return Err(AsGraphError::TooMany("places", ASES_MAX));
        }
        let index = self.ases.len() as u32;
        self.ases.push(As { name: name.to_owned(), role: Role::Access });
        self.by_name.insert(name.to_owned(), index);
        Ok(index)
    }

    /// Adds a line; the same line twice is one.
    ///
    /// # Errors
    /// If both ends are the same place, another line connects them, or there are already [`LINES_MAX`] lines.
    ///
    /// # Panics
    /// If an end is not in the graph.
    pub fn connect(&mut self, line: Line) -> Result<(), AsGraphError> {
        let (a, b) = line.ends;
        let name = |index: u32| self.ases[index as usize].name.clone();
        if a == b {
            return Err(AsGraphError::Loop(name(a)));
        }
        if let Some(there) = self.by_ends.get(&(a.min(b), a.max(b))) {
            let there = self.lines[*there as usize];
            let turned = Line { ends: (b, a), ..line };
            let same = there == line || (line.relation != Relation::Provider && there == turned);
            return if same { Ok(()) } else { Err(AsGraphError::Twice(name(a), name(b))) };
        }
        if self.lines.len() >= LINES_MAX {
            return Err(AsGraphError::TooMany("lines", LINES_MAX));
        }
        self.by_ends.insert((a.min(b), a.max(b)), self.lines.len() as u32);
        self.lines.push(line);
        Ok(())
    }

    /// Sets what a place is.
    ///
    /// # Panics
    /// If the place is not in the graph.
    pub fn set_role(&mut self, index: u32, role: Role) {
        self.ases[index as usize].role = role;
    }

    /// Whether two places are connected by a line.
    #[must_use]
    pub fn connected(&self, a: u32, b: u32) -> bool {
        self.by_ends.contains_key(&(a.min(b), a.max(b)))
    }

    /// Sets the roles of all places from the lines alone: a place that sells transit, or has more than
    /// `leaf_lines_max` lines of unknown relation, is transit; of the others, every place whose turn
    /// `is_content` says is content, the rest are access networks.
    pub fn classify(&mut self, leaf_lines_max: usize, mut is_content: impl FnMut() -> bool) {
        let mut unknown = vec![0usize; self.ases.len()];
        let mut sells = vec![false; self.ases.len()];
        for line in &self.lines {
            let ends = [line.ends.0 as usize, line.ends.1 as usize];
            match line.relation {
                Relation::Provider => sells[ends[0]] = true,
                Relation::Unknown => ends.iter().for_each(|end| unknown[*end] += 1),
                Relation::Peer => {}
            }
        }
        for (index, place) in self.ases.iter_mut().enumerate() {
            let is_transit = sells[index] || unknown[index] > leaf_lines_max;
            place.role = match is_transit {
                true => Role::Transit,
                false if is_content() => Role::Content,
                false => Role::Access,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_graph_has_is_refused() {
        let mut graph = AsGraph::new();
        assert!(matches!(graph.add(""), Err(AsGraphError::Name(_))));
        assert!(matches!(graph.add("a\nb"), Err(AsGraphError::Name(_))));
        let (a, b) = (graph.add("1").expect("a place"), graph.add("2").expect("a place"));
        assert_eq!(graph.add("1"), Ok(a));
        let line = |ends, relation| Line { ends, relation, capacity_mbits: None };
        assert_eq!(graph.connect(line((a, a), Relation::Peer)), Err(AsGraphError::Loop("1".into())));
        assert_eq!(graph.connect(line((a, b), Relation::Peer)), Ok(()));
        assert_eq!(graph.connect(line((b, a), Relation::Peer)), Ok(()));
        let twice = Err(AsGraphError::Twice("2".into(), "1".into()));
        assert_eq!(graph.connect(line((b, a), Relation::Provider)), twice);
        assert!(graph.connected(b, a) && graph.lines().len() == 1);
    }

    #[test]
    fn roles_follow_from_lines() {
        let mut graph = AsGraph::new();
        for name in ["p", "x", "y"] {
            graph.add(name).expect("a place");
        }
        for leaf in [1, 2] {
            let line = Line { ends: (0, leaf), relation: Relation::Provider, capacity_mbits: None };
            graph.connect(line).expect("a line");
        }
        let mut turns = [true, false].into_iter();
        graph.classify(2, || turns.next().unwrap_or(false));
        let roles: Vec<Role> = graph.ases().iter().map(|it| it.role).collect();
        assert_eq!(roles, [Role::Transit, Role::Content, Role::Access]);
    }
}
