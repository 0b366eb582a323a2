//! What a step of each algorithm costs: `cargo run --release -p anabranch-algo --example control_cost [--
//! NAME…]`.
//!
//! Nanoseconds per `on_ack` of one packet in congestion avoidance, in groups of 1, 2 and 8, the members'
//! numbers being published anew after each step, as a transport does. The best of several runs: others use
//! the machine.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anabranch_algo::control::{
    ALGORITHMS, Ack, Algorithm, CongestionCause, CongestionEvent, Control, Group, SubflowStats,
};
use anabranch_algo::{Span, Time};

const STEPS: u32 = 20_000;
const RUNS: u32 = 60;

/// Nanoseconds per step.
fn cost(name: &str, n: usize) -> f64 {
    let mut flows = vec![Algorithm::by_name(name).expect("a name of the table"); n];
    let rtts: Vec<_> = (0..n as u64).map(|i| Span::from_millis(20 + 7 * i)).collect();
    let publish = |flows: &[Algorithm]| -> Vec<SubflowStats> {
        flows.iter().zip(&rtts).map(|(flow, &srtt)| flow.stats(srtt)).collect()
    };
    let mut members = publish(&flows);
    for me in 0..n {
        let loss = CongestionEvent { now: Time::ZERO, cause: CongestionCause::Loss, srtt: rtts[me] };
        flows[me].on_congestion(&loss, &Group { members: &members, me });
    }
    members = publish(&flows);
    let mut best = Duration::MAX;
    let mut now = Time::ZERO;
    let mut step = 0;
    for _ in 0..RUNS {
        #[expect(clippy::disallowed_methods, reason = "a measurement is made of time")]
        let start = Instant::now();
        for _ in 0..STEPS {
            let me = step as usize % n;
            step += 1;
            now += Span::from_micros(100);
            let rtt = rtts[me];
            let ack = Ack {
                now,
                acked: 1,
                round: step / 100,
                srtt: rtt,
                rtt,
                min_rtt: rtt,
                cwnd_limited: true,
                recovering: false,
            };
            let ack = black_box(ack);
            black_box(flows[me].on_ack(&ack, &Group { members: &members, me }));
            members[me] = flows[me].stats(rtt);
        }
        #[expect(clippy::disallowed_methods, reason = "as above")]
        let took = start.elapsed();
        best = best.min(took);
    }
    best.as_nanos() as f64 / f64::from(STEPS)
}

fn main() {
    println!("{:<12} {:>8} {:>8} {:>8}   ns per packet", "members:", 1, 2, 8);
    let wanted: Vec<_> = std::env::args().skip(1).collect();
    let all = ALGORITHMS.iter().filter(|e| wanted.is_empty() || wanted.iter().any(|name| name == e.name));
    for entry in all {
        let [one, two, eight] = [1, 2, 8].map(|n| cost(entry.name, n));
        println!("{:<12} {one:>8.1} {two:>8.1} {eight:>8.1}", entry.name);
    }
}
