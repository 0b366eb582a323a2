//! Keeps a domain up: its nodes, lines and programs, and its state for reports.

use std::fmt::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _};

use anabranch_algo::Span;
use anabranch_lab::linux::domain_bed::DomainBed;
use anabranch_overlay::domain::Domain;
use anabranch_topology::graph::{LinkId, NodeId};
use serde::{Deserialize, Serialize};

use super::domain_args::Hold;
use super::plan::Task;
use super::programs::{Program, Programs};
use crate::descriptors;
use crate::exit::Outcome;
use crate::holder::daemon::{self, Held};
use crate::holder::report::{self, Lateness, LinkCounts};
use crate::holder::{self, Kind, orphans};
use crate::view::printable;

/// The time after which `up` checks whether programs have ended: a program that cannot run ends within it.
const FIRST_LOOK: Span = Span::from_millis(300);

/// Describes the domain that is to be held.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Spec {
    /// The path of the domain's file, and its text.
    pub(super) file: String,
    pub(super) text: String,
    /// The program that is started on the nodes.
    pub(super) program: String,
    pub(super) tasks: Vec<Task>,
}

/// Describes a domain and its present state.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) name: String,
    /// The domain's own name, and the path of its file.
    pub(super) domain: String,
    pub(super) file: String,
    /// The number of the process that holds the domain.
    pub(super) pid: u32,
    pub(super) up_s: f64,
    pub(super) nodes: Vec<Node>,
    pub(super) lines: Vec<Line>,
    #[serde(flatten)]
    pub(super) lateness: Lateness,
    /// The reasons why measurements on the domain should not be trusted.
    pub(super) faults: Vec<String>,
}

/// Describes a node.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) forwards: bool,
    /// The descriptor of its namespace in the holder.
    pub(super) fd: i32,
    pub(super) programs: Vec<Program>,
    /// The path of the programs' output. Its last lines are in `last`, if a program has ended without being
    /// told to.
    pub(super) log: String,
    pub(super) last: Vec<String>,
}

impl Node {
    /// Describes the programs that run on the node.
    pub(super) fn runs(&self) -> String {
        let programs: Vec<String> = self.programs.iter().map(Program::text).collect();
        if programs.is_empty() { "-".into() } else { programs.join(", ") }
    }
}

/// Describes a line in one direction.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) from: String,
    pub(super) to: String,
    /// The device at the line's beginning, the address there, and the address of the other end.
    pub(super) device: String,
    pub(super) address: String,
    pub(super) peer: String,
    pub(super) delay_ms: f64,
    /// The rate in Mbit/s; `None` if it is unlimited.
    pub(super) rate_mbit: Option<f64>,
    #[serde(flatten)]
    pub(super) counts: LinkCounts,
}

impl State {
    /// Writes a table of the nodes with their programs and addresses.
    pub(super) fn node_table(&self) -> String {
        let width = self.nodes.iter().map(|node| node.name.len()).max().unwrap_or(0).max(4);
        let runs = self.nodes.iter().map(|node| node.runs().len()).max().unwrap_or(0).max(4);
        let mut text = format!("{:width$}  {:runs$}  addresses\n", "node", "runs");
        for node in &self.nodes {
            let own = self.lines.iter().filter(|line| line.from == node.name);
            let addresses: Vec<String> =
                own.map(|line| format!("{} ({})", line.address, line.device)).collect();
            let _ = writeln!(text, "{:width$}  {:runs$}  {}", node.name, node.runs(), addresses.join(", "));
        }
        text
    }

    /// Returns the last lines of programs that have ended.
    fn ends(&self) -> String {
        let lines = self.nodes.iter().flat_map(|node| node.last.iter().map(|line| (&node.name, line)));
        lines.fold(String::new(), |text, (node, line)| text + &format!("{node}: {}\n", printable(line)))
    }
}

impl holder::State for State {
    const KIND: Kind = Kind::Net;

    fn name(&self) -> &str {
        &self.name
    }

    fn pid(&self) -> u32 {
        self.pid
    }

    fn hosts(&self) -> Vec<(&str, i32)> {
        self.nodes.iter().map(|node| (node.name.as_str(), node.fd)).collect()
    }

    fn faults(&self) -> &[String] {
        &self.faults
    }

