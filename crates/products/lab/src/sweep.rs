//! Runs many experiments: a scenario's cases, values to set, controllers and seeds become tasks; tasks run
//! on all cores; results go to a file, and a later start continues from it.
//!
//! A simulated task shares nothing with another and depends only on its scenario, controller and seed:
//! results are equal for any number of threads and shards. Tasks in the kernel share the machine.

pub mod pool;
pub mod store;

use std::collections::BTreeMap;
use std::ops::{ControlFlow, RangeInclusive};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::World;
use crate::digest::Digest;
use crate::outcome::{Outcome, Run, Series};
use crate::scenario::error::ScenarioError;
pub use crate::scenario::units::seeds;
use crate::scenario::{Scenario, TraceFile};
pub use crate::task::Task;

/// Version of the code that makes the results, with a hash of its sources if they are available.
pub const VERSION: &str = env!("ANABRANCH_CODE");

/// Most tasks of one plan.
pub const TASKS_MAX: usize = 10_000_000;
/// Most variants of one plan: cases times combinations of values.
pub const VARIANTS_MAX: usize = 100_000;

/// Keys that a sweep cannot vary, and the hint for each.
const NOT_SWEPT: [(&str, &str); 6] = [
    ("controllers", "use --cc"),
    ("seeds", "use --seeds"),
    ("case", "the cases are all run; choose with --case"),
    ("title", "it changes no result"),
    ("source", "it changes no result"),
    ("about", "it changes no result"),
];

/// A key and the values that it takes in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// A dotted key, as in [`Scenario::set`].
    pub key: String,
    /// The values, at least one.
    pub values: Vec<String>,
}

impl Axis {
    /// Parses `KEY=VALUE`, an axis with one value, which may contain commas.
    ///
    /// # Errors
    /// If there is no `=`; the error is a sentence.
    pub fn one(text: &str) -> Result<Self, String> {
        let (key, value) = split_key(text)?;
        Ok(Self { key, values: vec![value.into()] })
    }

    /// Parses `KEY=A,B,C`: commas separate values unless they are quoted, in brackets, or behind a
    /// backslash.
    ///
    /// # Errors
    /// If there is no `=`, or no value between two commas; the error is a sentence.
    pub fn many(text: &str) -> Result<Self, String> {
        let (key, list) = split_key(text)?;
        let values = split_values(list);
        if values.iter().any(String::is_empty) {
            return Err(format!("{key} has an empty value; write \"\" if you mean an empty string"));
        }
        Ok(Self { key, values })
    }
}

fn split_key(text: &str) -> Result<(String, &str), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, such as link.c.rate=\"8 Mbit/s\"")?;
    match key.trim() {
        "" => Err("expected a key before the `=`".into()),
        key => Ok((key.into(), value.trim())),
    }
}

fn split_values(text: &str) -> Vec<String> {
    let (mut values, mut value) = (Vec::new(), String::new());
    let (mut quote, mut depth) = (None, 0_usize);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&',') => value.extend(chars.next()),
            ',' if quote.is_none() && depth == 0 => values.push(std::mem::take(&mut value).trim().into()),
            _ => {
                match c {
                    '"' | '\'' if quote.is_none() => quote = Some(c),
                    c if quote == Some(c) => quote = None,
                    '[' | '{' if quote.is_none() => depth += 1,
                    ']' | '}' if quote.is_none() => depth = depth.saturating_sub(1),
                    _ => {}
                }
                value.push(c);
            }
        }
    }
    values.push(value.trim().into());
    values
}

/// A case of a plan's scenario with values set.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The case, if the scenario has any.
    pub case: Option<String>,
    /// Keys and values that this variant sets, of the axes with several values.
    pub sets: Vec<(String, String)>,
    /// Keys and values of the case's own `sweep`. Variants that differ only in these share their rows.
    pub swept: Vec<(String, String)>,
    /// The scenario that is run.
    pub scenario: Arc<Scenario>,
}

impl Variant {
    /// Returns the variant's name among the runs: the case, then all values that are set.
    #[must_use]
    pub fn label(&self) -> Option<String> {
        self.joined(self.swept.iter().chain(&self.sets))
    }

    /// Returns the variant's name in the table, which leaves out the case's own sweep.
    #[must_use]
    pub fn row_label(&self) -> Option<String> {
        self.joined(self.sets.iter())
    }

