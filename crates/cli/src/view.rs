//! Shows a transfer: a line per path while it runs and a table at the end, or JSON.
//!
//! The library sends events at the pace of [`Mode::interval`], and [`View::draw`] draws them. On a terminal
//! the lines are redrawn in place on standard error. The cursor is always left below them, so that Ctrl-C or
//! kill -9 at any moment leaves a sane terminal. Without a terminal there is a plain line every few seconds;
//! with `--json` one object a second on standard output.

mod lines;
mod table;

pub use anabranch::text::{bytes, duration, rate};
pub use lines::{Lines, note, printable, say};
pub(crate) use table::{Column, lines as table};

use std::io::IsTerminal as _;
use std::time::Duration;

use anabranch::{Event, FileReport, PathProgress, Progress, Report};
use anabranch_algo::Span;
use serde::Serialize;

use crate::exit::{Code, Failure};
use crate::hints::with_options;
use crate::json::{self, End};

/// The time between two pictures on a terminal.
const REDRAW: Duration = Duration::from_millis(200);
/// The time between two JSON objects.
const REDRAW_JSON: Duration = Duration::from_secs(1);
/// The time between two plain lines.
const REDRAW_PLAIN: Duration = Duration::from_secs(5);
/// The largest number of path lines that are drawn on a terminal; further paths are only counted.
const PATH_LINES_MAX: usize = 24;
/// The largest number of notes that are printed during a transfer; further notes are only counted.
const NOTES_MAX: usize = 64;

/// The beginning of the verdict on a file for whose bytes there is no proof that the user trusts.
const UNVERIFIED: &str = "UNVERIFIED";

/// Writes a number of things: `1 connection`, `2 connections`.
#[must_use]
pub fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Returns whether standard error is a terminal on which lines can be redrawn. A terminal that calls itself
/// dumb, such as the shell of an editor, shows control sequences as text.
#[must_use]
pub fn can_redraw() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Selects the form of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Lines redrawn in place on a terminal.
    Live,
    /// A plain line now and then.
    Plain,
    /// One JSON object a second on standard output.
    Json,
    /// Only errors and warnings of wrong content.
    Quiet,
}

impl Mode {
    /// Returns the mode that the options select.
    #[must_use]
    pub fn of(json: bool, quiet: bool) -> Self {
        match (json, quiet) {
            (true, _) => Self::Json,
            (_, true) => Self::Quiet,
            _ if can_redraw() => Self::Live,
            _ => Self::Plain,
        }
    }

    /// Returns the least time between two pictures; `None` if there are no pictures.
    #[must_use]
    pub const fn interval(self) -> Option<Duration> {
        match self {
            Self::Live => Some(REDRAW),
            Self::Plain => Some(REDRAW_PLAIN),
            Self::Json => Some(REDRAW_JSON),
            Self::Quiet => None,
        }
    }
}

/// Reports the end of a command: the report of the transfer, and the exit status of the process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// The report of the transfer.
    #[serde(flatten)]
    pub report: Report,
    /// The exit status of the process, and its error.
    #[serde(flatten)]
    pub end: End,
}

impl Summary {
    /// Makes the summary of a transfer that ended with this report, or with a failure.
    #[must_use]
    pub fn new(report: &Report, failure: Option<&Failure>) -> Self {
        let mut report = report.clone();
        report.advice = report.advice.as_deref().map(with_options);
        Self { report, end: End::new(failure) }
    }
}

/// Reports the end of one of several files.
#[derive(Serialize)]
struct FileSummary<'a> {
    url: &'a str,
    #[serde(flatten)]
    summary: Summary,
}

#[derive(Serialize)]
struct Note<'a> {
    note: &'a str,
}

/// Shows one transfer.
#[derive(Debug)]
pub struct View {
    mode: Mode,
    lines: Lines,
    notes: usize,
    /// Whether a warning has said that the bytes are not verified.
    is_unverified_said: bool,
}

