//! Shows the progress of runs on a terminal, once they take longer than a moment.

use anabranch_algo::{Span, Time};
use anabranch_net::Clock;
use console::Term;

/// The time for which nothing is shown.
const QUIET: Span = Span::from_secs(1);
/// The shortest time between two updates.
const EVERY: Span = Span::from_millis(200);

/// Shows a line that says how many runs are done and how long the rest will take.
pub(super) struct Progress {
    term: Option<Term>,
    clock: Clock,
    total: usize,
    done: usize,
    /// The duration of all runs, if it is known in advance because they run in real time.
    takes: Option<Span>,
    next: Time,
    shown: bool,
}

impl Progress {
    /// Creates the progress of `total` runs.
    pub(super) fn new(total: usize) -> Self {
        let term = Some(Term::stderr()).filter(Term::is_term);
        let clock = Clock::start();
        Self { term, clock, total, done: 0, takes: None, next: Time::ZERO + QUIET, shown: false }
    }

    /// Sets the duration of all runs.
    pub(super) fn takes(mut self, takes: Span) -> Self {
        self.takes = Some(takes);
        self
    }

    /// Notes that `done` runs have ended, and updates the line.
    pub(super) fn update(&mut self, done: usize) {
        self.done = done;
        let now = self.clock.now();
        let Some(term) = self.term.as_ref().filter(|_| now >= self.next) else { return };
        self.next = now + EVERY;
        // Errors of the terminal are ignored, because only this line is lost.
        let _ = term.clear_line().and_then(|()| term.write_str(&self.line(now.since(Time::ZERO))));
        self.shown = true;
    }

    /// Removes the line to make room for other output.
    pub(super) fn clear(&mut self) {
        if let Some(term) = self.term.as_ref().filter(|_| self.shown) {
            let _ = term.clear_line();
            self.shown = false;
        }
    }

    fn line(&self, elapsed: Span) -> String {
        let (done, left) = (self.done as u64, self.total.saturating_sub(self.done) as u64);
        let secs = |span: Span| span.as_nanos() / 1_000_000_000;
        let rest = match (self.takes, done) {
            (Some(takes), _) if takes > elapsed => format!(", {} left", time(secs(takes - elapsed))),
            (None, 1..) => format!(", {} left", time(secs(elapsed) * left / done)),
            _ => String::new(),
        };
        format!("{done} of {} runs{rest}", self.total)
    }
}

fn time(secs: u64) -> String {
    match secs {
        0..60 => format!("{secs} s"),
        60..3_600 => format!("{}:{:02} min", secs / 60, secs % 60),
        _ => format!("{}:{:02} h", secs / 3_600, secs / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_it_takes() {
        let mut progress = Progress::new(40);
        assert_eq!(progress.line(Span::from_secs(5)), "0 of 40 runs");
        progress.done = 10;
        assert_eq!(progress.line(Span::from_secs(50)), "10 of 40 runs, 2:30 min left");
        let progress = Progress::new(3).takes(Span::from_secs(300));
        assert_eq!(progress.line(Span::from_secs(60)), "0 of 3 runs, 4:00 min left");
        assert_eq!(progress.line(Span::from_secs(301)), "0 of 3 runs");
        assert_eq!((time(59), time(3_660)), ("59 s".into(), "1:01 h".into()));
    }
}
