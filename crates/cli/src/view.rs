//! What a transfer looks like: a line per path while it runs, a table at the end, or JSON.
//!
//! The one who transfers fills a [`Snapshot`] as often as it likes and hands it to [`View::show`], which
//! draws only when it is time to. On a terminal the lines are redrawn in place on standard error, with the
//! cursor left below them at all times, so that Ctrl-C or kill -9 at any moment leaves a sane terminal.
//! Without a terminal there is a plain line every few seconds; with `--json` one object a second on standard
//! output.

mod human;
mod lines;
mod rows;

pub use human::{bytes, duration, rate};
pub use lines::Lines;
pub use rows::{NO_ANSWER_YET, add, is_same, share};

use std::io::{IsTerminal as _, Write as _};

use algo::{Span, Time};
use serde::Serialize;

use crate::exit::Failure;

/// Between two pictures on a terminal.
const REDRAW: Span = Span::from_millis(200);
/// Between two JSON objects.
const REDRAW_JSON: Span = Span::from_secs(1);
/// Between two plain lines.
const REDRAW_PLAIN: Span = Span::from_secs(5);
/// Path lines drawn on a terminal at most; the rest is counted.
const PATH_LINES_MAX: usize = 24;
/// Notes kept above the live picture for the summary, at most.
const NOTES_MAX: usize = 64;

/// How to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Lines redrawn in place on a terminal.
    Live,
    /// A plain line now and then.
    Plain,
    /// One JSON object a second on standard output.
    Json,
    /// Nothing.
    Quiet,
}

impl Mode {
    /// The mode that the options ask for.
    #[must_use]
    pub fn of(json: bool, quiet: bool) -> Self {
        match (json, quiet) {
            (true, _) => Self::Json,
            (_, true) => Self::Quiet,
            _ if std::io::stderr().is_terminal() => Self::Live,
            _ => Self::Plain,
        }
    }
}

/// A transfer at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// Bytes there will be.
    pub total_bytes: u64,
    /// Bytes verified and written, those of an earlier run among them.
    pub done_bytes: u64,
    /// Bytes that were there already when this run began; the rate and the ETA do not count them.
    pub resumed_bytes: u64,
    /// Time since this run began, in seconds.
    pub elapsed_s: f64,
    /// One row a path, in a stable order.
    pub paths: Vec<PathRow>,
    /// What the user should know now: "waiting for a source".
    pub note: Option<String>,
}

/// One path at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PathRow {
    /// The source: address and port.
    pub source: String,
    /// The local end: interface or address.
    pub via: String,
    /// What it does: "slow start", "probing", "banned: wrong bytes".
    pub state: String,
    /// Rate now (in the summary: the mean), in bytes a second.
    pub rate_bytes: u64,
    /// Part of all bytes that came by this path, in percent.
    pub share_percent: f64,
    /// Smoothed round-trip time in microseconds; 0 while there is none.
    pub srtt_us: u64,
    /// Congestion window in packets.
    pub cwnd: u32,
    /// Packets asked for and lost, in percent.
    pub loss_percent: f64,
    /// Verified bytes.
    pub bytes: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Paths with the same number are coupled: they may share a bottleneck.
    pub group: u32,
}

/// How a transfer ended.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// The last state; rates are means over the whole run.
    pub last: Snapshot,
    /// Where the file is, or is to be.
    pub target: String,
    /// The content's name; `None` while it is not known.
    pub content: Option<String>,
    /// Sources that were banned, each with its reason.
    #[serde(rename = "struck_off")]
    pub banned: Vec<BannedSource>,
    /// Whether the whole content arrived and is verified, as far as `verified` says.
    pub complete: bool,
    /// What was verified.
    pub verified: Verified,
    /// Of what is only [`Verified::Unchanged`]: the day on which it came, UTC: `2026-11-22`.
    pub unverified_since: Option<String>,
    /// The exit status.
    pub exit: u8,
    /// Why it is not complete.
    pub error: Option<String>,
}