    fn joined<'a>(&self, sets: impl Iterator<Item = &'a (String, String)>) -> Option<String> {
        let sets = sets.map(|(key, value)| format!("{key}={value}"));
        let parts: Vec<String> = self.case.iter().cloned().chain(sets).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// The runs to do, in this order: worlds, variants, controllers, seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Name of the scenario: its file name without `.toml`.
    pub name: String,
    /// The scenario, with the values of all single-valued axes.
    pub scenario: Scenario,
    /// Values that every run sets, as `key=value`.
    pub with: Vec<String>,
    /// Variants that are run.
    pub variants: Vec<Variant>,
    /// Controllers to compare.
    pub controllers: Vec<String>,
    /// Seeds that are run.
    pub seeds: RangeInclusive<u64>,
    /// Worlds in which the tasks run.
    pub worlds: Vec<World>,
}

impl Plan {
    /// Creates a plan of every case of `scenario` under every combination of the axes' values. An axis
    /// overrides the value that a case sets. An axis with a single value applies to every run and is not
    /// part of labels.
    ///
    /// # Errors
    /// If a key or value makes no sense, or there are too many variants.
    pub fn new(name: &str, scenario: Scenario, axes: &[Axis]) -> Result<Self, ScenarioError> {
        Self::of_case(name, scenario, axes, None)
    }

    /// Creates a plan as [`new`](Self::new) does, but limited to the case `only` and to the cases that it is
    /// compared with.
    ///
    /// # Errors
    /// If [`new`](Self::new) fails, or there is no such case.
    pub fn of_case(
        name: &str,
        mut scenario: Scenario,
        axes: &[Axis],
        only: Option<&str>,
    ) -> Result<Self, ScenarioError> {
        let (throughout, axes): (Vec<&Axis>, Vec<&Axis>) =
            axes.iter().partition(|axis| axis.values.len() == 1);
        for axis in &throughout {
            scenario.set(&axis.key, &axis.values[0])?;
        }
        for axis in &axes {
            let first = axis.key.split('.').next().unwrap_or("");
            if let Some((_, instead)) = NOT_SWEPT.iter().find(|(key, _)| *key == first) {
                return Err(ScenarioError::at(&axis.key, format!("cannot be swept: {instead}")));
            }
        }
        let mut variants = Vec::new();
        for (case, scenario) in scenario.cases_of(only)? {
            let labelled = |e: ScenarioError| match &case {
                Some(case) => e.in_case(case),
                None => e,
            };
            let own = case_axes(&scenario, case.as_deref());
            let own: Vec<&Axis> = own.iter().collect();
            for (sets, swept) in product(&axes, &own, VARIANTS_MAX - variants.len())? {
                let mut variant = scenario.clone();
                // What is set from outside wins.
                for (key, value) in &swept {
                    variant.set(key, value).map_err(labelled)?;
                }
                for axis in &throughout {
                    variant.set(&axis.key, &axis.values[0])?;
                }
                for (key, value) in &sets {
                    variant.set(key, value)?;
                }
                let variant = variant.for_case(case.as_deref());
                variant.check().map_err(labelled)?;
                variants.push(Variant { case: case.clone(), sets, swept, scenario: Arc::new(variant) });
            }
        }
        let with = throughout.iter().map(|axis| format!("{}={}", axis.key, axis.values[0])).collect();
        let (controllers, seeds) = (scenario.controllers.to_vec(), 1..=scenario.seeds);
        let worlds = vec![World::Sim];
        Ok(Self { name: name.into(), scenario, with, variants, controllers, seeds, worlds })
    }