impl View {
    /// Makes a view that has shown nothing yet.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self { mode, lines: Lines::default(), notes: 0, is_unverified_said: false }
    }

    /// Shows an event. The end of the transfer is shown by [`finish`](Self::finish).
    pub fn draw(&mut self, event: &Event) {
        match event {
            Event::Progress(progress) => self.show(progress),
            Event::Banned { source, reason } => self.warn(&format!("{source}: {reason}: banned")),
            Event::Groups(groups) if self.mode == Mode::Json => json::put("groups", groups),
            Event::Groups(groups) => self.note(&groups.to_string()),
            Event::Notice(text) => self.note(&with_options(text)),
            Event::Warning(text) => self.warn(&with_options(text)),
            Event::FileFinished(file) => self.file(file),
            _ => {}
        }
    }

    /// Shows the progress.
    pub fn show(&mut self, progress: &Progress) {
        match self.mode {
            Mode::Live => {
                let width = self.lines.width();
                self.lines.draw(&live(progress, width));
            }
            Mode::Plain => self.lines.print(&total(progress)),
            Mode::Json => json::put("progress", progress),
            Mode::Quiet => {}
        }
    }

    /// Prints a line that stays: a source banned, an interface gone. Beyond `NOTES_MAX`, notes are only
    /// counted.
    pub fn note(&mut self, note: &str) {
        self.notes += 1;
        if self.notes > NOTES_MAX {
            return;
        }
        match self.mode {
            Mode::Live | Mode::Plain => self.lines.print(note),
            Mode::Json => json::put("note", &Note { note }),
            Mode::Quiet => {}
        }
    }

    /// Prints a note that wrong content has arrived. It is printed even in [`Mode::Quiet`].
    fn warn(&mut self, warning: &str) {
        self.is_unverified_said |= warning.starts_with(UNVERIFIED);
        match self.mode {
            Mode::Quiet if self.notes < NOTES_MAX => {
                self.notes += 1;
                self.lines.print(warning);
            }
            _ => self.note(warning),
        }
    }

    /// Shows the end of one of several files.
    fn file(&mut self, file: &FileReport) {
        let failure = file.error.clone().map(Failure::from);
        let summary = Summary::new(&file.report, failure.as_ref());
        match (self.mode, failure) {
            (Mode::Json, _) => json::put("file", &FileSummary { url: &file.url, summary }),
            (Mode::Quiet, _) => {}
            (_, Some(failure)) => self.lines.print(&format!("{}: {failure}", file.url)),
            // The table of paths follows once, after the last file.
            (_, None) => end(&summary, usize::MAX).last().into_iter().for_each(|line| self.lines.print(line)),
        }
    }

    /// Removes the picture to make room for other output.
    pub fn clear(&mut self) {
        self.lines.draw(&[]);
    }

    /// Shows the end: the table, the banned sources, and the path of the file.
    pub fn finish(&mut self, summary: &Summary) {
        self.clear();
        match self.mode {
            Mode::Live | Mode::Plain => {
                // Output that is no terminal may have any width.
                let width = if self.mode == Mode::Live { self.lines.width() } else { usize::MAX };
                let advice = summary.report.advice.clone();
                let is_said = std::mem::take(&mut self.is_unverified_said);
                for line in end(summary, width).into_iter().chain(advice) {
                    let line = if is_said { line.replace(UNVERIFIED, "not verified") } else { line };
                    self.lines.print(&line);
                }
                if self.notes > NOTES_MAX {
                    self.lines.print(&format!("({} more messages)", self.notes - NOTES_MAX));
                }
            }
            Mode::Json => json::put("summary", summary),
            Mode::Quiet => {}
        }
    }
}

fn average(progress: &Progress) -> u64 {
    let fresh = progress.done_bytes.saturating_sub(progress.resumed_bytes);
    if progress.elapsed_s > 0.0 { (fresh as f64 / progress.elapsed_s) as u64 } else { 0 }
}

/// Returns whether no source has stated the length yet.
const fn is_unmeasured(s: &Progress) -> bool {
    s.total_bytes.is_none() && (s.done_bytes > 0 || s.note.is_some())
}

/// Returns the line about the whole transfer: bytes, rate, and the time left.
fn total(s: &Progress) -> String {
    let now = s.paths.iter().map(|p| p.rate_bytes).sum::<u64>();
    let all = s.total_bytes.unwrap_or_default();
    let mut line = match is_unmeasured(s) {
        true => format!("{}  {}", bytes(s.done_bytes), rate(now)),
        false => {
            let percent = percent(s.done_bytes, all);
            format!("{percent:5.1} %  {} of {}  {}", bytes(s.done_bytes), bytes(all), rate(now))
        }
    };
    // The mean predicts the rest better than the last second does, as long as any data arrives.
    let pace = average(s);
    if now > 0 && pace > 0 && s.checked_bytes.is_none() && s.done_bytes < all {
        let left_s = (all - s.done_bytes) as f64 / pace as f64;
        line += &format!("  {} left", duration(left_s));
    }
    if let Some(note) = remark(s) {
        line += "  ";
        line += &note;
    }
    line
}

