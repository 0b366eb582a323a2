//! Runs `anabranch vm predict`, `move` and `recover`.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anabranch_algo::Span;
use anabranch_machines::model::Prediction;
use anabranch_machines::mover::{self, Event, Options, Program, Progress, Report};
use anabranch_machines::outlook::{Forecast, Outlook};
use anabranch_machines::paths::Path;
use anabranch_machines::settle::{self, Settled};
use anabranch_machines::store::Store;
use anabranch_net::Clock;
use serde::Serialize;

use super::args::{Move, Named, Predict, Way};
use super::failure::failure;
use crate::exit::{Failure, Outcome};
use crate::signals::stop_signals;
use crate::view::{Lines, Mode, bytes, note, rate, say};
use crate::{json, stdout};

/// How long a recovery asks the destination.
const PATIENCE: Span = Span::from_secs(30);

/// A text, as a line of JSON.
#[derive(Serialize)]
struct NoteLine<'a> {
    what: &'a str,
    text: Option<&'a str>,
}

#[derive(Serialize)]
struct PathsLine<'a> {
    paths: &'a [Path],
}

/// A finished move, as a line of JSON.
#[derive(Serialize)]
struct MovedLine<'a> {
    name: &'a str,
    to: &'a str,
    #[serde(flatten)]
    report: &'a Report,
}

#[derive(Serialize)]
struct SettledLine<'a> {
    name: &'a str,
    /// `here`, `there`, `lost` or `nothing`.
    runs: &'a str,
}

fn options(way: &Way) -> Options {
    Options {
        to: way.to.clone(),
        via: way.via.clone(),
        pause_max: way.max_pause,
        auto_converge: false,
        post_copy: false,
        anyway: false,
        predicts: true,
    }
}

/// Measures and predicts.
pub(super) fn predict(store: &Store, args: &Predict) -> Outcome {
    let (_wake, stop) = stop_signals()?;
    if !args.json {
        note("measures the guest and each path, which takes some seconds");
    }
    let mut program = Program {
        events: &mut |event| {
            if let (Event::Note(text), false) = (&event, args.json) {
                note(text);
            }
        },
        stop: &|| stop.load(Ordering::SeqCst),
        guard: &mut || Ok(()),
    };
    let outlook = mover::look(store, &args.way.name, &options(&args.way), &mut program).map_err(failure)?;
    match args.json {
        true => json::put("outlook", &outlook),
        false => outlook_lines(&args.way.name, &outlook).iter().for_each(stdout::line),
    }
    Ok(())
}

/// Writes what was measured and predicted for people.
fn outlook_lines(name: &str, outlook: &Outlook) -> Vec<String> {
    let Outlook { memory_bytes, used_bytes, is_used_known, changed_bytes, forecasts } = outlook;
    let used = match is_used_known {
        true => format!("{} of {} in use", bytes(*used_bytes), bytes(*memory_bytes)),
        false => format!("{}, all of it taken for used", bytes(*memory_bytes)),
    };
    let mut lines = vec![format!("{name}: {used}; it changes {}", rate(*changed_bytes))];
    let width = forecasts.iter().map(|forecast| over(forecast).len()).max().unwrap_or(0);
    lines.extend(forecasts.iter().map(|forecast| {
        let carried = rate(forecast.rate_bytes);
        format!("over {:<width$}  {carried:>12}  {}", over(forecast), words(&forecast.prediction))
    }));
    lines
}

fn over(forecast: &Forecast) -> String {
    forecast.over.join(" and ")
}

fn words(prediction: &Prediction) -> String {
    match prediction {
        Prediction::Ends { total_ms, pause_ms, passes, .. } => {
            let passes = if *passes == 1 { "1 pass".to_owned() } else { format!("{passes} passes") };
            format!("{} in {passes}, still for {pause_ms} ms at the end", seconds(*total_ms))
        }
        Prediction::Never { .. } => "never".to_owned(),
    }
}

fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
}

