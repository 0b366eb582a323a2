//! `anabranch soak`: random worlds by the thousand, two for each seed; see [`anabranch_lab::soak`] and
//! [`anabranch::get::soak`].

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_lab::soak::{Report, TWICE_EVERY, run, watch};
use anabranch_lab::sweep::caught;
use anabranch_net::Clock;
use clap::Args;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde::Serialize;

use crate::exit::{Code, Failure, Outcome};
use crate::signals::stop_signals;
use crate::stdout;
use crate::view::{Lines, bytes, duration};

/// The time between two checks of the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// A seed that takes longer than this hangs. Most take some milliseconds.
const HANGS_AFTER: Span = Span::from_secs(300);
/// The most threads.
const JOBS_MAX: u64 = 1_024;

/// Try random worlds by the thousand, and see that what must hold does
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Try random worlds and see that what must hold does.\n\n\
        Each seed decides two worlds, in virtual time. The first: links, sources and liars, flows, \
        controllers, cross traffic, and what fails when. Content must arrive intact, windows stay within \
        their bounds, packets be conserved, timers not storm, queues stay bounded; and who has a path that \
        works must get on. The second: a whole `get` from mirrors and sources, some of them faulty or liars, \
        over links that come and go, stopped, killed and resumed. What has its name must be right, and in \
        fair weather the file must arrive. Every 16th seed runs twice and must do the same again. A seed \
        that fails is printed with the command that replays it.",
    after_help = "Examples:\n  \
        anabranch soak --seeds 1..100000\n  \
        anabranch soak --seeds 17..17 -v"
)]
pub struct Soak {
    /// Seeds: 1..30, or 30 for the same; 7..7 is seed 7 alone
    #[arg(long, value_name = "A..B|N", default_value = "1..1000", value_parser = seeds)]
    pub seeds: RangeInclusive<u64>,

    /// Seeds at a time. Without this option: as many as there are processors. What comes out does not depend
    /// on it
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX))]
    pub jobs: Option<u64>,

    /// Report on standard output as JSON, one object a line: failures, then a summary
    #[arg(long)]
    pub json: bool,

    /// Say of each seed what world it was, what it was made of and what happened last
    #[arg(short, long)]
    pub verbose: bool,
}

/// Parses a range of seeds, without a limit of their number.
fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    anabranch_lab::sweep::seeds(text, u64::MAX)
}

/// The state that the threads share.
struct Shared {
    next: AtomicU64,
    last: u64,
    verbose: bool,
    stop: Arc<AtomicBool>,
    clock: Clock,
    /// The seeds that are running, with their start times.
    running: Mutex<BTreeMap<u64, Time>>,
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, BTreeMap<u64, Time>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs seeds until there are no more, or a signal says to stop.
    fn work(&self, reports: &Sender<Report>) {
        while !self.stop.load(Ordering::Relaxed) {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed > self.last {
                return;
            }
            self.running().insert(seed, self.clock.now());
            let mut report = if self.verbose { watch(seed) } else { run(seed) };
            get_whole_files(&mut report);
            self.running().remove(&seed);
            if reports.send(report).is_err() {
                return;
            }
        }
    }
}

/// Runs the seed's world of whole transfers as well, and adds its result to the report.
fn get_whole_files(report: &mut Report) {
    let once = || caught(|| anabranch::get::soak::run(report.seed));
    let first = once();
    if report.seed.is_multiple_of(TWICE_EVERY) && once() != first {
        report.violations.push("two runs of the same get differ".to_owned());
    }
    match first {
        Ok(run) => {
            report.virtual_time = report.virtual_time + run.virtual_time;
            report.description = format!("{}\n  {}", report.description, run.description);
        }
        Err(text) => report.violations.push(format!("get: {text}")),
    }
}