/// Returns the note of the progress, with the checked part of an existing file.
fn remark(s: &Progress) -> Option<String> {
    let note = s.note.clone()?;
    Some(s.checked_bytes.map(|checked| format!("{note}: {}", bytes(checked))).unwrap_or(note))
}

/// Draws the picture for a terminal `width` columns wide.
fn live(s: &Progress, width: usize) -> Vec<String> {
    let mut picture = Vec::new();
    if !s.paths.is_empty() {
        let paths = &s.paths[..s.paths.len().min(PATH_LINES_MAX)];
        let numbers = [
            column("rate", 1, paths, |p| rate(p.rate_bytes)),
            column("share", 2, paths, |p| format!("{:.0} %", p.share_percent)),
            column("srtt", 3, paths, |p| srtt(p.srtt_us)),
            column("cwnd", 4, paths, |p| p.cwnd.to_string()),
            column("loss", 0, paths, loss),
        ];
        picture.extend(path_table(paths, numbers.into_iter().chain(cached(paths)), width));
        if s.paths.len() > PATH_LINES_MAX {
            picture.push(format!("… and {} more paths", s.paths.len() - PATH_LINES_MAX));
        }
    }
    if !is_unmeasured(s) {
        picture.push(bar(percent(s.done_bytes, s.total_bytes.unwrap_or_default()), width.min(100)));
    }
    let whole = total(s);
    match remark(s) {
        // The note says why no data arrives, so it gets a separate line if the line is too long.
        Some(note) if console::measure_text_width(&whole) > width => {
            let mut without = s.clone();
            without.note = None;
            picture.push(total(&without));
            picture.push(note);
        }
        _ => picture.push(whole),
    }
    picture
}

/// Makes a table with a row per path, and these columns of numbers.
fn path_table(
    paths: &[PathProgress],
    numbers: impl IntoIterator<Item = Column>,
    width: usize,
) -> Vec<String> {
    let texts = |text: &dyn Fn(&PathProgress) -> String| -> Vec<String> {
        paths.iter().map(|path| printable(&text(path)).into_owned()).collect()
    };
    let mut columns = vec![
        Column::names("source", texts(&|path| path.source.clone())),
        Column::names("via", texts(&|path| path.via.clone())),
    ];
    columns.extend(numbers);
    table(columns, &texts(&|path| path.state.to_string()), width)
}

/// Makes a column of numbers; see [`Column::numbers`].
fn column(
    head: &'static str,
    rank: u8,
    paths: &[PathProgress],
    cell: impl Fn(&PathProgress) -> String,
) -> Column {
    Column::numbers(head, rank, paths.iter().map(cell).collect())
}

fn loss(path: &PathProgress) -> String {
    format!("{:.1} %", path.loss_percent)
}

/// Makes the column for the share that caches on the path sent, if caches sent any.
fn cached(paths: &[PathProgress]) -> Option<Column> {
    let any = paths.iter().any(|path| path.cached_percent > 0.0);
    any.then(|| column("cached", 5, paths, |path| format!("{:.0} %", path.cached_percent)))
}

fn srtt(us: u64) -> String {
    match us {
        0 => "–".into(),
        _ => Span::from_micros(us).to_string(),
    }
}

