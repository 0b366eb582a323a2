//! Runs a workload over a bed.

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Rate, Span, Time};
use anabranch_mptcp::Config;
use anabranch_sim::{LinkChange, LinkConfig, Rng};

use super::grid::{Bed, LONG_QUEUE_PACKETS, Paths, QUEUE_PACKETS, Task, Transport};
use super::workload::Workload;
use crate::Simulation;
use crate::packet_flows::FlowConfig;
use crate::simulation::Fault;
use crate::tcp_flows::{Message, Opener, TcpFlowConfig, TcpPath, TransferReport, Workload as Transfer};

/// Time at which the workload begins: background flows have filled their queues by then.
const START: Span = Span::from_secs(15);
/// Time after which a workload ends, whatever has not come.
const PATIENCE: Span = Span::from_secs(300);
const STEP: Span = Span::from_millis(500);
/// Controllers (assumed): MPTCP couples its subflows, and background flows are those of most servers.
const TCP: &str = "reno";
const MPTCP: &str = "lia";
const BACKGROUND: &str = "cubic";

/// Returns the link of a path: rate, delay each way, loss, queue.
fn link(bed: &Bed, path: usize) -> LinkConfig {
    let long = bed.long_buffers;
    let queue = |is_long: bool| if is_long { LONG_QUEUE_PACKETS } else { QUEUE_PACKETS };
    let link = |mbits: u64, delay_ms: u64, packets: u32| {
        LinkConfig::new(Rate::from_bits(mbits * 1_000_000), Span::from_millis(delay_ms))
            .queue_packets(packets)
    };
    match (bed.paths, path) {
        (Paths::Symmetric, _) => link(25, 25, queue(long)),
        (Paths::WlanAnd3g, 0) => LinkConfig { loss: 0.01, ..link(25, 25, queue(false)) },
        (Paths::WlanAnd3g, _) => link(5, 65, queue(long)),
    }
}

fn algorithm(name: &str) -> Algorithm {
    Algorithm::by_name(name).expect("in the table")
}

impl Task {
    /// Runs the simulation. Returns the latencies of each stream of the workload; [`Span::MAX`] for a message
    /// that never came.
    ///
    /// # Errors
    /// If the run does not count; the error says why.
    pub fn run(&self) -> Result<Vec<Vec<Span>>, String> {
        simulate(self).map_err(|what| {
            format!(
                "{}, {:?}, {}, seed {}: {what}",
                self.bed.name(),
                self.workload,
                self.transport.name(),
                self.seed
            )
        })
    }
}

/// Runs a task. Returns the latencies of each stream.
///
/// # Errors
/// If a background flow did not fill its queue, or an invariant was violated.
fn simulate(task: &Task) -> Result<Vec<Vec<Span>>, String> {
    let Task { bed, workload, transport, seed } = *task;
    let mut simulation = Simulation::new(seed);
    let mut rng = Rng::stream(seed, "starts");
    let start = Time::ZERO + START + Span::from_micros(rng.below(1_000_000));
    let links = [0, 1].map(|path| simulation.link(&format!("path {path}"), link(&bed, path)));
    let paths = [0, 1].map(|path| {
        let back = simulation.pipe(link(&bed, path).delay);
        TcpPath { down: simulation.route(&[links[path]]), up: simulation.route(&[back]) }
    });
    if bed.background {
        paths.iter().for_each(|path| background(&mut simulation, *path, rng.below(1_000_000)));
    }
    if bed.cut {
        let at = start + workload.middle();
        simulation.at(at, Fault::Link { link: links[0], change: LinkChange::Up(false) });
    }
    let (used, stack) = match transport {
        Transport::Tcp(path) => {
            let stack = Config { mptcp: false, congestion_control: algorithm(TCP), ..Config::default() };
            (vec![paths[path]], stack)
        }
        Transport::Uncoupled => {
            (paths.to_vec(), Config { congestion_control: algorithm(TCP), ..Config::default() })
        }
        Transport::Mptcp(scheduler) => {
            let stack = Config { scheduler, congestion_control: algorithm(MPTCP), ..Config::default() };
            (paths.to_vec(), stack)
        }
    };
    let flows: Vec<_> = workload
        .flows(start)
        .into_iter()
        .enumerate()
        .map(|(no, transfers)| {
            let config = TcpFlowConfig {
                stack: stack.clone(),
                paths: used.clone(),
                opener: Opener::Receiver,
                transfers: transfers.clone(),
                objects: workload.objects(),
                stop: None,
            };
            (simulation.tcp_flow(&format!("stream {no}"), config), transfers)
        })
        .collect();
    let is_done = |simulation: &Simulation| {
        let mut reports = flows.iter().flat_map(|(flow, _)| simulation.tcp_flows().transfers(*flow));
        reports.all(|report| report.ended.is_some())
    };
    while !is_done(&simulation) && simulation.clock() < start + PATIENCE {
        simulation.run_until(simulation.clock() + STEP);
    }
    if let Some(what) = simulation.violations().first() {
        return Err(what.clone());
    }
    // Random loss keeps the background flow of the WLAN from filling its queue.
    let is_full =
        |path: usize| link(&bed, path).loss > 0.0 || simulation.stats(links[path]).dropped.queue > 0;
    if bed.background && !bed.long_buffers && ![0, 1].into_iter().all(is_full) {
        return Err("the background flow of a link did not fill its queue".into());
    }
    let latencies = flows.iter().map(|(flow, transfers)| {
        let reports = simulation.tcp_flows().transfers(*flow);
        match workload {
            Workload::Page(_) => vec![page_time(&reports, start)],
            _ => transfers
                .iter()
                .zip(&reports)
                .flat_map(|(config, report)| waits(&config.workload, report))
                .collect(),
        }
    });
    Ok(latencies.collect())
}

/// Adds a flow without end on a path, which starts after `start_us` microseconds.
fn background(simulation: &mut Simulation, path: TcpPath, start_us: u64) {
    let start = Time::ZERO + Span::from_micros(start_us);
    let config = FlowConfig::endless(algorithm(BACKGROUND).into(), path.down, path.up, start);
    simulation.packet_flows_mut().flow(&config);
}

/// Returns the time from `start` until the last byte of a page; [`Span::MAX`] if it never came.
fn page_time(reports: &[TransferReport], start: Time) -> Span {
    if reports.iter().any(|report| report.ended.is_none()) {
        return Span::MAX;
    }
    let last = reports.iter().flat_map(|report| report.messages.last().copied()).max();
    last.map_or(Span::ZERO, |last| last.since(start))
}

/// Returns the latency of each message of a transfer; [`Span::MAX`] of those that never came.
fn waits(workload: &Transfer, report: &TransferReport) -> Vec<Span> {
    let Transfer::Messages(messages) = workload else { return Vec::new() };
    let arrivals = report.messages.iter().map(Some).chain(std::iter::repeat(None));
    let wait = |(message, arrived): (&Message, Option<&Time>)| {
        arrived.map_or(Span::MAX, |arrived| arrived.since(message.at))
    };
    messages.iter().zip(arrivals).map(wait).collect()
}
