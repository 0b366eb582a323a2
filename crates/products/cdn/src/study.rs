//! Repeats the figures 3.9 and 3.10 of the paper (000 §3.4.1.2): what viewers feel with traditional caches in
//! a part of the access networks, and with ephemeral caches of several boot times.

use std::sync::Arc;

use crate::as_graph::AsGraph;
use crate::plan::Plan;
use crate::playback::Experience;
use crate::policy::Policy;
use crate::simulate::{Outcome, World};

/// A measure of what viewers feel: the four pictures of each figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Time from the request to the first picture, seconds.
    Start,
    /// Part of the session without a picture, percent.
    Buffering,
    /// Interruptions a minute.
    Stalls,
    /// Rate of download in proportion to the rate of the quality, percent.
    Playback,
}

impl Measure {
    /// All measures, in the order of the pictures a to d.
    pub const ALL: [Self; 4] = [Self::Start, Self::Buffering, Self::Stalls, Self::Playback];

    /// Returns the name of the measure with its unit.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start time, s",
            Self::Buffering => "buffering ratio, %",
            Self::Stalls => "interruptions a minute",
            Self::Playback => "playback ratio, %",
        }
    }

    fn of(self, felt: &Experience) -> f32 {
        match self {
            Self::Start => felt.start_s,
            Self::Buffering => 100.0 * felt.buffering,
            Self::Stalls => felt.stalls_per_minute,
            Self::Playback => 100.0 * felt.playback,
        }
    }
}

/// The distribution of a measure over streams: its percentiles 0 to 100.
#[derive(Clone, Debug, PartialEq)]
pub struct Percentiles(Vec<f32>);

impl Percentiles {
    /// Returns the percentiles of values in any order; all NaN if there is none.
    #[must_use]
    pub fn new(mut values: Vec<f32>) -> Self {
        if values.is_empty() {
            return Self(vec![f32::NAN; 101]);
        }
        values.sort_by(f32::total_cmp);
        let at = |percent: usize| values[(values.len() * percent).div_ceil(100).max(1) - 1];
        Self((0..=100).map(at).collect())
    }

    /// Returns the least value that at least `percent` of the streams do not exceed.
    #[must_use]
    pub fn at(&self, percent: usize) -> f32 {
        self.0[percent.min(100)]
    }
}

/// What came of a run, in brief.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Distributions, in the order of [`Measure::ALL`].
    pub measures: [Percentiles; 4],
    /// Number of streams.
    pub streams: usize,
    /// Mean buffering ratio, percent.
    pub mean_buffering: f64,
    /// Part of the streams that a cache served, percent.
    pub cached_percent: f64,
    /// How often a cache was started.
    pub boots: u32,
    /// Video that left the origin servers, TB.
    pub origin_terabytes: f64,
}

impl Summary {
    /// Sums up a run.
    #[must_use]
    pub fn new(outcome: &Outcome) -> Self {
        let Outcome { felt, boots, origin_terabytes } = outcome;
        let count = felt.len().max(1) as f64;
        let measure = |measure: Measure| Percentiles::new(felt.iter().map(|it| measure.of(it)).collect());
        Self {
            measures: Measure::ALL.map(measure),
            streams: felt.len(),
            mean_buffering: felt.iter().map(|it| 100.0 * f64::from(it.buffering)).sum::<f64>() / count,
            cached_percent: 100.0 * felt.iter().filter(|it| it.cached).count() as f64 / count,
            boots: *boots,
            origin_terabytes: *origin_terabytes,
        }
    }

    /// Returns a percentile of a measure.
    #[must_use]
    pub fn at(&self, measure: Measure, percent: usize) -> f64 {
        f64::from(self.measures[measure as usize].at(percent))
    }
}

/// One run: a plan, a seed and a policy.
#[derive(Clone, Debug)]
pub struct Task {
    /// The inputs.
    pub plan: Arc<Plan>,
    /// The network of a file; `None` for the one that the seed generates.
    pub graph: Option<Arc<AsGraph>>,
    /// The seed, which decides the network, the origins and the requests.
    pub seed: u64,
    /// Where caches are.
    pub policy: Policy,
}

/// Returns all policies of a plan in the order of the tables: none, traditional, ephemeral by boot time.
#[must_use]
pub fn policies(plan: &Plan) -> Vec<Policy> {
    let caches = &plan.caches;
    let traditional = caches.deployed_percent.iter();
    let traditional =
        traditional.map(|deployed_percent| Policy::Traditional { deployed_percent: *deployed_percent });
    let mut boots = caches.boots_s.clone();
    boots.push(caches.boot_s);
    boots.sort_by(f64::total_cmp);
    boots.dedup();
    let ephemeral = boots.into_iter().map(|boot_s| Policy::Ephemeral { boot_s, idle_s: caches.idle_s });
    std::iter::once(Policy::Origin).chain(traditional).chain(ephemeral).collect()
}

