//! `anabranch demo`: all of it without a network, and without root.
//!
//! Three sources behind links of different rate and delay, simulated, and a real receiver: the machines, the
//! loss recovery, the congestion control and the hashing are those of `get` and `serve`. What is shown live
//! runs by the real clock; the rows it is compared with run in virtual time, which gives the same result at
//! once.

use anabranch_algo::control::{ALGORITHMS, Algorithm};
use anabranch_algo::{Rate, Span, Time};
use anabranch_lab::simulation::{ReceiverId, SimSourceId};
use anabranch_lab::{Content, Fault, Misbehaviour, PathSpec, Simulation};
use anabranch_mmtp::subscriber;
use anabranch_net::Clock;
use anabranch_sim::LinkConfig;
use serde::Serialize;

use anabranch::{PathProgress, PathState, Progress};

use crate::args::Demo;
use crate::exit::{Failure, Outcome};
use crate::json;
use crate::stdout;
use crate::view::{Mode, View, bytes, rate};

/// The sources: name, rate of the link in Mbit/s, one-way delay in ms.
const SOURCES: [(&str, u64, u64); 3] = [("london", 40, 10), ("athens", 25, 20), ("tokyo", 10, 40)];
/// Which of them dies: the fastest.
const DIES: SimSourceId = 0;
/// At which part of the transfer it dies and returns, in percent.
const DIES_AT: u64 = 20;
const RETURNS_AT: u64 = 60;
/// How often a transfer in virtual time is looked at.
const POLL_INTERVAL: Span = Span::from_millis(10);
/// No transfer of the demo takes longer.
const LIMIT: Time = Time::from_nanos(3_600_000_000_000);

/// One row of the table.
#[derive(Debug, Serialize)]
struct Row {
    transfer: String,
    seconds: f64,
    rate_bytes: u64,
    /// Compared with the fastest source alone.
    gain_percent: f64,
    /// Share of each source, in percent.
    share_percent: [f64; 3],
    timeouts: u64,
    /// All bytes arrived and are the content's.
    verified: bool,
}

/// A transfer: the simulation, and what its script has done so far.
struct DemoRun {
    simulation: Simulation,
    receiver: ReceiverId,
    want: usize,
    paths: Vec<SimSourceId>,
    failure: bool,
    faults_injected: usize,
}

/// Runs the demonstration.
///
/// # Errors
/// If the file did not arrive whole, or on Ctrl-C.
pub fn demo(args: &Demo) -> Outcome {
    json::end(args.json, show(args))
}

fn show(args: &Demo) -> Outcome {
    let length = usize::try_from(args.size * 1_000_000).map_err(|_| Failure::usage("too large"))?;
    let content = Content::random(args.seed, length);
    let mode = Mode::of(args.json, false);
    let mut view = View::new(mode);
    let mut rows = Vec::new();
    for (index, (name, mbit, delay_ms)) in SOURCES.iter().enumerate() {
        let label = format!("{name} ({mbit} Mbit/s, {} ms)", 2 * delay_ms);
        rows.push(DemoRun::new(args.seed, &content, &[index], false).run_virtual(label));
    }
    rows.push(DemoRun::new(args.seed, &content, &[0, 1, 2], false).run_virtual("all together".into()));
    view.note(&format!(
        "{} from three simulated sources; {} dies at {DIES_AT} % and returns at {RETURNS_AT} %",
        bytes(content.id().length),
        SOURCES[DIES].0
    ));
    rows.push(DemoRun::new(args.seed, &content, &[0, 1, 2], true).run_live(
        &mut view,
        mode,
        "all, one dies and returns".into(),
    ));
    view.clear();
    let best = rows.iter().take(SOURCES.len()).map(|row| row.rate_bytes).max().unwrap_or(1).max(1);
    for row in &mut rows {
        row.gain_percent = (row.rate_bytes as f64 / best as f64 - 1.0) * 100.0;
    }
    print(args.json, &rows)?;
    if rows.iter().all(|row| row.verified) {
        return Ok(());
    }
    Err(Failure::other("a transfer did not arrive whole: this is a bug, please report it with the seed"))
}

impl DemoRun {
    /// A receiver of `content`, and a path to each of these sources.
    fn new(seed: u64, content: &Content, paths: &[SimSourceId], failure: bool) -> Self {
        let mut simulation = Simulation::new(seed);
        let receiver = simulation.receiver(Span::ZERO);
        for (name, mbit, delay_ms) in SOURCES {
            let (speed, delay) = (Rate::from_bits(mbit * 1_000_000), Span::from_millis(delay_ms));
            // A queue of twice the bandwidth-delay product, as home routers have or more.
            let queue = 2 * speed.bytes_in(delay.times(2));
            let down =
                simulation.link(&format!("{name} down"), LinkConfig::new(speed, delay).queue_bytes(queue));
            let up = simulation.link(&format!("{name} up"), LinkConfig::new(speed, delay).queue_bytes(queue));
            let source = simulation.source(std::slice::from_ref(content), Misbehaviour::Honest);
            if paths.contains(&source) {
                let control = Algorithm::by_name(ALGORITHMS[0].name).expect("the table has it");
                let mut spec = PathSpec::new(&[down], &[up], control);
                // The three links share nothing.
                spec.group = source as u32;
                simulation.path(receiver, source, &spec);
            }
        }
        let want = simulation.want(receiver, content, Time::ZERO);
        Self { simulation, receiver, want, paths: paths.to_vec(), failure, faults_injected: 0 }
    }

