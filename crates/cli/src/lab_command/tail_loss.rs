//! Runs `anabranch lab tail-loss`: bursts whose end is lost. The crate `lab` has the study and its tables.

use anabranch_lab::tail_loss::{self, Row, TAIL_LOSS_POLICIES, Task};
use serde::Serialize;

use super::args::StudyArgs;
use super::study::{self, Shown};
use crate::exit::Outcome;
use crate::json;

/// Runs the study, as [`study::run`] does.
///
/// # Errors
/// Those of [`study::run`].
pub(super) fn tail_loss(args: &StudyArgs) -> Outcome {
    study::run(args, "bursts", Task::grid(), Task::run, |results| {
        let rows = tail_loss::rows(results)?;
        Ok(Shown {
            objects: objects(&rows),
            table: tail_loss::table(&rows),
            page: tail_loss::markdown(&rows),
            figure: tail_loss::figure(&rows),
        })
    })
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
    no_loss_ms: f64,
    sent_segments: u64,
}

fn objects(rows: &[Row]) -> String {
    let mut out = String::new();
    for Row { burst, completions, whole } in rows {
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
                no_loss_ms: whole.time.as_nanos() as f64 / 1e6,
                sent_segments: completion.segments,
            };
            out += &json::text("burst", &object);
        }
    }
    out
}