impl Summary {
    /// Of what failed before anything could come.
    #[must_use]
    pub fn failed(failure: &Failure) -> Self {
        Self {
            verified: Verified::Nothing,
            exit: failure.code as u8,
            error: Some(failure.message.clone()),
            ..Self::default()
        }
    }

    /// What is to be said of what is here.
    fn word(&self) -> String {
        match (&self.unverified_since, self.complete) {
            (Some(day), true) => format!("UNVERIFIED, the same as on {day}"),
            _ => self.verified.word(self.complete).to_owned(),
        }
    }
}

/// What of a content is held against a hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verified {
    /// Every block, before it is written.
    #[default]
    #[serde(rename = "groups")]
    Blocks,
    /// Every piece that a Metalink describes, before it is written.
    Pieces,
    /// The whole, at its end.
    Whole,
    /// Each file of a directory, before it gets its name.
    Files,
    /// Nothing but that it is what came in an earlier run, when there was no hash of it either, or only its
    /// date is the same: the servers say that it has not changed since, and the BLAKE3 hash of the whole is
    /// the same.
    Unchanged,
    /// Nothing: there is no hash of it. Mirrors were compared with each other at most.
    Nothing,
}

impl Verified {
    /// What is to be said of what is here.
    const fn word(self, complete: bool) -> &'static str {
        match (self, complete) {
            (Self::Blocks | Self::Pieces | Self::Files, _) | (Self::Whole, true) => "verified",
            (Self::Whole, false) => "not verified yet",
            (Self::Nothing | Self::Unchanged, _) => "UNVERIFIED",
        }
    }
}

/// A source that is not asked any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BannedSource {
    /// The source: address and port.
    pub source: String,
    /// Why: "wrong bytes in block 812".
    pub reason: String,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event<'a> {
    Progress(&'a Snapshot),
    Note { note: &'a str },
    Summary(&'a Summary),
}

/// The view of one transfer.
#[derive(Debug)]
pub struct View {
    mode: Mode,
    lines: Lines,
    shown: Option<Time>,
    notes: usize,
    /// What is not in the snapshots: other transfers of the same command.
    base: Snapshot,
    /// What notes are about, if there is more than one file.
    about: Option<String>,
    /// The end has been shown.
    finished: bool,
}

impl View {
    /// A view that has shown nothing yet.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        let (lines, base) = (Lines::default(), Snapshot::default());
        Self { mode, lines, shown: None, notes: 0, base, about: None, finished: false }
    }

    /// From now on snapshots are of another transfer, with a clock of its own, and `base` is added to them,
    /// its paths too: what has come over them is not forgotten.
    pub fn among(&mut self, base: Snapshot) {
        (self.base, self.shown) = (base, None);
    }

    /// From now on notes are about this file of several; `None`: about all.
    pub fn about(&mut self, file: Option<String>) {
        self.about = file;
    }

    /// Whether [`show`](Self::show) would draw at `now`: a snapshot costs something to make.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        let every = match self.mode {
            Mode::Live => REDRAW,
            Mode::Plain => REDRAW_PLAIN,
            Mode::Json => REDRAW_JSON,
            Mode::Quiet => return false,
        };
        // Each transfer has a clock of its own, so the last picture may have been drawn later.
        self.shown.is_none_or(|shown| now < shown || now.since(shown) >= every)
    }

    /// Shows `snapshot` if it is time to.
    pub fn show(&mut self, now: Time, snapshot: &Snapshot) {
        if !self.is_due(now) {
            return;
        }
        self.shown = Some(now);
        let base = &self.base;
        let snapshot = &Snapshot {
            total_bytes: snapshot.total_bytes + base.total_bytes,
            done_bytes: snapshot.done_bytes + base.done_bytes,
            resumed_bytes: snapshot.resumed_bytes + base.resumed_bytes,
            elapsed_s: snapshot.elapsed_s + base.elapsed_s,
            paths: rows::joined(&base.paths, &snapshot.paths),
            note: snapshot.note.clone(),
        };
        match self.mode {
            Mode::Live => {
                let width = self.lines.width();
                self.lines.draw(&live(snapshot, width));
            }
            Mode::Plain => self.lines.print(&total(snapshot)),
            Mode::Json => json(&Event::Progress(snapshot)),
            Mode::Quiet => {}
        }
    }

    /// Says something that stays: a source banned, an interface gone. After a limit it only counts.
    pub fn note(&mut self, note: &str) {
        self.notes += 1;
        if self.notes > NOTES_MAX {
            return;
        }
        let named = self.about.as_ref().map(|file| format!("{file}: {note}"));
        let note = named.as_deref().unwrap_or(note);
        match self.mode {
            Mode::Live | Mode::Plain => self.lines.print(note),
            Mode::Json => json(&Event::Note { note }),
            Mode::Quiet => {}
        }
    }

    /// Takes the picture away: what follows is printed by somebody else.
    pub fn clear(&mut self) {
        self.lines.draw(&[]);
    }

    /// Shows that what is there is being looked at, as far as `snapshot` says, if it is time to.
    pub fn checking(&mut self, now: Time, snapshot: Snapshot) {
        self.show(now, &Snapshot { note: Some("checking what is there".to_owned()), ..snapshot });
    }

    /// Shows the end: the table, who was banned, where the file is. There is one end, the first.
    pub fn finish(&mut self, summary: &Summary) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        self.clear();
        match self.mode {
            Mode::Live | Mode::Plain => {
                for line in table(summary) {
                    self.lines.print(&line);
                }
                if self.notes > NOTES_MAX {
                    self.lines.print(&format!("({} more messages)", self.notes - NOTES_MAX));
                }
            }
            Mode::Json => json(&Event::Summary(summary)),
            Mode::Quiet => {}
        }
    }
}