/// Returns the lines for the end, in `width` columns.
fn end(summary: &Summary, width: usize) -> Vec<String> {
    let Summary { report, .. } = summary;
    let s = &report.last;
    let mut out = Vec::new();
    // For a transfer that moved nothing, only the reason is of interest, and that is printed elsewhere.
    let fresh = s.done_bytes.saturating_sub(s.resumed_bytes);
    if !report.complete && fresh == 0 && report.banned.is_empty() {
        return out;
    }
    if fresh > 0 || !report.complete {
        let numbers = [
            column("bytes", 1, &s.paths, |p| bytes(p.bytes)),
            column("share", 3, &s.paths, |p| format!("{:.0} %", p.share_percent)),
            column("mean rate", 2, &s.paths, |p| rate(p.rate_bytes)),
            column("loss", 0, &s.paths, loss),
            column("RTOs", 4, &s.paths, |p| p.timeouts.to_string()),
        ];
        out.extend(path_table(&s.paths, numbers.into_iter().chain(cached(&s.paths)), width));
    }
    for one in &report.banned {
        out.push(format!("banned: {}: {}", one.source, one.reason));
    }
    let (word, all) = (report.verdict(), s.total_bytes.unwrap_or_default());
    let mut line = match report.complete {
        true if fresh == 0 && all > 0 => {
            return vec![format!("{}: {} {word}, all of it was there", report.target, bytes(all))];
        }
        true => format!("{}: {} {word}", report.target, bytes(all)),
        false if summary.end.exit == Code::Corrupt as u8 && s.done_bytes == all => {
            format!("not accepted: {} came", bytes(all))
        }
        false => format!("incomplete: {} of {} {word}", bytes(s.done_bytes), bytes(all)),
    };
    line += &format!("; {} in {}, {}", bytes(fresh), duration(s.elapsed_s), rate(average(s)));
    if s.resumed_bytes > 0 {
        line += &format!("; {} were there before", bytes(s.resumed_bytes));
    }
    out.push(line);
    out
}

