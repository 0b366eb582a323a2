//! `anabranch lab run`: scenarios in, tables out.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use ::lab::outcome;
use ::lab::sweep::pool::{self, Event};
use ::lab::sweep::{Plan, Task};
use ::lab::table;

use super::args::{Choice, Run};
use super::find::{Found, find, wrong};
use super::output::{Output, note, save};
use super::progress::Progress;
use crate::exit::{Code, Failure, Outcome};
use crate::host::stop_signals;

/// One file: its plan, and what of it has been run.
struct Study {
    plan: Plan,
    path: Option<PathBuf>,
    tasks: Vec<Task>,
    /// Where its tasks begin among those of all files.
    first: usize,
    runs: Vec<Option<outcome::Run>>,
    left: usize,
}

/// Runs scenarios one after the other on one pool of threads, and prints each table as soon as it is whole.
///
/// # Errors
/// 2 if a scenario makes no sense, 6 if a file cannot be written, 7 if a condition was not met or a value is
/// not where it is expected, 130 on Ctrl-C.
pub(super) fn run(args: &Run) -> Outcome {
    let mut studies: Vec<Study> = Vec::new();
    let mut all = Vec::new();
    for file in &args.files {
        let Found { name, scenario, path } = find(file)?;
        if args.save && path.is_none() {
            return Err(Failure::usage("--save needs a file to save the table beside, not standard input"));
        }
        let mut plan = Plan::new(&name, scenario, &args.sets).map_err(wrong)?;
        choose(&mut plan, &args.choice)?;
        let tasks = plan.tasks();
        let (first, left) = (all.len(), tasks.len());
        all.extend(tasks.iter().cloned());
        studies.push(Study { runs: vec![None; left], plan, path, tasks, first, left });
    }
    let (_wake, stop) = stop_signals().map_err(|e| Failure::other(format!("cannot catch signals: {e}")))?;
    let mut output = Output::new(&args.choice);
    let (total, mut ended, mut printed) = (all.len(), 0, 0);
    let mut progress = Progress::new(total);
    let mut result = Ok(());
    let keep = args.choice.report.is_some();
    pool::run(all, threads(&args.choice), Task::run, |event| {
        if let Event::Done(index, done) = event {
            ended += 1;
            let study = studies.iter_mut().rev().find(|study| study.first <= index);
            if let Some(study) = study {
                study.take(index - study.first, done, keep);
            }
            while let Some(study) = studies.get(printed).filter(|study| study.left == 0) {
                progress.clear();
                result = study.print(&mut output, args.save);
                if result.is_err() {
                    return ControlFlow::Break(());
                }
                printed += 1;
            }
        }
        progress.update(ended);
        interrupted(&stop)
    });
    progress.clear();
    result?;
    if ended < total {
        let tables = format!("{printed} of {} tables", studies.len());
        let message = format!("interrupted: {ended} of {total} runs and {tables} are done");
        return Err(Failure::new(Code::Interrupted, message));
    }
    output.finish()
}

/// Whether somebody wants it to stop.
pub(super) fn interrupted(stop: &AtomicBool) -> ControlFlow<()> {
    if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// How many threads.
pub(super) fn threads(choice: &Choice) -> usize {
    choice.jobs.unwrap_or_else(pool::threads)
}

/// What the command line chose, in place of what the scenario says.
pub(super) fn choose(plan: &mut Plan, choice: &Choice) -> Outcome {
    if let Some(case) = &choice.case {
        plan.only(case).map_err(wrong)?;
    }
    if let Some(seeds) = &choice.seeds {
        plan.seeds = seeds.clone();
    }
    if !choice.cc.is_empty() {
        plan.controllers.clear();
        for name in &choice.cc {
            if !plan.controllers.contains(name) {
                plan.controllers.push(name.clone());
            }
        }
    }
    if plan.len() > ::lab::sweep::TASKS_MAX {
        let message = format!("{} runs are more than {} at once", plan.len(), ::lab::sweep::TASKS_MAX);
        return Err(Failure::usage(message));
    }
    Ok(())
}

/// A run that panicked becomes one that does not count, and says so.
pub(super) fn outcome(done: Result<outcome::Outcome, String>) -> outcome::Outcome {
    done.unwrap_or_else(|panic| {
        let faults = vec![format!("the run broke off, which is a bug: {panic}")];
        outcome::Outcome { faults, ..outcome::Outcome::default() }
    })
}

/// A task that has ended, as the table wants it. How it went over time is kept for the first seed only, and
/// only if it will be plotted.
pub(super) fn as_run(plan: &Plan, task: &Task, mut outcome: outcome::Outcome, keep: bool) -> outcome::Run {
    if !keep || task.seed != *plan.seeds.start() {
        outcome.series = outcome::Series::default();
    }
    let case = plan.variants[task.variant].label();
    outcome::Run { case, controller: task.controller.clone(), seed: task.seed, outcome }
}

impl Study {
    fn take(&mut self, index: usize, done: Result<outcome::Outcome, String>, keep: bool) {
        self.runs[index] = Some(as_run(&self.plan, &self.tasks[index], outcome(done), keep));
        self.left -= 1;
    }

    fn print(&self, output: &mut Output, saving: bool) -> Outcome {
        let runs: Vec<outcome::Run> = self.runs.iter().flatten().cloned().collect();
        let rows = table::rows(&self.plan, &runs);
        if let Some(path) = self.path.as_deref().filter(|_| saving) {
            let path = table_path(path);
            save(&path, &table::text(&self.plan, &rows))?;
            note(&format!("{} is written", crate::names::show(&path)));
        }
        output.table(&self.plan, rows, runs)
    }
}

/// `NAME.table` beside `NAME.toml`.
fn table_path(scenario: &Path) -> PathBuf {
    scenario.with_extension("table")
}