/// One JSON object on standard output, flushed, so that a reader sees it at once.
fn json(event: &impl Serialize) {
    if let Ok(text) = serde_json::to_string(event) {
        let mut out = std::io::stdout().lock();
        // A reader that has gone away must not end the transfer.
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }
}

fn average(snapshot: &Snapshot) -> u64 {
    let fresh = snapshot.done_bytes.saturating_sub(snapshot.resumed_bytes);
    if snapshot.elapsed_s > 0.0 { (fresh as f64 / snapshot.elapsed_s) as u64 } else { 0 }
}

/// The line about the whole: how much, how fast, how long yet.
fn total(s: &Snapshot) -> String {
    let now = s.paths.iter().map(|p| p.rate_bytes).sum::<u64>();
    let percent = percent(s.done_bytes, s.total_bytes);
    let mut line =
        format!("{percent:5.1} %  {} of {}  {}", bytes(s.done_bytes), bytes(s.total_bytes), rate(now));
    // The mean says more about the rest of the way than the last second, as long as something moves at all.
    let pace = average(s);
    if now > 0 && pace > 0 && s.done_bytes < s.total_bytes {
        let left_s = (s.total_bytes - s.done_bytes) as f64 / pace as f64;
        line += &format!("  {} left", duration(left_s));
    }
    if let Some(note) = &s.note {
        line += "  ";
        line += note;
    }
    line
}

/// The picture on a terminal `width` columns wide.
fn live(s: &Snapshot, width: usize) -> Vec<String> {
    let mut picture = Vec::new();
    if !s.paths.is_empty() {
        let rows: Vec<[String; 7]> = s.paths.iter().take(PATH_LINES_MAX).map(row).collect();
        picture.extend(columns(&["source", "via", "rate", "share", "srtt", "cwnd", "loss"], &rows, |i| {
            s.paths[i].state.clone()
        }));
        if s.paths.len() > PATH_LINES_MAX {
            picture.push(format!("… and {} more paths", s.paths.len() - PATH_LINES_MAX));
        }
    }
    picture.push(bar(percent(s.done_bytes, s.total_bytes), width.min(100)));
    picture.push(total(s));
    picture
}

fn row(p: &PathRow) -> [String; 7] {
    [
        p.source.clone(),
        p.via.clone(),
        rate(p.rate_bytes),
        format!("{:.0} %", p.share_percent),
        srtt(p.srtt_us),
        p.cwnd.to_string(),
        format!("{:.1} %", p.loss_percent),
    ]
}

