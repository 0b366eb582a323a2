//! Answers where the next caches should be: given places with viewers, lines with capacities and an origin,
//! each next cache is put where it helps most, by the allocator of the study.
//!
//! Each row of the demand is so many streams of one rate in one place. Such a stream is served by the nearest
//! cache, by the number of lines (of equal ones the first in the file); what the cache does not have, and
//! what is nearer to the origin, comes from the origin. A choice is greedy, and each candidate is evaluated
//! exactly: all streams share the lines by max-min fairness. The best candidate delivers the most; of those
//! that deliver as much, the one that loads the lines least.

use anabranch_topology::max_min::{Class, MaxMin};

use crate::as_graph::AsGraph;
use crate::links_file::{LinksError, LinksErrorKind, each_line, expected};
use crate::prefixes::Prefixes;
use crate::routes::{Routes, capacities};

/// Most rows of a demand.
pub const ROWS_MAX: usize = 100_000;
/// Most streams of a row.
pub const STREAMS_MAX: f64 = 1e12;
/// Most sites that are candidates.
pub const SITES_MAX: usize = 5_000;
/// Deliveries that differ by less than this part are equal.
const EQUAL: f64 = 1e-9;

/// Streams that are wanted in one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The place, an index of [`AsGraph::ases`].
    pub place: u32,
    /// The number of streams.
    pub streams: f64,
    /// The rate of each, Mbit/s.
    pub mbits: f64,
}

/// Returns the place of a name, or of an address by the longest prefix.
fn place(graph: &AsGraph, prefixes: &Prefixes, name: &str) -> Result<u32, LinksErrorKind> {
    let named = graph.by_name(name);
    let found = named.or_else(|| prefixes.origin(name).and_then(|origin| graph.by_name(origin)));
    found.map_or_else(|| expected("a place of the links, or an address with a prefix of one", name), Ok)
}

/// Reads a demand: `PLACE STREAMS RATE` in each line, the rate of a stream as `5M` (bits a second).
///
/// # Errors
/// If a line has another form, names a place that the graph does not have, or there are too many.
pub fn read_demand(text: &str, graph: &AsGraph, prefixes: &Prefixes) -> Result<Vec<Row>, LinksError> {
    let mut rows = Vec::new();
    each_line(text, |line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, streams, rate] = words[..] else {
            return expected("a place, a number of streams and the rate of each, such as Oslo 200 5M", line);
        };
        if rows.len() >= ROWS_MAX {
            return Err(LinksErrorKind::Graph(crate::as_graph::AsGraphError::TooMany("rows", ROWS_MAX)));
        }
        let count = streams.parse::<f64>().ok().filter(|count| *count > 0.0 && *count <= STREAMS_MAX);
        let Some(count) = count else { return expected("a number of streams over 0", streams) };
        let Some(mbits) = crate::links_file::capacity_mbits(rate) else {
            return expected("the rate of a stream, such as 5M or 800k", rate);
        };
        rows.push(Row { place: place(graph, prefixes, name)?, streams: count, mbits });
        Ok(())
    })?;
    if rows.is_empty() {
        return Err(LinksError { line: 1, kind: LinksErrorKind::Empty("a place that wants streams") });
    }
    Ok(rows)
}

/// Reads the places where a cache may be: one in each line.
///
/// # Errors
/// If a line names a place that the graph does not have, or there are too many.
pub fn read_sites(text: &str, graph: &AsGraph, prefixes: &Prefixes) -> Result<Vec<u32>, LinksError> {
    let mut sites = Vec::new();
    each_line(text, |line| {
        let site = place(graph, prefixes, line)?;
        if !sites.contains(&site) {
            sites.push(site);
        }
        if sites.len() > SITES_MAX {
            return Err(LinksErrorKind::Graph(crate::as_graph::AsGraphError::TooMany("sites", SITES_MAX)));
        }
        Ok(())
    })?;
    if sites.is_empty() {
        return Err(LinksError { line: 1, kind: LinksErrorKind::Empty("a place where a cache may be") });
    }
    Ok(sites)
}

/// What is delivered with some caches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delivery {
    /// What all streams get, Mbit/s.
    pub delivered_mbits: f64,
    /// Streams that get their whole rate, percent.
    pub whole_percent: f64,
    /// What all lines together carry, Mbit/s.
    pub carried_mbits: f64,
    /// The fullest line, percent of its capacity.
    pub fullest_percent: f64,
}

