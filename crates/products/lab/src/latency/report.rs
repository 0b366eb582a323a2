//! Formats the study: tables of text, a figure, and the page that holds them.

use std::fmt::Write as _;

use anabranch_mptcp::SchedulerKind;

use super::grid::{Bed, Paths, Transport};
use super::row::Row;
use super::workload::{DEADLINE, PAGES};
use crate::report::dot_chart::{DotChart, DotPanel};
use crate::report::fill;

/// Text of the page; `{{NAME}}` stands for a part that is computed.
const PAGE: &str = include_str!("report.md");
/// How much longer than the best single path minRTT may take, and by how much symmetric paths should shorten
/// the 95th percentile, as the project's issue asks.
const WORSE_MAX: f64 = 1.1;
const SHORTER_PERCENT: f64 = 20.0;

/// Returns the row of a bed, stream and transport.
fn find<'a>(rows: &'a [Row], bed: &Bed, stream: &str, transport: Transport) -> Option<&'a Row> {
    rows.iter().find(|row| row.bed == *bed && row.stream == stream && row.transport == transport)
}

/// Returns the beds and streams, in the order of the rows.
fn keys(rows: &[Row]) -> Vec<(Bed, &'static str)> {
    let mut keys: Vec<(Bed, &'static str)> = Vec::new();
    for row in rows {
        if !keys.contains(&(row.bed, row.stream)) {
            keys.push((row.bed, row.stream));
        }
    }
    keys
}

fn head(first: &str) -> String {
    let mut out = format!("| {first} |");
    let transports = Transport::each();
    for transport in &transports {
        let _ = write!(out, " {} |", transport.name());
    }
    out + "\n| --- |" + &" ---: |".repeat(transports.len()) + "\n"
}

/// Formats one line of a table: a cell for each transport.
fn line(rows: &[Row], first: &str, bed: &Bed, stream: &str, cell: impl Fn(&Row) -> String) -> String {
    let mut out = format!("| {first} |");
    for transport in Transport::each() {
        let text = find(rows, bed, stream, transport).map_or("–".into(), &cell);
        let _ = write!(out, " {text} |");
    }
    out + "\n"
}

/// Formats the tables of all beds as Markdown: mean, 95th and 99th percentile, ms.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let (mut out, mut last) = (String::new(), None);
    for (bed, stream) in keys(rows) {
        if last != Some(bed) {
            let _ = write!(out, "\n### {}\n\n{}", bed.name(), head("stream"));
            last = Some(bed);
        }
        let is_page = PAGES.iter().any(|page| page.0 == stream);
        out += &line(rows, stream, &bed, stream, |row| {
            let (mean, p95) = (row.mean_ms(), row.percentile_ms(95.0));
            if is_page {
                // A page is one value a seed.
                return format!("{mean:.0}");
            }
            format!("{mean:.0} / {p95:.0} / {:.0}", row.percentile_ms(99.0))
        });
    }
    out.trim_start().to_owned()
}

/// Formats the missed deadlines of video frames.
fn missed(rows: &[Row]) -> String {
    let mut out = head("video");
    for (bed, stream) in keys(rows).into_iter().filter(|(_, stream)| *stream == "video") {
        out += &line(rows, &bed.name(), &bed, stream, |row| format!("{:.1}", row.missed_percent()));
    }
    out
}

/// Draws the figure: the mean latency of video, one game and each page, for each bed.
#[must_use]
pub fn figure(rows: &[Row]) -> String {
    let transports = Transport::each();
    let panel = |bed: Bed| {
        let streams = keys(rows).into_iter().filter(|(of, stream)| {
            *of == bed && (["video", "Halo 3"].contains(stream) || PAGES.iter().any(|page| page.0 == *stream))
        });
        let value = |stream: &str, transport| {
            let row = find(rows, &bed, stream, transport);
            let best = [0, 1].into_iter().filter_map(|path| find(rows, &bed, stream, Transport::Tcp(path)));
            let best = best.map(Row::mean_ms).fold(f64::INFINITY, f64::min);
            row.map_or(f64::NAN, |row| (row.mean_ms() / best).min(4.0))
        };
        let row = |(_, stream): (Bed, &'static str)| {
            (stream.to_owned(), transports.iter().map(|transport| value(stream, *transport)).collect())
        };
        DotPanel { title: bed.name(), rows: streams.map(row).collect() }
    };
    let chart = DotChart {
        series: transports.iter().map(|transport| transport.name()).collect(),
        quantity: "mean latency, in proportion to the better TCP (4: four or more)".into(),
        panels: Bed::each().into_iter().map(panel).collect(),
    };
    chart.svg()
}

/// How many comparisons of a claim hold, and the worst of them.
#[derive(Default)]
struct Tally {
    hold: usize,
    count: usize,
    worst: Option<(f64, String)>,
}