fn percent(part: u64, whole: u64) -> f64 {
    // This never shows "100.0 %" before the last byte.
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
    use std::path::Path;

    use super::*;
    use anabranch::{BannedSource, Error, GroupedPath, PathGroups, PathState, Verified};

    fn progress() -> Progress {
        let path = |source: &str, rate_bytes, share_percent| {
            let mut path = PathProgress::default();
            (path.source, path.via, path.state) = (source.into(), "eth0".into(), PathState::Open);
            (path.rate_bytes, path.share_percent, path.bytes) = (rate_bytes, share_percent, 1_000_000);
            (path.srtt_us, path.cwnd, path.loss_percent, path.timeouts) = (20_400, 33, 0.2, 1);
            path
        };
        let mut progress = of(2_000_000, 4_000_000);
        (progress.resumed_bytes, progress.elapsed_s) = (1_000_000, 2.0);
        progress.paths =
            vec![path("192.0.2.1:26227", 12_500_000, 75.0), path("[2001:db8::1]:9", 1_000_000, 25.0)];
        progress.note = Some("waiting".into());
        progress
    }

    fn of(done_bytes: u64, total_bytes: u64) -> Progress {
        let mut progress = Progress::default();
        (progress.done_bytes, progress.total_bytes) = (done_bytes, Some(total_bytes));
        progress
    }

    fn report(last: Progress, complete: bool) -> Report {
        let mut report = Report::default();
        (report.last, report.complete) = (last, complete);
        report
    }

    fn banned(source: &str, reason: &str) -> Vec<BannedSource> {
        let mut one = BannedSource::default();
        (one.source, one.reason) = (source.into(), reason.into());
        vec![one]
    }

    #[test]
    fn groups_are_a_line_of_json() {
        let path = |via: &str| {
            let mut path = GroupedPath::default();
            (path.source, path.via) = ("192.0.2.1:9".into(), via.into());
            path
        };
        let mut groups = PathGroups::default();
        (groups.elapsed_s, groups.groups) = (10.6, vec![vec![path("lo")], vec![path("eth0")]]);
        let line: serde_json::Value = serde_json::from_str(&json::text("groups", &groups)).expect("sound");
        assert_eq!(line["event"], "groups");
        assert_eq!(line["elapsed_s"], 10.6);
        assert_eq!(line["groups"][1][0]["via"], "eth0");
    }

    #[test]
    fn the_picture() {
        let picture = live(&progress(), 79);
        assert_eq!(
            picture[..3],
            [
                "source           via           rate  share     srtt  cwnd   loss  state",
                "192.0.2.1:26227  eth0  100.0 Mbit/s   75 %  20.4 ms    33  0.2 %  open",
                "[2001:db8::1]:9  eth0    8.0 Mbit/s   25 %  20.4 ms    33  0.2 %  open",
            ]
        );
        assert_eq!(picture[3].chars().count(), 77);
        assert_eq!(picture[4], " 50.0 %  2.0 MB of 4.0 MB  108.0 Mbit/s  4 s left  waiting");
        let narrow = live(&progress(), 40);
        assert!(narrow.iter().all(|line| console::measure_text_width(line) <= 50), "{narrow:?}");
        assert!(narrow[1].ends_with("0.2 %  open"), "{narrow:?}");
        assert_eq!(narrow.last().expect("a line"), "waiting");
    }

    #[test]
    fn what_caches_sent_is_shown_where_there_are_some() {
        let mut progress = progress();
        assert!(!live(&progress, 100)[0].contains("cached"));
        progress.paths[1].cached_percent = 84.6;
        let picture = live(&progress, 100);
        assert!(picture[0].contains("loss  cached  state"), "{picture:?}");
        assert!(picture[1].ends_with("0.2 %     0 %  open") && picture[2].ends_with("0.2 %    85 %  open"));
        assert!(!live(&progress, 60)[0].contains("cached"), "the first that a narrow terminal goes without");
        assert!(end(&Summary::new(&report(progress, true), None), 100)[0].contains("cached"));
    }

    #[test]
    fn the_table() {
        let mut report = report(progress(), true);
        (report.last.done_bytes, report.target) = (4_000_000, "film.mkv".into());
        (report.banned, report.verified) = (banned("192.0.2.9:1", "wrong bytes"), Verified::Blocks);
        let table = end(&Summary::new(&report, None), 80);
        assert!(table[1].contains("0.2 %     1  open"), "{}", table[1]);
        assert!(table[..3].iter().all(|line| line.len() <= 80), "it fits a terminal");
        assert_eq!(table[3], "banned: 192.0.2.9:1: wrong bytes");
        let last = "film.mkv: 4.0 MB verified; 3.0 MB in 2.0 s, 12.0 Mbit/s; 1.0 MB were there before";
        assert_eq!(table[4], last);
    }

    #[test]
    fn what_is_not_verified_is_not_called_so() {
        let line = |verified, complete| {
            let mut report = report(progress(), complete);
            (report.target, report.verified) = ("f".into(), verified);
            end(&Summary::new(&report, None), 80).last().expect("a line").clone()
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
            let s = of(done_bytes, total_bytes);
            for width in [0, 1, 10, 500] {
                assert!(!live(&s, width).is_empty());
            }
            // If nothing arrived, nothing is shown.
            assert_eq!(end(&Summary::new(&report(s, false), None), 80).is_empty(), done_bytes == 0);
        }
        let mut unmeasured = of(5, 0);
        (unmeasured.total_bytes, unmeasured.note) = (None, Some("how long?".into()));
        assert_eq!(live(&unmeasured, 80), ["5 B  0 kbit/s  how long?"]);
        assert_eq!(percent(999_999, 1_000_000), 99.9);
        let mut checking = of(5, 10);
        (checking.checked_bytes, checking.note) = (Some(3), Some("checking the whole".into()));
        assert_eq!(total(&checking), " 50.0 %  5 B of 10 B  0 kbit/s  checking the whole: 3 B");
        let mut many = Progress::default();
        many.paths = vec![PathProgress::default(); 100];
        assert!(live(&many, 80).len() < 30);
    }

    #[test]
    fn the_summary_has_the_keys_that_scripts_know() {
        let mut report = Report::default();
        report.banned = banned("a", "b");
        let failure = Failure::from(Error::target("full").at(Path::new("f")));
        let text = json::text("summary", &Summary::new(&report, Some(&failure)));
        let keys = ["version", "event", "last", "target", "content", "banned", "complete", "verified"];
        let keys = keys.iter().chain(&[
            "verified_by",
            "unverified_since",
            "advice",
            "exit",
            "error",
            "error_kind",
            "error_at",
        ]);
        let places: Vec<usize> = keys
            .map(|key| text.find(&format!("\"{key}\":")).unwrap_or_else(|| panic!("{key}: {text}")))
            .collect();
        assert!(places.is_sorted(), "{text}");
        let end = r#""exit":6,"error":"full","error_kind":"target","error_at":{"path":"f"}}"#;
        assert!(text.ends_with(&format!("{end}\n")), "{text}");
    }
}