impl Delivery {
    /// Whether this is better than another.
    #[must_use]
    pub fn is_better(&self, than: &Self) -> bool {
        let margin = EQUAL * self.delivered_mbits.max(than.delivered_mbits);
        let gain = self.delivered_mbits - than.delivered_mbits;
        gain > margin || (gain >= -margin && self.carried_mbits < than.carried_mbits * (1.0 - EQUAL))
    }
}

/// A question: where caches should be.
#[derive(Clone, Debug)]
pub struct Question {
    rows: Vec<Row>,
    /// The place of each row among the targets of the routes.
    target_of: Vec<usize>,
    sites: Vec<u32>,
    hits: f64,
    routes: Routes,
    capacities: Vec<f64>,
}

/// The most paths of a question: each site, and the origin, has one to each place of the demand.
const PATHS_MAX: usize = 5_000_000;

/// The reason why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// The origin cannot reach a place of the demand.
    #[error(
        "there is no path from the origin to {0:?}; give its lines, or the relations with which it has one"
    )]
    Unreachable(String),
    /// There are too many sites for the places of the demand.
    #[error(
        "{sites} sites for {places} places are too many: name at most {SITES_MAX} sites, and so few that \
         sites times places is at most {PATHS_MAX}"
    )]
    TooMany {
        /// The sites.
        sites: usize,
        /// The places of the demand.
        places: usize,
    },
}

impl Question {
    /// Makes a question. A cache serves the part `hits` of the streams, 0 to 1; the origin serves the rest.
    ///
    /// # Errors
    /// If a row cannot be reached from the origin, or there are too many sites.
    pub fn new(
        graph: &AsGraph,
        origin: u32,
        rows: Vec<Row>,
        sites: Vec<u32>,
        hits: f64,
        mbits: (f64, f64),
    ) -> Result<Self, QuestionError> {
        let mut targets: Vec<u32> = rows.iter().map(|row| row.place).collect();
        targets.sort_unstable();
        targets.dedup();
        if sites.len() > SITES_MAX || (sites.len() + 1).saturating_mul(targets.len()) > PATHS_MAX {
            return Err(QuestionError::TooMany { sites: sites.len(), places: targets.len() });
        }
        let sources: Vec<u32> = std::iter::once(origin).chain(sites.iter().copied()).collect();
        let routes = Routes::new(graph, &sources, &targets);
        let target = |row: &Row| targets.binary_search(&row.place).expect("each row is a target");
        let target_of: Vec<usize> = rows.iter().map(target).collect();
        if let Some(missing) = target_of.iter().find(|target| routes.path(0, **target).is_none()) {
            return Err(QuestionError::Unreachable(graph.ases()[targets[*missing] as usize].name.clone()));
        }
        let capacities = capacities(graph, mbits.0, mbits.1);
        Ok(Self { rows, target_of, sites, hits: hits.clamp(0.0, 1.0), routes, capacities })
    }

    /// Returns the number of sites.
    #[must_use]
    pub const fn sites(&self) -> usize {
        self.sites.len()
    }

    /// Returns the place of a site.
    ///
    /// # Panics
    /// If there is no such site.
    #[must_use]
    pub fn site(&self, number: usize) -> u32 {
        self.sites[number]
    }

    /// Returns what all rows want, Mbit/s.
    #[must_use]
    pub fn wanted_mbits(&self) -> f64 {
        self.rows.iter().map(|row| row.streams * row.mbits).sum()
    }

    /// Evaluates caches at these sites.
    #[must_use]
    pub fn deliver(&self, caches: &[usize]) -> Delivery {
        let mut classes = Vec::with_capacity(2 * self.rows.len());
        for (row, target) in self.rows.iter().zip(&self.target_of) {
            let path = |source: usize| self.routes.path(source, *target);
            let origin = path(0).expect("the origin reaches each row");
            let near = caches.iter().filter_map(|cache| Some((path(cache + 1)?, *cache)));
            let near = near.min_by_key(|(path, cache)| (path.len(), *cache)).map(|(path, _)| path);
            let near = near.filter(|path| path.len() < origin.len());
            let hits = if near.is_some() { self.hits } else { 0.0 };
            for (path, part) in [(near, hits), (Some(origin), 1.0 - hits)] {
                if let Some(path) = path.filter(|_| part > 0.0) {
                    classes.push(Class { path, weight: row.streams * part, limit: row.mbits });
                }
            }
        }
        let mut shares = MaxMin::new();
        shares.share(&self.capacities, self.routes.links(), &classes);
        self.sum(&classes, shares.rates())
    }

