//! Defines the results of an experiment: those of one run, and the rows of a table.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::World;
use crate::scenario::notes::Verdict;
use crate::share_curve::ShareCurve;

/// The results of one run: one scenario, case, controller and seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Values of the scenario's measures, in their order, in the unit of [`crate::metric::metric`]. A value
    /// is `None` if there was nothing to measure (a transfer that did not end, a loss ratio without loss).
    pub values: Vec<Option<f64>>,
    /// Index of each measure without a value, and the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub no_value: Vec<(usize, String)>,
    /// Conditions that were not met; empty if the run counts.
    #[serde(rename = "faults")]
    pub violations: Vec<String>,
    /// Digest of the whole event stream: equal for equal seeds, independent of other runs at that time. It
    /// is zero in real time, where no run can be repeated exactly.
    pub digest: u64,
    /// Packets that left links with a rate.
    pub link_packets: u64,
    /// Index of each measure that is computed from all runs together, and this run's part of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<(usize, ShareCurve)>,
    /// Lateness of packets in real time; `None` in the simulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Lateness>,
    /// Lines over time. Result files hold them only for runs that were made for drawing.
    #[serde(default, skip_serializing_if = "Series::is_empty")]
    pub series: Series,
}

/// Statistics of the delay by which packets left emulated links too late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Number of packets.
    pub packets: u64,
    /// Median lateness, µs.
    pub p50_us: f64,
    /// 99th percentile of lateness, µs, on the path and direction where it is greatest. It decides whether
    /// the run counts.
    pub p99_us: f64,
    /// Greatest lateness, µs.
    pub max_us: f64,
    /// Whether packets were too late for the run to count; this is then one of the run's violations. The run
    /// may be repeated when the machine has less to do.
    pub too_late: bool,
}

impl Outcome {
    /// Whether the emulator was too late for the run to count, so that the run may be repeated.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.lateness.is_some_and(|lateness| lateness.too_late)
    }

    /// Creates the outcome of a run that broke off for the reason `why`. It does not count.
    #[must_use]
    pub fn broken_off(why: &str) -> Self {
        Self { violations: vec![format!("the run broke off, {why}")], ..Self::default() }
    }
}

/// A run and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// World in which it ran.
    pub world: World,
    /// Name of the case, if the scenario has any; in a sweep with the values that were set.
    pub case: Option<String>,
    /// The controller under comparison.
    pub controller: String,
    /// The seed.
    pub seed: u64,
    /// The results.
    pub outcome: Outcome,
}

/// Lines over time, all with one step length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Seconds between two values; the first value belongs to the first step.
    pub step_s: f64,
    /// The lines.
    pub lines: Vec<Line>,
}

impl Series {
    /// Whether there is nothing to draw.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// One line over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Quantity that the line shows.
    pub kind: SeriesKind,
    /// Name of a flow ("mp"), of a path of it ("mp/0") or of a link.
    pub name: String,
    /// One value a step; in JSON `null` stands for a value that is not a number.
    #[serde(deserialize_with = "with_gaps")]
    pub values: Vec<f32>,
}

fn with_gaps<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f32>, D::Error> {
    let values = Vec::<Option<f32>>::deserialize(from)?;
    Ok(values.into_iter().map(|value| value.unwrap_or(f32::NAN)).collect())
}

/// Quantity that a line shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeriesKind {
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
    /// World in which it ran: `sim` or `kernel`.
    pub world: World,
    /// The case, if the scenario has any.
    pub case: Option<String>,
    /// The seeds that counted.
    pub seeds: Vec<u64>,
    /// The controller under comparison.
    pub controller: String,
    /// Name of the measure.
    pub metric: String,
    /// Mean over the seeds, or the measure's other statistic; `None` if no run had a value.
    pub value: Option<f64>,
    /// Unit: `%`, `Mbit/s`, `pkt/s`, `s`, `ms`, or empty.
    pub unit: String,
    /// Spread of the runs.
    #[serde(flatten)]
    pub spread: Spread,
    /// Reasons why runs have no value that counts, each with its seeds.
    #[serde(default)]
    pub no_value: Vec<String>,
    /// Values that the row is compared with.
    #[serde(flatten)]
    pub reference: Reference,
    /// Conditions that were not met, with their seeds.
    #[serde(rename = "faults")]
    pub violations: Vec<String>,
    /// 99th percentile of packet lateness, µs, on the worst path of the worst run; `None` in simulated time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_p99_us: Option<f64>,
    /// Whether the value is doubtful: it comes from runs whose links were late, because no other run counts.
    #[serde(default)]
    pub doubtful: bool,
    /// Values that were set, by key: on the command line, for every case or as one of several values.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
}

/// Spread of the runs of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Sample standard deviation over the seeds.
    pub sd: Option<f64>,
    /// Half of the 95 % confidence interval of the value (for a mean: Student's t).
    pub ci95: Option<f64>,
    /// Whether two or more seeds all gave an identical run: nothing was left to chance, and the interval is
    /// zero.
    #[serde(default)]
    pub alike: bool,
}

/// Values that a row is compared with, and the result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// Value that the source reports.
    pub paper: Option<f64>,
    /// Value that a fluid model gives.
    pub model: Option<f64>,
    /// Whether the value lies where the scenario expects it; `None` if the scenario expects nothing.
    pub verdict: Option<Verdict>,
    /// Reason why the value differs from the source, if the scenario gives one.
    pub why: Option<String>,
}

impl Row {
    /// Returns half of the confidence interval if the runs differ.
    #[must_use]
    pub fn interval(&self) -> Option<f64> {
        self.spread.ci95.filter(|_| !self.spread.alike)
    }

    /// Whether the value is, beyond doubt, where the scenario expects it, or the scenario expects nothing.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.reference.verdict.is_none_or(|verdict| verdict == Verdict::Ok)
    }
}
