//! `anabranch lab new`: writes a scenario to begin with.

use std::fs;

use anabranch_lab::hint::nearest;
use anabranch_lab::scenario::{Scenario, TEMPLATE, built_in};

use super::args::New;
use crate::exit::{Failure, Outcome};
use crate::names::show;
use crate::new_file::{create, failed};
use crate::stdout::print;
use crate::toml_name::{stem, with_toml};

/// Writes the scenario's file, and the traces that it names beside it.
///
/// # Errors
/// 2 if there is no such scenario to copy, 6 if a file cannot be written or exists already.
pub(super) fn new(args: &New) -> Outcome {
    let path = with_toml(&args.file);
    let text = match &args.from {
        None => TEMPLATE,
        Some(name) => built_in::text(name).ok_or_else(|| unknown(name))?,
    };
    create(&path, text)?;
    if let Some(Ok(scenario)) = args.from.as_ref().and_then(|name| Scenario::built_in(name)) {
        for trace in scenario.link.values().filter_map(|link| link.trace.as_ref()) {
            let name = trace.path().trim_start_matches(built_in::PREFIX);
            let Some(text) = built_in::trace(name) else { continue };
            let beside = path.with_file_name(name);
            if fs::read(&beside).is_ok_and(|there| there == text.as_bytes()) {
                continue;
            }
            beside.parent().map(fs::create_dir_all).transpose().map_err(|e| failed(&beside, &e))?;
            create(&beside, text)?;
        }
    }
    let bare = path.parent().is_none_or(|dir| dir.as_os_str().is_empty());
    let name = if bare { stem(&path) } else { show(&path) };
    print(format!("{} is written; run it: anabranch lab run {name}\n", show(&path)).as_bytes())
}

fn unknown(name: &str) -> Failure {
    let hint = nearest(name, built_in::names())
        .map_or_else(|| "; see `anabranch lab list`".into(), |near| format!(": did you mean {near}?"));
    Failure::usage(format!("this program has no scenario {}{hint}", show(name)))
}