/// Moves a machine.
pub(super) fn migrate(store: &Store, args: &Move) -> Outcome {
    let (_wake, stop) = stop_signals()?;
    let name = &args.way.name;
    let options = Options {
        auto_converge: args.auto_converge,
        post_copy: args.post_copy,
        anyway: args.anyway,
        predicts: !args.no_predict,
        ..options(&args.way)
    };
    let mut view = MoveView::new(name, &options.to, Mode::of(args.json, args.quiet));
    let mut child: Option<Child> = None;
    let mut guard = || {
        child = Some(start_guard(store, name)?);
        Ok(())
    };
    let mut program = Program {
        events: &mut |event| view.show(event),
        stop: &|| stop.load(Ordering::SeqCst),
        guard: &mut guard,
    };
    if matches!(Mode::of(args.json, args.quiet), Mode::Live | Mode::Plain) && options.predicts {
        note("measures the guest and each path, which takes some seconds");
    }
    let moved = mover::run(store, name, &options, &mut program);
    view.lines.draw(&[]);
    // A guard that finds nothing to settle ends by itself; one that does goes on.
    drop(child);
    let report = moved.map_err(failure)?;
    match args.json {
        true => json::put("moved", &MovedLine { name, to: &options.to, report: &report }),
        false => report_lines(name, &options.to, &report).iter().for_each(stdout::line),
    }
    Ok(())
}

/// Starts the process that settles the move if this one is killed: it reads from a pipe whose other end only
/// this process has.
pub(super) fn start_guard(store: &Store, name: &str) -> anabranch_machines::Result<Child> {
    let failed = |e: std::io::Error| {
        anabranch_machines::Error::Failed(format!("cannot start the guard of the move: {e}"))
    };
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.arg("guard").arg(name).arg("--state").arg(store.dir()).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(failed)
}

