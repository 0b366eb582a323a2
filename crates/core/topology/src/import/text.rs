//! Reads and writes our own form, which has one statement per line.

use std::fmt::Write as _;

use super::{ImportError, ImportErrorKind, Raw, RawEdge, RawNode, capacity_bytes, degrees, expected};
use crate::graph::{Graph, LinkId};

/// The suffixes of a capacity and their factors, the largest first.
const BITS: &[(&str, u64)] = &[("G", 1_000_000_000), ("M", 1_000_000), ("k", 1_000), ("", 1)];
/// The units of a delay in nanoseconds, the largest first.
const TIMES: &[(&str, u64)] = &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Stands for an unknown location.
const NO_PLACE: &str = "?";

/// Whether a text begins with a statement of this form, after comments or not.
pub(super) fn is_statement(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let word = |line: &str| line.split_whitespace().next().map(str::to_owned);
    match lines.next().and_then(word).as_deref() {
        Some("network" | "link" | "directed") => true,
        // GML has this word only within a graph.
        Some("node") => true,
        _ => false,
    }
}

pub(super) fn read(text: &str) -> Result<Raw, ImportError> {
    let mut raw = Raw::default();
    for (place, line) in text.lines().enumerate() {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            statement(&mut raw, line, place + 1).map_err(|kind| ImportError { line: place + 1, kind })?;
        }
    }
    Ok(raw)
}

fn statement(raw: &mut Raw, line: &str, number: usize) -> Result<(), ImportErrorKind> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    match word {
        "network" => rest.clone_into(&mut raw.name),
        "directed" => raw.directed = true,
        "node" => {
            let (label, place) = match rest.rsplit_once(" @ ") {
                Some((label, place)) => (label, Some(place)),
                None => (rest, None),
            };
            let (mut latitude, mut longitude) = (None, None);
            // The name may contain an @ without a location behind it.
            if let Some(place) = place.filter(|place| place.trim() != NO_PLACE) {
                let mut words = place.split_whitespace();
                let (Some(lat), Some(long), None) = (words.next(), words.next(), words.next()) else {
                    return expected("latitude and longitude after @", place);
                };
                (latitude, longitude) = (Some(degrees(lat, 90.0)?), Some(degrees(long, 180.0)?));
            }
            let id = raw.nodes.len().to_string();
            raw.add_node(RawNode { id, label: label.to_owned(), latitude, longitude, line: number })?;
        }
        "link" => {
            let mut words = rest.split_whitespace();
            let (Some(source), Some(target)) = (words.next(), words.next()) else {
                return expected("link and the numbers of two nodes", line);
            };
            let mut edge =
                RawEdge { source: source.into(), target: target.into(), line: number, ..RawEdge::default() };
            for word in words {
                match (delay(word), capacity(word)) {
                    (Some(delay), _) if edge.delay_ns.is_none() => edge.delay_ns = Some(delay),
                    (None, Some(capacity)) if edge.capacity_bytes.is_none() => {
                        edge.capacity_bytes = Some(capacity);
                    }
                    _ => return expected("a capacity such as 155M or a delay such as 5ms", word),
                }
            }
            raw.add_edge(edge)?;
        }
        _ => return expected("network, directed, node or link", word),
    }
    Ok(())
}

/// Parses a number with a suffix, and multiplies it. The first suffix that leaves a number counts.
fn amount(word: &str, units: &[(&str, u64)]) -> Option<f64> {
    units.iter().find_map(|(unit, factor)| {
        let number = word.strip_suffix(unit)?;
        let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        is_number.then(|| number.parse::<f64>().ok()).flatten().map(|number| number * *factor as f64)
    })
}

fn capacity(word: &str) -> Option<u64> {
    amount(word, BITS).and_then(capacity_bytes)
}

fn delay(word: &str) -> Option<u64> {
    amount(word, TIMES).filter(|ns| *ns <= crate::graph::DELAY_MAX_NS as f64).map(|ns| ns.round() as u64)
}

/// Writes a whole number in the largest unit in which it is whole.
fn in_units(value: u64, units: &[(&str, u64)]) -> String {
    let fits = units.iter().find(|(_, factor)| value.is_multiple_of(*factor));
    fits.map_or_else(String::new, |(unit, factor)| format!("{}{unit}", value / factor))
}

pub(super) fn write(name: &str, graph: &Graph) -> String {
    let mut out = String::new();
    if !name.is_empty() {
        let _ = writeln!(out, "network {name}");
    }
    let lines: Vec<LinkId> =
        graph.link_ids().filter(|id| graph.link(*id).reverse.is_none_or(|r| *id < r)).collect();
    if lines.iter().any(|id| graph.link(*id).reverse.is_none()) {
        let _ = writeln!(out, "directed");
    }
    for node in graph.nodes() {
        let _ = match node.place {
            Some((latitude, longitude)) => writeln!(out, "node {} @ {latitude} {longitude}", node.name),
            None if node.name.contains('@') => writeln!(out, "node {} @ {NO_PLACE}", node.name),
            None => writeln!(out, "node {}", node.name),
        };
    }
    for id in lines {
        let link = graph.link(id);
        let capacity = link
            .capacity_bytes
            .map(|b| format!(" {}", in_units(b.saturating_mul(8), BITS)))
            .unwrap_or_default();
        let delay = in_units(link.delay_ns, TIMES);
        let _ = writeln!(out, "link {} {}{capacity} {delay}", link.from.0, link.to.0);
    }
    out
}