/// The summary of a run.
#[derive(Debug, Default, Serialize)]
struct Summary {
    event: &'static str,
    first: u64,
    last: u64,
    /// The number of seeds that have run.
    seeds: u64,
    failed: u64,
    /// Whether the run was stopped before the last seed.
    stopped: bool,
    elapsed_s: f64,
    cpu_s: f64,
    virtual_s: f64,
    packets: u64,
    /// The most memory that was in use, in bytes.
    peak_bytes: u64,
}

/// Runs random worlds for all seeds of `args`.
///
/// # Errors
/// If a seed fails, or on Ctrl-C.
pub fn soak(args: &Soak) -> Outcome {
    let (_, stop) = stop_signals()?;
    if !args.verbose {
        // A panic is a failure of its seed; a run of that seed with `-v` shows where it was.
        std::panic::set_hook(Box::new(|_| {}));
    }
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let (reports, from) = channel();
    let shared = Arc::new(Shared {
        next: AtomicU64::new(*args.seeds.start()),
        last: *args.seeds.end(),
        verbose: args.verbose,
        stop,
        clock: Clock::start(),
        running: Mutex::default(),
    });
    for _ in 0..args.jobs.unwrap_or(cores) {
        let (shared, reports) = (Arc::clone(&shared), reports.clone());
        std::thread::spawn(move || shared.work(&reports));
    }
    drop(reports);
    let summary = collect(args, &shared, &from);
    emit(args.json, &summary, || describe(&summary));
    if summary.failed > 0 {
        let Summary { failed, seeds, .. } = summary;
        return Err(Failure::other(format!("{failed} of {seeds} seeds failed")));
    }
    if summary.stopped {
        let next = summary.first + summary.seeds;
        let rest = format!("go on with: anabranch soak --seeds {next}..{}", summary.last);
        return Err(Failure::new(
            Code::Interrupted,
            format!("stopped after {} seeds; {rest}", summary.seeds),
        ));
    }
    Ok(())
}

