//! Runs a congestion controller of your own in any scenario, beside those of the table: `cargo run --release
//! -p anabranch-lab --example your_controller -- bench-a` (or the path of a file).

use anabranch_algo::control::{
    Ack, ClassicCc, CongestionAvoidance, CongestionEvent, Group, SlowStart, SubflowStats, Window, WindowDelta,
};
use anabranch_algo::softfloat::Real;
use anabranch_lab::scenario::load::ScenarioReader;
use anabranch_lab::sweep::{Plan, pool};
use anabranch_lab::{Controllers, table};

/// AIMD(1, 0.7): the window grows by a packet each round trip, and a loss leaves seven tenths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gentle;

impl CongestionAvoidance for Gentle {
    const APPLIES_ALONE: bool = true;

    fn window_delta(&mut self, mine: &SubflowStats, ack: &Ack, _group: &Group<'_>) -> WindowDelta {
        WindowDelta::increase(Real::from_u64(u64::from(ack.acked)) / mine.cwnd.real())
    }

    fn reduced_window(&mut self, mine: &SubflowStats, _: &CongestionEvent, _: &Group<'_>) -> Window {
        Window::from_units(mine.cwnd.units() / 10 * 7)
    }
}

/// Returns the table of `scenario`, built in or a file, with [`Gentle`] and Reno in turn.
pub(crate) fn compare(scenario: &str, seeds: u64) -> Result<String, Box<dyn std::error::Error>> {
    let own = Controllers::default().with("gentle", || ClassicCc::new(Gentle, SlowStart::Standard))?;
    let reader = ScenarioReader::default().controllers(own);
    let read = reader.built_in(scenario).unwrap_or_else(|| reader.load(scenario.as_ref()))?;
    let mut plan = Plan::new(scenario, read, &[])?;
    plan.compare(["gentle", "reno"])?;
    plan.seeds = 1..=seeds;
    Ok(table::text(&plan, &table::rows(&plan, &plan.run(pool::threads()))))
}

#[allow(dead_code, reason = "a test has this file as a module")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    print!("{}", compare(&std::env::args().nth(1).unwrap_or_else(|| "bench-a".into()), 3)?);
    Ok(())
}
