//! What comes out of an experiment: of one run, and as the rows of a table.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::World;
use crate::scenario::notes::Verdict;
use crate::share_curve::ShareCurve;

/// What came out of one run: one scenario, case, controller and seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The value of each of the scenario's measures, in their order; none if there was nothing to measure
    /// (a transfer that did not end, a loss ratio without loss). In the unit of [`crate::metric::metric`].
    pub values: Vec<Option<f64>>,
    /// Of each measure without a value, by its place among them: why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub no_value: Vec<(usize, String)>,
    /// Conditions that were not met; empty if the run counts.
    #[serde(rename = "faults")]
    pub violations: Vec<String>,
    /// A digest of the whole event stream: the same for the same seed, whatever ran beside it. Zero where
    /// time is real and nothing comes twice.
    pub digest: u64,
    /// Packets that left links with a rate.
    pub link_packets: u64,
    /// Of each measure that is made of all runs together, what it needs of this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<(usize, ShareCurve)>,
    /// How late packets were where time is real; none in the simulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Lateness>,
    /// How it went over time; in result files only of runs that were made to be drawn.
    #[serde(default, skip_serializing_if = "Series::is_empty")]
    pub series: Series,
}

/// How much later than they should packets left emulated links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// How many packets.
    pub packets: u64,
    /// Half of them were not later than this, µs,
    pub p50_us: f64,
    /// 99 in 100 of each path and direction not later than this, µs: what decides whether the run counts,
    pub p99_us: f64,
    /// and none later than this, µs.
    pub max_us: f64,
    /// Whether it was too much for the run to count: one of its violations then. It may be repeated when the
    /// machine has less to do.
    pub too_late: bool,
}

impl Outcome {
    /// Whether the emulator was too late for the run to count, so that it may be repeated.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.lateness.is_some_and(|lateness| lateness.too_late)
    }

    /// That of a run that broke off, and why: one that does not count.
    #[must_use]
    pub fn broken_off(why: &str) -> Self {
        Self { violations: vec![format!("the run broke off, {why}")], ..Self::default() }
    }
}

/// One run, and what came out of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Where it ran.
    pub world: World,
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Seconds between two values; the first value is that of the first step.
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
    /// What it shows.
    pub kind: SeriesKind,
    /// Whose: a flow ("mp"), a path of it ("mp/0"), a link.
    pub name: String,
    /// One value a step; in JSON `null` where it is no number.
    #[serde(deserialize_with = "with_gaps")]
    pub values: Vec<f32>,
}

fn with_gaps<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f32>, D::Error> {
    let values = Vec::<Option<f32>>::deserialize(from)?;
    Ok(values.into_iter().map(|value| value.unwrap_or(f32::NAN)).collect())
}

/// What a line shows.
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
    /// Where it ran: `sim` or `kernel`.
    pub world: World,
    /// The case, if the scenario has any.
    pub case: Option<String>,
    /// The seeds that counted.
    pub seeds: Vec<u64>,
    /// The controller under comparison.
    pub controller: String,
    /// The measure.
    pub metric: String,
    /// Its mean over the seeds, or what else the measure makes of them; none if no run had one.
    pub value: Option<f64>,
    /// Its unit: `%`, `Mbit/s`, `pkt/s`, `s`, `ms`, or empty.
    pub unit: String,
    /// How far apart its runs are.
    #[serde(flatten)]
    pub spread: Spread,
    /// Why runs have no value that is counted here, each reason with its seeds.
    #[serde(default)]
    pub no_value: Vec<String>,
    /// What it is compared with.
    #[serde(flatten)]
    pub reference: Reference,
    /// Conditions that were not met, with their seeds.
    #[serde(rename = "faults")]
    pub violations: Vec<String>,
    /// The 99th percentile of how late packets were, µs, of the worst path of the worst of its runs; none
    /// where time is not real.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_p99_us: Option<f64>,
    /// Whether the value is doubtful: of runs that do not count because links were late, for no other counts.
    #[serde(default)]
    pub doubtful: bool,
    /// What was set, by key: on the command line, in every case or as one of several values.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
}

/// How far apart the runs of a row are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Standard deviation over the seeds (of the sample).
    pub sd: Option<f64>,
    /// Half of the 95 % confidence interval of the value (of a mean: Student's t).
    pub ci95: Option<f64>,
    /// Whether all seeds, two or more, gave the same run: nothing was left to chance, and the interval is
    /// zero.
    #[serde(default)]
    pub alike: bool,
}

/// What a row is compared with, and how it compares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// What the source reports.
    pub paper: Option<f64>,
    /// What a fluid model gives.
    pub model: Option<f64>,
    /// Whether the value is where the scenario expects it; none if it expects nothing.
    pub verdict: Option<Verdict>,
    /// Why it differs from the source, if the scenario says so.
    pub why: Option<String>,
}

impl Row {
    /// Half of the confidence interval, where runs differ.
    #[must_use]
    pub fn interval(&self) -> Option<f64> {
        self.spread.ci95.filter(|_| !self.spread.alike)
    }

    /// Whether it is, beyond doubt, where it is expected, or expected nowhere.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.reference.verdict.is_none_or(|verdict| verdict == Verdict::Ok)
    }
}
