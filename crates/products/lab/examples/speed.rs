//! Measures the speed of the simulator: link packets per CPU second, and memory.
//!
//! `cargo run --release -p anabranch-lab --example speed -- [ROW]`
//!
//! Prints one JSON object a row. `torus`, `dumbbell` and `fattree` are the loads that `bench/simulators.py`
//! gives to other simulators too; `growth` puts an equal load per link on ever larger networks; `idle`
//! measures the cost of flows that wait. A packet counts once for each link with a rate that it leaves;
//! acknowledgements cross no such link.

use std::fs;
use std::process::ExitCode;

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Rate, Span, Time};
use anabranch_lab::Simulation;
use anabranch_lab::packet_flows::FlowConfig;
use anabranch_sim::config::Discipline;
use anabranch_sim::{LinkConfig, LinkId, Rng};

/// Clock ticks a second of `/proc/self/stat`.
const TICKS: f64 = 100.0;

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1);
    let rows: [(&str, fn()); 5] =
        [("torus", torus), ("dumbbell", dumbbell), ("fattree", fat_tree), ("growth", growth), ("idle", idle)];
    let chosen = rows.iter().filter(|(name, _)| wanted.as_deref().is_none_or(|wanted| wanted == *name));
    let chosen: Vec<_> = chosen.collect();
    if chosen.is_empty() {
        eprintln!("usage: speed [torus|dumbbell|fattree|growth|idle]");
        return ExitCode::from(2);
    }
    chosen.iter().for_each(|(_, run)| run());
    ExitCode::SUCCESS
}

/// Returns the CPU time of this process, s.
fn cpu_s() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / TICKS
}

/// Returns the memory that this process uses now, KiB.
fn rss_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

/// A network under construction.
struct Network {
    simulation: Simulation,
    links: Vec<LinkId>,
    packet_bytes: u16,
}

impl Network {
    fn new(packet_bytes: u16) -> Self {
        Self { simulation: Simulation::new(7), links: Vec::new(), packet_bytes }
    }

    fn link(&mut self, config: LinkConfig) -> LinkId {
        let id = self.simulation.link(&format!("link {}", self.links.len()), config);
        self.links.push(id);
        id
    }

    fn flow(&mut self, control: &str, paths: &[Vec<LinkId>], ack: Span, start: Span) {
        let control = Algorithm::by_name(control).expect("in the table");
        let pipe = (ack > Span::ZERO).then(|| self.simulation.pipe(ack));
        let up = pipe.map(|pipe| self.simulation.route(&[pipe]));
        let routes = paths.iter().map(|down| (control.into(), self.simulation.route(down), up, 0));
        let config = FlowConfig {
            paths: routes.collect(),
            packet_bytes: self.packet_bytes,
            packets: None,
            start: Time::ZERO + start,
            stop: None,
            detect: None,
            ack_delay: None,
            mirrors: None,
            steering: None,
        };
        self.simulation.packet_flows_mut().flow(&config);
    }

    fn run(&mut self, row: &str, span: Span) {
        let before = cpu_s();
        self.simulation.run_until(Time::ZERO + span);
        let cpu_s = cpu_s() - before;
        let packets: u64 = self.links.iter().map(|link| self.simulation.stats(*link).delivered).sum();
        println!(
            "{{\"row\":\"{row}\",\"link_packets\":{packets},\"cpu_s\":{cpu_s:.2},\"rss_kib\":{},\
             \"packets_per_cpu_s\":{:.0}}}",
            rss_kib(),
            packets as f64 / cpu_s.max(1.0 / TICKS)
        );
    }
}

/// Runs five links and five flows of two paths (LIA), each path with a feeder queue of twice the rate.
fn torus() {
    let mut network = Network::new(1_000);
    let narrow = LinkConfig::new(Rate::from_bytes(1_000_000), Span::from_millis(50)).queue_packets(53);
    let narrow = narrow.discipline(Discipline::Random { last_packets: 3, p: 0.022 });
    let links: Vec<LinkId> = (0..5).map(|_| network.link(narrow.clone())).collect();
    let mut rng = Rng::stream(7, "starts");
    for flow in 0..5 {
        let path = |network: &mut Network, link: LinkId| {
            let feeder = LinkConfig::new(Rate::from_bytes(2_000_000), Span::ZERO).queue_packets(2_000);
            vec![network.link(feeder), link]
        };
        let paths = [path(&mut network, links[flow]), path(&mut network, links[(flow + 1) % 5])];
        network.flow("lia", &paths, Span::ZERO, Span::from_nanos(rng.below(50_000_000)));
    }
    network.run("torus", Span::from_secs(1_000));
}