fn srtt(us: u64) -> String {
    match us {
        0 => "–".into(),
        _ => Span::from_micros(us).to_string(),
    }
}

/// The table at the end.
fn table(summary: &Summary) -> Vec<String> {
    let s = &summary.last;
    let mut out = Vec::new();
    // A transfer that moved nothing has nothing to tell but why, and that is said elsewhere.
    let fresh = s.done_bytes.saturating_sub(s.resumed_bytes);
    if !summary.complete && fresh == 0 && summary.banned.is_empty() {
        return out;
    }
    if fresh > 0 || !summary.complete {
        // Without the RTT it fits 80 columns.
        let rows: Vec<[String; 7]> = s
            .paths
            .iter()
            .map(|p| {
                let [source, via, rate, share, _, _, loss] = row(p);
                [source, via, bytes(p.bytes), share, rate, loss, p.timeouts.to_string()]
            })
            .collect();
        let heads = ["source", "via", "bytes", "share", "mean rate", "loss", "RTOs"];
        out.extend(columns(&heads, &rows, |i| s.paths[i].state.clone()));
    }
    for one in &summary.banned {
        out.push(format!("banned: {}: {}", one.source, one.reason));
    }
    let word = summary.word();
    let mut line = match summary.complete {
        true if fresh == 0 && s.total_bytes > 0 => {
            return vec![format!("{}: {} {word}, all of it was there", summary.target, bytes(s.total_bytes))];
        }
        true => format!("{}: {} {word}", summary.target, bytes(s.total_bytes)),
        false => format!("incomplete: {} of {} {word}", bytes(s.done_bytes), bytes(s.total_bytes)),
    };
    line += &format!("; {} in {}, {}", bytes(fresh), duration(s.elapsed_s), rate(average(s)));
    if s.resumed_bytes > 0 {
        line += &format!("; {} were there before", bytes(s.resumed_bytes));
    }
    out.push(line);
    out
}

/// Aligns: text columns left, numbers right; the last column, `state`, ragged.
fn columns<const N: usize>(
    heads: &[&str; N],
    rows: &[[String; N]],
    state: impl Fn(usize) -> String,
) -> Vec<String> {
    let wide = |i: usize, cell: &str| -> usize {
        let cells = rows.iter().map(|r| console::measure_text_width(&r[i])).max().unwrap_or(0);
        cells.max(console::measure_text_width(heads[i])) - console::measure_text_width(cell)
    };
    let line = |cells: [&str; N], end: &str| -> String {
        let mut line = String::new();
        for (i, cell) in cells.iter().enumerate() {
            let pad = " ".repeat(wide(i, cell));
            line += &if i < 2 { format!("{cell}{pad}  ") } else { format!("{pad}{cell}  ") };
        }
        line += end;
        line.trim_end().to_owned()
    };
    let mut out = vec![line(*heads, "state")];
    for (i, row) in rows.iter().enumerate() {
        out.push(line(std::array::from_fn(|c| row[c].as_str()), &state(i)));
    }
    out
}

fn percent(part: u64, whole: u64) -> f64 {
    // Never "100.0 %" before the last byte.
    let percent = if whole == 0 { 100.0 } else { part as f64 * 100.0 / whole as f64 };
    if part < whole { percent.min(99.9) } else { percent }
}

