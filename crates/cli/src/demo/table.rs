//! The result of the demonstration: each source alone and all of them as computed, and the real transfer.

use anabranch::Progress;
use anabranch_algo::Rate;
use serde::Serialize;

use super::script::Kill;
use super::source_process::{SOURCES, SourceProcess};
use crate::exit::Outcome;
use crate::json;
use crate::stdout;
use crate::view::rate;

/// A row of the table: a transfer of the file.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    transfer: String,
    /// Whether the row was computed from the limits; if not, it was measured.
    computed: bool,
    seconds: f64,
    rate_bytes: u64,
    /// The gain over the fastest source alone, in percent.
    gain_percent: f64,
    /// The share of each source, in percent.
    share_percent: [f64; SOURCES.len()],
    /// The number of retransmission timeouts, if the row was measured.
    timeouts: Option<u64>,
    /// Whether all bytes arrived and are those of the file, if the row was measured.
    verified: Option<bool>,
}

impl Row {
    /// Computes a row for `length` bytes from the sources with these indices, each sending at its limit.
    fn computed(transfer: String, length: u64, sources: &[usize]) -> Self {
        let limit = |index: &usize| SOURCES[*index].rate().as_bytes();
        let all: u64 = sources.iter().map(limit).sum();
        let mut share_percent = [0.0; SOURCES.len()];
        for index in sources {
            share_percent[*index] = limit(index) as f64 * 100.0 / all as f64;
        }
        Self {
            transfer,
            computed: true,
            seconds: Rate::from_bytes(all).time_for(length).as_nanos() as f64 / 1e9,
            rate_bytes: all,
            gain_percent: gain_percent(all),
            share_percent,
            timeouts: None,
            verified: None,
        }
    }

    /// Makes a row from the last progress of a transfer.
    fn measured(
        transfer: &str,
        length: u64,
        last: &Progress,
        sources: &[SourceProcess],
        verified: bool,
    ) -> Self {
        let mut share_percent = [0.0; SOURCES.len()];
        for (share, source) in share_percent.iter_mut().zip(sources) {
            let of_source = last.paths.iter().filter(|path| path.source == source.place());
            *share = of_source.map(|path| path.share_percent).sum();
        }
        let rate_bytes = (length as f64 / last.elapsed_s.max(1e-9)) as u64;
        Self {
            transfer: transfer.to_owned(),
            computed: false,
            seconds: last.elapsed_s,
            rate_bytes,
            gain_percent: gain_percent(rate_bytes),
            share_percent,
            timeouts: Some(last.paths.iter().map(|path| path.timeouts).sum()),
            verified: Some(verified),
        }
    }

    /// Returns the rows of the table: each source alone and all of them, computed; then the real transfer.
    pub(super) fn all(
        length: u64,
        last: &Progress,
        sources: &[SourceProcess],
        kill: Kill,
        verified: bool,
    ) -> Vec<Self> {
        let alone = |(index, spec): (usize, &super::source_process::Spec)| {
            Self::computed(spec.to_string(), length, &[index])
        };
        let mut rows: Vec<Self> = SOURCES.iter().enumerate().map(alone).collect();
        rows.push(Self::computed("all together".into(), length, &[0, 1, 2]));
        let name = match (kill.killed_s, kill.back_s) {
            (None, _) => "all, none killed",
            (_, None) => "all, one killed",
            (_, Some(_)) => "all, one killed and back",
        };
        rows.push(Self::measured(name, length, last, sources, verified));
        rows
    }

    /// Says how the row is known.
    const fn evidence(&self) -> &'static str {
        match self.verified {
            None => "computed",
            Some(true) => "verified",
            Some(false) => "NOT WHOLE",
        }
    }
}

/// Returns the gain of a rate over the rate of the fastest source, in percent.
fn gain_percent(rate_bytes: u64) -> f64 {
    let best = SOURCES.iter().map(|spec| spec.rate().as_bytes()).max().unwrap_or(1);
    (rate_bytes as f64 / best as f64 - 1.0) * 100.0
}

/// Prints the rows; for people also a conclusion.
pub(super) fn print(rows: &[Row], root: &str, kill: Kill, is_json: bool) -> Outcome {
    if is_json {
        return stdout::print(rows.iter().map(|row| json::text("row", row)).collect::<String>());
    }
    let [a, b, c] = SOURCES.map(|spec| spec.name);
    let mut lines =
        vec![format!("{:<24}{:>7}{:>12}{:>6}{a:>6}{b:>7}{c:>6}", "transfer", "time", "rate", "gain")];
    for row in rows {
        let [a, b, c] = row.share_percent.map(|share| format!("{share:.0} %"));
        lines.push(format!(
            "{:<24}{:>7}{:>12}{:>4.0} %{a:>6}{b:>7}{c:>6}  {}",
            row.transfer,
            format!("{:.1} s", row.seconds),
            rate(row.rate_bytes),
            row.gain_percent,
            row.evidence(),
        ));
    }
    lines.push("Computed: all bytes at the limits. Gain: over the fastest source alone.".into());
    if let ([.., undisturbed, last], Some(killed_s)) = (rows, kill.killed_s) {
        let until = kill.back_s.map_or("the end".to_owned(), |back_s| format!("{back_s:.1} s"));
        let cost_s = last.seconds - undisturbed.seconds;
        let [name, ..] = SOURCES.map(|spec| spec.name);
        lines.push(format!("{name} was away from {killed_s:.1} s to {until}: that cost {cost_s:.1} s."));
    }
    if rows.last().is_some_and(|row| row.verified == Some(true)) {
        lines.push("verified: the copy on disk has the BLAKE3 root that the URI names:".into());
        lines.push(format!("  {root}"));
    }
    lines.push("Next: anabranch serve FILE, anabranch get 'URI'; anabranch demo --keep".into());
    stdout::print(lines.join("\n") + "\n")
}