impl Task {
    /// Returns a task for each of `seeds` seeds, from `first`, and each policy.
    #[must_use]
    pub fn each(plan: &Arc<Plan>, graph: Option<&Arc<AsGraph>>, first: u64, seeds: u64) -> Vec<Self> {
        let seeds = (0..seeds).map(|number| first.saturating_add(number));
        let policies = policies(plan);
        let of_seed = |seed| {
            let task = move |policy: &Policy| Self {
                plan: plan.clone(),
                graph: graph.cloned(),
                seed,
                policy: *policy,
            };
            policies.iter().map(task).collect::<Vec<_>>()
        };
        seeds.flat_map(of_seed).collect()
    }

    /// Runs the task.
    ///
    /// # Errors
    /// If the plan's network cannot be generated, or has no place for origins or viewers.
    pub fn run(&self) -> Result<Summary, String> {
        let world = match &self.graph {
            Some(graph) => World::new(&self.plan, graph, self.seed),
            None => {
                let graph = self.plan.network.graph(self.seed);
                World::new(&self.plan, &graph.map_err(|error| format!("network: {error}"))?, self.seed)
            }
        };
        let world = world.map_err(|error| error.to_string())?;
        Ok(Summary::new(&world.run(&self.policy)))
    }
}

/// A policy, and what came of it with each seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The policy.
    pub policy: Policy,
    /// The seeds and their results.
    pub runs: Vec<(u64, Summary)>,
}

impl Row {
    /// Returns the mean of a number over the runs whose seed is wanted.
    pub fn mean(&self, wanted: impl Fn(u64) -> bool, number: impl Fn(&Summary) -> f64) -> f64 {
        let numbers: Vec<f64> =
            self.runs.iter().filter(|(seed, _)| wanted(*seed)).map(|(_, run)| number(run)).collect();
        numbers.iter().sum::<f64>() / numbers.len() as f64
    }
}

/// Puts the results of tasks, in the order of the tasks, into rows.
///
/// # Errors
/// That of the first task that has one.
pub fn rows(tasks: &[Task], results: &[Result<Summary, String>]) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = Vec::new();
    for (task, result) in tasks.iter().zip(results) {
        let run = (task.seed, result.clone()?);
        match rows.iter_mut().find(|row| row.policy == task.policy) {
            Some(row) => row.runs.push(run),
            None => rows.push(Row { policy: task.policy, runs: vec![run] }),
        }
    }
    Ok(rows)
}

/// A number that the paper's text prints, and where to find ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Printed {
    /// The picture.
    pub figure: &'static str,
    /// The policy: percent of traditional caches, or the boot time of ephemeral ones in seconds.
    pub of: Of,
    /// The measure.
    pub measure: Measure,
    /// The percentile over streams.
    pub percent: usize,
    /// What the paper says.
    pub value: f64,
}

/// Whose number it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Of {
    /// Traditional caches in so many percent of the access networks.
    Traditional(u32),
    /// Ephemeral caches that boot in so many seconds.
    Ephemeral(f64),
}

impl Of {
    /// Returns the row of this policy.
    #[must_use]
    pub fn row(self, rows: &[Row]) -> Option<&Row> {
        rows.iter().find(|row| match (self, row.policy) {
            (Self::Traditional(part), Policy::Traditional { deployed_percent }) => part == deployed_percent,
            (Self::Ephemeral(boot), Policy::Ephemeral { boot_s, .. }) => boot == boot_s,
            _ => false,
        })
    }
}

const fn printed(figure: &'static str, of: Of, measure: Measure, percent: usize, value: f64) -> Printed {
    Printed { figure, of, measure, percent, value }
}

/// The numbers that the text prints (000 §3.4.1.2). "Most of the viewers" of Fig. 3.9a is read as the 60th
/// percentile, which the text names for Fig. 3.10.
pub const PRINTED: [Printed; 13] = [
    printed("3.9a", Of::Ephemeral(0.1), Measure::Start, 60, 3.0),
    printed("3.9a", Of::Traditional(40), Measure::Start, 60, 5.0),
    printed("3.9a", Of::Traditional(20), Measure::Start, 60, 8.0),
    printed("3.9b", Of::Ephemeral(0.1), Measure::Buffering, 80, 14.0),
    printed("3.9b", Of::Traditional(80), Measure::Buffering, 80, 22.0),
    printed("3.9b", Of::Traditional(60), Measure::Buffering, 80, 27.0),
    printed("3.9b", Of::Traditional(40), Measure::Buffering, 80, 37.0),
    printed("3.10a", Of::Ephemeral(0.05), Measure::Start, 60, 3.0),
    printed("3.10a", Of::Ephemeral(5.0), Measure::Start, 60, 13.0),
    printed("3.10a", Of::Ephemeral(10.0), Measure::Start, 60, 18.0),
    printed("3.10b", Of::Ephemeral(0.05), Measure::Buffering, 60, 0.0),
    printed("3.10b", Of::Ephemeral(5.0), Measure::Buffering, 60, 28.0),
    printed("3.10b", Of::Ephemeral(10.0), Measure::Buffering, 60, 40.0),
];

/// The factor within which a number counts as reached.
pub const FACTOR: f64 = 1.5;
/// What counts as no rebuffering, percent.
pub const NONE_PERCENT: f64 = 3.0;

