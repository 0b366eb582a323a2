//! Runs `anabranch op fn storm`.

use std::sync::atomic::Ordering;

use anabranch_algo::Span;
use anabranch_operator::agent::open_records;
use anabranch_operator::storm::{self, Outcome as Shown, Start};
use anabranch_operator::wasm::Settings;
use serde::Serialize;

use super::args::Storm;
use super::failure::failure;
use super::functions::module;
use crate::exit::{Code, Failure, Outcome};
use crate::signals::stop_signals;
use crate::view::note;
use crate::{json, stdout};

/// The result of a storm; times in microseconds.
#[derive(Serialize)]
struct StormLine<'a> {
    function: &'a str,
    started: usize,
    /// From the beginning until the answer to the first ping.
    first_us: u64,
    last_us: u64,
    median_us: u64,
    p99_us: u64,
    /// How many answered once more when all were there, and how long one took.
    answered_again: usize,
    ping_us: u64,
    memory_bytes_each: u64,
    /// The mean parts of the last hundred starts.
    compile_us: f64,
    instantiate_us: f64,
    configure_us: f64,
    record_us: f64,
    attach_us: f64,
    answer_us: f64,
}

fn mean(starts: &[Start], part: impl Fn(&Start) -> Span) -> f64 {
    let sum: u64 = starts.iter().map(|start| part(start).as_nanos()).sum();
    sum as f64 / 1_000.0 / starts.len().max(1) as f64
}

/// Starts many instances.
pub(super) fn storm(args: &Storm) -> Outcome {
    let (_wake, stop) = stop_signals()?;
    let storm = storm::Storm {
        count: args.count,
        function: args.function.clone(),
        module: module(&args.function)?,
        settings: args.set.clone(),
        wasm: Settings {
            instances_max: args.count,
            has_pool: !args.no_pool,
            copies_on_write: !args.no_copy_on_write,
            shares_code: !args.no_shared_code,
        },
    };
    let dir = tempfile::tempdir().map_err(|e| Failure::target(format!("no temporary directory: {e}")))?;
    let records = open_records(dir.path(), args.store.into()).map_err(failure)?;
    let report = |count: usize| {
        if !args.json {
            note(&format!("{count} of {} run", args.count));
        }
    };
    let shown = storm::run(&storm, records, &stop, report).map_err(failure)?;
    tell(args, &shown);
    match stop.load(Ordering::SeqCst) {
        true => Err(Failure::new(Code::Interrupted, "interrupted: this is what ran until then")),
        false => Ok(()),
    }
}

fn tell(args: &Storm, shown: &Shown) {
    let starts = &shown.starts;
    let (Some(first), Some(last)) = (starts.first(), starts.last()) else { return };
    let tail = &starts[starts.len().saturating_sub(100)..];
    let line = StormLine {
        function: &args.function,
        started: starts.len(),
        first_us: first.answered.as_micros(),
        last_us: last.answered.as_micros(),
        median_us: shown.answered_within(500).as_micros(),
        p99_us: shown.answered_within(990).as_micros(),
        answered_again: shown.answered_again,
        ping_us: shown.again.as_micros() / starts.len() as u64,
        memory_bytes_each: shown.memory_each,
        compile_us: mean(tail, |start| start.costs.compile),
        instantiate_us: mean(tail, |start| start.costs.instantiate),
        configure_us: mean(tail, |start| start.costs.configure),
        record_us: mean(tail, |start| start.costs.record),
        attach_us: mean(tail, |start| start.costs.attach),
        answer_us: mean(tail, |start| {
            Span::from_nanos(start.answered.as_nanos().saturating_sub(start.ready.as_nanos()))
        }),
    };
    if args.json {
        return json::put("storm", &line);
    }
    let ms = |us: u64| us as f64 / 1_000.0;
    let lines = [
        format!("{} instances of {} run; {} answer", line.started, line.function, line.answered_again),
        format!(
            "start to first answer: first {:.3} ms, last {:.3} ms, median {:.3} ms, 99 % within {:.3} ms",
            ms(line.first_us),
            ms(line.last_us),
            ms(line.median_us),
            ms(line.p99_us)
        ),
        format!(
            "memory of each: {:.1} KB; a ping: {:.3} ms",
            line.memory_bytes_each as f64 / 1e3,
            ms(line.ping_us)
        ),
        format!(
            "of the last hundred, in µs: compile {:.0}, instantiate {:.0}, configure {:.0}, record {:.0}, \
             attach {:.0}, answer {:.0}",
            line.compile_us,
            line.instantiate_us,
            line.configure_us,
            line.record_us,
            line.attach_us,
            line.answer_us
        ),
    ];
    lines.iter().for_each(stdout::line);
}