/// Runs a hundred flows of one path behind 10 Gbit/s.
fn dumbbell() {
    let mut network = Network::new(9_000);
    let rate = Rate::from_bits(10_000_000_000);
    let neck = LinkConfig::new(rate, Span::from_micros(10)).queue_packets(100);
    let neck = network.link(neck.discipline(Discipline::Random { last_packets: 5, p: 0.1 }));
    let mut rng = Rng::stream(7, "starts");
    for _ in 0..100 {
        let feeder = network.link(LinkConfig::new(rate, Span::ZERO).queue_packets(1_000));
        let start = Span::from_nanos(rng.below(1_000_000));
        network.flow("reno", &[vec![feeder, neck]], Span::from_micros(10), start);
    }
    network.run("dumbbell", Span::from_secs(50));
}

/// Runs a fat tree of k = 8: each of 128 hosts sends to another over a random one of the shortest paths.
fn fat_tree() {
    let mut network = Network::new(1_500);
    let mut rng = Rng::stream(7, "routes");
    let rate = Rate::from_bits(100_000_000_000);
    let link = |network: &mut Network, host: bool| {
        let config = LinkConfig::new(rate, Span::from_micros(1));
        network.link(if host {
            config.queue_packets(256)
        } else {
            config.queue_packets(8).discipline(Discipline::HTSIM)
        })
    };
    let (half, pods) = (4, 8);
    let hosts = pods * half * half;
    let row = |network: &mut Network, n: usize, host| -> Vec<LinkId> {
        (0..n).map(|_| link(network, host)).collect()
    };
    let (host_up, host_down) = (row(&mut network, hosts, true), row(&mut network, hosts, false));
    // Links are ordered by pod, switch and port.
    let edge_up = row(&mut network, pods * half * half, false);
    let edge_down = row(&mut network, pods * half * half, false);
    let core_up = row(&mut network, pods * half * half, false);
    let core_down = row(&mut network, pods * half * half, false);
    let at = |pod: usize, switch: usize, port: usize| (pod * half + switch) * half + port;
    let mut to: Vec<usize> = (0..hosts).collect();
    for i in (1..hosts).rev() {
        // Sattolo's shuffle: no host sends to itself.
        to.swap(i, rng.below(i as u64) as usize);
    }
    for (from, &to) in to.iter().enumerate() {
        let (pod, other) = (from / (half * half), to / (half * half));
        let (tor, other_tor) = (from / half % half, to / half % half);
        let (agg, core) = (rng.below(half as u64) as usize, rng.below(half as u64) as usize);
        let mut path = vec![host_up[from]];
        if from / half != to / half {
            path.push(edge_up[at(pod, tor, agg)]);
            if pod != other {
                path.extend([core_up[at(pod, agg, core)], core_down[at(other, agg, core)]]);
            }
            path.push(edge_down[at(other, agg, other_tor)]);
        }
        path.push(host_down[to]);
        network.flow("reno", &[path], Span::ZERO, Span::ZERO);
    }
    network.run("fattree", Span::from_millis(10));
}

/// Puts an equal load per link on ever larger networks: each flow of two paths crosses three links.
fn growth() {
    for links in [10, 100, 1_000, 10_000] {
        let mut network = Network::new(1_000);
        let config = LinkConfig::new(Rate::from_bytes(10_000_000), Span::from_millis(5)).queue_packets(60);
        let ids: Vec<LinkId> = (0..links).map(|_| network.link(config.clone())).collect();
        for flow in 0..links {
            let via = |step: usize| (0..3).map(|hop| ids[(flow * 7 + hop * step + step) % links]).collect();
            let start = Span::from_micros(flow as u64 * 37 % 50_000);
            network.flow("nmcc", &[via(1), via(3)], Span::from_millis(10), start);
        }
        // Run some twenty million packets, but at least two seconds.
        let packets_s = links as u64 * 10_000;
        network.run(&format!("growth-{links}"), Span::from_millis((20_000_000_000 / packets_s).max(2_000)));
    }
}

/// Measures a hundred thousand flows of one path that all have nothing to do yet; then they start.
fn idle() {
    const FLOWS: usize = 100_000;
    let before = rss_kib();
    let mut network = Network::new(1_500);
    let neck = LinkConfig::new(Rate::from_bits(1_000_000_000_000), Span::from_millis(5));
    let neck = network.link(neck.queue_packets(200_000));
    for flow in 0..FLOWS {
        let access = LinkConfig::new(Rate::from_bits(100_000_000), Span::from_millis(1)).queue_packets(100);
        let access = network.link(access);
        let start = Span::from_secs(1) + Span::from_micros(flow as u64 * 10);
        network.flow("reno", &[vec![access, neck]], Span::from_millis(10), start);
    }
    let kib = rss_kib() - before;
    println!("{{\"row\":\"idle\",\"flows\":{FLOWS},\"bytes_per_idle_flow\":{}}}", kib * 1_024 / FLOWS as u64);
    network.run("idle-started", Span::from_millis(2_500));
}