/// Whether our number is near the paper's.
#[must_use]
pub fn is_near(ours: f64, paper: f64) -> bool {
    if paper == 0.0 { ours <= NONE_PERCENT } else { (paper / FACTOR..=paper * FACTOR).contains(&ours) }
}

/// Returns the knee of a run's seed: the least boot time whose mean buffering ratio exceeds that of the
/// shortest by more than a tenth of what the longest adds, seconds. `None` without ephemeral caches, or if
/// boot times change nothing.
#[must_use]
pub fn knee_s(rows: &[Row], seed: u64) -> Option<f64> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for row in rows {
        if let (Policy::Ephemeral { boot_s, .. }, Some((_, run))) =
            (row.policy, row.runs.iter().find(|run| run.0 == seed))
        {
            points.push((boot_s, run.mean_buffering));
        }
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (first, last) = (points.first()?.1, points.last()?.1);
    if last - first < 0.5 {
        return None;
    }
    points.iter().find(|point| point.1 - first > (last - first) / 10.0).map(|point| point.0)
}

/// Boot times at which a knee is at about one second.
pub const KNEE_S: std::ops::RangeInclusive<f64> = 0.5..=2.0;

/// Whether policies are in the paper's order with this seed, by mean buffering ratio: more traditional
/// caches are better, ephemeral ones that boot in `boot_s` are better than all but the full deployment,
/// which is as good or better.
#[must_use]
pub fn in_order(rows: &[Row], seed: u64, boot_s: f64) -> bool {
    let of =
        |row: &Row| row.runs.iter().find(|run| run.0 == seed).map_or(f64::NAN, |(_, run)| run.mean_buffering);
    let mut traditional: Vec<(u32, f64)> = Vec::new();
    for row in rows {
        if let Policy::Traditional { deployed_percent } = row.policy {
            traditional.push((deployed_percent, of(row)));
        }
    }
    traditional.sort_by_key(|row| row.0);
    let falls = traditional.windows(2).all(|two| two[0].1 >= two[1].1);
    let Some(ephemeral) = Of::Ephemeral(boot_s).row(rows).map(of) else { return false };
    let beside =
        |(part, value): &(u32, f64)| if *part < 100 { *value >= ephemeral } else { *value <= ephemeral };
    falls && traditional.iter().all(beside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let percentiles = Percentiles::new(vec![3.0, 1.0, f32::INFINITY, 2.0]);
        assert_eq!([0, 25, 26, 75, 100].map(|at| percentiles.at(at)), [1.0, 1.0, 2.0, 3.0, f32::INFINITY]);
        assert!(Percentiles::new(Vec::new()).at(50).is_nan());
    }

    /// Makes a row of two seeds with this mean buffering ratio.
    fn row(policy: Policy, mean_buffering: f64) -> Row {
        let summary = Summary {
            measures: [(); 4].map(|()| Percentiles::new(vec![1.0])),
            streams: 1,
            mean_buffering,
            cached_percent: 0.0,
            boots: 0,
            origin_terabytes: 0.0,
        };
        Row { policy, runs: vec![(1, summary.clone()), (2, summary)] }
    }

    #[test]
    fn knee_and_order() {
        let ephemeral = |boot_s| Policy::Ephemeral { boot_s, idle_s: 60.0 };
        let traditional = |deployed_percent| Policy::Traditional { deployed_percent };
        let mut rows = vec![
            row(traditional(20), 30.0),
            row(traditional(80), 15.0),
            row(traditional(100), 9.0),
            row(ephemeral(0.1), 10.0),
            row(ephemeral(1.0), 12.0),
            row(ephemeral(10.0), 20.0),
        ];
        assert_eq!(knee_s(&rows, 1), Some(1.0));
        assert!(in_order(&rows, 2, 0.1) && !in_order(&rows, 2, 10.0) && !in_order(&rows, 2, 7.0));
        assert_eq!(knee_s(&rows[..4], 1), None);
        rows[1] = row(traditional(80), 31.0);
        assert!(!in_order(&rows, 1, 0.1));
    }

    #[test]
    fn near_is_a_factor() {
        assert!(is_near(12.0, 8.0) && is_near(5.4, 8.0) && !is_near(12.1, 8.0) && !is_near(5.3, 8.0));
        assert!(is_near(2.0, 0.0) && !is_near(4.0, 0.0) && !is_near(f64::NAN, 3.0));
    }

    /// Every number that the text prints has its row under the default plan, and the page shows it.
    #[test]
    fn all_printed_numbers_have_a_row() {
        let plan = Plan::default();
        let rows: Vec<Row> = policies(&plan).into_iter().map(|policy| row(policy, 1.0)).collect();
        assert!(PRINTED.iter().all(|printed| printed.of.row(&rows).is_some()));
        let page = crate::report::markdown(&rows, &plan, "the command");
        assert!(page.contains("the command") && !page.contains("{{"), "{page}");
        assert_eq!(page.matches("| 3.9").count() + page.matches("| 3.10").count(), PRINTED.len());
        let figure = crate::figure::figure(&rows, plan.caches.boot_s);
        assert!(figure.starts_with("<svg") && !figure.contains("NaN"));
    }
}
