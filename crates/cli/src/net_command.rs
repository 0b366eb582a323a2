//! Runs `anabranch net`: shows networks as graphs and finds paths in them, with the crate `topology`. It also
//! lists what is published in a domain, and brings up whole domains on this machine.

pub mod args;
pub mod domain_args;
mod domain_view;
mod file;
#[cfg(target_os = "linux")]
mod held;
mod key;
mod keys;
mod listing;
mod new;
#[cfg(target_os = "linux")]
mod plan;
#[cfg(target_os = "linux")]
mod programs;
#[cfg(target_os = "linux")]
mod session;

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anabranch_topology::graph::{Graph, Link, LinkId, NodeId};
use anabranch_topology::import::{self, Defaults, Network, TEXT_MAX};
use anabranch_topology::paths::Costs;
use anabranch_topology::picture;
use anabranch_topology::plan::{Planned, Planner};
use anabranch_topology::tags::{EncodeError, Encoded, Tags};
use anabranch_topology::zoo::{BUILTIN, Builtin};
use serde::Serialize;

use crate::exit::{Failure, Outcome};
use crate::json;
use crate::stdout::print;
use crate::toml_name::has_toml;
use crate::view::printable;
use args::{Cost, Net, NetCommand, Paths, Show};

/// Runs a command about networks.
///
/// # Errors
/// 2 if the network or domain cannot be read or has no such node, 3 if no path leads there, 4 if a service
/// does not answer, 6 if a file cannot be written or exists already, 7 if the lines of a domain cannot be
/// trusted, 1 if a domain cannot be set up.
pub fn net(args: &Net) -> Outcome {
    match &args.command {
        NetCommand::Show(args) => show(args),
        NetCommand::Paths(args) => paths(args),
        NetCommand::Ls(args) => listing::ls(args),
        NetCommand::New(args) => new::new(args),
        NetCommand::Key(args) => key::key(args),
        NetCommand::Keys(args) => keys::keys(args),
        #[cfg(target_os = "linux")]
        NetCommand::Up(args) => session::up(args),
        #[cfg(target_os = "linux")]
        NetCommand::Exec(args) => session::exec(args),
        #[cfg(target_os = "linux")]
        NetCommand::Status(args) => session::status(args),
        #[cfg(target_os = "linux")]
        NetCommand::Log(args) => session::log(args),
        #[cfg(target_os = "linux")]
        NetCommand::Kill(args) => session::kill(args),
        #[cfg(target_os = "linux")]
        NetCommand::Start(args) => session::start(args),
        #[cfg(target_os = "linux")]
        NetCommand::Down(args) => session::down(args),
        #[cfg(target_os = "linux")]
        NetCommand::Hold(args) => held::hold(args),
    }
}

fn load(name: &str) -> Outcome<Network> {
    if let Some(builtin) = Builtin::named(name) {
        return Ok(builtin.network(&Defaults::default()));
    }
    let read = || -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // One byte more than allowed is read, so that a longer file is noticed.
        let limit = TEXT_MAX as u64 + 1;
        match name {
            "-" => std::io::stdin().lock().take(limit).read_to_end(&mut bytes)?,
            file => std::fs::File::open(PathBuf::from(file))?.take(limit).read_to_end(&mut bytes)?,
        };
        Ok(bytes)
    };
    let shown = printable(name);
    let bytes = read().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Failure::usage(format!(
            "{shown} is neither a file nor a network that is built in (anabranch net show lists those) nor a \
             domain that is up (sudo anabranch net status)"
        )),
        _ => Failure::usage(format!("cannot read {shown}: {e}")),
    })?;
    import::read(&bytes, &Defaults::default()).map_err(|e| Failure::usage(format!("{shown}: {e}")))
}

#[derive(Serialize)]
struct Summary<'a> {
    network: &'a str,
    nodes: usize,
    lines: usize,
    access_nodes: usize,
    density: f64,
    /// The difference from the published table of networks, if there is one.
    differs: Option<&'a str>,
}

impl<'a> Summary<'a> {
    fn new(network: &'a Network) -> Self {
        let Network { name, graph, .. } = network;
        Self {
            network: name,
            nodes: graph.nodes().len(),
            lines: graph.lines(),
            access_nodes: graph.access_nodes().len(),
            density: graph.density(),
            differs: Builtin::named(name).and_then(|builtin| builtin.differs),
        }
    }

