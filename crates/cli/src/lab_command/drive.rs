//! `anabranch lab drive`: real programs through many settings, by the crate `drive`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_drive::client::{Values, call, chat, dial::Dial, video};
use anabranch_drive::plan::Plan;
use anabranch_drive::results::{Ending, Journal, TestResult};
use anabranch_drive::runner::{Programs, Runner, Stopped};
use anabranch_drive::schedule::{Schedule, Test};
use anabranch_drive::tally::Tally;
use anabranch_drive::{origin, page};

use super::args::{Drive, DrivePart, Part};
use crate::exit::{Code, Failure, Outcome};
use crate::holder::plain_name::plain_name;
use crate::json;
use crate::programs::Program;
use crate::signals::stop_signals;
use crate::stdout::{line, print};
use crate::toml_name::stem;
use crate::view::note;

/// The name of the page in the directory of the results.
const PAGE: &str = "index.html";

/// Runs a plan, or lists its tests.
///
/// # Errors
/// 2 if the plan makes no sense or the directory has the results of another, 8 if this process may not make
/// hosts, 7 if a test failed or a number is not where the plan expects it, 6 if results cannot be written,
/// 130 on Ctrl-C.
pub(super) fn drive(args: &Drive) -> Outcome {
    let plan = read(&args.plan)?;
    let schedule = Schedule::of(&plan);
    let tests = chosen(&schedule, &args.only)?;
    if args.list {
        return list(args, &schedule, &tests);
    }
    let dir = args.out.clone().unwrap_or_else(|| PathBuf::from(plain_name(&stem(&args.plan))));
    let mut journal = Journal::open(&dir, &plan).map_err(|e| Failure::usage(e.to_string()))?;
    let missing = journal.missing(&tests);
    if !journal.results.is_empty() {
        let there = journal.results.len();
        note(&format!("{there} results are in {}: {} tests are left", dir.display(), missing.len()));
    }
    let stopped = if missing.is_empty() { Stopped::Done } else { run(args, &plan, &missing, &mut journal)? };
    let left = journal.missing(&schedule.tests).len();
    let tally = Tally::of(&plan, &journal.results, left);
    let written = fs::write(dir.join(PAGE), page::html(&plan, &tally, &journal.results));
    written.map_err(|e| Failure::target(format!("{}: {e}", dir.join(PAGE).display())))?;
    report(args, &dir, &tally);
    let what = page::sentence(&tally);
    match stopped {
        Stopped::Interrupted => {
            Err(Failure::new(Code::Interrupted, format!("interrupted: {what} The same command goes on")))
        }
        Stopped::Done if !tally.is_well() => Err(Failure::new(Code::Unmet, what)),
        Stopped::Done => Ok(()),
    }
}

/// Reads a plan: a file, a name for a file here, or the name of a plan of the program.
fn read(path: &Path) -> Outcome<Plan> {
    let named = path.with_extension("toml");
    let file = [path, &named].into_iter().find(|path| path.is_file());
    let Some(file) = file else {
        let name = path.to_string_lossy();
        let text = Plan::built_in(&name).ok_or_else(|| {
            let own: Vec<&str> = Plan::built_in_names().collect();
            let own = own.join(", ");
            Failure::usage(format!("there is no plan {}; this program has {own}", path.display()))
        })?;
        return Plan::parse(text, Path::new("")).map_err(|e| Failure::usage(format!("{name}: {e}")));
    };
    let wrong = |e: String| Failure::usage(format!("{}: {e}", file.display()));
    let text = fs::read_to_string(file).map_err(|e| wrong(e.to_string()))?;
    Plan::parse(&text, file.parent().unwrap_or(Path::new(""))).map_err(|e| wrong(e.to_string()))
}

/// Returns the tests whose names have one of the texts in them.
fn chosen(schedule: &Schedule, only: &[String]) -> Outcome<Vec<Test>> {
    let is_chosen = |test: &&Test| {
        let name = test.to_string();
        only.is_empty() || only.iter().any(|text| name.contains(text.as_str()))
    };
    let tests: Vec<Test> = schedule.tests.iter().filter(is_chosen).cloned().collect();
    if tests.is_empty() {
        let why = if only.is_empty() { "the plan's rules leave no test" } else { "no test has this --only" };
        return Err(Failure::usage(format!("{why}: --list shows all tests and rules")));
    }
    Ok(tests)
}

fn list(args: &Drive, schedule: &Schedule, tests: &[Test]) -> Outcome {
    if args.json {
        #[derive(serde::Serialize)]
        struct Listed {
            test: String,
        }
        let one = |test: &Test| json::text("drive_listed", &Listed { test: test.to_string() });
        return print(tests.iter().map(one).collect::<String>());
    }
    let mut text: String = tests.iter().map(|test| format!("{test}\n")).collect();
    text.push_str(&format!("\n{} tests\n", tests.len()));
    for (rule, count) in &schedule.left_out {
        text.push_str(&format!("{count} left out: {rule}\n"));
    }
    print(text)
}

fn run(args: &Drive, plan: &Plan, tests: &[Test], journal: &mut Journal) -> Outcome<Stopped> {
    let own = std::env::current_exe().map_err(|e| Failure::other(format!("where is this program? {e}")))?;
    let programs = Programs { own, proxy: Program::of("proxy").and_then(Program::path) };
    let dir = journal.dir().to_owned();
    let runner = Runner::new(plan, &programs, &dir);
    let runner = runner.map_err(|e| Failure::new(Code::Kernel, e.to_string()))?;
    let (_wake, stop) = stop_signals()?;
    let stop: &AtomicBool = &stop;
    let mut done = 0;
    let stopped = runner.run(tests, journal, &|| stop.load(Ordering::Relaxed), |result| {
        done += 1;
        tell(args, result, done, tests.len());
    });
    stopped.map_err(|e| Failure::target(format!("{}: {e}", dir.display())))
}

fn tell(args: &Drive, result: &TestResult, done: usize, all: usize) {
    if args.json {
        return crate::stdout::tell(json::text("drive_test", result));
    }
    let ending = match result.ending {
        Ending::Ok => "ok",
        Ending::Failed => "FAILED",
        Ending::Timeout => "TIMEOUT",
        Ending::Skipped => "skipped",
    };
    let values: Vec<String> =
        result.values.iter().map(|(name, value)| format!("{name} {}", page::number(*value))).collect();
    let said = result.why.clone().or_else(|| result.line.clone()).unwrap_or_else(|| values.join(", "));
    line(format!("{done}/{all} {} {ending} {said}", result.test));
}

fn report(args: &Drive, dir: &Path, tally: &Tally) {
    if args.json {
        return crate::stdout::tell(json::text("drive", tally));
    }
    line("");
    page::comparisons(tally).iter().for_each(line);
    line(page::sentence(tally));
    line(format!("The page: {}", dir.join(PAGE).display()));
}

/// Runs as a part of a test.
///
/// # Errors
/// 1 with the reason if the part fails.
pub(super) fn part(args: &DrivePart) -> Outcome {
    let failed = |e: io::Error| Failure::other(e.to_string());
    let dial = Dial { mptcp: args.mptcp, socks: args.socks };
    let values: Values = match args.part {
        Part::Serve => {
            return origin::serve(args.at.ip(), &args.files, &mut io::stdout()).map_err(failed);
        }
        Part::Chat => chat::chat(dial, args.at, args.seconds),
        Part::Video => video::video(dial, args.at, args.seconds, args.bytes_per_s),
        Part::Call => call::call(dial, args.at, args.seconds),
    }
    .map_err(failed)?;
    print(serde_json::to_string(&values).unwrap_or_default() + "\n")
}
