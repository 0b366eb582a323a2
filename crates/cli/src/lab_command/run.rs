//! `anabranch lab run`: runs scenarios and prints their tables.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_algo::Span;
use anabranch_lab::sweep::pool::{self, Event};
use anabranch_lab::sweep::{Plan, Task};
use anabranch_lab::table;
use anabranch_lab::{World, linux, outcome};

use super::args::{Choice, Run};
use super::find::{FoundScenario, every, find, wrong};
use super::output::{Output, check_writable, save};
use super::progress::Progress;
use crate::exit::{Code, Failure, Outcome};
use crate::signals::stop_signals;
use crate::view::note;

/// Holds one file: its plan, and its runs so far.
struct Study {
    plan: Plan,
    path: Option<PathBuf>,
    tasks: Vec<Task>,
    /// The index of its first task among the tasks of all files.
    first: usize,
    runs: Vec<Option<outcome::Run>>,
    left: usize,
}

/// Runs scenarios one after the other on one pool of threads. Prints each table as soon as it is complete.
///
/// # Errors
/// 2 if a scenario is invalid, 6 if a file cannot be written, 7 if a condition was not met or a value is
/// outside of its expected range, 130 on Ctrl-C.
pub(super) fn run(args: &Run) -> Outcome {
    let mut studies: Vec<Study> = Vec::new();
    let mut all = Vec::new();
    let every = if args.all { every()? } else { Vec::new() };
    for file in args.files.iter().chain(&every) {
        let FoundScenario { name, scenario, path } = find(file, args.choice.case.as_deref())?;
        if args.save && path.is_none() {
            return Err(Failure::usage(format!(
                "--save needs a file to save the table beside: {name} is none (`anabranch lab new` makes one)"
            )));
        }
        let case = args.choice.case.as_deref();
        let mut plan = Plan::of_case(&name, scenario, &args.sets, case).map_err(wrong)?;
        choose(&mut plan, &args.choice)?;
        if let Some(path) = path.as_deref().filter(|_| args.save) {
            check_writable(&table_path(path))?;
        }
        let tasks = plan.tasks();
        let (first, left) = (all.len(), tasks.len());
        all.extend(tasks.iter().cloned());
        studies.push(Study { runs: vec![None; left], plan, path, tasks, first, left });
    }
    let mut output = Output::new(&args.choice)?;
    let (_wake, stop) = stop_signals()?;
    let (total, mut ended, mut printed) = (all.len(), 0, 0);
    let mut result = Ok(());
    each_world(all, &args.choice, &stop, |index, done| {
        ended += 1;
        if let Some(study) = studies.iter_mut().rev().find(|study| study.first <= index) {
            study.take(index - study.first, done, &args.choice);
        }
        while let Some(study) = studies.get(printed).filter(|study| study.left == 0) {
            result = study.print(&mut output, args.save);
            if result.is_err() {
                return ControlFlow::Break(());
            }
            printed += 1;
        }
        ControlFlow::Continue(())
    })?;
    result?;
    if ended < total {
        let tables = format!("{printed} of {} tables", studies.len());
        let message = format!("interrupted: {ended} of {total} runs and {tables} are done");
        return Err(Failure::new(Code::Interrupted, message));
    }
    output.finish()
}

/// The result of a task; the error says why the run was broken off.
pub(super) type Done = Result<outcome::Outcome, String>;

