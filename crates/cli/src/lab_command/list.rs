//! `anabranch lab list`: what scenarios there are.

use console::Term;
use lab::scenario::Scenario;
use serde::Serialize;

use super::args::List;
use super::find::{scenarios, stem};
use super::output::note;
use crate::exit::{Failure, Outcome};
use crate::json;
use crate::man::print;
use crate::names::show;

#[derive(Serialize)]
struct Line<'a> {
    scenario: &'a str,
    file: String,
    title: &'a str,
    source: &'a str,
    cases: Vec<&'a str>,
    controllers: &'a [String],
    seeds: u64,
    runs: u64,
}

/// Lists the scenarios of a directory.
///
/// # Errors
/// 2 if there is no such directory, or a file in it is no scenario; the others are listed.
pub(super) fn list(args: &List) -> Outcome {
    let dir = show(&args.dir);
    let files = scenarios(&args.dir).map_err(|e| {
        Failure::usage(format!("no scenarios in {dir}: {e}; name the directory: anabranch lab list DIR"))
    })?;
    let (mut found, mut broken) = (Vec::new(), 0);
    for file in files {
        match Scenario::load(&file) {
            Ok(scenario) => found.push((stem(&file), file, scenario)),
            Err(error) => {
                broken += 1;
                note(&error.to_string());
            }
        }
    }
    let lines = found.iter().map(|(name, file, scenario)| {
        let cases: Vec<&str> = scenario.case.iter().map(|case| case.name.as_str()).collect();
        let runs = cases.len().max(1) as u64 * scenario.controllers.len() as u64 * scenario.seeds;
        let (title, source) = (scenario.title.as_str(), scenario.source.as_str());
        let (controllers, seeds) = (&scenario.controllers[..], scenario.seeds);
        Line { scenario: name, file: show(file), title, source, cases, controllers, seeds, runs }
    });
    let text: String = match args.json {
        true => lines.map(|line| json::text("scenario", &line)).collect(),
        false => table(&lines.collect::<Vec<_>>()),
    };
    print(text.as_bytes())?;
    match broken {
        0 if found.is_empty() => Err(Failure::usage(format!("no scenarios in {dir}: no file ends in .toml"))),
        0 => Ok(()),
        n => Err(Failure::usage(format!("{n} of {} files are no scenarios", n + found.len()))),
    }
}

fn table(lines: &[Line<'_>]) -> String {
    let width = lines.iter().map(|line| line.scenario.chars().count()).max().unwrap_or(0);
    let room = Term::stdout().size_checked().map_or(usize::MAX, |(_, columns)| usize::from(columns));
    let mut text = String::new();
    for line in lines {
        let count = format!("{}×{}×{}", line.cases.len().max(1), line.controllers.len(), line.seeds);
        let from = if line.source.is_empty() { String::new() } else { format!(" ({})", line.source) };
        let whole = format!("{:width$}  {count:>9}  {}{from}", line.scenario, line.title);
        text.extend(whole.chars().take(room));
        text.push('\n');
    }
    if !lines.is_empty() {
        text.push_str("\ncases × controllers × seeds; run one with `anabranch lab run NAME`\n");
    }
    text
}
