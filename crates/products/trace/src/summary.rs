//! The report as text: the findings of a capture in sentences and small tables.

use std::fmt::Write as _;

use crate::report::{ConnectionReport, SubflowReport};
use crate::subflow::Side;
use crate::table::Totals;
use crate::words::{self, bytes, duration, plural};

/// The most connections that are shown in full, the largest of those with several subflows first.
const SHOWN_MAX: usize = 5;

/// Gathers connections while a capture is read. The largest are kept, the others counted.
#[derive(Debug, Default)]
pub struct Summary {
    shown: Vec<ConnectionReport>,
    multipath: u64,
    several: u64,
    used: u64,
    handovers: u64,
    fallbacks: u64,
    bytes: u64,
}

/// Ranks connections: those with several subflows first, because readers look for them; then by bytes.
fn rank(report: &ConnectionReport) -> (bool, u64) {
    (report.subflows.len() > 1, report.bytes())
}

fn used(report: &ConnectionReport) -> usize {
    let carries = |s: &&SubflowReport| s.halves.up.unique_bytes + s.halves.down.unique_bytes > 0;
    report.subflows.iter().filter(carries).count()
}

impl Summary {
    /// Takes the report of a connection.
    pub fn add(&mut self, report: ConnectionReport) {
        self.multipath += u64::from(report.is_multipath());
        self.several += u64::from(report.subflows.len() > 1);
        self.used += u64::from(used(&report) > 1);
        self.handovers += report.handovers.len() as u64;
        self.fallbacks += u64::from(report.fallback.is_some());
        self.bytes += report.bytes();
        self.shown.push(report);
        self.shown.sort_by_key(|report| std::cmp::Reverse(rank(report)));
        self.shown.truncate(SHOWN_MAX);
    }

    /// Returns the connections that are shown in full.
    pub(crate) fn shown(&self) -> &[ConnectionReport] {
        &self.shown
    }

    /// Returns the totals of the capture, one fact a line.
    pub(crate) fn lines(&self, totals: &Totals) -> Vec<String> {
        let seconds = totals.last_ns.saturating_sub(totals.first_ns) as f64 / 1e9;
        let mut lines = vec![format!(
            "{} in {}, {}, {} of data",
            plural(totals.frames, "frame"),
            duration(seconds),
            plural(totals.connections, "connection"),
            bytes(self.bytes)
        )];
        if totals.connections > 1 || self.multipath == 0 {
            lines.push(format!(
                "{} Multipath TCP ({} with several subflows, {} used several), {} plain TCP",
                self.multipath,
                self.several,
                self.used,
                totals.connections - self.multipath
            ));
        }
        for (count, what) in [
            (totals.not_tcp, "without TCP"),
            (totals.strays, "of connections that began before the capture"),
            (
                totals.cut_off,
                "cut off within their headers: capture with a longer snap length (tcpdump -s 128)",
            ),
            (totals.fragments, "are fragments"),
            (totals.malformed, "with headers that contradict themselves"),
        ] {
            if count > 0 {
                lines.push(format!("{} {what}", plural(count, "frame")));
            }
        }
        if let Some(kind) = totals.unknown_link_type {
            let count = plural(totals.unknown_link, "frame");
            lines.push(format!("{count} of a link type that cannot be read ({kind})"));
        }
        lines
    }

    /// Returns a sentence with the number of connections that are not shown, if there are any.
    pub(crate) fn left_out(&self, totals: &Totals) -> Option<String> {
        let left = totals.connections - self.shown.len() as u64;
        (left > 0).then(|| format!("{}, which --json has in full", plural(left, "more connection")))
    }

    /// Returns the report as text.
    #[must_use]
    pub fn text(&self, totals: &Totals) -> String {
        let mut text = self.lines(totals).join("\n  ") + "\n";
        for report in &self.shown {
            text.push('\n');
            connection(&mut text, report);
        }
        if let Some(left) = self.left_out(totals) {
            let _ = writeln!(text, "\n{left}");
        }
        text
    }
}

fn connection(text: &mut String, report: &ConnectionReport) {
    let _ = writeln!(text, "{}", words::headline(report).join("\n  "));
    if let Some(why) = report.fallback {
        let _ = writeln!(text, "  FELL BACK to plain TCP: {}", words::fallback(why));
    }
    for side in Side::BOTH {
        let unique_bytes = report.streams.from(side).unique_bytes;
        if words::is_bulk(report, side) {
            let _ = writeln!(text, "\n  {}", words::direction(report, side));
            let mut rows = vec![words::COLUMNS.map(str::to_owned)];
            rows.extend(words::rows(report, side));
            words::table(text, &rows);
            for note in words::notes(report, side) {
                let _ = writeln!(text, "    {note}");
            }
        } else if unique_bytes > 0 {
            let _ = writeln!(text, "\n  {}: {}", words::towards(side), bytes(unique_bytes));
        }
    }
    if report.subflows.len() > 1 {
        text.push('\n');
    }
    let joins = report.subflows.iter().skip(1).map(words::join);
    for line in joins.chain(words::handovers(report)).chain(words::audits(report)) {
        let _ = writeln!(text, "  {line}");
    }
}