    /// Compares the controllers `names` instead of those of the scenario; a name given twice counts once.
    ///
    /// # Errors
    /// If a controller does not exist; the error names the nearest one.
    pub fn compare<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
        let mut controllers: Vec<String> = Vec::new();
        for name in names {
            self.scenario.controllers.known.check(name)?;
            if controllers.iter().all(|other| other != name) {
                controllers.push(name.into());
            }
        }
        self.controllers = controllers;
        Ok(())
    }

    /// Runs the plan on `threads` threads and returns all runs in the order of [`tasks`](Self::tasks);
    /// [`rows`](crate::table::rows) makes a table of them. Only the runs of the first seed keep lines over
    /// time. A run that broke off does not count, and says why.
    #[must_use]
    pub fn run(&self, threads: usize) -> Vec<Run> {
        let tasks = self.tasks();
        let mut outcomes = vec![Outcome::default(); tasks.len()];
        let never = AtomicBool::new(false);
        pool::run(
            tasks.clone(),
            threads,
            move |task: &Task| task.run(&never),
            |event| {
                if let pool::Event::Done(index, done) = event {
                    let mut outcome = done.unwrap_or_else(|why| Outcome::broken_off(&why));
                    if tasks[index].seed != *self.seeds.start() {
                        outcome.series = Series::default();
                    }
                    outcomes[index] = outcome;
                }
                ControlFlow::Continue(())
            },
        );
        tasks.iter().zip(outcomes).map(|(task, outcome)| self.as_run(task, outcome)).collect()
    }

    /// Combines a task with its outcome to a run for the table.
    #[must_use]
    pub fn as_run(&self, task: &Task, outcome: Outcome) -> Run {
        let case = self.variants[task.variant].label();
        Run { world: task.world, case, controller: task.controller.clone(), seed: task.seed, outcome }
    }

    /// Returns the variant with the name `case` and otherwise the values of `variant`.
    #[must_use]
    pub fn beside(&self, variant: &Variant, case: &str) -> Option<&Variant> {
        self.variants.iter().find(|other| other.case.as_deref() == Some(case) && other.sets == variant.sets)
    }

    /// Returns the controllers that a variant is run with: the chosen ones, limited to those that its case
    /// names, if any.
    pub fn controllers_of(&self, variant: &Variant) -> impl Iterator<Item = &String> {
        let case = self.scenario.case.iter().find(|case| Some(&case.name) == variant.case.as_ref());
        let named = case.map_or(&[][..], |case| &case.controllers);
        self.controllers.iter().filter(move |name| named.is_empty() || named.contains(name))
    }

    /// Returns the keys that are set: in every run, then those of axes with several values.
    pub fn keys_set(&self) -> impl Iterator<Item = &str> {
        let throughout = self.with.iter().filter_map(|with| Some(with.split_once('=')?.0));
        let axes = self.variants.first().map_or(&[][..], |variant| &variant.sets);
        throughout.chain(axes.iter().map(|(key, _)| key.as_str()))
    }

    /// Returns the keys and values that a variant sets, including those that every run sets.
    pub fn set_in(&self, variant: &Variant) -> impl Iterator<Item = (String, String)> {
        let throughout = self.with.iter().filter_map(|with| with.split_once('='));
        let throughout = throughout.map(|(key, value)| (key.to_owned(), value.to_owned()));
        throughout.chain(variant.sets.iter().cloned())
    }

    /// Returns the number of runs.
    #[must_use]
    pub fn len(&self) -> usize {
        let seeds = (self.seeds.end() + 1).saturating_sub(*self.seeds.start()) as usize;
        let pairs = self.variants.iter().map(|variant| self.controllers_of(variant).count()).sum::<usize>();
        pairs.saturating_mul(seeds).saturating_mul(self.worlds.len())
    }

    /// Whether there is nothing to run.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the plan's tasks, in an order that depends only on the plan.
    #[must_use]
    pub fn tasks(&self) -> Vec<Task> {
        let mut tasks = Vec::new();
        for world in &self.worlds {
            for (no, variant) in self.variants.iter().enumerate() {
                for controller in self.controllers_of(variant) {
                    for seed in self.seeds.clone() {
                        let (scenario, controller) = (Arc::clone(&variant.scenario), controller.clone());
                        tasks.push(Task { world: *world, variant: no, scenario, controller, seed });
                    }
                }
            }
        }
        tasks
    }
}

/// Returns the axes that a case sweeps by itself.
fn case_axes(scenario: &Scenario, case: Option<&str>) -> Vec<Axis> {
    let case = scenario.case.iter().find(|known| Some(known.name.as_str()) == case);
    let text = |value: &toml::Value| match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let axis = |(key, values): (&String, &Vec<toml::Value>)| Axis {
        key: key.clone(),
        values: values.iter().map(text).collect(),
    };
    case.map_or_else(Vec::new, |case| case.sweep.iter().map(axis).collect())
}

/// Keys and their values.
type Sets = Vec<(String, String)>;

