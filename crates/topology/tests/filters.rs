//! Fill and false positives of LIPSIN identifiers against what the definitions give: m = 248 bits, k = 5
//! different bits a tag, d = 8 tables. All seeds are fixed.

mod common;

use common::{Random, random_graph};
use topology::fid::{FILTER_BITS, TABLES, TAG_BITS};
use topology::graph::{Builder, LinkId, NodeId};
use topology::tags::{EncodeError, Tags};

/// Identifiers of each length.
const FILTERS: usize = 40_000;
/// Links of the domain from which paths are drawn.
const LINKS: usize = 4_096;
/// Links tried against each identifier that it was not made of.
const FOREIGN: usize = 16;

/// Links; with one table fill, false positive rate; with the best of eight by fill the same. Computed
/// (1 − (1 − k/m)^n) and by a simulation of its own, in Python.
const EXPECTED: [(usize, f64, f64, f64, f64); 10] = [
    (4, 0.0782, 1.8e-6, 0.0736, 1.3e-6),
    (8, 0.1504, 6.2e-5, 0.1414, 4.4e-5),
    (11, 0.2007, 2.8e-4, 0.1889, 2.0e-4),
    (16, 0.2781, 1.52e-3, 0.2624, 1.1e-3),
    (20, 0.3346, 3.9e-3, 0.3162, 2.9e-3),
    (24, 0.3866, 8.2e-3, 0.3659, 6.1e-3),
    (28, 0.4346, 1.49e-2, 0.4121, 1.1e-2),
    (32, 0.4789, 2.4e-2, 0.4548, 1.9e-2),
    (36, 0.5196, 3.7e-2, 0.4944, 2.8e-2),
    (48, 0.6238, 9.3e-2, 0.5959, 7.3e-2),
];

/// The chance that a tag of k different bits is in a filter with so many ones.
fn chance(ones: u32) -> f64 {
    (0..TAG_BITS).map(|i| (f64::from(ones) - i as f64).max(0.0) / (FILTER_BITS - i) as f64).product()
}

fn is_near(value: f64, expected: f64, tolerance: f64) -> bool {
    (value - expected).abs() <= tolerance * expected
}

#[test]
fn fill_and_false_positives_of_4_to_48_links() {
    let tags = Tags::lipsin(LINKS, 16);
    let mut random = Random(1);
    for (n, fill, rate, best_fill, best_rate) in EXPECTED {
        let (mut ones, mut hits, mut best_ones, mut best_hits) = (0u64, 0u64, 0u64, 0u64);
        for _ in 0..FILTERS {
            // Different links: the path, and then those that are not on it.
            let mut drawn: Vec<LinkId> = Vec::with_capacity(n + FOREIGN);
            while drawn.len() < n + FOREIGN {
                let link = LinkId(random.below(LINKS) as u32);
                if !drawn.contains(&link) {
                    drawn.push(link);
                }
            }
            let (path, foreign) = drawn.split_at(n);
            let filters: Vec<_> = (0..TABLES).map(|table| tags.filter(table, path)).collect();
            let hits_in = |table: usize| {
                foreign.iter().filter(|link| filters[table].has(&tags.tag(table, **link))).count() as u64
            };
            ones += u64::from(filters[0].ones());
            hits += hits_in(0);
            let best = (0..TABLES).min_by_key(|table| filters[*table].ones()).expect("tables");
            best_ones += u64::from(filters[best].ones());
            best_hits += hits_in(best);
        }
        let of_fill = |ones: u64| ones as f64 / (FILTERS * FILTER_BITS) as f64;
        let of_rate = |hits: u64| hits as f64 / (FILTERS * FOREIGN) as f64;
        println!(
            "{n:>2} links: fill {:.4} ({fill:.4}), rate {:.2e} ({rate:.2e}); best of 8: {:.4} \
             ({best_fill:.4}), {:.2e} ({best_rate:.2e})",
            of_fill(ones),
            of_rate(hits),
            of_fill(best_ones),
            of_rate(best_hits)
        );
        assert!(is_near(of_fill(ones), fill, 0.03), "{n}: fill {}", of_fill(ones));
        assert!(is_near(of_fill(best_ones), best_fill, 0.03), "{n}: best fill {}", of_fill(best_ones));
        if rate > 1e-3 {
            assert!(is_near(of_rate(hits), rate, 0.1), "{n}: rate {}", of_rate(hits));
            assert!(is_near(of_rate(best_hits), best_rate, 0.1), "{n}: best rate {}", of_rate(best_hits));
        } else {
            assert!(of_rate(hits) < 2.0 * rate + 1e-5, "{n}: rate {}", of_rate(hits));
        }
    }
}

