//! Runs a program when the load of the server passes a threshold, so that servers can be started and stopped.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anabranch_algo::{Span, Time};

use crate::event::{Event, Reports};
use crate::trunk::Announced;

/// When a program is run because of the load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The program. Its arguments are `above` or `below`, and the numbers of open and of wanted connections.
    pub run: PathBuf,
    /// The load from which it is run with `above`, in percent of the capacity.
    pub above: u32,
    /// The load down to which it is run with `below`, in percent of the capacity; less than `above`.
    pub below: u32,
    /// The time between two runs. While the load stays beyond a threshold, the program is run again.
    pub every: Duration,
}

/// The thresholds with their memory. It reads no clock.
#[derive(Debug)]
struct Thresholds {
    above: u32,
    below: u32,
    every: Span,
    begun: Time,
    last: Option<Time>,
}

impl Thresholds {
    /// Takes the present load. Returns the word with which the program is run now.
    ///
    /// Between the thresholds nothing happens, so a load that varies less than their distance does not start
    /// and stop servers in turn. A server that has just begun has no load yet, which is no reason.
    fn note(&mut self, now: Time, load: Announced) -> Option<&'static str> {
        let (open, capacity) = (u64::from(load.open) * 100, u64::from(load.capacity));
        let (word, since) = match () {
            () if open >= capacity * u64::from(self.above) => ("above", self.last),
            () if open <= capacity * u64::from(self.below) => ("below", self.last.or(Some(self.begun))),
            () => return None,
        };
        if since.is_some_and(|since| now.since(since) < self.every) {
            return None;
        }
        self.last = Some(now);
        Some(word)
    }
}

/// Runs the program of a [`Scale`].
#[derive(Debug)]
pub(super) struct Scaling {
    scale: Scale,
    thresholds: Thresholds,
    is_running: Arc<AtomicBool>,
}

impl Scaling {
    pub(super) fn new(now: Time, scale: Scale) -> Self {
        let every = Span::from_millis(u64::try_from(scale.every.as_millis()).unwrap_or(u64::MAX / 1_000_000));
        let (above, below) = (scale.above, scale.below);
        let thresholds = Thresholds { above, below, every, begun: now, last: None };
        Self { scale, thresholds, is_running: Arc::default() }
    }

    /// Takes the present load, and runs the program if it is time. A run that takes longer than the time
    /// between two is not joined by another one.
    pub(super) fn note(&mut self, now: Time, load: Announced, reports: &Reports) {
        if self.is_running.load(Ordering::Relaxed) {
            return;
        }
        let Some(word) = self.thresholds.note(now, load) else { return };
        let says = format!("the load is {} of {}: {word}", load.open, load.capacity);
        reports.put(Event::Notice(format!("{says}, {} is run", self.scale.run.display())));
        let mut command = Command::new(&self.scale.run);
        command.args([word, &load.open.to_string(), &load.capacity.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        self.is_running.store(true, Ordering::Relaxed);
        let (is_running, reports) = (Arc::clone(&self.is_running), reports.clone());
        let path = self.scale.run.clone();
        tokio::task::spawn_blocking(move || {
            let failed = match command.status() {
                Ok(status) if status.success() => None,
                Ok(status) => Some(status.to_string()),
                Err(e) => Some(e.to_string()),
            };
            if let Some(why) = failed {
                reports.put(Event::Notice(format!("{} {word} failed: {why}", path.display())));
            }
            is_running.store(false, Ordering::Relaxed);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_run_at_thresholds_and_not_in_between_or_too_often() {
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        let every = Span::from_secs(60);
        let mut thresholds = Thresholds { above: 80, below: 20, every, begun: at(0), last: None };
        let mut note = |secs, open| thresholds.note(at(secs), Announced { open, capacity: 1_000 });
        assert_eq!(note(1, 0), None, "it has just begun");
        assert_eq!(note(5, 800), Some("above"), "at once");
        assert_eq!(note(6, 790), None);
        assert_eq!(note(30, 900), None, "too soon");
        assert_eq!(note(65, 900), Some("above"), "again, while it stays");
        assert_eq!(note(70, 200), None, "too soon");
        assert_eq!(note(200, 500), None);
        assert_eq!(note(201, 200), Some("below"));
        assert_eq!(note(230, 999), None);
        assert_eq!(note(261, u32::MAX), Some("above"));
    }
}