/// Returns all combinations of the values of `axes` and, for each, of those of `own`; an error if there are
/// more than `most`.
fn product(axes: &[&Axis], own: &[&Axis], most: usize) -> Result<Vec<(Sets, Sets)>, ScenarioError> {
    let count = |axes: &[&Axis]| {
        axes.iter().try_fold(1_usize, |n, axis| n.checked_mul(axis.values.len())).unwrap_or(usize::MAX)
    };
    let (outer, inner) = (count(axes), count(own));
    if outer.checked_mul(inner).is_none_or(|count| count > most) {
        return Err(ScenarioError::of("", format!("more than {VARIANTS_MAX} variants")));
    }
    let pair = |i: usize| (combination(axes, i / inner), combination(own, i % inner));
    Ok((0..outer * inner).map(pair).collect())
}

/// Returns the keys and values of combination `index`: the last axis varies fastest.
fn combination(axes: &[&Axis], mut index: usize) -> Vec<(String, String)> {
    let mut sets = Vec::new();
    for axis in axes.iter().rev() {
        sets.push((axis.key.clone(), axis.values[index % axis.values.len()].clone()));
        index /= axis.values.len();
    }
    sets.reverse();
    sets
}

impl Task {
    /// Runs the task. In real time, it breaks off when `stop` is set.
    ///
    /// # Errors
    /// If the run panicked (an invariant was violated, or the scenario is impossible); the error is the
    /// panic's message. In the kernel also if the run cannot be set up, or was stopped.
    pub fn run(&self, stop: &AtomicBool) -> Result<Outcome, String> {
        self.run_again(stop, 0)
    }

    /// Runs the task, and again up to `retries` times while emulated links are late, because lateness says
    /// nothing about the scenario. If every run is late, the result is the last one.
    ///
    /// # Errors
    /// If the last run fails as described at [`run`](Self::run).
    pub fn run_again(&self, stop: &AtomicBool, retries: u32) -> Result<Outcome, String> {
        in_time(|| self.once(stop), retries, stop)
    }

    fn once(&self, stop: &AtomicBool) -> Result<Outcome, String> {
        let run = || match self.world {
            World::Sim => Ok(crate::run::run(&self.scenario, &self.controller, self.seed)),
            World::Kernel => crate::linux::run(&self.scenario, &self.controller, self.seed, stop),
        };
        caught(run).unwrap_or_else(|text| Err(format!("which is a bug: {text}")))
    }
}

/// Calls `run` until its outcome is not late, at most 1 + `retries` times; returns the last outcome.
fn in_time(
    run: impl Fn() -> Result<Outcome, String>,
    retries: u32,
    stop: &AtomicBool,
) -> Result<Outcome, String> {
    let mut outcome = run();
    for _ in 0..retries {
        let late = outcome.as_ref().is_ok_and(Outcome::is_late);
        if !late || stop.load(Ordering::Relaxed) {
            break;
        }
        outcome = run();
    }
    outcome
}

/// Returns the value of `run`, or catches its panic.
///
/// # Errors
/// If `run` panicked; the error is the panic's message.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").into()
    })
}

/// Formats seeds in the form that [`seeds`] reads.
#[must_use]
pub fn seeds_text(seeds: RangeInclusive<u64>) -> String {
    format!("{}..{}", seeds.start(), seeds.end())
}

/// A part of all tasks: those whose number modulo `of` is `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number of this part, from 0.
    pub index: usize,
    /// Number of parts.
    pub of: usize,
}

impl Shard {
    /// The only part of one: all tasks.
    pub const ALL: Self = Self { index: 0, of: 1 };

    /// Parses `i/n`, with `i` counted from 1.
    ///
    /// # Errors
    /// If `text` is not a shard; the error is a sentence for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no shard: write 1/4, 2/4, 3/4, 4/4 for the four parts of four");
        let (index, of) = text.split_once('/').ok_or_else(wrong)?;
        let (index, of): (usize, usize) =
            (index.trim().parse().map_err(|_| wrong())?, of.trim().parse().map_err(|_| wrong())?);
        if (1..=of).contains(&index) { Ok(Self { index: index - 1, of }) } else { Err(wrong()) }
    }

    /// Whether task `number` is in this part.
    #[must_use]
    pub const fn has(self, number: usize) -> bool {
        number % self.of == self.index
    }
}

