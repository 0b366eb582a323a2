//! Runs `anabranch lab latency`: the latency of messages over two paths. The crate `lab` has the study and
//! its tables.

use anabranch_lab::latency::{self, Row, Task};
use anabranch_lab::sweep::pool;
use serde::Serialize;

use super::args::Latency;
use super::output::{check_writable, save};
use super::workers::Workers;
use crate::exit::{Code, Failure, Outcome};
use crate::json;
use crate::names::show;
use crate::signals::stop_signals;
use crate::stdout::print;
use crate::view::note;

/// Runs the study and prints its tables, and writes the page with its figure if one is wanted.
///
/// # Errors
/// 6 if a file cannot be written, 7 if a run does not count, 130 on Ctrl-C.
pub(super) fn latency(args: &Latency) -> Outcome {
    let figure = args.report.as_ref().map(|path| path.with_extension("svg"));
    for path in args.report.iter().chain(&figure) {
        check_writable(path)?;
    }
    let (_wake, stop) = stop_signals()?;
    let workers = Workers { jobs: args.jobs.unwrap_or_else(pool::threads), stop, what: "runs" };
    let tasks = Task::each(args.seeds);
    let results = workers.all(tasks.clone(), Task::run)?;
    let rows = latency::rows(&tasks, &results).map_err(|what| Failure::new(Code::Unmet, what))?;
    if args.json {
        print(objects(&rows).as_bytes())?;
    } else {
        print(latency::table(&rows).as_bytes())?;
    }
    let (Some(path), Some(figure)) = (&args.report, figure) else { return Ok(()) };
    save(path, &latency::markdown(&rows, args.seeds))?;
    save(&figure, &latency::figure(&rows))?;
    note(&format!("{} and {} are written", show(path), show(&figure)));
    Ok(())
}

/// Reports a stream with one transport, as a line of JSON.
#[derive(Serialize)]
struct StreamObject {
    bed: String,
    stream: &'static str,
    transport: String,
    messages: usize,
    mean_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    missed_percent: f64,
}

fn objects(rows: &[Row]) -> String {
    let object = |row: &Row| StreamObject {
        bed: row.bed.name(),
        stream: row.stream,
        transport: row.transport.name(),
        messages: row.latencies_ms.len(),
        mean_ms: row.mean_ms(),
        p95_ms: row.percentile_ms(95.0),
        p99_ms: row.percentile_ms(99.0),
        missed_percent: row.missed_percent(),
    };
    rows.iter().map(|row| json::text("stream", &object(row))).collect()
}
