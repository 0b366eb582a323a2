//! Formats the study: a table of text, a figure, and the page that holds both.

use std::fmt::Write as _;

use anabranch_algo::Span;
use anabranch_mptcp::{TAIL_LOSS_POLICIES, TailLoss};

use super::burst::{RATE_MBITS, WARM_UP_SEGMENTS};
use super::grid::{AlternateQueue, Lost, RTTS_MS, RUNS, SEGMENTS};
use super::row::Row;
use crate::report::dot_chart::{DotChart, DotPanel};
use crate::report::fill;

/// Text of the page; `{{NAME}}` stands for a part that is computed.
const PAGE: &str = include_str!("report.md");
/// This project's own policy.
const OURS: TailLoss = TailLoss::Overtake;
/// Round trips after which a tail is probed for (RFC 8985 section 7.2).
const PROBE_ROUNDS: u64 = 2;
/// How much shorter a burst should be, as the project wants it.
const HALF_PERCENT: f64 = 50.0;

/// Rows that a line of the table sums up: all bursts with equal paths and losses.
struct Line<'a> {
    rows: Vec<&'a Row>,
}

impl<'a> Line<'a> {
    /// Returns the line of these paths and losses, if there are rows.
    fn of(
        rows: &'a [Row],
        rtts_ms: (u64, u64),
        alternate: AlternateQueue,
        lost: Lost,
        probe_lost: bool,
    ) -> Option<Self> {
        let is_of = |row: &&Row| {
            let burst = row.burst;
            (burst.rtts_ms, burst.alternate, burst.lost, burst.probe_lost)
                == (rtts_ms, alternate, lost, probe_lost)
        };
        let rows: Vec<&Row> = rows.iter().filter(is_of).collect();
        (!rows.is_empty()).then_some(Self { rows })
    }

    fn mean(&self, value: impl Fn(&Row) -> f64) -> f64 {
        self.rows.iter().map(|row| value(row)).sum::<f64>() / self.rows.len() as f64
    }

    fn mean_ms(&self, policy: TailLoss) -> f64 {
        self.mean(|row| row.with(policy).time.as_nanos() as f64 / 1e6)
    }

    fn gain(&self, policy: TailLoss) -> f64 {
        100.0 * (1.0 - self.mean_ms(policy) / self.mean_ms(TailLoss::SamePath))
    }

    fn most_extra(&self) -> i64 {
        self.rows.iter().map(|row| row.extra_segments(OURS)).max().unwrap_or(0)
    }
}

fn lost_name(lost: Lost, probe_lost: bool) -> String {
    if probe_lost { format!("{} + probe", lost.name()) } else { lost.name() }
}

/// Returns the losses in the order of tables.
fn losses() -> impl Iterator<Item = (Lost, bool)> {
    [false, true].into_iter().flat_map(|probe_lost| Lost::EACH.map(|lost| (lost, probe_lost)))
}

/// Formats the table as Markdown: a line for each pair of paths, queue and loss, the mean over the bursts.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut out = String::from("| paths, ms | alternate | lost |");
    for policy in TAIL_LOSS_POLICIES {
        let _ = write!(out, " {}, ms |", policy.name);
    }
    out.push_str(" bound, ms | no loss, ms | gain of alternate-path, % | gain of overtake, % | ");
    out.push_str("extra segments, at most |\n| --- | --- | --- |");
    out.push_str(&" ---: |".repeat(TAIL_LOSS_POLICIES.len() + 5));
    out.push('\n');
    for rtts_ms in RTTS_MS {
        for alternate in AlternateQueue::EACH {
            for (lost, probe_lost) in losses() {
                let Some(line) = Line::of(rows, rtts_ms, alternate, lost, probe_lost) else { continue };
                let (near, far) = rtts_ms;
                let _ =
                    write!(out, "| {near}, {far} | {} | {} |", alternate.name(), lost_name(lost, probe_lost));
                for policy in TAIL_LOSS_POLICIES {
                    let _ = write!(out, " {:.1} |", line.mean_ms(policy.policy));
                }
                let of = |value: &dyn Fn(&Row) -> Span| line.mean(|row| value(row).as_nanos() as f64 / 1e6);
                let (bound, whole) = (of(&|row| row.bound(1)), of(&|row| row.whole.time));
                let (other, ours) = (line.gain(TailLoss::AlternatePath), line.gain(OURS));
                let extra = line.most_extra();
                let _ = writeln!(out, " {bound:.1} | {whole:.1} | {other:.1} | {ours:.1} | {extra} |");
            }
        }
    }
    out
}

/// Draws the figure: a panel for each pair of paths with an idle alternate path.
#[must_use]
pub fn figure(rows: &[Row]) -> String {
    let panel = |rtts_ms: (u64, u64)| {
        let line = |(lost, probe_lost)| {
            let line = Line::of(rows, rtts_ms, AlternateQueue::Idle, lost, probe_lost)?;
            let means = TAIL_LOSS_POLICIES.iter().map(|policy| line.mean_ms(policy.policy));
            Some((lost_name(lost, probe_lost), means.collect()))
        };
        let title = format!("primary {} ms, alternate {} ms", rtts_ms.0, rtts_ms.1);
        DotPanel { title, rows: losses().filter_map(line).collect() }
    };
    let chart = DotChart {
        series: TAIL_LOSS_POLICIES.iter().map(|policy| policy.name.to_owned()).collect(),
        quantity: "burst completion time, ms".into(),
        panels: RTTS_MS.into_iter().map(panel).collect(),
    };
    chart.svg()
}