    fn report(&self) -> String {
        let row = |line: &Line| {
            let rate = line.rate_mbit.map(|rate| format!("{rate} Mbit/s"));
            (format!("{} → {}", line.from, line.to), rate)
        };
        let rows: Vec<report::Row<'_>> = self
            .lines
            .iter()
            .map(|line| {
                let (name, rate) = row(line);
                (name, rate, &line.counts)
            })
            .collect();
        let ends = self.ends();
        format!(
            "{}: the domain {} of {}\nup for {:.0} s, process {}\n\n{}\n{ends}{}{}",
            self.name,
            self.domain,
            printable(&self.file),
            self.up_s,
            self.pid,
            self.node_table(),
            if ends.is_empty() { "" } else { "\n" },
            report::links(&rows, &self.lateness, &self.faults)
        )
    }
}

/// Runs as the process that holds a domain.
///
/// # Errors
/// 1 if its parent process is gone, or if signals cannot be caught.
pub(super) fn hold(args: &Hold) -> Outcome {
    descriptors::raise_limit();
    daemon::run(&args.name, |text| start(text, &args.name))
}

/// Holds a domain that is up.
struct HeldDomain {
    name: String,
    file: String,
    domain: Domain,
    bed: DomainBed,
    programs: Programs,
}

fn start(text: &str, name: &str) -> Result<HeldDomain, String> {
    let spec: Spec = serde_json::from_str(text).map_err(|e| format!("no domain came: {e}"))?;
    let domain = anabranch_overlay::domain_file::read(&spec.text).map_err(|e| e.to_string())?;
    let bed = DomainBed::new(&domain, |node| orphans::label(node, Kind::Net, name));
    let bed = bed.map_err(|e| e.to_string())?;
    let programs = Programs::new(spec.program, spec.file.clone(), spec.tasks, bed.nodes.len());
    let programs = programs.map_err(|e| format!("no place for what programs say: {e}"))?;
    let mut held = HeldDomain { name: name.into(), file: spec.file, domain, bed, programs };
    for node in 0..held.bed.nodes.len() {
        if let Err(e) = held.start(node) {
            held.programs.end();
            return Err(e);
        }
    }
    held.programs.wait(FIRST_LOOK);
    Ok(held)
}

impl HeldDomain {
    fn start(&mut self, node: usize) -> Result<(), String> {
        let name = &self.domain.graph.nodes()[node].name;
        self.programs.start(node, name, &self.bed.nodes[node])
    }

    fn node(&mut self, id: NodeId) -> Node {
        let node = id.index();
        let programs = self.programs.of(node);
        Node {
            name: self.domain.graph.node(id).name.clone(),
            forwards: self.domain.is_forwarder(id),
            fd: self.bed.nodes[node].as_fd().as_raw_fd(),
            programs,
            log: self.programs.log(node),
            last: self.programs.last(node),
        }
    }

    fn line(&self, id: LinkId, stats: &anabranch_sim::Stats) -> Line {
        let (graph, link) = (&self.domain.graph, self.domain.graph.link(id));
        Line {
            from: graph.node(link.from).name.clone(),
            to: graph.node(link.to).name.clone(),
            device: self.bed.devices[id.index()].clone(),
            address: self.domain.address_here(id).to_string(),
            peer: self.domain.address_there(id).0.to_string(),
            delay_ms: link.delay_ns as f64 / 1e6,
            rate_mbit: link.capacity_bytes.map(|bytes| bytes as f64 / 125_000.0),
            counts: LinkCounts::of(stats),
        }
    }
}

impl Held for HeldDomain {
    type State = State;

    fn state(&mut self) -> State {
        let snapshot = self.bed.running.snapshot();
        let ids: Vec<NodeId> = self.domain.graph.node_ids().collect();
        let links = self.domain.graph.link_ids().zip(&snapshot.links);
        State {
            name: self.name.clone(),
            domain: self.domain.name.clone(),
            file: self.file.clone(),
            pid: std::process::id(),
            up_s: snapshot.at.as_nanos() as f64 / 1e9,
            nodes: ids.into_iter().map(|id| self.node(id)).collect(),
            lines: links.map(|(id, stats)| self.line(id, stats)).collect(),
            lateness: Lateness::of(&snapshot),
            faults: DomainBed::violations(&self.domain, &snapshot),
        }
    }

    fn order(&mut self, order: &str) -> Result<(), String> {
        let (verb, name) = order.split_once(' ').unwrap_or((order, ""));
        let node = self.domain.graph.by_name(name).ok_or_else(|| format!("there is no node {name}"))?.index();
        match verb {
            "kill" => self.programs.kill(node),
            "start" => {
                self.start(node)?;
                self.programs.wait(FIRST_LOOK);
            }
            _ => return Err(format!("a domain knows no request {verb}")),
        }
        Ok(())
    }

    fn end(mut self) -> State {
        self.programs.end();
        self.state()
    }
}