/// Collects the reports of the threads until there are no more, or all remaining seeds hang.
fn collect(args: &Soak, shared: &Shared, reports: &Receiver<Report>) -> Summary {
    let (first, last) = (*args.seeds.start(), *args.seeds.end());
    let mut summary = Summary { event: "summary", first, last, ..Summary::default() };
    let (mut lines, mut hanging) = (Lines::default(), Vec::new());
    loop {
        match reports.recv_timeout(POLL_INTERVAL) {
            Ok(report) => {
                summary.seeds += 1;
                summary.failed += u64::from(!report.violations.is_empty() && !hanging.contains(&report.seed));
                summary.virtual_s += report.virtual_time.as_nanos() as f64 / 1e9;
                summary.packets += report.packets;
                if args.verbose || !report.violations.is_empty() {
                    lines.draw(&[]);
                    print(args.json, &report);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let now = shared.clock.now();
        let running = shared.running().clone();
        for (seed, _) in running.iter().filter(|(_, since)| now.since(**since) > HANGS_AFTER) {
            if !hanging.contains(seed) {
                hanging.push(*seed);
                summary.failed += 1;
                let what = format!("has not ended in {} s", HANGS_AFTER.as_millis() / 1_000);
                emit(args.json, &SeedReport::new(*seed, "", "", std::slice::from_ref(&what)), || {
                    format!("seed {seed} FAILED\n  {what}\n  replay: {}", replay(*seed))
                });
            }
        }
        let over = shared.next.load(Ordering::Relaxed) > last || shared.stop.load(Ordering::Relaxed);
        if over && !hanging.is_empty() && running.keys().all(|seed| hanging.contains(seed)) {
            break;
        }
        lines.draw(&[progress(&summary, now)]);
    }
    lines.draw(&[]);
    summary.stopped = summary.seeds <= last - first;
    summary.elapsed_s = shared.clock.now().as_nanos() as f64 / 1e9;
    (summary.cpu_s, summary.peak_bytes) = resource_usage();
    summary
}

fn progress(summary: &Summary, now: Time) -> String {
    let (all, done, elapsed) = (summary.last - summary.first + 1, summary.seeds, now.as_nanos() as f64 / 1e9);
    let rate = done as f64 / elapsed;
    let left = duration((all - done.min(all)) as f64 / rate);
    format!("{done} of {all} seeds, {} failed, {rate:.0} a second, {left} left", summary.failed)
}

/// Returns the CPU seconds of this process, and the most memory that it used, in bytes.
fn resource_usage() -> (f64, u64) {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return (0.0, 0) };
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    (seconds(usage.user_time()) + seconds(usage.system_time()), usage.max_rss() as u64 * 1_024)
}

/// Returns the command that runs a seed again.
fn replay(seed: u64) -> String {
    format!("anabranch soak --seeds {seed}..{seed} -v")
}

/// The result of a seed that failed, or of any seed with `-v`, as a line of JSON.
#[derive(Debug, Serialize)]
struct SeedReport<'a> {
    event: &'static str,
    seed: u64,
    kind: &'a str,
    description: &'a str,
    failures: &'a [String],
    replay: String,
}

impl<'a> SeedReport<'a> {
    fn new(seed: u64, kind: &'a str, description: &'a str, failures: &'a [String]) -> Self {
        let event = if failures.is_empty() { "seed" } else { "failure" };
        Self { event, seed, kind, description, failures, replay: replay(seed) }
    }
}

fn print(json: bool, report: &Report) {
    let Report { seed, kind, description, violations, .. } = report;
    emit(json, &SeedReport::new(*seed, kind.name(), description, violations), || text(report));
}

/// Writes the result of a seed for people: its log, its world, and its end.
fn text(report: &Report) -> String {
    let Report { seed, kind, description, violations, digest, log, .. } = report;
    let mut text: Vec<String> = log.clone();
    let end = if violations.is_empty() { "is well" } else { "FAILED" };
    text.push(format!("seed {seed} {end}: {}, digest {digest:016x}", kind.name()));
    text.push(format!("  {description}"));
    text.extend(violations.iter().map(|what| format!("  failed: {what}")));
    if !violations.is_empty() {
        text.push(format!("  replay: {}", replay(*seed)));
    }
    text.join("\n")
}

fn describe(summary: &Summary) -> String {
    let Summary { seeds, failed, cpu_s, elapsed_s, virtual_s, packets, peak_bytes, .. } = summary;
    format!(
        "{seeds} seeds, {failed} failed; {cpu_s:.0} s of CPU in {}, {:.0} h of virtual time, {:.1} million \
         packets, at most {} of memory",
        duration(*elapsed_s),
        virtual_s / 3_600.0,
        *packets as f64 / 1e6,
        bytes(*peak_bytes),
    )
}

/// Prints a line on standard output: an object or a text.
fn emit(json: bool, object: &impl Serialize, text: impl FnOnce() -> String) {
    stdout::line(if json { serde_json::to_string(object).unwrap_or_default() } else { text() });
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_lab::soak::SoakKind;

    #[test]
    fn a_failure_tells_how_to_replay_it() {
        let report = Report {
            seed: 17,
            kind: SoakKind::PacketFlows,
            description: "a world".into(),
            violations: vec!["it broke".into()],
            digest: 1,
            virtual_time: Span::ZERO,
            packets: 0,
            log: vec!["the last thing".into()],
        };
        let text = text(&report);
        assert!(text.contains("replay: anabranch soak --seeds 17..17 -v") && text.contains("it broke"));
        assert!(text.starts_with("the last thing"));
        let json = SeedReport::new(17, "crowd", "a world", &report.violations);
        let json = serde_json::to_string(&json).expect("JSON");
        assert!(json.contains(r#""event":"failure","seed":17"#), "{json}");
    }

    #[test]
    fn how_far_it_has_come() {
        let summary = Summary { first: 1, last: 100, seeds: 50, ..Summary::default() };
        let line = progress(&summary, Time::ZERO + Span::from_secs(10));
        assert_eq!(line, "50 of 100 seeds, 0 failed, 5 a second, 10 s left");
    }
}
