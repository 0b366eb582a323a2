//! Draws a domain for `anabranch net show`: as its file says, or in its present state.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anabranch::network::{Destination, LookedPath, NetworkLook, Place, look};
use anabranch_algo::Span;
use anabranch_overlay::domain::{Domain, PathChoice};
use anabranch_topology::graph::{LinkId, NodeId};
use anabranch_topology::import;
use anabranch_topology::picture::{LineMark, Marks, NodeMark, drawn_links, marked_svg};
use serde::Serialize;

use super::args::Show;
#[cfg(target_os = "linux")]
use super::held::{Node, State};
use super::{Line, bits, line_text, ms};
use crate::exit::{Code, Failure, Outcome};
#[cfg(target_os = "linux")]
use crate::holder::commands;
use crate::json;
use crate::names::show;
use crate::signals::stop_on_signals;
use crate::stdout::print;
#[cfg(target_os = "linux")]
use crate::view::note;
use crate::view::printable;

/// The longest time to wait for a service's answer.
const ANSWER_WITHIN: Span = Span::from_secs(5);
/// The largest number of hosts that are asked one after the other, in a domain that is up, because any of
/// them may be cut off.
#[cfg(target_os = "linux")]
const HOSTS_ASKED: usize = 3;

/// Holds the state of a node beyond the domain's file.
#[derive(Default)]
struct NodeState {
    publishes: BTreeSet<String>,
    /// The size of its packet cache, if it has one.
    cache: Option<String>,
    /// Short descriptions of its programs that have ended.
    ended: Vec<String>,
}

/// Holds a domain and its state.
struct View<'a> {
    domain: &'a Domain,
    /// The title of the domain in the output.
    title: String,
    /// The present state; `None` if only the file is known.
    now: Option<NetworkLook>,
    nodes: Vec<NodeState>,
    /// The host where the paths begin. The paths are in `paths`.
    from: Option<NodeId>,
    paths: Vec<LookedPath>,
}

/// Shows a domain as its file says.
///
/// # Errors
/// 2 if the file is invalid or has no such hosts, 3 if no path leads from one host to the other.
pub(super) fn of_file(args: &Show, file: &Path) -> Outcome {
    let (_, domain) = super::file::read(file)?;
    let mut view = View::new(&domain, show(file));
    if let Some(to) = &args.to {
        let from = args.from.as_deref().ok_or_else(|| Failure::usage("--to without --from: a host"))?;
        let from = host(&domain, "--from", from)?;
        let to = match destination(&domain, to)? {
            Destination::Host(to) if to != from => to,
            Destination::Host(_) => return Err(Failure::usage("--from and --to are one host, expected two")),
            Destination::Name(name) => {
                return Err(Failure::usage(format!(
                    "--to {name}: a file does not say who publishes it; a domain that is up does, and \
                     so does --domain on one of its hosts"
                )));
            }
        };
        let paths = domain.path_choice(args.class.as_deref());
        let paths = paths.map_err(|e| Failure::usage(format!("--class: {e}")))?;
        let PathChoice { policy, per_host, .. } = paths;
        let planned = domain.plan(from, &[to], per_host.into(), policy, |_| true);
        let path = |planned: anabranch_overlay::domain::PlannedWay| {
            let delay = Span::from_nanos(domain.graph.delay_ns(&planned.way.links));
            LookedPath::new(to, planned.group, delay, planned.way.links)
        };
        (view.from, view.paths) = (Some(from), planned.into_iter().map(path).collect());
    }
    view.print(args)
}

/// Shows the present state of this machine's domain.
///
/// # Errors
/// 2 if this machine is no host of a domain, or if there is no such host or name; 3 if no host publishes the
/// name or no path leads there; 4 if a service does not answer.
pub(super) fn here(args: &Show) -> Outcome {
    let place = args.member.place()?;
    let domain = place.domain();
    if let Some(name) = &args.from
        && host(domain, "--from", name)? != place.node()
    {
        let this = place.node_name();
        return Err(Failure::usage(format!(
            "--from {}: paths are told to the host that asks, and this is {this}",
            printable(name)
        )));
    }
    let to = args.to.as_deref().map(|to| destination(domain, to)).transpose()?;
    let now = look(&place, to.as_ref(), args.class.as_deref(), ANSWER_WITHIN, &stop_on_signals()?)?;
    let mut view = View::new(domain, domain.name.clone());
    view.from = to.is_some().then_some(place.node());
    view.set_now(now, args.to.as_deref());
    view.print(args)
}