    fn line(&self) -> String {
        let Self { nodes, lines, access_nodes, density, .. } = self;
        let name = printable(self.network);
        format!(
            "{name}: {nodes} nodes ({access_nodes} with one neighbour), {lines} lines, density {density:.3}"
        )
    }
}

/// Reports a line of a network, as a line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    from: &'a str,
    to: &'a str,
    capacity_bytes: Option<u64>,
    delay_us: f64,
}

impl<'a> Line<'a> {
    /// Creates the object of a link.
    fn new(graph: &'a Graph, link: &Link) -> Self {
        let name = |id: NodeId| graph.node(id).name.as_str();
        let (from, to, delay_us) = (name(link.from), name(link.to), link.delay_ns as f64 / 1e3);
        Self { from, to, capacity_bytes: link.capacity_bytes, delay_us }
    }
}

/// Writes the delay and the rate of a link.
fn line_text(link: &Link) -> String {
    let capacity = link.capacity_bytes.map(|bytes| format!(", {}", bits(bytes))).unwrap_or_default();
    format!("{}{capacity}", ms(link.delay_ns))
}

fn show(args: &Show) -> Outcome {
    let Some(name) = &args.network else {
        return match args.member.is_named() {
            true => domain_view::here(args),
            false if args.svg || args.text || args.to.is_some() => Err(Failure::usage(
                "which one? Give NAME|FILE: a network, or a domain; or --domain FILE: this machine's",
            )),
            false => list(args.json),
        };
    };
    if args.member.domain.is_some() || args.member.node.is_some() {
        let name = printable(name);
        return Err(Failure::usage(format!("--domain and --node show what this machine is in, not {name}")));
    }
    // No other network has a name that ends with `.toml`.
    if has_toml(Path::new(name)) {
        return domain_view::of_file(args, Path::new(name));
    }
    #[cfg(target_os = "linux")]
    if let Some(state) = session::that_is_up(name)? {
        return domain_view::of_state(args, &state);
    }
    let network = load(name)?;
    if args.to.is_some() {
        return Err(Failure::usage(format!(
            "{} is no domain: the paths of a network are those of anabranch net paths",
            printable(name)
        )));
    }
    let graph = &network.graph;
    if args.svg {
        return print(picture::svg::<Vec<LinkId>>(&network.name, graph, &[]).as_bytes());
    }
    if args.text {
        return print(import::write(&network.name, graph).as_bytes());
    }
    let lines = graph.links().iter().enumerate();
    let lines = lines.filter(|(id, link)| link.reverse.is_none_or(|reverse| *id < reverse.index()));
    let summary = Summary::new(&network);
    if args.json {
        let mut out = json::text("network", &summary);
        for (_, link) in lines {
            out += &json::text("line", &Line::new(graph, link));
        }
        return print(out.as_bytes());
    }
    let mut out = summary.line() + "\n";
    for (_, link) in lines {
        let arrow = if link.reverse.is_some() { "—" } else { "→" };
        let Line { from, to, .. } = Line::new(graph, link);
        let _ = writeln!(out, "  {} {arrow} {}: {}", printable(from), printable(to), line_text(link));
    }
    print(out.as_bytes())
}

fn list(as_json: bool) -> Outcome {
    let mut out = String::new();
    for builtin in BUILTIN {
        let network = builtin.network(&Defaults::default());
        let summary = Summary::new(&network);
        match as_json {
            true => out += &json::text("network", &summary),
            false => out += &(summary.line() + "\n"),
        }
    }
    print(out.as_bytes())
}

/// Reports a path, as a line of JSON.
#[derive(Serialize)]
struct PathObject<'a> {
    group: u32,
    nodes: Vec<&'a str>,
    links: &'a [u32],
    cost: u64,
    delay_us: f64,
    capacity_bytes: Option<u64>,
    forward: Identifier,
    backward: Option<Identifier>,
}

/// Reports a forwarding identifier, as a part of JSON.
#[derive(Serialize)]
struct Identifier {
    kind: Option<&'static str>,
    table: Option<usize>,
    fid: Option<String>,
    fill_percent: Option<f64>,
    strays: Option<usize>,
    error: Option<String>,
}