fn bar(percent: f64, width: usize) -> String {
    let cells = width.saturating_sub(2).max(8);
    let eighths = (percent / 100.0 * cells as f64 * 8.0) as usize;
    let partial = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    let full = "█".repeat(eighths / 8);
    let used = eighths / 8 + usize::from(!partial.is_empty());
    format!("{full}{partial}{}", "·".repeat(cells.saturating_sub(used)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let path = |source: &str, rate_bytes, share_percent| PathRow {
            source: source.into(),
            via: "eth0".into(),
            state: "steady".into(),
            rate_bytes,
            share_percent,
            srtt_us: 20_400,
            cwnd: 33,
            loss_percent: 0.2,
            bytes: 1_000_000,
            timeouts: 1,
            group: 0,
        };
        Snapshot {
            total_bytes: 4_000_000,
            done_bytes: 2_000_000,
            resumed_bytes: 1_000_000,
            elapsed_s: 2.0,
            paths: vec![path("192.0.2.1:26227", 12_500_000, 75.0), path("[2001:db8::1]:9", 1_000_000, 25.0)],
            note: Some("waiting".into()),
        }
    }

    #[test]
    fn the_picture() {
        let picture = live(&snapshot(), 40);
        assert_eq!(
            picture[..3],
            [
                "source           via           rate  share     srtt  cwnd   loss  state",
                "192.0.2.1:26227  eth0  100.0 Mbit/s   75 %  20.4 ms    33  0.2 %  steady",
                "[2001:db8::1]:9  eth0    8.0 Mbit/s   25 %  20.4 ms    33  0.2 %  steady",
            ]
        );
        assert_eq!(picture[3].chars().count(), 38);
        assert_eq!(picture[4], " 50.0 %  2.0 MB of 4.0 MB  108.0 Mbit/s  4 s left  waiting");
    }

    #[test]
    fn the_table() {
        let summary = Summary {
            last: Snapshot { done_bytes: 4_000_000, ..snapshot() },
            target: "film.mkv".into(),
            banned: vec![BannedSource { source: "192.0.2.9:1".into(), reason: "wrong bytes".into() }],
            complete: true,
            ..Summary::default()
        };
        let table = table(&summary);
        assert!(table[1].contains("0.2 %     1  steady"), "{}", table[1]);
        assert!(table[..3].iter().all(|line| line.len() <= 80), "it fits a terminal");
        assert_eq!(table[3], "banned: 192.0.2.9:1: wrong bytes");
        let last = "film.mkv: 4.0 MB verified; 3.0 MB in 2.0 s, 12.0 Mbit/s; 1.0 MB were there before";
        assert_eq!(table[4], last);
    }

    #[test]
    fn what_is_not_verified_is_not_called_so() {
        let line = |verified, complete| {
            let summary =
                Summary { last: snapshot(), target: "f".into(), verified, complete, ..Summary::default() };
            table(&summary).last().expect("a line").clone()
        };
        assert!(line(Verified::Nothing, true).starts_with("f: 4.0 MB UNVERIFIED; "));
        assert!(line(Verified::Nothing, false).starts_with("incomplete: 2.0 MB of 4.0 MB UNVERIFIED; "));
        assert!(line(Verified::Whole, true).starts_with("f: 4.0 MB verified; "));
        assert!(line(Verified::Whole, false).contains(" of 4.0 MB not verified yet; "));
        assert!(line(Verified::Pieces, false).contains(" of 4.0 MB verified; "));
    }

    #[test]
    fn extremes_draw() {
        for (done_bytes, total_bytes) in [(0, 0), (0, u64::MAX), (u64::MAX - 1, u64::MAX), (5, 5)] {
            let s = Snapshot { done_bytes, total_bytes, ..Snapshot::default() };
            for width in [0, 1, 10, 500] {
                assert!(!live(&s, width).is_empty());
            }
            // Where nothing came, there is nothing to tell.
            assert_eq!(table(&Summary { last: s, ..Summary::default() }).is_empty(), done_bytes == 0);
        }
        assert_eq!(percent(999_999, 1_000_000), 99.9);
        let many = Snapshot { paths: vec![PathRow::default(); 100], ..Snapshot::default() };
        assert!(live(&many, 80).len() < 30);
    }

    #[test]
    fn it_is_due_at_its_own_pace() {
        let now = Time::from_nanos(7);
        let mut view = View::new(Mode::Quiet);
        assert!(!view.is_due(now));
        view.mode = Mode::Plain;
        assert!(view.is_due(now));
        view.shown = Some(now);
        assert!(!view.is_due(now + Span::from_secs(4)));
        assert!(view.is_due(now + Span::from_secs(5)));
        assert!(view.is_due(Time::from_nanos(6)), "another clock");
    }
}
