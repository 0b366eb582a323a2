//! Runs one burst.

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Rate, Span, Time};
use anabranch_mptcp::{Config, PathManager, TailLoss};
use anabranch_sim::LinkConfig;

use super::grid::{AlternateQueue, Burst, Task};
use crate::Simulation;
use crate::packet_flows::FlowConfig;
use crate::packet_layout::PacketLayout;
use crate::tcp_flows::{FLOW_TCP, Message, Opener, TcpFlowConfig, TcpPath, TransferConfig, Workload};

/// Rate of both paths, Mbit/s (assumed: the thesis does not print it).
pub const RATE_MBITS: u64 = 25;
/// Queue of the primary path, packets (assumed).
const QUEUE_PACKETS: u32 = 100;
/// Payload of a segment, bytes: 1,500 without headers and options.
pub const SEGMENT_BYTES: u64 = PacketLayout::stack(1_500, true).payload_bytes;
/// Segments of the first message, which opens the window far enough for each burst.
const OPENING_SEGMENTS: u32 = 100;
/// Messages of two segments that follow, so that the measured round trip is that of the path again and not
/// that of the queue that the first message made. Two segments are acknowledged at once.
const PAIRS: u32 = 20;
const PAIRS_AT: Span = Span::from_millis(1_500);
const PAIR_EVERY: Span = Span::from_millis(100);
/// Segments before the burst.
pub const WARM_UP_SEGMENTS: u32 = OPENING_SEGMENTS + 2 * PAIRS;
/// Time at which the burst is written.
const BURST_AT: Span = Span::from_secs(4);
/// Longest time that a burst may take.
const PATIENCE: Span = Span::from_secs(60);
const STEP: Span = Span::from_millis(50);

/// The result of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Time from the writing of the burst until all of it has been read.
    pub time: Span,
    /// Segments with data that the sender sent for it, on both paths.
    pub segments: u64,
}

impl Task {
    /// Runs the simulation.
    ///
    /// # Errors
    /// If the run does not count; the error says which condition was not met.
    pub fn run(&self) -> Result<Completion, String> {
        run(self.burst, self.policy)
    }
}

/// Runs a burst with a policy.
///
/// # Errors
/// If a condition was not met.
fn run(burst: Burst, policy: TailLoss) -> Result<Completion, String> {
    let mut simulation = Simulation::new(1);
    let rate = Rate::from_bits(RATE_MBITS * 1_000_000);
    let half = |rtt_ms: u64| Span::from_micros(rtt_ms * 500);
    let (near_ms, far_ms) = burst.rtts_ms;
    let lost = u64::from(burst.lost.of(burst.segments));
    let sent = u64::from(WARM_UP_SEGMENTS + burst.segments);
    let mut primary = LinkConfig::new(rate, half(near_ms)).queue_packets(QUEUE_PACKETS);
    // Data segments are counted from 1; after the burst comes the first one that is sent again.
    let dropped = (sent - lost + 1)..=(sent + u64::from(burst.probe_lost));
    primary.scripted_flow_drops = dropped.map(|nth| (FLOW_TCP, nth)).collect();
    let ratio = match burst.alternate {
        AlternateQueue::Idle => 1,
        AlternateQueue::Filled(ratio) => ratio,
    };
    let alternate = LinkConfig::new(rate, half(far_ms)).queue_packets(QUEUE_PACKETS * ratio);
    let links = [simulation.link("primary", primary), simulation.link("alternate", alternate)];
    let paths = links.iter().zip([near_ms, far_ms]).map(|(link, rtt_ms)| {
        let back = simulation.pipe(half(rtt_ms));
        TcpPath { down: simulation.route(&[*link]), up: simulation.route(&[back]) }
    });
    let paths: Vec<TcpPath> = paths.collect();
    if burst.alternate != AlternateQueue::Idle {
        fill(&mut simulation, paths[1]);
    }
    let mut stack = Config { path_manager: PathManager::Backup, ..Config::default() };
    stack.tcp.tail_loss = policy;
    let message =
        |at: Span, segments: u32| Message { at: Time::ZERO + at, bytes: u64::from(segments) * SEGMENT_BYTES };
    let pair = |nth: u32| message(PAIRS_AT + PAIR_EVERY.times(u64::from(nth)), 2);
    let mut messages = vec![message(Span::ZERO, OPENING_SEGMENTS)];
    messages.extend((0..PAIRS).map(pair));
    let place = messages.len();
    messages.push(message(BURST_AT, burst.segments));
    // The connection stays open, so that its end does not hasten the repair.
    messages.push(message(BURST_AT + PATIENCE.times(2), 1));
    let flow = simulation.tcp_flow(
        "burst",
        TcpFlowConfig {
            stack,
            paths,
            opener: Opener::Sender,
            transfers: vec![TransferConfig { start: Time::ZERO, workload: Workload::Messages(messages) }],
            objects: Vec::new(),
            stop: None,
        },
    );
    let end = Time::ZERO + BURST_AT + PATIENCE;
    let arrived = loop {
        simulation.run_until(simulation.clock() + STEP);
        let arrived = simulation.tcp_flows().transfers(flow)[0].messages.get(place).copied();
        match arrived {
            Some(at) => break at,
            None if simulation.clock() >= end => return Err(format!("not complete within {PATIENCE}")),
            None => {}
        }
    };
    // What is still under way or about to be sent again counts as sent for the burst.
    simulation.run_until(arrived + Span::from_secs(2));
    let stats = simulation.stats(links[0]);
    let wanted = lost + u64::from(burst.probe_lost);
    if stats.dropped.scripted != wanted || stats.dropped.total() != wanted {
        return Err(format!("{:?} dropped, wanted {wanted} by script", stats.dropped));
    }
    if let Some(what) = simulation.violations().first() {
        return Err(what.clone());
    }
    let segments = simulation.tcp_flows().data_segments(flow) - u64::from(WARM_UP_SEGMENTS);
    Ok(Completion { time: arrived.since(Time::ZERO + BURST_AT), segments })
}

/// Adds a CUBIC flow that fills the queue of a path.
fn fill(simulation: &mut Simulation, path: TcpPath) {
    let cubic = Algorithm::by_name("cubic").expect("in the table");
    let start = Time::ZERO + Span::from_millis(500);
    simulation.packet_flows_mut().flow(&FlowConfig::endless(cubic.into(), path.down, path.up, start));
}