/// Runs tasks world by world, with as many at a time as each world supports, and shows the progress. Passes
/// the result of each task to `done`, with the task's index in `tasks`. Ends early if `done` breaks off or
/// `stop` is set.
///
/// # Errors
/// 1 or 2 if a world cannot run its tasks. No task has been run then.
pub(super) fn each_world(
    tasks: Vec<Task>,
    choice: &Choice,
    stop: &Arc<AtomicBool>,
    mut done: impl FnMut(usize, Done) -> ControlFlow<()>,
) -> Outcome {
    let mut parts: Vec<(World, Vec<usize>, Vec<Task>)> =
        World::ALL.into_iter().map(|world| (world, Vec::new(), Vec::new())).collect();
    for (index, task) in tasks.into_iter().enumerate() {
        if let Some((_, places, part)) = parts.iter_mut().find(|(world, ..)| *world == task.world) {
            places.push(index);
            part.push(task);
        }
    }
    for (_, _, part) in parts.iter().filter(|(world, ..)| *world == World::Kernel) {
        linux::ready(part).map_err(Failure::other)?;
    }
    for (world, places, part) in parts.into_iter().filter(|(.., part)| !part.is_empty()) {
        let (jobs, mut progress, mut ended) = (jobs(world, choice, &part), Progress::new(part.len()), 0);
        if world == World::Kernel {
            let all =
                part.iter().map(|task| task.scenario.duration.0).fold(Span::ZERO, |sum, span| sum + span);
            progress = progress.takes(all.over(jobs.min(part.len()) as u64));
        }
        let (halt, retries, mut broken) = (Arc::clone(stop), choice.retry, false);
        pool::run(
            part,
            jobs,
            move |task| task.run_again(&halt, retries),
            |event| {
                if let Event::Done(index, outcome) = event {
                    ended += 1;
                    // A run that was stopped does not count.
                    if !(world == World::Kernel && stop.load(Ordering::Relaxed)) {
                        progress.clear();
                        broken = done(places[index], outcome).is_break();
                    }
                }
                progress.update(ended);
                let stop = broken || stop.load(Ordering::Relaxed);
                if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        progress.clear();
        if broken || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(())
}

/// Returns the number of tasks that run at a time.
fn jobs(world: World, choice: &Choice, tasks: &[Task]) -> usize {
    choice.jobs.unwrap_or_else(|| match world {
        World::Sim => pool::threads(),
        World::Kernel => linux::jobs(tasks),
    })
}

/// Replaces the scenario's choices by those of the command line.
pub(super) fn choose(plan: &mut Plan, choice: &Choice) -> Outcome {
    plan.worlds =
        World::ALL.into_iter().filter(|w| choice.world.iter().any(|c| World::from(*c) == *w)).collect();
    if let Some(seeds) = &choice.seeds {
        plan.seeds = seeds.clone();
    }
    if !choice.cc.is_empty() {
        plan.compare(choice.cc.iter().map(String::as_str)).map_err(Failure::usage)?;
    }
    if plan.len() > anabranch_lab::sweep::TASKS_MAX {
        let message =
            format!("{} runs are more than {} at once", plan.len(), anabranch_lab::sweep::TASKS_MAX);
        return Err(Failure::usage(message));
    }
    Ok(())
}

/// Converts the result of a task. A run that was broken off becomes a run that does not count, with the
/// reason.
pub(super) fn outcome(done: Done) -> outcome::Outcome {
    done.unwrap_or_else(|why| outcome::Outcome::broken_off(&why))
}

/// Returns whether the values of a run over time are kept: for all seeds if they are written as data, for the
/// first seed if they are drawn.
pub(super) fn keeps_series(choice: &Choice, plan: &Plan, task: &Task) -> bool {
    choice.series.is_some() || (choice.report.is_some() && task.seed == *plan.seeds.start())
}

/// Makes the table's run from a task that has ended. `keep` says whether its values over time are kept.
pub(super) fn as_run(plan: &Plan, task: &Task, mut outcome: outcome::Outcome, keep: bool) -> outcome::Run {
    if !keep {
        outcome.series = outcome::Series::default();
    }
    plan.as_run(task, outcome)
}

impl Study {
    fn take(&mut self, index: usize, done: Done, choice: &Choice) {
        let keep = keeps_series(choice, &self.plan, &self.tasks[index]);
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

/// Returns `NAME.table` beside `NAME.toml`.
fn table_path(scenario: &Path) -> PathBuf {
    scenario.with_extension("table")
}
