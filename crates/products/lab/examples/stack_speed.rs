//! Measures how many data packets a second of processor time the simulator moves in a flow of this project's
//! Multipath TCP, beside a flow of mmTP: the same two links, 60 s of virtual time, in turns.
//!
//! `cargo run --release -p anabranch-lab --example stack_speed`

use anabranch_lab::run::run;
use anabranch_lab::scenario::Scenario;

/// Seconds of virtual time.
const SECONDS: f64 = 60.0;
const ROUNDS: usize = 5;

fn scenario(transport: &str) -> String {
    format!(
        "title = \"speed\"\nduration = \"{SECONDS} s\"\n\
         [link.a]\nrate = \"100 Mbit/s\"\nqueue = \"40 ms\"\n\
         [link.b]\nrate = \"100 Mbit/s\"\nqueue = \"40 ms\"\n\
         [flow.f]\ntransport = \"{transport}\"\n\
         paths = [{{ via = [\"a\"], rtt = \"20 ms\" }}, {{ via = [\"b\"], rtt = \"30 ms\" }}]\n\
         [[measure]]\nmetric = \"packets\"\nkind = \"packets\"\nflows = [\"f\"]\n"
    )
}

/// Returns the processor time that the process has used, s.
fn processor_s() -> f64 {
    let used = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = used.split_whitespace().next().and_then(|nanos| nanos.parse::<f64>().ok());
    nanos.unwrap_or(f64::NAN) / 1e9
}

/// Runs a flow and returns its packets a second of processor time.
fn measure(transport: &str) -> f64 {
    let scenario = Scenario::parse(&scenario(transport), "speed").expect("a scenario");
    let before = processor_s();
    let outcome = run(&scenario, "reno", 1);
    let used = processor_s() - before;
    outcome.values[0].expect("a value") * SECONDS / used
}

fn main() {
    let mut rates = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        for (rates, transport) in rates.iter_mut().zip(["mptcp", "mmtp"]) {
            rates.push(measure(transport));
        }
    }
    for (rates, transport) in rates.iter_mut().zip(["mptcp", "mmtp"]) {
        rates.sort_by(f64::total_cmp);
        let [low, high] = [0, ROUNDS - 1].map(|at| rates[at] / 1e3);
        println!("{transport}: {:.0} ({low:.0} to {high:.0}) thousand packets/s", rates[ROUNDS / 2] / 1e3);
    }
    let slower = 100.0 * (rates[1][ROUNDS / 2] / rates[0][ROUNDS / 2] - 1.0);
    println!("a packet of mptcp takes {slower:.0} % longer");
}