impl Tally {
    /// Counts a comparison; the greatest `value` is the worst.
    fn add(&mut self, holds: bool, value: f64, what: String) {
        self.hold += usize::from(holds);
        self.count += 1;
        if self.worst.as_ref().is_none_or(|(worst, _)| value > *worst) {
            self.worst = Some((value, what));
        }
    }

    fn line(&self, claim: &str, paper: &str, unit: &str) -> String {
        let worst =
            self.worst.as_ref().map_or("–".into(), |(value, what)| format!("{value:.2}{unit} ({what})"));
        let holds = if self.hold == self.count { "yes" } else { "**no**" };
        format!("| {claim} | {paper} | {} of {} | {worst} | {holds} |\n", self.hold, self.count)
    }
}

const MIN_RTT: Transport = Transport::Mptcp(SchedulerKind::MinRtt);
const REDUNDANT: Transport = Transport::Mptcp(SchedulerKind::Redundant);

fn claims(rows: &[Row]) -> String {
    let [mut symmetric, mut bound, mut best, mut free, mut robin, mut blest, mut ecf] =
        [(); 7].map(|()| Tally::default());
    for (bed, stream) in keys(rows).into_iter().filter(|(bed, _)| !bed.cut) {
        let of = |transport| find(rows, &bed, stream, transport);
        let (Some(one), Some(two), Some(min)) = (of(Transport::Tcp(0)), of(Transport::Tcp(1)), of(MIN_RTT))
        else {
            continue;
        };
        let what = format!("{stream}, {}", bed.name());
        if bed.paths == Paths::Symmetric {
            let single = (one.percentile_ms(95.0) + two.percentile_ms(95.0)) / 2.0;
            for (tally, row) in [(&mut symmetric, Some(min)), (&mut bound, of(REDUNDANT))] {
                let ratio = row.map_or(f64::NAN, |row| row.percentile_ms(95.0) / single);
                tally.add(ratio <= 1.0 - SHORTER_PERCENT / 100.0, ratio, what.clone());
            }
            continue;
        }
        for (tally, row) in [(&mut best, Some(min)), (&mut free, of(Transport::Uncoupled))] {
            let ratio = row.map_or(f64::NAN, |row| row.mean_ms() / one.mean_ms().min(two.mean_ms()));
            tally.add(ratio <= WORSE_MAX, ratio, what.clone());
        }
        let against = |tally: &mut Tally, kind, is_worse: bool| {
            let Some(other) = of(Transport::Mptcp(kind)) else { return };
            let ratio = other.mean_ms() / min.mean_ms();
            let (holds, value) = if is_worse { (ratio > 1.0, -ratio) } else { (ratio <= 1.0, ratio) };
            tally.add(holds, value, what.clone());
        };
        against(&mut robin, SchedulerKind::RoundRobin, true);
        against(&mut blest, SchedulerKind::Blest, false);
        against(&mut ecf, SchedulerKind::Ecf, false);
    }
    if let Some((value, _)) = &mut robin.worst {
        *value = -*value;
    }
    let mut out =
        String::from("| claim | the thesis | holds in | worst | holds |\n| --- | --- | --- | --- | --- |\n");
    out += &symmetric.line(
        "symmetric paths: the 95th percentile of minRTT at least 20 % below that of one path",
        "latency clearly lower than over one path",
        "",
    );
    out += &bound.line(
        "control: the same of redundant, which sends each message on both paths at once",
        "–",
        "",
    );
    out += &best.line(
        "WLAN + 3G: the mean of minRTT at most 1.1 times that of the better path",
        "not lower, may rise with the asymmetry",
        "",
    );
    out += &free.line("control: the same without coupling, each subflow with the controller of TCP", "–", "");
    out += &robin.line("WLAN + 3G: round robin worse than minRTT", "depends on the scheduler", "");
    out += &blest.line("WLAN + 3G: BLEST at most as minRTT", "–", "");
    out += &ecf.line("WLAN + 3G: ECF at most as minRTT", "–", "");
    let cut = Bed::cut();
    let longest = |bed: &Bed| find(rows, bed, "video", REDUNDANT).map(|row| row.percentile_ms(100.0));
    if let (Some(with), Some(without)) = (longest(&cut), longest(&Bed { cut: false, ..cut })) {
        let mut tally = Tally::default();
        tally.add(
            with <= without,
            with - without,
            "longest wait for a frame, with the cut less without".into(),
        );
        out += &tally.line("redundant: a path that is cut costs 0 ms", "–", " ms");
    }
    out
}

/// Formats the page as Markdown. Equal rows give equal texts.
#[must_use]
pub fn markdown(rows: &[Row], seeds: u64) -> String {
    let places = [
        ("claims", claims(rows)),
        ("tables", table(rows)),
        ("missed", missed(rows)),
        ("seeds", seeds.to_string()),
        ("deadline", DEADLINE.to_string()),
    ];
    fill(PAGE, &places)
}
