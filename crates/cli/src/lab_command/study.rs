//! Runs a study that has a table, a page and a figure: its runs on all cores, and what is shown of them.

use anabranch_lab::sweep::pool;

use super::args::StudyArgs;
use super::output::{check_writable, save};
use super::workers::Workers;
use crate::exit::{Code, Failure, Outcome};
use crate::names::show;
use crate::signals::stop_signals;
use crate::stdout::print;
use crate::view::note;

/// The results of a study in every form.
pub(super) struct Shown {
    /// Lines of JSON.
    pub(super) objects: String,
    /// The table for a terminal.
    pub(super) table: String,
    /// The page in Markdown, which names the figure.
    pub(super) page: String,
    /// The figure in SVG.
    pub(super) figure: String,
}

/// Works on all tasks, which are called `what` in messages, and prints the results, and writes the page with
/// its figure if one is wanted.
///
/// # Errors
/// 6 if a file cannot be written, 7 if a run does not count, 130 on Ctrl-C.
pub(super) fn run<J, R>(
    args: &StudyArgs,
    what: &'static str,
    tasks: Vec<J>,
    work: impl Fn(&J) -> R + Send + Sync + 'static,
    shown: impl FnOnce(&[R]) -> Result<Shown, String>,
) -> Outcome
where
    J: Send + Sync + 'static,
    R: Send + 'static,
{
    let figure = args.report.as_ref().map(|path| path.with_extension("svg"));
    for path in args.report.iter().chain(&figure) {
        check_writable(path)?;
    }
    let (_wake, stop) = stop_signals()?;
    let workers = Workers { jobs: args.jobs.unwrap_or_else(pool::threads), stop, what };
    let results = workers.all(tasks, work)?;
    let shown = shown(&results).map_err(|what| Failure::new(Code::Unmet, what))?;
    print(if args.json { &shown.objects } else { &shown.table }.as_bytes())?;
    let (Some(path), Some(figure)) = (&args.report, figure) else { return Ok(()) };
    save(path, &shown.page)?;
    save(&figure, &shown.figure)?;
    note(&format!("{} and {} are written", show(path), show(&figure)));
    Ok(())
}
