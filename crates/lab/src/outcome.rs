//! What comes out of an experiment: of one run, and as the rows of a table.

use serde::{Deserialize, Serialize};

/// What came out of one run: one scenario, case, controller and seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The value of each of the scenario's measures, in their order; none if there was nothing to measure
    /// (a transfer that did not end, a loss ratio without loss). In the unit of [`crate::run::unit`].
    pub values: Vec<Option<f64>>,
    /// Conditions that were not met; empty if the run counts.
    pub faults: Vec<String>,
    /// A digest of the whole event stream: the same for the same seed, whatever ran beside it.
    pub digest: u64,
    /// Packets that left links with a rate.
    pub link_packets: u64,
    /// How it went over time; not kept in result files.
    #[serde(skip)]
    pub series: Series,
}

/// One run, and what came out of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The case, if the scenario has any; of a sweep with the values that were set.
    pub case: Option<String>,
    /// The controller under comparison.
    pub controller: String,
    /// The seed.
    pub seed: u64,
    /// What came out.
    pub outcome: Outcome,
}

/// Lines over time, all with the same step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Seconds between two values; the first value is that of the first step.
    pub step_s: f64,
    /// The lines.
    pub lines: Vec<Line>,
}

/// One line over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What it shows.
    pub what: What,
    /// Whose: a flow ("mp"), a path of it ("mp/0"), a link.
    pub name: String,
    /// One value a step.
    pub values: Vec<f32>,
}

/// What a line shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Goodput of a flow, Mbit/s.
    Goodput,
    /// Congestion window of a path at the end of the step, packets.
    Cwnd,
    /// Queue of a link at the end of the step, packets of the scenario's size.
    Queue,
}

/// A row of a table: one measure of one case and controller, over the seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The scenario's file name without `.toml`.
    pub scenario: String,
    /// Where it ran: `sim`.
    pub world: String,
    /// The case, if the scenario has any.
    pub case: Option<String>,
    /// The seeds that counted.
    pub seeds: Vec<u64>,
    /// The controller under comparison.
    pub controller: String,
    /// The measure.
    pub metric: String,
    /// Its mean over the seeds; none if no run had one.
    pub value: Option<f64>,
    /// Its unit: `%`, `Mbit/s`, `pkt/s`, `s`, `ms`, or empty.
    pub unit: String,
    /// Standard deviation over the seeds (of the sample).
    pub sd: Option<f64>,
    /// Half of the 95 % confidence interval of the mean (Student's t).
    pub ci95: Option<f64>,
    /// What the source reports.
    pub paper: Option<f64>,
    /// What a fluid model gives.
    pub model: Option<f64>,
    /// Whether the mean is where the scenario expects it; none if it expects nothing.
    pub expected: Option<bool>,
    /// Why it differs from the source, if the scenario says so.
    pub why: Option<String>,
    /// Conditions that were not met, with their seeds.
    pub faults: Vec<String>,
}