/// Waits until the mover ends, and settles what it has left.
pub(super) fn guard(store: &Store, name: &str) -> Outcome {
    let _ = std::io::stdin().read(&mut [0]);
    loop {
        if let Some(_lock) = store.lock(name).map_err(failure)? {
            match settle::recover(store, name, PATIENCE, Clock::start()) {
                Err(anabranch_machines::Error::Unreachable(_)) => {}
                other => return other.map(drop).map_err(failure),
            }
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Settles the move of a machine.
pub(super) fn recover(store: &Store, args: &Named) -> Outcome {
    let name = &args.name;
    let busy = || Failure::other(format!("a move of {name}, or its recovery, is under way"));
    let _lock = store.lock(name).map_err(failure)?.ok_or_else(busy)?;
    let settled = settle::recover(store, name, PATIENCE, Clock::start()).map_err(failure)?;
    let (runs, text) = match settled {
        Some(Settled::Here) => ("here", "runs here, as before"),
        Some(Settled::There { .. }) => ("there", "runs at the destination"),
        Some(Settled::Lost) => ("lost", "had ended before it was given away"),
        None => ("nothing", "has no move to settle"),
    };
    match args.json {
        true => json::put("settled", &SettledLine { name, runs }),
        false => stdout::line(format!("{name} {text}")),
    }
    Ok(())
}

/// Shows a move.
struct MoveView {
    name: String,
    to: String,
    mode: Mode,
    lines: Lines,
    clock: Clock,
    shown_ms: Option<u64>,
}

impl MoveView {
    fn new(name: &str, to: &str, mode: Mode) -> Self {
        let (name, to) = (name.to_owned(), to.to_owned());
        Self { name, to, mode, lines: Lines::default(), clock: Clock::start(), shown_ms: None }
    }

    fn show(&mut self, event: Event) {
        match self.mode {
            Mode::Json => self.put(&event),
            Mode::Quiet => {}
            Mode::Live | Mode::Plain => self.draw(&event),
        }
    }

    fn put(&mut self, event: &Event) {
        let say = |what, text| json::put("note", &NoteLine { what, text });
        match event {
            Event::Note(text) => say("note", Some(text.as_str())),
            Event::Paths(paths) => json::put("paths", &PathsLine { paths }),
            Event::Outlook(outlook) => json::put("outlook", outlook),
            Event::Begins => say("begins", None),
            Event::Progress(progress) if self.is_time(200) => json::put("progress", progress),
            Event::Progress(_) => {}
            Event::PathLost(device) => say("path_lost", Some(device)),
            Event::PathBack(device) => say("path_back", Some(device)),
            Event::Given => say("given", None),
            Event::Runs => say("runs", None),
        }
    }

    /// Whether it is time for the next picture.
    fn is_time(&mut self, every_ms: u64) -> bool {
        let now = self.clock.now().since(anabranch_algo::Time::ZERO).as_millis();
        let is_time = self.shown_ms.is_none_or(|shown| now >= shown + every_ms);
        if is_time {
            self.shown_ms = Some(now);
        }
        is_time
    }

    fn draw(&mut self, event: &Event) {
        let text = match event {
            Event::Note(text) => format!("anabranch: {text}"),
            Event::Paths(_) => return,
            Event::Outlook(outlook) => {
                outlook_lines(&self.name, outlook).iter().for_each(|line| self.lines.print(line));
                return;
            }
            Event::Begins => format!("{} moves to {}", self.name, self.to),
            Event::Progress(progress) => {
                if self.mode == Mode::Live {
                    self.lines.draw(&progress_lines(progress));
                } else if self.is_time(2_000) {
                    progress_lines(progress).iter().for_each(|line| say(line));
                }
                return;
            }
            Event::PathLost(device) => format!("{device} carries nothing any more; the others go on"),
            Event::PathBack(device) => format!("{device} carries again"),
            Event::Given => "all is there".to_owned(),
            Event::Runs => format!("{} runs at {}", self.name, self.to),
        };
        self.lines.print(&text);
    }
}

fn progress_lines(progress: &Progress) -> Vec<String> {
    let Progress { elapsed_ms, pass, remaining_bytes, sent_bytes, changed_bytes, .. } = progress;
    let left = bytes(*remaining_bytes);
    let mut lines = vec![format!(
        "{}  pass {pass}  {left} left  {} sent  changes {}",
        seconds(*elapsed_ms),
        bytes(*sent_bytes),
        rate(*changed_bytes)
    )];
    let per_second = |sum: u64| sum * 1_000 / (*elapsed_ms).max(1);
    lines.extend(
        progress
            .paths
            .iter()
            .map(|(device, sum)| format!("  {device}: {}, {}", bytes(*sum), rate(per_second(*sum)))),
    );
    lines
}

fn report_lines(name: &str, to: &str, report: &Report) -> Vec<String> {
    let Report { total_ms, qemu_pause_ms, stood_still_ms, felt_ms, passes, sent_bytes, paths, predicted } =
        report;
    let mut lines = vec![format!(
        "{name} runs at {to}: {} in {passes} passes, {}",
        seconds(*total_ms),
        bytes(*sent_bytes)
    )];
    if let Some(predicted) = predicted {
        lines.push(format!("predicted: {}", words(predicted)));
    }
    let ms = |ms: &Option<u64>| ms.map_or_else(|| "unknown".to_owned(), |ms| format!("{ms} ms"));
    let felt = match felt_ms {
        Some(felt) => format!("; the guest felt {felt} ms"),
        None => "; the guest has no heartbeat, so what it felt is unknown".to_owned(),
    };
    lines.push(format!("stood still for {}, {} as QEMU counts{felt}", ms(stood_still_ms), ms(qemu_pause_ms)));
    let shares: Vec<String> = paths.iter().map(|(device, sum)| format!("{device} {}", bytes(*sum))).collect();
    lines.push(format!("carried by {}", shares.join(", ")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_is_said_in_words() {
        let ends = Prediction::Ends { total_ms: 9_040, pause_ms: 200, passes: 6, sent_bytes: 1 };
        let forecast = |over: &[&str], prediction| Forecast {
            over: over.iter().map(|name| (*name).to_owned()).collect(),
            rate_bytes: 11_900_000,
            prediction,
        };
        let never = Prediction::Never { remaining_bytes: 1 };
        let forecasts = vec![forecast(&["wlan0"], never), forecast(&["eth0", "wlan0"], ends)];
        let outlook = Outlook {
            memory_bytes: 256_000_000,
            used_bytes: 97_000_000,
            is_used_known: true,
            changed_bytes: 12_000_000,
            forecasts,
        };
        let lines = outlook_lines("web", &outlook);
        assert!(lines[1].starts_with("over wlan0 ") && lines[1].ends_with("never"), "{lines:?}");
        assert!(lines[2].ends_with("9.0 s in 6 passes, still for 200 ms at the end"), "{lines:?}");
    }
}
