//! Draws a network as an SVG picture, with paths in it.

use std::collections::{BTreeMap, VecDeque};
use std::f64::consts::TAU;
use std::fmt::Write as _;

use crate::graph::{Graph, LinkId, NodeId};

const WIDTH: f64 = 1_000.0;
const HEIGHT: f64 = 700.0;
const MARGIN: f64 = 60.0;
/// How often each node without a location is moved between its neighbours.
const ROUNDS: usize = 200;
/// The colours of paths, used in turn (Okabe and Ito's, which colour-blind people can tell apart).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
/// The distance between two paths over one link.
const APART: f64 = 4.0;
/// The distance between the lines of text below a picture.
const ROW: f64 = 16.0;
/// The most nodes that are laid out by their distances, which takes time and memory of their square. More
/// nodes are put on a circle.
const STRESS_NODES_MAX: usize = 400;

/// How a node is drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMark {
    /// Whether the node is an end that nothing passes through. It is drawn as a square.
    pub is_host: bool,
    /// Whether the node does not work. It is drawn hollow and red.
    pub is_dead: bool,
    /// Notes about the node, written below its name.
    pub notes: Vec<String>,
}

/// How a line is drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineMark {
    /// The text beside the line.
    pub text: String,
    /// Whether the line carries nothing. It is drawn dashed and red.
    pub is_down: bool,
}

/// The marks of a picture: what it shows about nodes, lines and paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The marks of nodes by their number. Nodes beyond the end have none.
    pub nodes: Vec<NodeMark>,
    /// The marks of lines, by the link that is drawn for the line (see [`drawn_links`]).
    pub lines: BTreeMap<LinkId, LineMark>,
    /// A line of text below the picture for each path, in the path's colour.
    pub paths: Vec<String>,
}

/// Draws the network, north up, with the paths over it in colours. A node without a location is drawn between
/// its neighbours. If no node has a location, all are laid out by their distances.
#[must_use]
pub fn svg<P: AsRef<[LinkId]>>(name: &str, graph: &Graph, paths: &[P]) -> String {
    marked_svg(name, graph, paths, &Marks::default())
}

/// Iterates over the links that are drawn for lines. Of the two directions of a line, this is the link from
/// the lower node to the higher.
pub fn drawn_links(graph: &Graph) -> impl Iterator<Item = LinkId> + '_ {
    graph.link_ids().filter(|id| {
        let link = graph.link(*id);
        link.reverse.is_none_or(|reverse| (link.from, *id) < (link.to, reverse))
    })
}

/// Draws the network as [`svg`] does, with marks.
#[must_use]
pub fn marked_svg<P: AsRef<[LinkId]>>(name: &str, graph: &Graph, paths: &[P], marks: &Marks) -> String {
    let at = layout(graph);
    let mut out = String::new();
    let whole = HEIGHT + ROW * marks.paths.len() as f64;
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {whole}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<title>{}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>",
        escaped(name)
    );
    for id in drawn_links(graph) {
        let link = graph.link(id);
        let mark = marks.lines.get(&id);
        let stroke = match mark {
            Some(LineMark { is_down: true, .. }) => "stroke=\"#c00\" stroke-dasharray=\"5 4\"",
            _ => "stroke=\"#bbb\"",
        };
        let ((x, y), (to_x, to_y)) = (at[link.from.index()], at[link.to.index()]);
        let _ =
            writeln!(out, "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{to_x:.1}\" y2=\"{to_y:.1}\" {stroke}/>");
    }
    for (number, path) in paths.iter().enumerate() {
        let visits = graph.visits(path.as_ref());
        let shift = APART * (number as f64 - (paths.len() as f64 - 1.0) / 2.0);
        let points: Vec<_> = visits.iter().map(|node| at[node.index()]).collect();
        let points: Vec<_> =
            points.iter().map(|(x, y)| format!("{:.1},{:.1}", x + shift, y + shift)).collect();
        let colour = COLOURS[number % COLOURS.len()];
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"3\"/>",
            points.join(" ")
        );
        if let Some(text) = marks.paths.get(number) {
            let y = HEIGHT + ROW * (number as f64 + 0.5);
            let text = escaped(text);
            let _ = writeln!(out, "<text x=\"{MARGIN}\" y=\"{y:.1}\" fill=\"{colour}\">{text}</text>");
        }
    }
    for (id, mark) in marks.lines.iter().filter(|(_, mark)| !mark.text.is_empty()) {
        let link = graph.link(*id);
        let ((x, y), (to_x, to_y)) = (at[link.from.index()], at[link.to.index()]);
        let (x, y, text) = ((x + to_x) / 2.0, (y + to_y) / 2.0, escaped(&mark.text));
        let fill = if mark.is_down { "#c00" } else { "#666" };
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"9\" text-anchor=\"middle\" fill=\"{fill}\" \
             paint-order=\"stroke\" stroke=\"#fff\" stroke-width=\"3\">{text}</text>"
        );
    }
    let plain = NodeMark::default();
    for (number, (node, (x, y))) in graph.nodes().iter().zip(&at).enumerate() {
        let mark = marks.nodes.get(number).unwrap_or(&plain);
        let fill = if mark.is_dead { "#fff\" stroke=\"#c00" } else { "#333" };
        let _ = if mark.is_host {
            let (left, top) = (x - 4.0, y - 4.0);
            writeln!(out, "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"8\" height=\"8\" fill=\"{fill}\"/>")
        } else {
            writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\"/>")
        };
        let (text_x, mut text_y) = (x + 6.0, y + 4.0);
        let name = escaped(&node.name);
        let _ = writeln!(out, "<text x=\"{text_x:.1}\" y=\"{text_y:.1}\">{name}</text>");
        for note in &mark.notes {
            text_y += 10.0;
            let note = escaped(note);
            let _ = writeln!(
                out,
                "<text x=\"{text_x:.1}\" y=\"{text_y:.1}\" font-size=\"9\" fill=\"#666\">{note}</text>"
            );
        }
    }
    out + "</svg>\n"
}

