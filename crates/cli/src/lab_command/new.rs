//! `anabranch lab new`: a scenario to begin with.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use lab::scenario::error::nearest;
use lab::scenario::{Scenario, TEMPLATE, built_in};

use super::args::New;
use super::find::{stem, with_toml};
use crate::exit::{Failure, Outcome};
use crate::man::print;
use crate::names::show;

/// Writes the file, and the traces that it names beside it.
///
/// # Errors
/// 2 if there is no such scenario to copy, 6 if a file cannot be written or is there already.
pub(super) fn new(args: &New) -> Outcome {
    let path = with_toml(&args.file);
    let text = match &args.from {
        None => TEMPLATE,
        Some(name) => built_in::text(name).ok_or_else(|| unknown(name))?,
    };
    write(&path, text)?;
    if let Some(Ok(scenario)) = args.from.as_ref().and_then(|name| Scenario::built_in(name)) {
        for trace in scenario.link.values().filter_map(|link| link.trace.as_ref()) {
            let name = trace.path().trim_start_matches(built_in::PREFIX);
            let Some(text) = built_in::trace(name) else { continue };
            let beside = path.with_file_name(name);
            if fs::read(&beside).is_ok_and(|there| there == text.as_bytes()) {
                continue;
            }
            beside.parent().map(fs::create_dir_all).transpose().map_err(|e| failed(&beside, &e))?;
            write(&beside, text)?;
        }
    }
    let bare = path.parent().is_none_or(|dir| dir.as_os_str().is_empty());
    let name = if bare { stem(&path) } else { show(&path) };
    print(format!("{} is written; run it: anabranch lab run {name}\n", show(&path)).as_bytes())
}

fn write(path: &Path, text: &str) -> Outcome {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|e| failed(path, &e))
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::target(format!("{} exists already", show(path))),
        _ => Failure::target(format!("cannot write {}: {error}", show(path))),
    }
}

fn unknown(name: &str) -> Failure {
    let hint = nearest(name, built_in::names())
        .map_or_else(|| "; see `anabranch lab list`".into(), |near| format!(": did you mean {near}?"));
    Failure::usage(format!("this program has no scenario {}{hint}", show(name)))
}
