//! `anabranch lab sweep`: adds many runs to a file, and continues it at a later start.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

use anabranch_lab::sweep::store::{self, Record, Store};
use anabranch_lab::sweep::{Plan, Shard, Task};
use anabranch_lab::{World, outcome, table};

use super::args::Sweep;
use super::find::{find, wrong};
use super::output::Output;
use super::run::{as_run, choose, each_world, keeps_series, outcome};
use crate::exit::{Code, Failure, Outcome};
use crate::names::show;
use crate::signals::stop_signals;
use crate::view::note;

/// Makes the runs that are not in the file yet, and prints the table of all runs in it.
///
/// # Errors
/// 2 if the scenario is invalid, 6 if a file cannot be written, 7 if a condition was not met or a value is
/// not where it is expected, 130 on Ctrl-C.
pub(super) fn sweep(args: &Sweep) -> Outcome {
    let found = find(&args.file, args.choice.case.as_deref())?;
    let case = args.choice.case.as_deref();
    let mut plan = Plan::of_case(&found.name, found.scenario, &args.sets, case).map_err(wrong)?;
    choose(&mut plan, &args.choice)?;
    let output = Output::new(&args.choice)?;
    let tasks = plan.tasks();
    let keys = store::keys(&plan, &tasks);
    let mut results: Vec<Option<outcome::Outcome>> = vec![None; tasks.len()];
    let mut file = None;
    if let Some(path) = &args.out {
        let wanted: BTreeSet<_> = keys.iter().cloned().collect();
        let (store, there) = Store::open(path, &wanted).map_err(|e| unwritten(path, &e))?;
        if there.strange > 0 {
            note(&format!("{} lines of {} are no results, and are left alone", there.strange, show(path)));
        }
        for (key, result) in keys.iter().zip(&mut results) {
            *result = there.results.get(key).cloned();
        }
        file = Some((path, store));
    }
    let (shard, mut begun) = (args.shard.unwrap_or(Shard::ALL), BTreeSet::new());
    let is_drawn = |task: &Task| keeps_series(&args.choice, &plan, task);
    // A run without the values that are to be drawn is repeated: the simulator gives the same run again.
    for (index, task) in tasks.iter().enumerate().filter(|(index, _)| shard.has(*index)) {
        let undrawn = results[index].as_ref().is_some_and(|outcome| outcome.series.is_empty());
        if undrawn && is_drawn(task) && task.world == World::Sim {
            results[index] = None;
        }
    }
    // The runs to make here: those of this shard that are missing, each only once.
    let mut todo: Vec<usize> = (0..tasks.len()).filter(|i| shard.has(*i) && results[*i].is_none()).collect();
    todo.retain(|i| begun.insert(&keys[*i]));
    let before = results.iter().flatten().count();
    if let Some((path, _)) = file.as_ref().filter(|_| before > 0) {
        note(&format!("{before} of {} runs are in {} already", tasks.len(), show(path)));
    }
    let (_wake, stop) = stop_signals()?;
    let (mut ended, mut result) = (0, Ok(()));
    let work: Vec<Task> = todo.iter().map(|index| tasks[*index].clone()).collect();
    each_world(work, &args.choice, &stop, |index, done| {
        let index = todo[index];
        ended += 1;
        let done = done.map(|mut outcome| {
            if !is_drawn(&tasks[index]) {
                outcome.series = outcome::Series::default();
            }
            outcome
        });
        // A run that was broken off is not stored, so that the next start tries it again.
        if let (Some((path, store)), Ok(outcome)) = (&mut file, &done) {
            let record = Record::new(&plan, &tasks[index], &keys[index], outcome.clone());
            result = store.append(&record).map_err(|e| unwritten(path, &e));
        }
        results[index] = Some(outcome(done));
        if result.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    result?;
    if ended < todo.len() {
        let how = args.out.as_ref().map_or("", |_| "; the same command does the rest");
        let message = format!("interrupted: {ended} of {} runs are done{how}", todo.len());
        return Err(Failure::new(Code::Interrupted, message));
    }
    // If the plan has a run twice (a value named twice), both get one result.
    for index in 0..tasks.len() {
        if results[index].is_none() {
            let twin = todo.iter().find(|i| keys[**i] == keys[index]);
            results[index] = twin.and_then(|i| results[*i].clone());
        }
    }
    print(output, args, &plan, &tasks, results)
}

fn print(
    mut output: Output,
    args: &Sweep,
    plan: &Plan,
    tasks: &[Task],
    results: Vec<Option<outcome::Outcome>>,
) -> Outcome {
    let keep = |task: &Task| keeps_series(&args.choice, plan, task);
    let all = tasks.iter().zip(results);
    let runs: Vec<outcome::Run> =
        all.filter_map(|(task, outcome)| Some(as_run(plan, task, outcome?, keep(task)))).collect();
    let missing = tasks.len() - runs.len();
    output.table(plan, table::rows(plan, &runs), runs)?;
    if missing > 0 {
        // The table is judged only when it is complete.
        note(&format!("{missing} of {} runs are of other shards, and not here yet", tasks.len()));
        return output.page();
    }
    output.finish()
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::target(format!("cannot use {}: {error}", show(path))).at(path)
}