    fn sum(&self, classes: &[Class], rates: &[f64]) -> Delivery {
        let (mut delivered, mut whole, mut all) = (0.0, 0.0, 0.0);
        let mut loads = vec![0.0; self.capacities.len()];
        for (class, rate) in classes.iter().zip(rates) {
            delivered += class.weight * rate;
            all += class.weight;
            whole += if *rate >= class.limit * (1.0 - 1e-6) { class.weight } else { 0.0 };
            for link in &self.routes.links()[class.path.start as usize..class.path.end as usize] {
                loads[*link as usize] += class.weight * rate;
            }
        }
        let full = loads.iter().zip(&self.capacities).map(|(load, capacity)| load / capacity);
        Delivery {
            delivered_mbits: delivered,
            whole_percent: 100.0 * whole / all,
            carried_mbits: loads.iter().sum(),
            fullest_percent: 100.0 * full.fold(0.0, f64::max),
        }
    }

    /// Returns the best of the evaluated candidates, each a site and its delivery: of equal ones the first.
    #[must_use]
    pub fn best(candidates: &[(usize, Delivery)]) -> Option<(usize, Delivery)> {
        let mut best: Option<(usize, Delivery)> = None;
        for candidate in candidates {
            if best.is_none_or(|best| candidate.1.is_better(&best.1)) {
                best = Some(*candidate);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links_file;

    /// An origin behind a thin line, two towns of different size behind a hub, and a village of its own.
    fn question(hits: f64) -> Question {
        let text = "origin hub 100M\nhub big 1G\nhub small 1G\norigin village 50M\n";
        let graph = links_file::read(text).expect("a graph");
        let prefixes = Prefixes::read("192.0.2.0/24 big\n").expect("prefixes");
        let rows = read_demand("192.0.2.7 60 5M\nsmall 20 5M # 100\nvillage 4 5M", &graph, &prefixes);
        let sites = read_sites("small\nvillage\nbig\nhub\n", &graph, &prefixes).expect("sites");
        let origin = graph.by_name("origin").expect("a place");
        let rows = rows.expect("a demand");
        Question::new(&graph, origin, rows, sites, hits, (1e4, 1e4)).expect("a question")
    }

    fn greedy(question: &Question, count: usize) -> Vec<usize> {
        let mut chosen = Vec::new();
        for _ in 0..count {
            let rest = (0..question.sites()).filter(|site| !chosen.contains(site));
            let candidates: Vec<_> =
                rest.map(|site| (site, question.deliver(&[chosen.as_slice(), &[site]].concat()))).collect();
            chosen.extend(Question::best(&candidates).map(|best| best.0));
        }
        chosen
    }

    #[test]
    fn of_equal_deliveries_the_lighter_load_wins() {
        let question = question(1.0);
        assert_eq!(question.wanted_mbits(), 420.0);
        let none = question.deliver(&[]);
        assert!((none.delivered_mbits - 120.0).abs() < 1e-6 && none.fullest_percent > 99.9);
        // A cache at the hub serves both towns. One in the large town leaves room for the small one, and the
        // lines carry less.
        let (hub, big) = (question.deliver(&[3]), question.deliver(&[2]));
        assert_eq!((hub.delivered_mbits, hub.whole_percent, hub.carried_mbits), (420.0, 100.0, 420.0));
        assert_eq!((big.delivered_mbits, big.whole_percent, big.carried_mbits), (420.0, 100.0, 220.0));
        assert_eq!(greedy(&question, 4), [2, 0, 1, 3]);
    }

    #[test]
    fn misses_come_from_the_origin() {
        let question = question(0.5);
        // Half of 400 Mbit/s must pass 100.
        let hub = question.deliver(&[3]);
        assert!((hub.delivered_mbits - 320.0).abs() < 1e-6, "{hub:?}");
    }

    #[test]
    fn errors_say_what_to_do() {
        let graph = links_file::read("a b 1G\nc d 1G\n").expect("a graph");
        let none = Prefixes::default();
        for (text, says) in [
            ("", "there is no line with a place"),
            ("a 1", "such as Oslo 200 5M"),
            ("a 0 5M", "a number of streams over 0"),
            ("a 1 5", "such as 5M or 800k"),
            ("x 1 5M", "a place of the links"),
        ] {
            let error = read_demand(text, &graph, &none).expect_err(text).to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(read_sites("x", &graph, &none).is_err() && read_sites("", &graph, &none).is_err());
        let rows = read_demand("c 1 5M", &graph, &none).expect("a demand");
        let error = Question::new(&graph, 0, rows, vec![1], 1.0, (1.0, 1.0)).expect_err("apart");
        assert!(error.to_string().contains("no path from the origin to \"c\""));
    }
}
