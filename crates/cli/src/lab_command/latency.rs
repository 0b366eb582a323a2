//! Runs `anabranch lab latency`: the latency of messages over two paths. The crate `lab` has the study and
//! its tables.

use anabranch_lab::latency::{self, Row, Task};
use serde::Serialize;

use super::args::Latency;
use super::study::{self, Shown};
use crate::exit::Outcome;
use crate::json;

/// Runs the study, as [`study::run`] does.
///
/// # Errors
/// Those of [`study::run`].
pub(super) fn latency(args: &Latency) -> Outcome {
    let tasks = Task::each(args.seeds);
    study::run(&args.study, "runs", tasks.clone(), Task::run, |results| {
        let rows = latency::rows(&tasks, results)?;
        Ok(Shown {
            objects: objects(&rows),
            table: latency::table(&rows),
            page: latency::markdown(&rows, args.seeds),
            figure: latency::figure(&rows),
        })
    })
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
