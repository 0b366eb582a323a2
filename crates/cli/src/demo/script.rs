//! Runs the script of the demonstration: kills a source, starts it again, and reports each step.

use std::time::Duration;

use anabranch::{Event, PathState, Progress};
use serde::Serialize;

use super::source_process::SourceProcess;
use crate::exit::Outcome;
use crate::json;
use crate::view::{Mode, View};

/// The largest number of columns of a line of a command, as far as its words allow it.
const COMMAND_COLUMNS: usize = 78;

/// The index of the source that is killed, which is the fastest.
const KILLED: usize = 0;
/// The percentages of the transfer at which the source is killed and started again.
const KILLED_AT: u64 = 20;
const STARTED_AGAIN_AT: u64 = 60;

/// Holds the progress of the fault, with times in seconds since the transfer began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kill {
    pub(super) killed_s: Option<f64>,
    started_s: Option<f64>,
    /// The time at which bytes came from the source again.
    pub(super) back_s: Option<f64>,
    /// The bytes that had come from the source when it was started again.
    bytes: u64,
}

/// Reports a source that was started, as a line of JSON.
#[derive(Serialize)]
struct SourceLine<'a> {
    name: &'a str,
    pid: u32,
    command: String,
    address: &'a str,
    rate_bytes: u64,
}

/// Reports a source that was killed or started again, as a line of JSON.
#[derive(Serialize)]
struct FaultLine<'a> {
    name: &'a str,
    pid: u32,
    elapsed_s: f64,
}

/// Runs the script of the demonstration; see the [module](self).
pub(super) struct Script {
    mode: Mode,
    view: View,
    /// The time when the transfer was last drawn, in seconds since it began.
    drawn_s: Option<f64>,
    kill: Kill,
}

impl Script {
    pub(super) fn new(json: bool) -> Self {
        let mode = Mode::of(json, false);
        Self { mode, view: View::new(mode), drawn_s: None, kill: Kill::default() }
    }

    pub(super) fn is_json(&self) -> bool {
        self.mode == Mode::Json
    }

    pub(super) const fn kill(&self) -> Kill {
        self.kill
    }

    /// Prints a line for people, unless the output is JSON.
    pub(super) fn say(&mut self, text: &str) {
        if !self.is_json() {
            self.view.note(text);
        }
    }

    /// Prints a command for people, in lines that a shell reads as one command.
    pub(super) fn say_command(&mut self, command: &str) {
        for line in folded(command) {
            self.say(&line);
        }
    }

    /// Prints an object for programs, if the output is JSON.
    pub(super) fn put(&self, event: &str, object: &impl Serialize) {
        if self.is_json() {
            json::put(event, object);
        }
    }

    /// Reports that a source serves.
    pub(super) fn started(&mut self, source: &SourceProcess) {
        let (name, pid) = (source.spec.name, source.pid());
        let (command, rate_bytes) = (source.command(), source.spec.rate().as_bytes());
        self.say(&format!("{}, process {pid}:", source.spec));
        self.say_command(&command);
        self.put("source", &SourceLine { name, pid, command, address: source.place(), rate_bytes });
    }

    /// Removes the picture of the transfer.
    pub(super) fn clear(&mut self) {
        self.view.clear();
    }

    /// Shows an event of the transfer other than its progress.
    pub(super) fn draw(&mut self, event: &Event) {
        self.view.draw(event);
    }

    /// Shows the progress of the transfer, and kills the source or starts it again when it is time.
    pub(super) fn advance(&mut self, progress: &Progress, sources: &mut [SourceProcess]) -> Outcome {
        let now_s = progress.elapsed_s;
        let every_s = self.mode.interval().unwrap_or(Duration::MAX).as_secs_f64();
        if self.drawn_s.is_none_or(|drawn_s| now_s >= drawn_s + every_s) {
            self.drawn_s = Some(now_s);
            self.view.show(progress);
        }
        let percent = progress.done_bytes * 100 / progress.total_bytes.unwrap_or_default().max(1);
        let source = &mut sources[KILLED];
        let path = progress.paths.iter().find(|path| path.source == source.place());
        let (bytes, is_open) = path.map_or((0, false), |path| (path.bytes, path.state == PathState::Open));
        let Kill { killed_s, started_s, back_s, .. } = self.kill;
        if killed_s.is_none() && (KILLED_AT..100).contains(&percent) {
            self.kill.killed_s = Some(now_s);
            source.kill();
            self.fault("killed", "is killed (SIGKILL)", source, now_s);
        } else if killed_s.is_some() && started_s.is_none() && percent >= STARTED_AGAIN_AT {
            (self.kill.started_s, self.kill.bytes) = (Some(now_s), bytes);
            source.start_again()?;
            self.say(&format!("{now_s:4.1} s: {} is started again", source.spec.name));
            self.started(source);
        } else if started_s.is_some() && back_s.is_none() && is_open && bytes > self.kill.bytes {
            self.kill.back_s = Some(now_s);
            self.fault("back", "is back: bytes come from it again", source, now_s);
        }
        Ok(())
    }

    fn fault(&mut self, event: &str, what: &str, source: &SourceProcess, elapsed_s: f64) {
        let (name, pid) = (source.spec.name, source.pid());
        self.say(&format!("{elapsed_s:4.1} s: {name} {what}, process {pid}"));
        self.put(event, &FaultLine { name, pid, elapsed_s });
    }
}

/// Divides a command into lines, each but the last with a backslash at its end.
fn folded(command: &str) -> Vec<String> {
    let mut lines = vec!["  ".to_owned()];
    for word in command.split(' ') {
        let Some(line) = lines.last_mut() else { continue };
        if line.trim().is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= COMMAND_COLUMNS - 2 {
            line.push(' ');
            line.push_str(word);
        } else {
            line.push_str(" \\");
            lines.push(format!("    {word}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_goes_on_after_a_backslash() {
        let word = "w".repeat(40);
        assert_eq!(folded(&word), [format!("  {word}")]);
        let long = format!("{word} a {word} b");
        assert_eq!(folded(&long), [format!("  {word} a \\"), format!("    {word} b")]);
    }
}