    /// Kills and restarts the source when their time has come.
    fn inject_faults(&mut self) {
        if !self.failure {
            return;
        }
        let progress = self.simulation.progress(self.receiver, self.want);
        let percent = progress.verified_bytes * 100 / progress.content.id().length.max(1);
        let now = self.simulation.clock();
        if self.faults_injected == 0 && percent >= DIES_AT {
            self.simulation.at(now, Fault::Kill { source: DIES, unreachable: false });
            self.faults_injected = 1;
        } else if self.faults_injected == 1 && percent >= RETURNS_AT {
            self.simulation.at(now, Fault::Restart { source: DIES });
            self.faults_injected = 2;
        }
    }

    /// At once, in virtual time.
    fn run_virtual(mut self, label: String) -> Row {
        while !self.simulation.is_done() && self.simulation.clock() < LIMIT {
            let next = self.simulation.clock() + POLL_INTERVAL;
            self.simulation.run_until(next);
            self.inject_faults();
        }
        self.row(label)
    }

    /// By the real clock, with a live view.
    fn run_live(mut self, view: &mut View, mode: Mode, label: String) -> Row {
        let clock = Clock::start();
        let every = mode.interval().map_or(Span::MAX, |every| Span::from_millis(every.as_millis() as u64));
        let mut due = clock.now();
        while !self.simulation.is_done() && self.simulation.clock() < LIMIT {
            let now = clock.now();
            let next = self.simulation.step(now);
            self.inject_faults();
            if now >= due {
                due = now + every;
                view.show(&self.snapshot(now));
            }
            clock.sleep_until(next.min(now + POLL_INTERVAL));
        }
        self.row(label)
    }

    fn snapshot(&self, now: Time) -> Progress {
        let progress = self.simulation.progress(self.receiver, self.want);
        let reports = self.simulation.paths(self.receiver);
        let all: u64 = reports.iter().map(|r| r.counters.bytes).sum();
        let seconds = self.simulation.payload_per_second(self.receiver);
        let row = |(index, source): (usize, &SimSourceId)| {
            let report = reports[index];
            let counters = report.counters;
            // The last whole second, or the mean while there is none.
            let whole = seconds.get(index).and_then(|s| s.iter().rev().nth(1)).copied();
            let last = whole.unwrap_or_else(|| Rate::of(counters.bytes, now.since(Time::ZERO)).as_bytes());
            PathProgress {
                source: SOURCES[*source].0.into(),
                via: "simulated".into(),
                state: match report.state {
                    subscriber::PathState::Opening => PathState::NoAnswerYet,
                    subscriber::PathState::Open => PathState::Open,
                    subscriber::PathState::Unresponsive => PathState::Silent,
                    subscriber::PathState::Down | subscriber::PathState::Closed => PathState::Closed,
                },
                rate_bytes: if report.state == subscriber::PathState::Open { last } else { 0 },
                share_percent: counters.bytes as f64 * 100.0 / all.max(1) as f64,
                srtt_us: report.srtt.as_micros(),
                cwnd: report.cwnd,
                loss_percent: counters.lost.saturating_sub(counters.late) as f64 * 100.0
                    / (counters.packets + counters.lost).max(1) as f64,
                bytes: counters.bytes,
                cached_percent: 0.0,
                timeouts: counters.timeouts,
                group: report.group,
            }
        };
        Progress {
            total_bytes: progress.content.id().length,
            done_bytes: progress.verified_bytes,
            resumed_bytes: 0,
            elapsed_s: now.as_nanos() as f64 / 1e9,
            paths: self.paths.iter().enumerate().map(row).collect(),
            note: (self.faults_injected == 1).then(|| format!("{} is dead", SOURCES[DIES].0)),
        }
    }

    fn row(self, transfer: String) -> Row {
        let progress = self.simulation.progress(self.receiver, self.want);
        let took = progress.complete.unwrap_or(LIMIT).since(progress.since.unwrap_or(Time::ZERO));
        let reports = self.simulation.paths(self.receiver);
        let all: u64 = reports.iter().map(|r| r.counters.bytes).sum();
        let mut share_percent = [0.0; 3];
        for (report, source) in reports.iter().zip(&self.paths) {
            share_percent[*source] = report.counters.bytes as f64 * 100.0 / all.max(1) as f64;
        }
        Row {
            transfer,
            seconds: took.as_nanos() as f64 / 1e9,
            rate_bytes: Rate::of(progress.content.id().length, took).as_bytes(),
            gain_percent: 0.0,
            share_percent,
            timeouts: reports.iter().map(|r| r.counters.timeouts).sum(),
            verified: progress.complete.is_some() && progress.is_identical(),
        }
    }
}

fn print(json: bool, rows: &[Row]) -> Outcome {
    let mut lines = Vec::new();
    if json {
        for row in rows {
            lines.push(json::text("row", row).trim_end().to_owned());
        }
    } else {
        let [a, b, c] = SOURCES.map(|s| s.0);
        lines.push(format!(
            "{:<25}{:>7}{:>12}{:>7}{a:>8}{b:>7}{c:>6}  file",
            "transfer", "time", "rate", "gain"
        ));
        for row in rows {
            let [a, b, c] = row.share_percent.map(|share| format!("{share:.0} %"));
            lines.push(format!(
                "{:<25}{:>7}{:>12}{:>5.0} %{a:>8}{b:>7}{c:>6}  {}",
                row.transfer,
                format!("{:.1} s", row.seconds),
                rate(row.rate_bytes),
                row.gain_percent,
                if row.verified { "whole" } else { "NOT WHOLE" },
            ));
        }
        lines.push(String::new());
        lines.push("Gain: over the fastest source alone. Whole: every byte verified and identical.".into());
        lines.push("The last row ran by the real clock, the others in virtual time: the same".into());
        lines.push("machines, at once. Next: anabranch serve FILE, anabranch get 'URI'.".into());
    }
    stdout::print(lines.join("\n") + "\n")
}