impl Identifier {
    fn new(encoded: Result<Encoded, EncodeError>) -> Self {
        let fid = encoded.ok().map(|encoded| encoded.fid);
        Self {
            kind: fid.map(|fid| kind(fid.kind())),
            table: fid.map(|fid| fid.table()),
            fid: fid.map(|fid| hex(&fid.to_bytes())),
            fill_percent: encoded.ok().map(|encoded| 100.0 * encoded.fill),
            strays: encoded.ok().map(|encoded| encoded.false_positives),
            error: encoded.err().map(|error| error.to_string()),
        }
    }
}

const fn kind(kind: anabranch_topology::fid::Kind) -> &'static str {
    match kind {
        anabranch_topology::fid::Kind::Exact => "exact",
        anabranch_topology::fid::Kind::Lipsin => "lipsin",
        anabranch_topology::fid::Kind::Keyed => "keyed",
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The seed of the tables of tags. Any value will do, because no domain is running here.
const SEED: u64 = 0;

fn paths(args: &Paths) -> Outcome {
    let network = load(&args.network)?;
    let graph = &network.graph;
    let find = |name: &str| {
        let error =
            |e: anabranch_topology::graph::FindError| Failure::usage(printable(&e.to_string()).into_owned());
        graph.find(name).map_err(error)
    };
    let (from, to) = (find(&args.from)?, find(&args.to)?);
    if from == to {
        return Err(Failure::usage("--from and --to are one node, expected two"));
    }
    let costs = match args.cost {
        Cost::Hops => Costs::hops(graph),
        Cost::Delay => Costs::delay(graph),
    };
    let mut planner = Planner::new(graph, costs, Tags::of(graph, SEED));
    let planned = planner.plan(from, to, args.k as usize, args.algorithm.into());
    if planned.is_empty() {
        return Err(Failure::new(crate::exit::Code::NotFound, "no path leads from the one to the other"));
    }
    let text = if args.svg {
        let paths: Vec<_> = planned.iter().map(|planned| &planned.path).collect();
        picture::svg(&network.name, graph, &paths)
    } else if args.json {
        json::text("network", &Summary::new(&network))
            + &planned.iter().map(|planned| object(graph, planned)).collect::<String>()
    } else {
        let line = Summary::new(&network).line();
        line + "\n"
            + &planned.iter().enumerate().map(|(n, planned)| told(graph, n, planned)).collect::<String>()
    };
    print(text.as_bytes())
}

fn object(graph: &Graph, planned: &Planned) -> String {
    let links: Vec<u32> = planned.path.links.iter().map(|id| id.0).collect();
    let visits = graph.visits(&planned.path.links);
    json::text(
        "path",
        &PathObject {
            group: planned.group,
            nodes: visits.iter().map(|id| graph.node(*id).name.as_str()).collect(),
            links: &links,
            cost: planned.path.cost,
            delay_us: planned.delay_ns as f64 / 1e3,
            capacity_bytes: planned.capacity_bytes,
            forward: Identifier::new(planned.forward),
            backward: planned.backward.map(Identifier::new),
        },
    )
}

fn told(graph: &Graph, number: usize, planned: &Planned) -> String {
    let visits = graph.visits(&planned.path.links);
    let names: Vec<_> = visits.iter().map(|id| printable(&graph.node(*id).name)).collect();
    let capacity = planned.capacity_bytes.map_or("capacity unknown".into(), bits);
    let count = match planned.path.links.len() {
        1 => "1 link".into(),
        n => format!("{n} links"),
    };
    let mut out = format!(
        "path {}: group {}, {count}, {}, {capacity}\n  {}\n",
        number + 1,
        planned.group,
        ms(planned.delay_ns),
        names.join(" → ")
    );
    let backward = planned.backward.map(|encoded| ("back", encoded));
    for (way, encoded) in [Some(("there", planned.forward)), backward].into_iter().flatten() {
        let _ = match encoded {
            Ok(Encoded { fid, fill, false_positives }) => writeln!(
                out,
                "  {way:<5} {} {} (fill {:.1} %, strays {false_positives})",
                kind(fid.kind()),
                hex(&fid.to_bytes()),
                100.0 * fill
            ),
            Err(error) => writeln!(out, "  {way:<5} {error}"),
        };
    }
    out
}

fn ms(ns: u64) -> String {
    format!("{:.2} ms", ns as f64 / 1e6)
}

fn bits(bytes: u64) -> String {
    let bits = bytes as f64 * 8.0;
    if bits >= 1e9 { format!("{} Gbit/s", bits / 1e9) } else { format!("{} Mbit/s", bits / 1e6) }
}
