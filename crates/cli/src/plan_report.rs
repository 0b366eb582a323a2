//! Shows what is changed of the kernel's uplinks, for `anabranch kernel setup`, `teardown` and `uplinks`.

use anabranch_kernel::uplinks::{Error, Plan};
use serde::Serialize;

use crate::exit::Failure;
use crate::stdout;
use crate::view::{note, say};

/// Converts an error of the library to one with an exit status.
pub(crate) fn refused(error: Error) -> Failure {
    match error {
        Error::Usage(text) => Failure::usage(text),
        other => Failure::other(other.to_string()),
    }
}

#[derive(Serialize)]
struct Report<'a> {
    /// Whether the changes were made; if not, they are only planned.
    done: bool,
    changes: Vec<String>,
    notes: &'a [String],
}

/// Prints the changes on standard output, and the notes on standard error. With `dry_run`, nothing was
/// changed.
pub(crate) fn report(plan: &Plan, dry_run: bool, json: bool) {
    let changes = plan.describe();
    if json {
        let report = Report { done: !dry_run, changes, notes: plan.notes() };
        return stdout::line(serde_json::to_string(&report).unwrap_or_default());
    }
    plan.notes().iter().for_each(|text| note(text));
    if changes.is_empty() {
        say("nothing to change");
    }
    changes.iter().for_each(stdout::line);
}
