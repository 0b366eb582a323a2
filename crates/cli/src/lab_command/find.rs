//! Finds scenarios by the path or name of a file, or by the name of one in the program.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anabranch_lab::hint::nearest;
use anabranch_lab::scenario::load::{FILE_BYTES_MAX, ScenarioReader};
use anabranch_lab::scenario::{Scenario, ScenarioError, built_in};

use crate::exit::{Failure, Outcome};
use crate::names::show;
use crate::toml_name::{stem, with_toml};

/// The directory of scenarios that are named without a path. Others may be part of the program.
pub(super) const DIR: &str = "scenarios";

/// Holds a scenario, its name, and its file if it has one.
pub(super) struct FoundScenario {
    pub(super) name: String,
    pub(super) scenario: Scenario,
    pub(super) path: Option<PathBuf>,
}

/// Finds, reads and checks the scenario that `file` names. `only` selects the case that is to run.
pub(super) fn find(file: &Path, only: Option<&str>) -> Outcome<FoundScenario> {
    let reader = ScenarioReader::default().case(only);
    if file == Path::new("-") {
        let mut text = String::new();
        let read = std::io::stdin().take(FILE_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|e| Failure::usage(format!("standard input cannot be read: {e}")))?;
        let scenario = reader.parse(&text, "standard input").map_err(wrong)?;
        return Ok(FoundScenario { name: "stdin".into(), scenario, path: None });
    }
    let Some(path) = file_of(file) else {
        let name = file.to_str().unwrap_or_default();
        let scenario = reader.built_in(name).ok_or_else(|| unknown(file))?.map_err(wrong)?;
        return Ok(FoundScenario { name: name.into(), scenario, path: None });
    };
    let scenario = reader.load(&path).map_err(wrong)?;
    Ok(FoundScenario { name: stem(&path), scenario, path: Some(path) })
}

/// Converts the error of a scenario to one of wrong usage.
#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
pub(super) fn wrong(error: ScenarioError) -> Failure {
    Failure::usage(error.to_string())
}

/// Returns the scenarios in the directory [`DIR`].
pub(super) fn every() -> Outcome<Vec<PathBuf>> {
    let wrong = |what: String| Failure::usage(format!("no scenarios in {DIR}: {what}"));
    let files = scenarios(Path::new(DIR)).map_err(|e| wrong(e.to_string()))?;
    if files.is_empty() { Err(wrong("no file ends in .toml".into())) } else { Ok(files) }
}

/// Returns the scenario files in `dir`, ordered by name.
pub(super) fn scenarios(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "toml") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the file that `name` refers to, or `None` if there is no such file.
fn file_of(name: &Path) -> Option<PathBuf> {
    if name.is_file() {
        return Some(name.to_owned());
    }
    let here = with_toml(name);
    let there = Path::new(DIR).join(&here);
    let bare = name.components().count() == 1;
    let found = [(here, true), (there, bare)].into_iter().find(|(path, may)| *may && path.is_file());
    found.map(|(path, _)| path)
}

/// Makes the error that there is no such scenario, with the most similar name.
fn unknown(name: &Path) -> Failure {
    let dir = name.parent().filter(|dir| !dir.as_os_str().is_empty());
    let known: Vec<PathBuf> = match dir {
        Some(dir) => scenarios(dir).unwrap_or_default(),
        None => [".", DIR].iter().filter_map(|dir| scenarios(Path::new(dir)).ok()).flatten().collect(),
    };
    let mut names: Vec<String> = known.iter().map(|path| stem(path)).collect();
    if dir.is_none() {
        names.extend(built_in::names().map(String::from));
    }
    let hint = match nearest(&stem(name), names.iter().map(String::as_str)) {
        Some(near) => format!(": did you mean {near}?"),
        None if names.is_empty() => " (and no scenario near it)".into(),
        None => "; `anabranch lab list` shows what there is".into(),
    };
    Failure::usage(format!("there is no scenario {}{hint}", show(name)))
}