/// Shows the present state of a domain that is up on this machine.
///
/// # Errors
/// The exit statuses of [`here`].
#[cfg(target_os = "linux")]
pub(super) fn of_state(args: &Show, state: &State) -> Outcome {
    let place = |node: &str| Place::new(Path::new(&state.file), Some(node));
    let any = place(&state.nodes[0].name)?;
    let domain = any.domain();
    let mut view = View::new(domain, state.name.clone());
    for node in &state.nodes {
        // The file may have been changed since the domain was brought up.
        if let Some(id) = domain.graph.by_name(&node.name) {
            view.nodes[id.index()] = node_state(node);
        }
    }
    let to = args.to.as_deref().map(|to| destination(domain, to)).transpose()?;
    let stop = stop_on_signals()?;
    let asked = |node: NodeId| -> Outcome<NetworkLook> {
        let name = &domain.graph.node(node).name;
        let number = state.nodes.iter().position(|known| known.name == *name);
        let number = number.ok_or_else(|| Failure::usage(format!("{name} is not up")))?;
        let space = commands::namespace(state, number)?;
        let place = place(name)?;
        let looked = space.run(|| look(&place, to.as_ref(), args.class.as_deref(), ANSWER_WITHIN, &stop));
        Ok(looked.map_err(|e| Failure::other(format!("cannot enter {name}: {e}")))??)
    };
    if to.is_some() {
        let from = args.from.as_deref().ok_or_else(|| Failure::usage("--to without --from: a host"))?;
        let from = host(domain, "--from", from)?;
        view.from = Some(from);
        view.set_now(asked(from)?, args.to.as_deref());
        return view.print(args);
    }
    let mut why = None;
    for node in hosts_to_ask(domain) {
        match asked(node) {
            Ok(now) => {
                view.set_now(now, None);
                break;
            }
            Err(e) if e.code == Code::Interrupted => return Err(e),
            Err(e) => why = Some(e),
        }
    }
    if let Some(why) = why.filter(|_| view.now.is_none()) {
        note(&format!("which lines are down is not known: {}", why.message));
    }
    view.print(args)
}

/// Returns hosts that can ask the topology manager, those with the most lines first.
#[cfg(target_os = "linux")]
fn hosts_to_ask(domain: &Domain) -> Vec<NodeId> {
    let is_one = |node: &NodeId| !domain.is_forwarder(*node) && *node != domain.topology.node;
    let mut hosts: Vec<NodeId> = domain.graph.node_ids().filter(is_one).collect();
    hosts.sort_by_key(|node| std::cmp::Reverse(domain.graph.outgoing(*node).len()));
    hosts.truncate(HOSTS_ASKED);
    hosts
}

/// Returns the state of a node as `net up` knows it: the options of its programs say which names they publish
/// and how much they cache.
#[cfg(target_os = "linux")]
fn node_state(node: &Node) -> NodeState {
    let mut known = NodeState::default();
    for program in &node.programs {
        let value = |option: &str| program.command.iter().skip_while(|word| *word != option).nth(1).cloned();
        if program.pid.is_none() {
            known.ended.push(program.text());
            continue;
        }
        known.publishes.extend(value("--publish"));
        known.cache = value("--cache").or(known.cache);
    }
    known
}

/// Finds a host by its name.
fn host(domain: &Domain, option: &str, name: &str) -> Outcome<NodeId> {
    let node = domain.graph.by_name(name);
    let names = || -> Vec<&str> {
        let hosts = domain.graph.node_ids().filter(|node| !domain.is_forwarder(*node));
        hosts.map(|node| domain.graph.node(node).name.as_str()).collect()
    };
    match node {
        Some(node) if !domain.is_forwarder(node) => Ok(node),
        Some(_) => Err(Failure::usage(format!(
            "{option}: {name} forwards; transfers lead from a host to another: {}",
            names().join(", ")
        ))),
        None => {
            let near = anabranch_net::nearest(name, names());
            let hint = near.map_or_else(
                || format!("; there are {}", names().join(", ")),
                |near| format!(": did you mean {near}?"),
            );
            Err(Failure::usage(format!("{option}: there is no host {}{hint}", printable(name))))
        }
    }
}