/// A path of n links with two links that lead away from each of its nodes but the last: whoever knows them
/// picks a table in which none of them matches.
#[test]
fn a_table_without_false_positives_is_found() {
    for (n, expected, rounds) in
        [(8, 1.0, 300), (16, 1.0, 300), (20, 1.0, 300), (24, 0.9997, 300), (28, 0.990, 2_000)]
    {
        let mut builder = Builder::new();
        let nodes: Vec<NodeId> =
            (0..=3 * n).map(|node| builder.node(&node.to_string(), None).expect("a node")).collect();
        let link = |builder: &mut Builder, a: usize, b: usize| {
            builder.link(nodes[a], nodes[b], None, 1).expect("a link")
        };
        let path: Vec<_> = (0..n).map(|node| link(&mut builder, node, node + 1)).collect();
        for away in 0..2 * n {
            link(&mut builder, away / 2, n + 1 + away);
        }
        let graph = builder.build();
        let clean = (0..rounds)
            .filter(|seed| {
                let encoded = Tags::lipsin(3 * n, *seed).encode(&graph, &path).expect("it fits");
                encoded.false_positives == 0
            })
            .count();
        let share = clean as f64 / rounds as f64;
        println!("{n} links: {clean} of {rounds} without a false positive, expected {expected}");
        // Three standard deviations.
        let spread = 3.0 * (expected * (1.0 - expected) / rounds as f64).sqrt();
        assert!(share >= expected - spread, "{n}: {share}");
    }
}

#[test]
fn a_path_that_does_not_fit_is_refused() {
    let mut builder = Builder::new();
    let nodes: Vec<NodeId> = (0..61).map(|n| builder.node(&n.to_string(), None).expect("a node")).collect();
    let path: Vec<_> = nodes.windows(2).map(|w| builder.link(w[0], w[1], None, 1).expect("a link")).collect();
    let graph = builder.build();
    let tags = Tags::lipsin(60, 1);
    assert!(tags.encode(&graph, &path[..32]).is_ok_and(|e| e.fill <= 0.5));
    assert_eq!(tags.encode(&graph, &path), Err(EncodeError::TooLong(60)));
    assert_eq!(Tags::exact(&graph).and_then(|t| t.encode(&graph, &path)), Err(EncodeError::TooLong(60)));
}

/// Packets go over links beside their path as often as the formula says, table by table, no more often.
#[test]
fn strays_are_as_many_as_the_formula_says() {
    let mut random = Random(3);
    let graph = random_graph(&mut random, 500, 2_500);
    let tags = Tags::lipsin(graph.links().len(), 5);
    for n in [12, 24, 32] {
        let (mut strays, mut expected) = (0usize, 0.0);
        for _ in 0..3_000 {
            // A walk that visits no node twice.
            let mut path: Vec<LinkId> = Vec::new();
            let mut visited = vec![NodeId(random.below(500) as u32)];
            for _ in 0..20 * n {
                let here = *visited.last().expect("a node");
                let out = graph.outgoing(here);
                let id = out[random.below(out.len())];
                let next = graph.link(id).to;
                if path.len() < n && !visited.contains(&next) {
                    path.push(id);
                    visited.push(next);
                }
            }
            let table = random.below(TABLES);
            let bits = tags.filter(table, &path);
            for (place, node) in graph.visits(&path).into_iter().enumerate() {
                let came_by = place.checked_sub(1).map(|place| path[place]);
                let beside = graph.outgoing(node).iter().filter(|id| {
                    path.get(place) != Some(id) && (came_by.is_none() || graph.link(**id).reverse != came_by)
                });
                for id in beside {
                    strays += usize::from(bits.has(&tags.tag(table, *id)));
                    expected += chance(bits.ones());
                }
            }
        }
        println!("{n} links: {strays} strays, {expected:.0} expected");
        // One graph has one set of tags: the paths are not independent of each other.
        assert!((strays as f64) < 1.1 * expected + 3.0 * expected.sqrt(), "{n}: {strays}, {expected}");
        assert!((strays as f64) > 0.9 * expected - 3.0 * expected.sqrt(), "{n}: {strays}, {expected}");
    }
}
