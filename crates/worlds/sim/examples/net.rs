//! Measures how many link packets the bare network handles per CPU second:
//! `cargo run --release -p anabranch-sim --example net [MILLIONS [KIND [LINKS]]]`.
//!
//! The network has twice as many flows as links. Each flow crosses three links picked at random, with a
//! window of eight packets that is filled up at every delivery, so every link is busy. Rates and delays
//! differ, so that no two links keep step.

use anabranch_algo::{Machine, Output, Rate, Span, Time};
use anabranch_sim::{LinkConfig, Net, Packet, Rng};
use std::time::Instant;

/// Has the size of a packet of the laboratory, 32 bytes; the example reads none of its contents.
#[derive(Clone, Debug)]
struct Segment {
    bytes: u32,
    marked: bool,
    _rest: [u64; 3],
}

impl Packet for Segment {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn mark(&mut self) {
        self.marked = true;
    }
}

const HOPS: usize = 3;
const WINDOW: usize = 8;

/// Returns the nanoseconds of CPU time that this process has used, which other processes do not affect. Where
/// the system does not report it, returns the time of day.
#[expect(clippy::disallowed_methods, reason = "it measures how long the machine takes")]
fn cpu_ns(start: Instant) -> f64 {
    let used = std::fs::read_to_string("/proc/self/schedstat").ok();
    let used = used.and_then(|text| text.split(' ').next()?.parse().ok());
    used.unwrap_or_else(|| start.elapsed().as_nanos() as f64)
}

/// Returns the number of link packets delivered, the CPU seconds, and the order of all deliveries folded into
/// a number.
#[expect(clippy::disallowed_methods, reason = "it measures how long the machine takes")]
fn run(links: u32, config: impl Fn(Rate, Span) -> LinkConfig, millions: u64) -> (u64, f64, u64) {
    let mut rng = Rng::new(7);
    let mut net = Net::new(1);
    let ids: Vec<_> = (0..links)
        .map(|i| {
            let rate = Rate::from_bits(50_000_000 + rng.below(50_000_000));
            net.link(&format!("link {i}"), config(rate, Span::from_micros(1_000 + rng.below(9_000))))
        })
        .collect();
    let mut starts = Vec::new();
    for _ in 0..2 * links {
        let route: [_; HOPS] = std::array::from_fn(|_| ids[rng.below(u64::from(links)) as usize]);
        let route = net.route(&route);
        // Spread the starts, or the pure delays would carry all packets in one bunch for ever.
        (0..WINDOW).for_each(|_| {
            let start = Time::from_nanos(rng.below(1_000_000));
            starts.push((start, route));
        });
    }
    starts.sort_by_key(|(start, _)| *start);
    for (start, route) in starts {
        net.send(start, route, Segment { bytes: 1_500, marked: false, _rest: [0; 3] });
    }
    let (mut delivered, mut digest) = (0u64, 0u64);
    let goal = millions * 1_000_000 / HOPS as u64;
    let clock = Instant::now();
    let began = cpu_ns(clock);
    let mut limit = Time::from_nanos(1_000_000);
    while delivered < goal {
        match net.poll(limit) {
            Output::Send(delivery) => {
                delivered += 1;
                digest = digest.rotate_left(5) ^ delivery.at.as_nanos() ^ u64::from(delivery.route.0);
                net.send(delivery.at, delivery.route, delivery.packet);
            }
            Output::Wait(next) => limit = next + Span::from_millis(1),
            Output::Event(_) => unreachable!("nothing is dropped"),
        }
    }
    let seconds = (cpu_ns(clock) - began) / 1e9;
    (ids.iter().map(|&link| net.stats(link).delivered).sum(), seconds, digest)
}

fn drop_tail(rate: Rate, delay: Span) -> LinkConfig {
    LinkConfig::new(rate, delay).queue_packets(u32::MAX)
}

fn pure(_: Rate, delay: Span) -> LinkConfig {
    LinkConfig { delay, queue_packets: u32::MAX, ..LinkConfig::default() }
}

/// Adds a fault that never happens, to measure the cost of a link that may have faults.
fn lossy(rate: Rate, delay: Span) -> LinkConfig {
    LinkConfig { reorder: 1e-9, ..drop_tail(rate, delay) }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let millions = args.next().and_then(|n| n.parse().ok()).unwrap_or(20);
    let only = args.next().unwrap_or_default();
    let sizes = args.next().and_then(|n| n.parse().ok()).map_or(vec![10, 100, 1_000, 10_000], |n| vec![n]);
    println!("{:>8}  {:<12} {:>16} {:>18}", "links", "kind", "M link packets/s", "digest");
    for links in sizes {
        type Make = fn(Rate, Span) -> LinkConfig;
        for (kind, config) in [("drop-tail", drop_tail as Make), ("pure delay", pure), ("with faults", lossy)]
        {
            if !kind.starts_with(&only) {
                continue;
            }
            let (packets, seconds, digest) = run(links, config, millions);
            println!("{links:>8}  {kind:<12} {:>16.1} {digest:>18x}", packets as f64 / seconds / 1e6);
        }
    }
}
