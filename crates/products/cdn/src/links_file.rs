//! Reads the files that describe networks: lines between autonomous systems, and what they are.
//!
//! * Lines, in any of these forms, one a line; `#` begins a comment:
//!   * `A|B|-1` or `A|B|0`, CAIDA's serial-1: A sells transit to B, or both are peers. A fourth field, which
//!     serial-2 has, is ignored.
//!   * `A B`, as in the lists of the Internet Research Lab: connected, relation unknown. `A B peer` and
//!     `A B provider` say what A is to B, and a last word `10G`, `400M` is the capacity of each direction in
//!     bits a second.
//! * Roles: `AS|source|Content` as in CAIDA's as2types, whose kinds are `Content`, `Enterprise` and
//!   `Transit/Access`, or `AS content`, `AS access`, `AS transit`.
//!
//! Both have a limit on everything, and an error says its line.

use crate::as_graph::{AsGraph, AsGraphError, Line, Relation, Role};

/// Largest file, bytes.
pub const BYTES_MAX: usize = 1 << 28;

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LinksErrorKind {
    /// Something else was expected.
    #[error("expected {0}, got {1:?}")]
    Expected(&'static str, String),
    /// The graph refuses it.
    #[error(transparent)]
    Graph(#[from] AsGraphError),
    /// The file is too large.
    #[error("the file is over {BYTES_MAX} bytes")]
    TooLarge,
    /// The file has no line of this kind.
    #[error("there is no line with {0}")]
    Empty(&'static str),
}

/// The reason why a file cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct LinksError {
    /// The number of the line, from 1.
    pub line: usize,
    /// What is wrong.
    pub kind: LinksErrorKind,
}

/// The most characters of a word that an error shows.
const SHOWN_MAX: usize = 60;

pub(crate) fn expected<T>(what: &'static str, got: &str) -> Result<T, LinksErrorKind> {
    Err(LinksErrorKind::Expected(what, got.chars().take(SHOWN_MAX).collect()))
}

/// Calls `read` with every line that says something, without its comment. Returns how many there were.
///
/// # Errors
/// If the text is too large, and those of `read` with the number of the line.
pub(crate) fn each_line(
    text: &str,
    mut read: impl FnMut(&str) -> Result<(), LinksErrorKind>,
) -> Result<usize, LinksError> {
    if text.len() > BYTES_MAX {
        return Err(LinksError { line: 1, kind: LinksErrorKind::TooLarge });
    }
    let mut count = 0;
    for (place, line) in text.lines().enumerate() {
        let line = line.split_once('#').map_or(line, |(before, _)| before).trim();
        if !line.is_empty() {
            read(line).map_err(|kind| LinksError { line: place + 1, kind })?;
            count += 1;
        }
    }
    Ok(count)
}

/// Reads a file of lines. All places are access networks until their roles are set.
///
/// # Errors
/// If a line has another form, says something that contradicts another, or a limit is exceeded.
pub fn read(text: &str) -> Result<AsGraph, LinksError> {
    let mut graph = AsGraph::new();
    let count = each_line(text, |line| {
        let (a, b, relation, capacity_mbits) = statement(line)?;
        let ends = (graph.add(a)?, graph.add(b)?);
        Ok(graph.connect(Line { ends, relation, capacity_mbits })?)
    })?;
    if count == 0 {
        return Err(LinksError { line: 1, kind: LinksErrorKind::Empty("two places that are connected") });
    }
    Ok(graph)
}

type Statement<'a> = (&'a str, &'a str, Relation, Option<f64>);

fn statement(line: &str) -> Result<Statement<'_>, LinksErrorKind> {
    if line.contains('|') {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [a, b, relation] = fields[..fields.len().min(3)] else {
            return expected("two autonomous systems and -1 or 0 between bars", line);
        };
        let relation = match relation {
            "-1" => Relation::Provider,
            "0" => Relation::Peer,
            other => return expected("-1 (the first sells transit to the second) or 0 (peers)", other),
        };
        return Ok((a, b, relation, None));
    }
    let mut words = line.split_whitespace();
    let (Some(a), Some(b)) = (words.next(), words.next()) else {
        return expected("the names of two places", line);
    };
    let (mut relation, mut capacity) = (None, None);
    for word in words {
        match (word, capacity_mbits(word)) {
            ("peer", _) if relation.is_none() => relation = Some(Relation::Peer),
            ("provider", _) if relation.is_none() => relation = Some(Relation::Provider),
            (_, Some(mbits)) if capacity.is_none() => capacity = Some(mbits),
            _ => return expected("peer, provider, or a capacity such as 10G or 400M, each once", word),
        }
    }
    Ok((a, b, relation.unwrap_or(Relation::Unknown), capacity))
}

/// Reads a rate with a unit, in Mbit/s; `None` if it is none, or not within 1 bit/s and 1 Pbit/s.
pub(crate) fn capacity_mbits(word: &str) -> Option<f64> {
    let factor = match word.chars().last()? {
        'T' => 1e6,
        'G' => 1e3,
        'M' => 1.0,
        'k' => 1e-3,
        _ => return None,
    };
    let number = &word[..word.len() - 1];
    let digits = number.chars().all(|c| c.is_ascii_digit() || c == '.');
    let mbits = number.parse::<f64>().ok().filter(|_| digits)? * factor;
    (1e-6..=1e9).contains(&mbits).then_some(mbits)
}

/// Reads a file of roles into a graph; places that the graph does not have are passed over. Returns how many
/// places have a role now.
///
/// # Errors
/// If a line has another form.
pub fn read_roles(text: &str, graph: &mut AsGraph) -> Result<usize, LinksError> {
    let mut set = 0;
    each_line(text, |line| {
        let (name, kind) = match line.split_once('|') {
            Some((name, rest)) => (name, rest.rsplit('|').next().unwrap_or_default()),
            None => line.split_once(char::is_whitespace).unwrap_or((line, "")),
        };
        let role = match kind.trim().to_ascii_lowercase().as_str() {
            "content" => Role::Content,
            "access" | "transit/access" | "enterprise" | "enterpise" => Role::Access,
            "transit" => Role::Transit,
            other => return expected("content, access, transit, Transit/Access or Enterprise", other),
        };
        if let Some(index) = graph.by_name(name.trim()) {
            // CAIDA has one kind for both: a place that sells transit is transit.
            let sells = graph.ases()[index as usize].role == Role::Transit;
            graph.set_role(index, if role == Role::Access && sells { Role::Transit } else { role });
            set += 1;
        }
        Ok(())
    })?;
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_are_read() {
        let text = "# source: hand\n1|2|-1\n1|3|0|bgp\n\nOslo Bergen 10G\n Oslo 1 provider  # paid\n\
                    Bergen 2 2.5G peer\n";
        let graph = read(text).expect("a graph");
        let line = |a: &str, b: &str, relation, capacity_mbits| {
            let index = |name| graph.by_name(name).expect("a place");
            Line { ends: (index(a), index(b)), relation, capacity_mbits }
        };
        let expected = [
            line("1", "2", Relation::Provider, None),
            line("1", "3", Relation::Peer, None),
            line("Oslo", "Bergen", Relation::Unknown, Some(10_000.0)),
            line("Oslo", "1", Relation::Provider, None),
            line("Bergen", "2", Relation::Peer, Some(2_500.0)),
        ];
        assert_eq!(graph.lines(), expected);
    }

    #[test]
    fn errors_say_the_line() {
        for (text, line, says) in [
            ("", 1, "no line with"),
            ("1|2", 1, "between bars"),
            ("1|2|0\n1|2|7", 2, "-1 (the first sells"),
            ("1 2\n\n1", 3, "two places"),
            ("1 2 10X", 1, "a capacity such as"),
            ("1 2 1e3G", 1, "a capacity such as"),
            ("1 2 peer provider", 1, "each once"),
            ("1 1", 1, "to itself"),
            ("1|2|0\n2|1|-1", 2, "connected twice"),
            ("|2|0", 1, "no name"),
        ] {
            let error = read(text).expect_err(text);
            assert_eq!(error.line, line, "{text}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn roles_are_read() {
        let mut graph = read("1|2|-1\n1|3|-1\n").expect("a graph");
        graph.classify(2, || false);
        let text =
            "# as2types\n1|CAIDA_class|Transit/Access\n2|CAIDA_class|Content\n9|x|Enterprise\n3 access\n";
        assert_eq!(read_roles(text, &mut graph), Ok(3));
        let roles: Vec<Role> = graph.ases().iter().map(|it| it.role).collect();
        assert_eq!(roles, [Role::Transit, Role::Content, Role::Access]);
        assert!(read_roles("1 mine", &mut graph).is_err());
    }
}