/// A claim with its verdict.
struct Claim {
    what: &'static str,
    paper: &'static str,
    ours: String,
    holds: bool,
}

/// The gains of a policy over the same path, for some bursts.
struct Gains {
    text: String,
    holds: bool,
}

impl Gains {
    /// Sums up the gains of a policy that reacts after so many round trips.
    fn of(rows: &[&Row], policy: TailLoss, rounds: u64) -> Self {
        let count = rows.len();
        let gains = || rows.iter().map(|row| row.gain_percent(policy));
        let mean = gains().sum::<f64>() / count.max(1) as f64;
        let is_half = |gain: &f64| *gain >= HALF_PERCENT;
        let half = gains().filter(is_half).count();
        let (low, high) = (gains().fold(f64::INFINITY, f64::min), gains().fold(f64::NEG_INFINITY, f64::max));
        let possible = rows.iter().map(|row| row.shorter_percent(row.bound(rounds))).filter(is_half).count();
        let text = format!(
            "mean {mean:.1} % ({low:.1} to {high:.1}); {half} of {count} bursts by 50 % or more, \
             {possible} could be"
        );
        Self { text, holds: half == count }
    }
}

/// Returns the claims about a policy that uses the alternate path after so many round trips.
fn claims(rows: &[Row], policy: TailLoss, rounds: u64) -> Vec<Claim> {
    let segment_ns = 1_500 * 8 * 1_000 / RATE_MBITS;
    let slower = rows.iter().filter(|row| row.slower_by(policy).as_nanos() > segment_ns).count();
    let most = rows.iter().map(|row| row.slower_by(policy).as_nanos()).max().unwrap_or(0) as f64 / 1e6;
    let idle = || rows.iter().filter(|row| row.burst.alternate == AlternateQueue::Idle);
    let is_shorter = |row: &&Row| row.burst.rtts_ms.1 < row.burst.rtts_ms.0;
    let lost: Vec<_> = idle().filter(|row| row.burst.probe_lost).collect();
    let shorter: Vec<_> = idle().filter(is_shorter).filter(|row| !row.burst.probe_lost).collect();
    let [lost, shorter] = [lost, shorter].map(|rows| Gains::of(&rows, policy, rounds));
    let extra = |row: &Row| row.extra_segments(policy);
    let single = |row: &&Row| row.burst.lost == Lost::Last(1);
    let most_single = rows.iter().filter(single).map(extra).max().unwrap_or(0);
    let most_extra = rows.iter().map(extra).max().unwrap_or(0);
    vec![
        Claim {
            what: "never slower than the same path, beyond the time of one segment",
            paper: "better or equal in all cases",
            ours: format!("slower in {slower} of {} bursts, at most by {most:.2} ms", rows.len()),
            holds: slower == 0,
        },
        Claim {
            what: "at least 50 % lower completion time where the probe is lost, too",
            paper: "best when the probe is lost; up to 50 % over WLAN and 4G",
            ours: lost.text,
            holds: lost.holds,
        },
        Claim {
            what: "at least 50 % lower completion time where the alternate path is shorter",
            paper: "best when the alternate path is shorter; grows with the difference",
            ours: shorter.text,
            holds: shorter.holds,
        },
        Claim {
            what: "one more segment where one is lost",
            paper: "one more segment, if the primary path recovers",
            ours: format!("at most {most_single} where one is lost, at most {most_extra} in all"),
            holds: most_single <= 1,
        },
    ]
}

/// Formats the claims about all policies that use the alternate path.
fn table_of_claims(rows: &[Row]) -> String {
    let mut out =
        String::from("| policy | claim | the thesis | ours | holds |\n| --- | --- | --- | --- | --- |\n");
    for (policy, rounds) in [(TailLoss::AlternatePath, PROBE_ROUNDS), (OURS, 1)] {
        let name = TAIL_LOSS_POLICIES.iter().find(|row| row.policy == policy).map_or("", |row| row.name);
        for Claim { what, paper, ours, holds } in claims(rows, policy, rounds) {
            let holds = if holds { "yes" } else { "**no**" };
            let _ = writeln!(out, "| `{name}` | {what} | {paper} | {ours} | {holds} |");
        }
    }
    out
}

/// Formats the page as Markdown. Equal rows give equal texts.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    let segments = SEGMENTS.map(|count| count.to_string()).join(", ");
    let places = [
        ("claims", table_of_claims(rows)),
        ("table", table(rows)),
        ("segments", segments),
        ("rate", RATE_MBITS.to_string()),
        ("warm_up", WARM_UP_SEGMENTS.to_string()),
        ("runs", (rows.len() * RUNS).to_string()),
    ];
    fill(PAGE, &places)
}
