//! A network as a picture: SVG, with paths in it.

use std::f64::consts::TAU;
use std::fmt::Write as _;

use crate::graph::{Graph, LinkId};

const WIDTH: f64 = 1_000.0;
const HEIGHT: f64 = 700.0;
const MARGIN: f64 = 60.0;
/// How often a node without a place is moved between its neighbours.
const ROUNDS: usize = 200;
/// Colours of paths, one after the other (Okabe and Ito's, which colour-blind people tell apart).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
/// Between two paths over one link.
const APART: f64 = 4.0;

/// The network, north up, with the paths over it in colours. A node without a place is drawn between its
/// neighbours.
#[must_use]
pub fn svg<P: AsRef<[LinkId]>>(name: &str, graph: &Graph, paths: &[P]) -> String {
    let at = layout(graph);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<title>{}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>",
        escaped(name)
    );
    for link in graph.links().iter().filter(|link| link.reverse.is_none() || link.from < link.to) {
        let ((x, y), (to_x, to_y)) = (at[link.from.index()], at[link.to.index()]);
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{to_x:.1}\" y2=\"{to_y:.1}\" stroke=\"#bbb\"/>"
        );
    }
    for (number, path) in paths.iter().enumerate() {
        let visits = graph.visits(path.as_ref());
        let shift = APART * (number as f64 - (paths.len() as f64 - 1.0) / 2.0);
        let points: Vec<_> = visits.iter().map(|node| at[node.index()]).collect();
        let points: Vec<_> =
            points.iter().map(|(x, y)| format!("{:.1},{:.1}", x + shift, y + shift)).collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"3\"/>",
            points.join(" "),
            COLOURS[number % COLOURS.len()]
        );
    }
    for (node, (x, y)) in graph.nodes().iter().zip(&at) {
        let (text_x, text_y) = (x + 6.0, y + 4.0);
        let name = escaped(&node.name);
        let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#333\"/>");
        let _ = writeln!(out, "<text x=\"{text_x:.1}\" y=\"{text_y:.1}\">{name}</text>");
    }
    out + "</svg>\n"
}

/// Where each node is drawn.
fn layout(graph: &Graph) -> Vec<(f64, f64)> {
    let nodes = graph.nodes();
    let places = nodes.iter().filter_map(|node| node.place);
    let mid = |sum: f64, count: usize| sum / count.max(1) as f64;
    let (count, (lat, long)) = (
        places.clone().count(),
        places.fold((0.0, 0.0), |(lat, long), place| (lat + place.0, long + place.1)),
    );
    let (lat, long) = (mid(lat, count), mid(long, count));
    let squeeze = lat.to_radians().cos();
    let circle = |node: usize| {
        let angle = TAU * node as f64 / nodes.len() as f64;
        (0.1 * angle.cos(), 0.1 * angle.sin())
    };
    let mut at: Vec<(f64, f64)> = nodes
        .iter()
        .enumerate()
        .map(|(number, node)| node.place.map_or(circle(number), |(y, x)| ((x - long) * squeeze, lat - y)))
        .collect();
    if count > 0 {
        for _ in 0..ROUNDS {
            for (number, node) in nodes.iter().enumerate().filter(|(_, node)| node.place.is_none()) {
                let id = graph.by_name(&node.name).expect("its own name");
                let links = graph.outgoing(id);
                if links.is_empty() {
                    continue;
                }
                let sum = links.iter().map(|link| at[graph.link(*link).to.index()]);
                let (x, y) = sum.fold((0.0, 0.0), |(x, y), next| (x + next.0, y + next.1));
                // Off the middle, so that two between the same neighbours are two.
                let off = circle(number);
                at[number] = (mid(x, links.len()) + 2.0 * off.0, mid(y, links.len()) + 2.0 * off.1);
            }
        }
    }
    let range = |of: fn(&(f64, f64)) -> f64| {
        let least = at.iter().map(of).fold(f64::INFINITY, f64::min);
        let most = at.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
        (least, (most - least).max(1e-6))
    };
    let ((least_x, wide), (least_y, high)) = (range(|p| p.0), range(|p| p.1));
    let scale = ((WIDTH - 3.0 * MARGIN) / wide).min((HEIGHT - 2.0 * MARGIN) / high);
    at.iter().map(|(x, y)| (MARGIN + (x - least_x) * scale, MARGIN + (y - least_y) * scale)).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::NodeId;
    use crate::import::Defaults;
    use crate::paths::{Costs, Router};

    #[test]
    fn every_network_can_be_drawn() {
        for builtin in crate::zoo::BUILTIN {
            let graph = builtin.network(&Defaults::default()).graph;
            let paths = Router::new(&graph, Costs::hops(&graph)).shortest(NodeId(0), NodeId(5), 3);
            let svg = svg(builtin.name, &graph, &paths);
            assert_eq!(svg.matches("<circle").count(), graph.nodes().len());
            assert_eq!(svg.matches("<line ").count(), graph.lines());
            assert_eq!(svg.matches("<polyline").count(), paths.len());
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", builtin.name);
            // Well-formed: it is read as XML, which is not a graph.
            let error = crate::import::read(svg.as_bytes(), &Defaults::default()).expect_err("a picture");
            assert!(error.to_string().contains("expected <graphml>"), "{error}");
        }
    }
}
