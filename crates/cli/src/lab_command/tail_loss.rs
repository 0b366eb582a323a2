//! Runs `anabranch lab tail-loss`: bursts whose end is lost. The crate `lab` has the study and its tables.

use anabranch_lab::sweep::pool;
use anabranch_lab::tail_loss::{self, Row, TAIL_LOSS_POLICIES, Task};
use serde::Serialize;

use super::args::TailLoss;
use super::output::{check_writable, save};
use super::workers::Workers;
use crate::exit::{Code, Failure, Outcome};
use crate::json;
use crate::names::show;
use crate::signals::stop_signals;
use crate::stdout::print;
use crate::view::note;

/// Runs the study and prints its table, and writes the page with its figure if one is wanted.
///
/// # Errors
/// 6 if a file cannot be written, 7 if a run does not count, 130 on Ctrl-C.
pub(super) fn tail_loss(args: &TailLoss) -> Outcome {
    let figure = args.report.as_ref().map(|path| path.with_extension("svg"));
    for path in args.report.iter().chain(&figure) {
        check_writable(path)?;
    }
    let (_wake, stop) = stop_signals()?;
    let workers = Workers { jobs: args.jobs.unwrap_or_else(pool::threads), stop, what: "bursts" };
    let results = workers.all(Task::grid(), Task::run)?;
    let rows = tail_loss::rows(&results).map_err(|what| Failure::new(Code::Unmet, what))?;
    if args.json {
        print(objects(&rows).as_bytes())?;
    } else {
        print(tail_loss::table(&rows).as_bytes())?;
    }
    let (Some(path), Some(figure)) = (&args.report, figure) else { return Ok(()) };
    save(path, &tail_loss::markdown(&rows))?;
    save(&figure, &tail_loss::figure(&rows))?;
    note(&format!("{} and {} are written", show(path), show(&figure)));
    Ok(())
}

/// Reports a burst with one policy, as a line of JSON.
#[derive(Serialize)]
struct BurstObject {
    policy: &'static str,
    primary_rtt_ms: u64,
    alternate_rtt_ms: u64,
    alternate: String,
    segments: u32,
    lost_segments: u32,
    probe_lost: bool,
    completion_ms: f64,
    sent_segments: u64,
}

fn objects(rows: &[Row]) -> String {
    let mut out = String::new();
    for Row { burst, completions } in rows {
        for (policy, completion) in TAIL_LOSS_POLICIES.iter().zip(completions) {
            let object = BurstObject {
                policy: policy.name,
                primary_rtt_ms: burst.rtts_ms.0,
                alternate_rtt_ms: burst.rtts_ms.1,
                alternate: burst.alternate.name(),
                segments: burst.segments,
                lost_segments: burst.lost.of(burst.segments),
                probe_lost: burst.probe_lost,
                completion_ms: completion.time.as_nanos() as f64 / 1e6,
                sent_segments: completion.segments,
            };
            out += &json::text("burst", &object);
        }
    }
    out
}