/// Returns a hash (FNV-1a) of all that decides a run of `scenario`, apart from controller and seed: its text
/// without titles, notes and expectations, independent of formatting, and the contents of its traces.
#[must_use]
pub fn fingerprint(scenario: &Scenario) -> String {
    let mut bare = Scenario { seeds: 1, ..scenario.clone() };
    bare.title.clear();
    bare.source.clear();
    bare.about.clear();
    bare.controllers.clear();
    bare.case.clear();
    for measure in &mut bare.measure {
        (measure.versus, measure.paper, measure.model) = (None, BTreeMap::new(), BTreeMap::new());
        (measure.expect, measure.why) = (BTreeMap::new(), BTreeMap::new());
        measure.cases.clear();
    }
    bare.assert.iter_mut().for_each(|assert| assert.cases.clear());
    for trace in bare.link.values_mut().filter_map(|link| link.trace.as_mut()) {
        let contents = trace.read().map_or(Digest::default(), |(_, digest)| *digest);
        *trace = TraceFile::new(format!("{:016x}", contents.0));
    }
    format!("{:016x}", Digest::of(&serde_json::to_vec(&bare).unwrap_or_default()).0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::check::SEEDS_MAX;

    const TEXT: &str = r#"
        title = "t"
        duration = "60 s"
        seeds = 3
        controllers = ["nmcc", "reno"]
        [link.c]
        rate = "500 pkt/s"
        [link.d]
        rate = "500 pkt/s"
        [flow.mp]
        paths = [{ via = ["c"], rtt = "50 ms" }, { via = ["d"], rtt = "50 ms" }]
        [[measure]]
        metric = "gain"
        kind = "goodput"
        versus = "one"
        [[case]]
        name = "one"
        [[case]]
        name = "two"
        set = { "link.c.rate" = "250 pkt/s" }
        [[case]]
        name = "three"
    "#;

    fn scenario() -> Scenario {
        Scenario::parse(TEXT, "t").expect("a scenario")
    }

    #[test]
    fn values_are_split_at_commas_that_separate() {
        for (text, values) in [
            ("a,b,c", &["a", "b", "c"][..]),
            ("250 pkt/s, 500 pkt/s", &["250 pkt/s", "500 pkt/s"]),
            ("\"a,b\",c", &["\"a,b\"", "c"]),
            ("[1,2],[3]", &["[1,2]", "[3]"]),
            ("a\\,b,c", &["a,b", "c"]),
            ("7", &["7"]),
        ] {
            assert_eq!(split_values(text), values, "{text}");
        }
        assert_eq!(Axis::many("k=1,2").expect("an axis").values, ["1", "2"]);
        assert_eq!(Axis::one("k=1,2").expect("an axis").values, ["1,2"]);
        assert!(Axis::many("k=1,,2").is_err() && Axis::many("=1").is_err() && Axis::one("k").is_err());
    }

    #[test]
    fn seeds_and_shards() {
        let seeds = |text| seeds(text, SEEDS_MAX);
        assert_eq!((seeds("1..10"), seeds("10"), seeds("7..7")), (Ok(1..=10), Ok(1..=10), Ok(7..=7)));
        for bad in ["", "x", "5..4", "1..", "..3", "0..99999999999", "-1"] {
            assert!(seeds(bad).is_err(), "{bad}");
        }
        let shards: Vec<Shard> = ["1/3", "2/3", "3/3"].map(|s| Shard::parse(s).expect("a shard")).into();
        assert!((0..100).all(|n| shards.iter().filter(|shard| shard.has(n)).count() == 1));
        for bad in ["0/3", "4/3", "1", "1/0", "a/b"] {
            assert!(Shard::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_plan_is_the_product() {
        let axes = [
            Axis::many("link.d.rate=1 Mbit/s,2 Mbit/s").expect("an axis"),
            Axis::many("flow.mp.count=1,2,3").expect("an axis"),
        ];
        let plan = Plan::new("t", scenario(), &axes).expect("a plan");
        assert_eq!((plan.variants.len(), plan.len()), (18, 18 * 2 * 3));
        let labels: Vec<_> = plan.variants.iter().take(4).map(|v| v.label().expect("a label")).collect();
        assert_eq!(labels[0], "one; link.d.rate=1 Mbit/s; flow.mp.count=1");
        assert_eq!(labels[3], "one; link.d.rate=2 Mbit/s; flow.mp.count=1");
        let tasks = plan.tasks();
        assert_eq!(tasks.len(), plan.len());
        assert_eq!((tasks[0].seed, tasks[1].seed, tasks[3].controller.as_str()), (1, 2, "reno"));
        let beside = plan.beside(&plan.variants[9], "one").expect("a case to compare with");
        assert_eq!((beside.case.as_deref(), &beside.sets), (Some("one"), &plan.variants[9].sets));
        let many = Axis { key: "flow.mp.count".into(), values: (1..=1_000).map(|n| n.to_string()).collect() };
        let error = Plan::new("t", scenario(), &[many.clone(), many]).expect_err("too many").to_string();
        assert!(error.contains("more than"), "{error}");
    }

    #[test]
    fn what_is_set_overrides_cases() {
        let axis = Axis::one("link.c.rate=100 pkt/s").expect("an axis");
        let plan = Plan::new("t", scenario(), &[axis]).expect("a plan");
        assert_eq!(plan.with, ["link.c.rate=100 pkt/s"]);
        for variant in &plan.variants {
            assert_eq!(variant.scenario.link["c"].rate.expect("a rate").to_string(), "100 pkt/s");
        }
        assert_eq!(plan.variants[1].label().as_deref(), Some("two"));
        let axis = Axis::one("controllers=[\"reno\"]").expect("an axis");
        assert_eq!(Plan::new("t", scenario(), &[axis]).expect("a plan").controllers, ["reno"]);
        for (set, said) in [
            ("link.c.rtae=1,2", "did you mean `rate`?"),
            ("link.c.loss=0,2", "link.c.loss: 2 is no probability"),
            ("controllers=nmcc,reno", "use --cc"),
        ] {
            let error = Plan::new("t", scenario(), &[Axis::many(set).expect("an axis")]).expect_err(set);
            assert!(error.to_string().contains(said), "{error}");
        }
    }

    #[test]
    fn a_run_is_repeated_while_it_is_late() {
        use crate::outcome::Lateness;
        use std::cell::Cell;
        // The first two runs are late, the third is in time.
        let times = |retries: u32, stop: bool| {
            let count = Cell::new(0);
            let run = || {
                count.set(count.get() + 1);
                let lateness = Lateness { too_late: count.get() <= 2, ..Lateness::default() };
                Ok(Outcome { lateness: Some(lateness), ..Outcome::default() })
            };
            let outcome = in_time(run, retries, &stop.into()).expect("an outcome");
            (count.get(), outcome.is_late())
        };
        assert_eq!((times(0, false), times(1, false)), ((1, true), (2, true)));
        assert_eq!((times(2, false), times(9, false)), ((3, false), (3, false)));
        assert_eq!(times(9, true), (1, true));
    }

    #[test]
    fn one_case_brings_those_it_is_compared_with() {
        let only = |case| Plan::of_case("t", scenario(), &[], Some(case));
        assert!(only("twoo").expect_err("none").to_string().contains("did you mean `two`?"));
        let plan = only("two").expect("a case");
        let names: Vec<_> = plan.variants.iter().filter_map(|v| v.case.as_deref()).collect();
        assert_eq!(names, ["one", "two"]);
    }

    #[test]
    fn a_fingerprint_is_of_what_decides() {
        let of = |from: &str, to: &str| {
            let text = TEXT.replacen(from, to, 1);
            fingerprint(&Scenario::parse(&text, "t").expect("a scenario"))
        };
        let plain = fingerprint(&scenario());
        assert_eq!(plain.len(), 16);
        for (from, to) in [
            ("title = \"t\"", "title = \"u\" # other"),
            ("seeds = 3", "seeds = 30"),
            ("\"nmcc\", \"reno\"", "\"reno\""),
            ("versus = \"one\"", "paper = { nmcc = 5 }"),
            ("name = \"three\"", "name = \"four\""),
        ] {
            assert_eq!(of(from, to), plain, "{to}");
        }
        for (from, to) in [
            ("500 pkt/s", "501 pkt/s"),
            ("duration = \"60 s\"", "duration = \"61 s\""),
            ("kind = \"goodput\"", "kind = \"packets\""),
        ] {
            assert_ne!(of(from, to), plain, "{to}");
        }
    }
}
