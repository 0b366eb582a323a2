//! Fill and false positives of LIPSIN identifiers against what the definitions give: m = 248 bits, k = 5
//! different bits a tag, d = 8 tables. All seeds are fixed.

use anabranch_algo::SplitMix64;

use crate::random_graphs::random_graph;
use anabranch_topology::fid::{FILTER_BITS, TABLES, TAG_BITS};
use anabranch_topology::graph::{Builder, LinkId, NodeId};
use anabranch_topology::tags::{EncodeError, Tags};

/// Identifiers of each length.
const FILTERS: usize = 40_000;
/// Links of the domain from which paths are drawn.
const LINKS: usize = 4_096;
/// Links tried against each identifier that it was not made of.
const FOREIGN: usize = 256;
/// Hits that have to be expected for their number to be within a tenth: it spreads by its root.
const HITS_MIN: f64 = 600.0;

/// Links of the paths.
const LENGTHS: [usize; 10] = [4, 8, 11, 16, 20, 24, 28, 32, 36, 48];

/// In how many ways some of so many are chosen.
fn choose(of: usize, some: usize) -> f64 {
    (0..some).map(|i| (of as f64 - i as f64).max(0.0) / (i + 1) as f64).product()
}

/// Of each number of bits the chance that the tags of so many links set that many: one more tag sets `new`
/// ones with the chance C(m − ones, new) · C(ones, k − new) / C(m, k).
fn ones_of(links: usize) -> Vec<f64> {
    let mut chances = vec![0.0; FILTER_BITS + 1];
    chances[0] = 1.0;
    for _ in 0..links {
        let mut next = vec![0.0; FILTER_BITS + 1];
        for (ones, before) in chances.iter().enumerate() {
            for new in 0..=TAG_BITS.min(FILTER_BITS - ones) {
                let ways = choose(FILTER_BITS - ones, new) * choose(ones, TAG_BITS - new);
                next[ones + new] += before * ways / choose(FILTER_BITS, TAG_BITS);
            }
        }
        chances = next;
    }
    chances
}

/// The same of the table with the fewest.
fn fewest(chances: &[f64]) -> Vec<f64> {
    let at_least = |ones: usize| chances[ones..].iter().sum::<f64>().powi(TABLES as i32);
    (0..chances.len()).map(|ones| at_least(ones) - at_least(ones + 1)).collect()
}

/// Fill and false positive rate.
fn mean(chances: &[f64]) -> (f64, f64) {
    let sum = |of: &dyn Fn(usize) -> f64| -> f64 {
        chances.iter().enumerate().map(|(ones, chance)| chance * of(ones)).sum()
    };
    (sum(&|ones| ones as f64 / FILTER_BITS as f64), sum(&|ones| chance(ones as u32)))
}

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
    let mut random = SplitMix64(1);
    println!("| links | fill | formula | rate | formula | best fill | formula | best rate | formula |");
    for n in LENGTHS {
        let chances = ones_of(n);
        let (fill, rate) = mean(&chances);
        // The formula of the books.
        assert!(is_near(fill, 1.0 - (1.0 - TAG_BITS as f64 / FILTER_BITS as f64).powi(n as i32), 1e-9));
        let (best_fill, best_rate) = mean(&fewest(&chances));
        let (mut ones, mut hits, mut best_ones, mut best_hits) = (0u64, 0u64, 0u64, 0u64);
        for _ in 0..FILTERS {
            let mut path: Vec<LinkId> = Vec::with_capacity(n);
            while path.len() < n {
                let link = LinkId(random.index(LINKS) as u32);
                if !path.contains(&link) {
                    path.push(link);
                }
            }
            let filters: Vec<_> = (0..TABLES).map(|table| tags.filter(table, &path)).collect();
            // Those from one on that are not on the path.
            let first = random.index(LINKS);
            let foreign = (first..).map(|link| LinkId((link % LINKS) as u32));
            let foreign = foreign.filter(|link| !path.contains(link)).take(FOREIGN);
            let hits_in = |table: usize| {
                let hits = foreign.clone().filter(|link| filters[table].has(&tags.tag(table, *link)));
                hits.count() as u64
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
            "| {n:>2} | {:.4} | {fill:.4} | {:.2e} | {rate:.2e} | {:.4} | {best_fill:.4} | {:.2e} \
             | {best_rate:.2e} |",
            of_fill(ones),
            of_rate(hits),
            of_fill(best_ones),
            of_rate(best_hits)
        );
        assert!(is_near(of_fill(ones), fill, 0.03), "{n}: fill {}", of_fill(ones));
        assert!(is_near(of_fill(best_ones), best_fill, 0.03), "{n}: best fill {}", of_fill(best_ones));
        let tries = (FILTERS * FOREIGN) as f64;
        for (what, found, expected) in [("", of_rate(hits), rate), ("best ", of_rate(best_hits), best_rate)] {
            if expected * tries >= HITS_MIN {
                assert!(is_near(found, expected, 0.1), "{n}: {what}rate {found}, expected {expected}");
            } else {
                assert!(found < 2.0 * expected + 1e-6, "{n}: {what}rate {found}, expected {expected}");
            }
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
    let mut random = SplitMix64(3);
    let graph = random_graph(&mut random, 500, 2_500);
    let tags = Tags::lipsin(graph.links().len(), 5);
    for n in [12, 24, 32] {
        let (mut strays, mut expected) = (0usize, 0.0);
        for _ in 0..3_000 {
            // A walk that visits no node twice.
            let mut path: Vec<LinkId> = Vec::new();
            let mut visited = vec![NodeId(random.index(500) as u32)];
            for _ in 0..20 * n {
                let here = *visited.last().expect("a node");
                let out = graph.outgoing(here);
                let id = out[random.index(out.len())];
                let next = graph.link(id).to;
                if path.len() < n && !visited.contains(&next) {
                    path.push(id);
                    visited.push(next);
                }
            }
            let table = random.index(TABLES);
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