/// Parses a host, or the name of a publication, which contains a `/`.
fn destination(domain: &Domain, to: &str) -> Outcome<Destination> {
    if !to.contains('/') {
        return host(domain, "--to", to).map(Destination::Host);
    }
    let name = to.parse().map_err(|e| Failure::usage(format!("--to {}: {e}", printable(to))))?;
    Ok(Destination::Name(name))
}

/// Reports a domain, as a line of JSON.
#[derive(Serialize)]
struct DomainObject<'a> {
    domain: &'a str,
    nodes: usize,
    forwarders: usize,
    lines: usize,
    /// Whether the present state of the domain is shown.
    live: bool,
    /// The number of forwarders that have reported, and the number of lines that are down.
    reporting: Option<u32>,
    down: Option<usize>,
}

#[derive(Serialize)]
struct NodeObject<'a> {
    name: &'a str,
    forwards: bool,
    services: Vec<&'static str>,
    publishes: &'a BTreeSet<String>,
    cache: Option<&'a str>,
    ended: &'a [String],
}

#[derive(Serialize)]
struct LineObject<'a> {
    #[serde(flatten)]
    line: Line<'a>,
    up: Option<bool>,
}

#[derive(Serialize)]
struct PathObject<'a> {
    group: u32,
    nodes: Vec<&'a str>,
    links: Vec<u32>,
    delay_us: f64,
    capacity_bytes: Option<u64>,
}

impl<'a> View<'a> {
    fn new(domain: &'a Domain, title: String) -> Self {
        let nodes = domain.graph.nodes().iter().map(|_| NodeState::default()).collect();
        Self { domain, title, now: None, nodes, from: None, paths: Vec::new() }
    }

    /// Takes over the present state of the network. `asked` is the value of `--to`.
    fn set_now(&mut self, mut now: NetworkLook, asked: Option<&str>) {
        self.paths = std::mem::take(&mut now.paths);
        for node in &now.publishers {
            self.nodes[node.index()].publishes.extend(asked.map(str::to_owned));
        }
        self.now = Some(now);
    }

    fn print(&self, args: &Show) -> Outcome {
        if self.from.is_some() && self.paths.is_empty() {
            return Err(Failure::new(Code::NotFound, "no path leads from the one to the other"));
        }
        let text = if args.svg {
            self.svg()
        } else if args.text {
            import::write(&self.domain.name, &self.domain.graph)
        } else if args.json {
            self.json()
        } else {
            self.text()
        };
        print(text.as_bytes())
    }

    fn name(&self, node: NodeId) -> &str {
        &self.domain.graph.node(node).name
    }

    fn is_down(&self, link: LinkId) -> Option<bool> {
        Some(self.now.as_ref()?.down.contains(&self.domain.line(link)))
    }

