//! What a transfer looks like while it runs, and at its end.

use serde::Serialize;

/// A transfer at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Progress {
    /// Bytes there will be.
    pub total_bytes: u64,
    /// Bytes verified and written, those of an earlier run among them.
    pub done_bytes: u64,
    /// Bytes that were there already when this run began; the rate and the ETA do not count them.
    pub resumed_bytes: u64,
    /// Time since this run began, in seconds.
    pub elapsed_s: f64,
    /// One row a path, in a stable order.
    pub paths: Vec<PathProgress>,
    /// What the user should know now: "waiting for a source".
    pub note: Option<String>,
}

/// One path at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PathProgress {
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
pub struct Report {
    /// The last state; rates are means over the whole run.
    pub last: Progress,
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
}

impl Report {
    /// What is to be said of the bytes that are here: "verified", "UNVERIFIED", …
    #[must_use]
    pub fn verdict(&self) -> String {
        match (&self.unverified_since, self.complete) {
            (Some(day), true) => format!("UNVERIFIED, the same as on {day}"),
            _ => self.verified.verdict(self.complete).to_owned(),
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
    const fn verdict(self, complete: bool) -> &'static str {
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

/// The state of a path over which nothing has come yet.
pub(crate) const NO_ANSWER_YET: &str = "no answer yet";

impl Progress {
    /// That of one file, `now`, with this of the others of the same request.
    pub(crate) fn and(&self, now: &Self) -> Self {
        Self {
            total_bytes: now.total_bytes + self.total_bytes,
            done_bytes: now.done_bytes + self.done_bytes,
            resumed_bytes: now.resumed_bytes + self.resumed_bytes,
            elapsed_s: now.elapsed_s + self.elapsed_s,
            paths: joined(&self.paths, &now.paths),
            note: now.note.clone(),
        }
    }
}

/// What has come `before` over paths with what comes `now`, and then the paths that are new.
fn joined(before: &[PathProgress], now: &[PathProgress]) -> Vec<PathProgress> {
    let mut rows: Vec<PathProgress> =
        before.iter().map(|row| PathProgress { rate_bytes: 0, ..row.clone() }).collect();
    add(&mut rows, now);
    if !before.is_empty() {
        share(&mut rows);
    }
    rows
}

/// Adds what comes `now` to the rows of its paths; a path without one gets one.
pub(crate) fn add(rows: &mut Vec<PathProgress>, now: &[PathProgress]) {
    for row in now {
        match rows.iter_mut().find(|known| is_same(known, row)) {
            Some(known) => *known = sum(known, row),
            None => rows.push(row.clone()),
        }
    }
}

/// The row of a path over which `now` came after `before`.
fn sum(before: &PathProgress, now: &PathProgress) -> PathProgress {
    let state = if now.state == NO_ANSWER_YET { &before.state } else { &now.state }.clone();
    let (bytes, timeouts) = (before.bytes + now.bytes, before.timeouts + now.timeouts);
    PathProgress { state, bytes, timeouts, ..now.clone() }
}

/// Whether both are of the same path.
pub(crate) fn is_same(a: &PathProgress, b: &PathProgress) -> bool {
    (&a.source, &a.via) == (&b.source, &b.via)
}

/// Works out what part of all bytes came over each.
pub(crate) fn share(rows: &mut [PathProgress]) {
    let all: u64 = rows.iter().map(|row| row.bytes).sum();
    for row in rows {
        row.share_percent = row.bytes as f64 * 100.0 / all.max(1) as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_before_counts() {
        let row = |source: &str, bytes: u64, state: &str| PathProgress {
            source: source.into(),
            state: state.into(),
            rate_bytes: bytes,
            bytes,
            ..PathProgress::default()
        };
        let before = [row("a", 100, "open"), row("b", 200, "failing"), row("c", 0, NO_ANSWER_YET)];
        let now = [row("b", 50, "open"), row("a", 0, NO_ANSWER_YET), row("d", 50, "open")];
        let joined = joined(&before, &now);
        let told: Vec<(&str, u64, u64, &str)> =
            joined.iter().map(|r| (r.source.as_str(), r.bytes, r.rate_bytes, r.state.as_str())).collect();
        assert_eq!(
            told,
            [
                ("a", 100, 0, "open"),
                ("b", 250, 50, "open"),
                ("c", 0, 0, NO_ANSWER_YET),
                ("d", 50, 50, "open")
            ]
        );
        assert_eq!(joined[1].share_percent, 62.5);
        assert_eq!(super::joined(&[], &now)[0].share_percent, now[0].share_percent);
    }
}
