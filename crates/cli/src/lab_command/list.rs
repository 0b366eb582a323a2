//! `anabranch lab list`: lists the scenarios.

use std::path::{Path, PathBuf};

use anabranch_lab::scenario::{Scenario, built_in};
use console::Term;
use serde::Serialize;

use super::args::List;
use super::find::{DIR, scenarios};
use crate::exit::{Failure, Outcome};
use crate::json;
use crate::names::show;
use crate::stdout::print;
use crate::toml_name::stem;
use crate::view::note;

#[derive(Serialize)]
struct Line<'a> {
    scenario: &'a str,
    /// The file; `None` if the scenario is part of the program.
    file: Option<String>,
    title: &'a str,
    source: &'a str,
    cases: Vec<&'a str>,
    controllers: &'a [String],
    seeds: u64,
    runs: u64,
}

/// Holds a scenario, its name, and its file if it has one.
type Found = (String, Option<PathBuf>, Scenario);

/// Lists the scenarios of a directory. Without one, lists the scenarios that a name alone can refer to: in
/// `scenarios/` and in the program.
///
/// # Errors
/// 2 if the directory does not exist, or if a file in it is no scenario; the others are listed.
pub(super) fn list(args: &List) -> Outcome {
    let dir = args.dir.as_deref().unwrap_or(Path::new(DIR));
    let files = match scenarios(dir) {
        Err(_) if args.dir.is_none() => Vec::new(),
        files => files.map_err(|e| Failure::usage(format!("no scenarios in {}: {e}", show(dir))))?,
    };
    let (mut found, mut broken): (Vec<Found>, usize) = (Vec::new(), 0);
    for file in files {
        match Scenario::load(&file) {
            Ok(scenario) => found.push((stem(&file), Some(file), scenario)),
            Err(error) => {
                broken += 1;
                note(&error.to_string());
            }
        }
    }
    if args.dir.is_none() {
        for name in built_in::names() {
            let is_new = !found.iter().any(|(other, ..)| other == name);
            if let Some(Ok(scenario)) = Scenario::built_in(name).filter(|_| is_new) {
                found.push((name.into(), None, scenario));
            }
        }
    }
    let lines = found.iter().map(|(name, file, scenario)| {
        let cases: Vec<&str> = scenario.case.iter().map(|case| case.name.as_str()).collect();
        let runs = cases.len().max(1) as u64 * scenario.controllers.len() as u64 * scenario.seeds;
        let (title, source) = (scenario.title.as_str(), scenario.source.as_str());
        let (controllers, seeds) = (&scenario.controllers[..], scenario.seeds);
        let file = file.as_deref().map(show);
        Line { scenario: name, file, title, source, cases, controllers, seeds, runs }
    });
    let text: String = match args.json {
        true => lines.map(|line| json::text("scenario", &line)).collect(),
        false => table(&lines.collect::<Vec<_>>()),
    };
    print(text.as_bytes())?;
    match broken {
        0 if found.is_empty() => {
            Err(Failure::usage(format!("no scenarios in {}: no file ends in .toml", show(dir))))
        }
        0 => Ok(()),
        n => Err(Failure::usage(format!("{n} of {} files are no scenarios", n + found.len()))),
    }
}

/// The heading of the second column: the factors of the number of runs.
const COUNTS: &str = "cases×controllers×seeds";

fn table(lines: &[Line<'_>]) -> String {
    let width =
        lines.iter().map(|line| line.scenario.chars().count()).max().unwrap_or(0).max("scenario".len());
    let wide = COUNTS.chars().count();
    let room = Term::stdout().size_checked().map_or(usize::MAX, |(_, columns)| usize::from(columns));
    let mut text = format!("{:width$}  {COUNTS}  what it is (source)\n", "scenario");
    for line in lines {
        let count = format!("{}×{}×{}", line.cases.len().max(1), line.controllers.len(), line.seeds);
        let from = if line.source.is_empty() { String::new() } else { format!(" ({})", line.source) };
        let whole = format!("{:width$}  {count:>wide$}  {}{from}", line.scenario, line.title);
        text.extend(whole.chars().take(room));
        text.push('\n');
    }
    text + "\nOne run each for every case, controller and seed: `anabranch lab run NAME`\n"
}