    fn services(&self, node: NodeId) -> Vec<&'static str> {
        let Domain { rendezvous, topology, .. } = self.domain;
        let all = [(rendezvous, "rendezvous"), (topology, "topology manager")];
        all.into_iter().filter(|(service, _)| service.node == node).map(|(_, what)| what).collect()
    }

    /// Describes the tasks of a node, without its kind.
    fn notes(&self, node: NodeId) -> Vec<String> {
        let NodeState { publishes, cache, ended } = &self.nodes[node.index()];
        let services = self.services(node).into_iter().map(str::to_owned);
        let publishes = publishes.iter().map(|name| format!("publishes {name}"));
        let cache = cache.iter().map(|size| format!("caches {size}"));
        services.chain(publishes).chain(cache).chain(ended.iter().cloned()).collect()
    }

    fn summary(&self) -> String {
        let Self { domain, title, now, .. } = self;
        let graph = &domain.graph;
        let forwarders = domain.forwarders().count();
        let state = now.as_ref().map_or_else(
            || "as its file says".to_owned(),
            |now| {
                let down = if now.down.is_empty() { "none".into() } else { now.down.len().to_string() };
                format!("{} of {forwarders} forwarders report, {down} of the lines down", now.forwarders)
            },
        );
        format!(
            "{title}: the domain {}, {} nodes, {forwarders} of them forward, {} lines; {state}",
            domain.name,
            graph.nodes().len(),
            graph.lines()
        )
    }

    /// Writes the delay and the rate of a line, and whether it is down.
    fn line_text(&self, link: LinkId) -> String {
        let down = if self.is_down(link) == Some(true) { ", down" } else { "" };
        format!("{}{down}", line_text(self.domain.graph.link(link)))
    }

    fn path_text(&self, number: usize, path: &LookedPath) -> String {
        let graph = &self.domain.graph;
        let capacity = graph.capacity_bytes(&path.links).map_or("rate unlimited".into(), bits);
        let nodes: Vec<&str> = graph.visits(&path.links).iter().map(|node| self.name(*node)).collect();
        let delay = ms(path.delay.as_nanos());
        format!("path {}: group {}, {delay}, {capacity}: {}", number + 1, path.group, nodes.join(" → "))
    }

    fn text(&self) -> String {
        let graph = &self.domain.graph;
        let mut out = printable(&self.summary()).into_owned() + "\n";
        let width = graph.nodes().iter().map(|node| node.name.len()).max().unwrap_or(0);
        for node in graph.node_ids() {
            let what = if self.domain.is_forwarder(node) { "forwarder" } else { "host" };
            let notes = [what.to_owned()].into_iter().chain(self.notes(node)).collect::<Vec<_>>().join(", ");
            let _ = writeln!(out, "  {:width$}  {}", self.name(node), printable(&notes));
        }
        for link in graph.link_ids().filter(|link| self.domain.is_first_of_line(*link)) {
            let told = graph.link(link);
            let (from, to) = (self.name(told.from), self.name(told.to));
            let _ = writeln!(out, "  {from} — {to}: {}", self.line_text(link));
        }
        for (number, path) in self.paths.iter().enumerate() {
            out += &(self.path_text(number, path) + "\n");
        }
        out
    }

    fn svg(&self) -> String {
        let graph = &self.domain.graph;
        let node = |node: NodeId| NodeMark {
            is_host: !self.domain.is_forwarder(node),
            is_dead: !self.nodes[node.index()].ended.is_empty(),
            notes: self.notes(node),
        };
        let line = |link: LinkId| {
            let is_down = self.is_down(link) == Some(true);
            (link, LineMark { text: self.line_text(link), is_down })
        };
        let marks = Marks {
            nodes: graph.node_ids().map(node).collect(),
            lines: drawn_links(graph).map(line).collect(),
            paths: self.paths.iter().enumerate().map(|(n, path)| self.path_text(n, path)).collect(),
        };
        let paths: Vec<&[LinkId]> = self.paths.iter().map(|path| &path.links[..]).collect();
        marked_svg(&self.summary(), graph, &paths, &marks)
    }

    fn json(&self) -> String {
        let Self { domain, now, .. } = self;
        let graph = &domain.graph;
        let mut out = json::text(
            "domain",
            &DomainObject {
                domain: &domain.name,
                nodes: graph.nodes().len(),
                forwarders: domain.forwarders().count(),
                lines: graph.lines(),
                live: now.is_some(),
                reporting: now.as_ref().map(|now| now.forwarders),
                down: now.as_ref().map(|now| now.down.len()),
            },
        );
        for node in graph.node_ids() {
            let NodeState { publishes, cache, ended } = &self.nodes[node.index()];
            let object = NodeObject {
                name: self.name(node),
                forwards: domain.is_forwarder(node),
                services: self.services(node),
                publishes,
                cache: cache.as_deref(),
                ended,
            };
            out += &json::text("node", &object);
        }
        for link in graph.link_ids().filter(|link| domain.is_first_of_line(*link)) {
            let object = LineObject {
                line: Line::new(graph, graph.link(link)),
                up: self.is_down(link).map(|is_down| !is_down),
            };
            out += &json::text("line", &object);
        }
        for path in &self.paths {
            let object = PathObject {
                group: path.group,
                nodes: graph.visits(&path.links).iter().map(|node| self.name(*node)).collect(),
                links: path.links.iter().map(|link| link.0).collect(),
                delay_us: path.delay.as_nanos() as f64 / 1e3,
                capacity_bytes: graph.capacity_bytes(&path.links),
            };
            out += &json::text("path", &object);
        }
        out
    }
}