/// Returns where each node is drawn.
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
    if count == 0 && nodes.len() <= STRESS_NODES_MAX {
        spread(graph, &mut at);
    }
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
                // The node is moved off the middle, so that two nodes between the same neighbours are apart.
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

/// Moves nodes such that their distances match the number of links between them, as far as a plane has room.
/// This is stress majorization (Gansner, Koren, North: "Graph Drawing by Stress Majorization", GD 2004), one
/// node after the other.
fn spread(graph: &Graph, at: &mut [(f64, f64)]) {
    let apart: Vec<Vec<f64>> = graph.node_ids().map(|node| distances(graph, node)).collect();
    for _ in 0..ROUNDS {
        for node in 0..at.len() {
            let (mut sum, mut weights) = ((0.0, 0.0), 0.0);
            for other in (0..at.len()).filter(|other| *other != node) {
                let (wanted, (x, y)) = (apart[node][other], at[other]);
                let (dx, dy) = (at[node].0 - x, at[node].1 - y);
                let (weight, scale) = (wanted.powi(-2), wanted / dx.hypot(dy).max(1e-9));
                weights += weight;
                sum = (sum.0 + weight * (x + scale * dx), sum.1 + weight * (y + scale * dy));
            }
            if weights > 0.0 {
                at[node] = (sum.0 / weights, sum.1 / weights);
            }
        }
    }
}

/// Returns how many lines each node is away from `from`. For nodes that cannot be reached, this is the number
/// of nodes.
fn distances(graph: &Graph, from: NodeId) -> Vec<f64> {
    let mut out = vec![graph.nodes().len() as f64; graph.nodes().len()];
    out[from.index()] = 0.0;
    let mut queue = VecDeque::from([(from, 0.0)]);
    while let Some((node, far)) = queue.pop_front() {
        let neighbours = graph.outgoing(node).iter().map(|link| graph.link(*link).to);
        for next in neighbours.chain(graph.incoming(node).iter().map(|link| graph.link(*link).from)) {
            if far + 1.0 < out[next.index()] {
                out[next.index()] = far + 1.0;
                queue.push_back((next, far + 1.0));
            }
        }
    }
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Builder;
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
            // The picture is well-formed: it is read as XML, which is not a graph.
            let error = crate::import::read(svg.as_bytes(), &Defaults::default()).expect_err("a picture");
            assert!(error.to_string().contains("expected <graphml>"), "{error}");
        }
    }

    #[test]
    fn marks_are_drawn_and_escaped() {
        let mut builder = Builder::new();
        let nodes: Vec<NodeId> =
            ["h", "r1", "r2", "r3", "p"].iter().map(|name| builder.node(name, None).expect("new")).collect();
        for (a, b) in [(0, 1), (2, 1), (2, 3), (3, 4), (1, 3)] {
            builder.line(nodes[a], nodes[b], None, 1_000_000).expect("a line");
        }
        let graph = builder.build();
        let lines: Vec<LinkId> = drawn_links(&graph).collect();
        assert_eq!(lines.len(), graph.lines());
        assert!(lines.iter().all(|id| graph.link(*id).from < graph.link(*id).to));
        let mut marks = Marks { paths: vec!["<first>".into()], ..Marks::default() };
        marks.nodes.push(NodeMark { is_host: true, notes: vec!["a & b".into()], ..NodeMark::default() });
        marks.nodes.push(NodeMark { is_dead: true, ..NodeMark::default() });
        marks.lines.insert(lines[1], LineMark { text: "5 ms > 1 ms".into(), is_down: true });
        let path = Router::new(&graph, Costs::hops(&graph)).shortest(nodes[0], nodes[4], 1).remove(0);
        let svg = marked_svg("a \"name\"", &graph, &[path], &marks);
        for text in
            ["<title>a &quot;name&quot;</title>", ">a &amp; b<", ">5 ms &gt; 1 ms<", ">&lt;first&gt;<"]
        {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert_eq!(svg.matches("<circle").count(), 4);
        assert_eq!(
            (svg.matches("stroke-dasharray").count(), svg.matches("stroke=\"#c00\"/>").count()),
            (1, 1)
        );
        // Nodes without a location do not lie on each other, and neighbours are nearer than others.
        let at = layout(&graph);
        let far = |a: usize, b: usize| (at[a].0 - at[b].0).hypot(at[a].1 - at[b].1);
        assert!(far(0, 1) > 50.0 && far(1, 3) > 50.0, "{at:?}");
        assert!(far(0, 4) > 2.0 * far(0, 1).min(far(3, 4)), "{at:?}");
    }
}
