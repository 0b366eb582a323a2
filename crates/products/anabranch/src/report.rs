//! Defines the progress and the results of transfers; [`source`] has those of sources.

pub(crate) mod source;

use std::fmt;

use serde::{Serialize, Serializer};

use crate::Error;

/// Reports the progress of a transfer at one moment.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Progress {
    /// The number of bytes of the whole transfer; `None` while it is not known.
    pub total_bytes: Option<u64>,
    /// The number of bytes that are verified and written, including bytes of an earlier run. While a file is
    /// fetched, this number never falls. If bytes turn out to be wrong and are fetched again, it stays until
    /// the true number has reached it again, and `note` says so. The last progress and [`Report::last`] have
    /// the exact number.
    pub done_bytes: u64,
    /// The number of bytes of an existing file that have been read to check the file; `None` outside of such
    /// a check. `note` describes the check. The other numbers stay as they were before.
    pub checked_bytes: Option<u64>,
    /// The number of bytes that existed already when this run began; the rate and the ETA do not count them.
    pub resumed_bytes: u64,
    /// The time since this run began, in seconds.
    pub elapsed_s: f64,
    /// One row for each path, in a stable order.
    pub paths: Vec<PathProgress>,
    /// A text that the user should see now: "waiting for a source".
    pub note: Option<String>,
}

/// Reports the progress of one path at one moment.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct PathProgress {
    /// The source: its host and port, as the request names it. The address follows in brackets, unless the
    /// name is this address.
    pub source: String,
    /// The local end: interface or address.
    pub via: String,
    /// The state; JSON has the text that it displays as.
    pub state: PathState,
    /// The rate in bytes a second at the last measurement; measurements are at least 0.4 s apart, and before
    /// the first one the rate is 0. The last progress and the report have the mean over the whole run.
    pub rate_bytes: u64,
    /// The share of all bytes that came over this path, in percent.
    pub share_percent: f64,
    /// The smoothed round-trip time in microseconds; 0 while it is not known.
    pub srtt_us: u64,
    /// The congestion window in packets.
    pub cwnd: u32,
    /// The share of requested packets that were lost, in percent.
    pub loss_percent: f64,
    /// The number of verified bytes.
    pub bytes: u64,
    /// The share of arrived packets that caches on the way sent, in percent; 0 without a network of caches.
    pub cached_percent: f64,
    /// The number of retransmission timeouts.
    pub timeouts: u64,
    /// Paths with the same number are coupled: they may share a bottleneck.
    pub group: u32,
}

/// Describes the state of a path. In displays and in JSON, each state is the text in quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathState {
    /// "no answer yet": nothing has arrived over the path.
    #[default]
    NoAnswerYet,
    /// "open": the source answers.
    Open,
    /// "silent": the source has stopped answering, and is asked again now and then.
    Silent,
    /// "failing": the last request to the mirror failed; the mirror is asked again later.
    Failing,
    /// "busy": the mirror has asked for a pause.
    Busy,
    /// "no ranges": the mirror sends only the whole file, and is kept in reserve while another mirror serves.
    NoRanges,
    /// "interface gone": the local end does not exist; the path is used again when it is back.
    InterfaceGone,
    /// "waiting": the path's link waits while better ones carry the data, or has carried its cap.
    Waiting,
    /// "closed": the path is not used any more.
    Closed,
    /// "banned: REASON": the source sent wrong bytes and gets no further requests.
    Banned(String),
    /// Only the reason, such as "content changed at the source": the source gets no further requests, at
    /// least over this path.
    GivenUp(String),
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAnswerYet => "no answer yet",
            Self::Open => "open",
            Self::Silent => "silent",
            Self::Failing => "failing",
            Self::Busy => "busy",
            Self::NoRanges => "no ranges",
            Self::InterfaceGone => "interface gone",
            Self::Waiting => "waiting",
            Self::Closed => "closed",
            Self::Banned(reason) => return write!(f, "banned: {reason}"),
            Self::GivenUp(reason) => reason,
        })
    }
}

impl Serialize for PathState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reports the progress of hashing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HashProgress {
    /// The number of bytes that have been hashed.
    pub done_bytes: u64,
    /// The number of bytes to hash, as far as known.
    pub total_bytes: u64,
    /// The time since hashing began, in seconds.
    pub elapsed_s: f64,
    /// The mean rate since hashing began, in bytes a second.
    pub rate_bytes: u64,
}

impl HashProgress {
    /// Returns the remaining time at this rate, in seconds; `None` while it is unknown.
    #[must_use]
    pub fn left_s(&self) -> Option<f64> {
        let left = self.total_bytes.saturating_sub(self.done_bytes);
        (self.rate_bytes > 0).then(|| left as f64 / self.rate_bytes as f64)
    }
}

/// Lists the groups of paths that, from now on, seem to share a bottleneck; the windows of a group are
/// coupled. The value displays as a sentence.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PathGroups {
    /// The time since this run began, in seconds.
    pub elapsed_s: f64,
    /// The paths of each group.
    pub groups: Vec<Vec<GroupedPath>>,
}

/// Names a path of a group as [`PathProgress`] does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GroupedPath {
    /// The source.
    pub source: String,
    /// The local end.
    pub via: String,
}

impl fmt::Display for PathGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.groups.len() < 2 {
            return f.write_str("paths may share one bottleneck");
        }
        write!(f, "paths pass {} different bottlenecks, it seems: ", self.groups.len())?;
        for (i, group) in self.groups.iter().enumerate() {
            for (j, path) in group.iter().enumerate() {
                let between = if j > 0 { ", " } else { "" };
                let between = if i > 0 && j == 0 { " | " } else { between };
                write!(f, "{between}{} via {}", path.source, path.via)?;
            }
        }
        Ok(())
    }
}

/// Reports the outcome of a transfer.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The last progress; its rates are means over the whole run.
    pub last: Progress,
    /// The path of the file; if it is incomplete, its intended path.
    pub target: String,
    /// The content's name; `None` if it is not known.
    pub content: Option<String>,
    /// The sources that were banned, each with the reason.
    pub banned: Vec<BannedSource>,
    /// Whether the whole content arrived and is verified, as far as `verified` says.
    pub complete: bool,
    /// The part of the content that was compared with a hash. If the transfer is not
    /// [`complete`](Self::complete), this covers the bytes that have arrived; with [`Verified::Whole`], no
    /// byte has been verified then. [`verdict`](Self::verdict) says this in words.
    pub verified: Verified,
    /// The voucher for the hash with which the bytes were compared. If only a server vouches, `verified`
    /// means no more than that the bytes arrived as that server sent them.
    pub verified_by: Option<VouchedBy>,
    /// For [`Verified::Unchanged`]: the day on which the content was fetched, in UTC: `2026-11-22`.
    pub unverified_since: Option<String>,
    /// For a file that has arrived and whose [verdict](Self::verdict) begins with UNVERIFIED: one sentence
    /// that says why, and which data would verify it. As an [`Event::Notice`](crate::Event::Notice), it may
    /// name settings.
    pub advice: Option<String>,
}

/// Reports the outcome of one of several files: see [`Get::each`](crate::Get::each).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileReport {
    /// The URL, without name and password.
    pub url: String,
    /// The report of this file.
    pub report: Report,
    /// The reason why the file has not arrived; `None` if it has.
    pub error: Option<Error>,
}

impl Report {
    /// Returns a text about the bytes that have arrived: "verified", "verified as the same as on 2026-11-22",
    /// "UNVERIFIED, but as HOST itself says", …
    #[must_use]
    pub fn verdict(&self) -> String {
        let verdict = self.verified.verdict(self.complete);
        match (&self.unverified_since, &self.verified_by) {
            (Some(day), _) if self.complete => format!("UNVERIFIED, the same as on {day}"),
            (_, Some(VouchedBy::Hosts(hosts))) if verdict == VERIFIED => {
                let say = if hosts.len() == 1 { "itself says" } else { "themselves say" };
                format!("UNVERIFIED, but as {} {say}", hosts.join(" and "))
            }
            (_, Some(VouchedBy::History(day))) if verdict == VERIFIED => {
                format!("verified as the same as on {day}")
            }
            _ => verdict.to_owned(),
        }
    }
}

/// The verdict on bytes that were compared with a hash for which the user vouches.
const VERIFIED: &str = "verified";

/// Names the voucher for a hash, who says that the hash belongs to the wanted content. In displays and in
/// JSON, each variant is the text in quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VouchedBy {
    /// "user": the caller, by a URI, a checksum, or a Metalink that is a file or was named by its URL.
    User,
    /// "self-asserted by HOST": only these servers themselves, which have the file. Such a hash shows that
    /// the bytes arrived as the servers sent them, and which mirrors have other bytes.
    Hosts(Vec<String>),
    /// "history of DAY": the transfer of that day (UTC, `2026-11-22`). The caller, or a signature, vouched
    /// for the content then, and its server says that the content has not changed since. The bytes are
    /// identical.
    History(String),
    /// "signature by FINGERPRINT": a key of the caller's keyring has signed the whole content.
    Signature(String),
}

impl VouchedBy {
    /// Returns a clause for a message about a mirror that sent wrong bytes: it names the voucher for the
    /// right bytes. The clause is empty if the caller or a signature vouches.
    pub(crate) fn according(&self) -> String {
        match self {
            Self::Hosts(hosts) => format!(", according to {}", hosts.join(" and ")),
            Self::History(day) => format!(", according to what came on {day}"),
            Self::User | Self::Signature(_) => String::new(),
        }
    }
}

impl fmt::Display for VouchedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User => f.write_str("user"),
            Self::Hosts(hosts) => write!(f, "self-asserted by {}", hosts.join(", ")),
            Self::History(day) => write!(f, "history of {day}"),
            Self::Signature(key) => write!(f, "signature by {key}"),
        }
    }
}

impl Serialize for VouchedBy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Names the part of a content that was compared with a hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Verified {
    /// Every block, before it is written.
    Blocks,
    /// Every piece that a Metalink describes, before it is written.
    Pieces,
    /// The whole content, at its end.
    Whole,
    /// Each file of a directory, before it gets its final name.
    Files,
    /// Only the whole content, with the BLAKE3 hash of an earlier run. In that run no other hash was known,
    /// or only the date of the file shows that it has not changed. The servers say that it has not changed
    /// since.
    Unchanged,
    /// No part, because no hash is known. Mirrors were at most compared with each other.
    #[default]
    Nothing,
}

impl Verified {
    const fn verdict(self, complete: bool) -> &'static str {
        match (self, complete) {
            (Self::Blocks | Self::Pieces | Self::Files, _) | (Self::Whole, true) => VERIFIED,
            (Self::Whole, false) => "not verified yet",
            (Self::Nothing | Self::Unchanged, _) => "UNVERIFIED",
        }
    }
}

/// Names a source that was banned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BannedSource {
    /// The source: address and port, or host.
    pub source: String,
    /// The reason: "wrong bytes in block 812".
    pub reason: String,
}

impl Progress {
    /// Returns the sum of this progress of other files of a request and the progress `now` of one more file.
    pub(crate) fn and(&self, now: &Self) -> Self {
        Self {
            total_bytes: now.total_bytes.map(|total| total + self.total_bytes.unwrap_or_default()),
            done_bytes: now.done_bytes + self.done_bytes,
            checked_bytes: now.checked_bytes,
            resumed_bytes: now.resumed_bytes + self.resumed_bytes,
            elapsed_s: now.elapsed_s + self.elapsed_s,
            paths: joined(&self.paths, &now.paths),
            note: now.note.clone(),
        }
    }

    /// Returns this progress of a file, with no fewer bytes done than in `last`, which was reported last. If
    /// the file is shorter than was thought, the bytes of `last` count by their share.
    pub(crate) fn no_less_than(self, last: &Self) -> Self {
        let total_bytes = self.total_bytes.or(last.total_bytes);
        let floor = match (last.total_bytes, total_bytes) {
            (Some(was), Some(is)) if is < was => {
                u64::try_from(u128::from(last.done_bytes) * u128::from(is) / u128::from(was)).unwrap_or(is)
            }
            _ => last.done_bytes,
        };
        // The last byte does not count as done before it has arrived.
        let floor = floor.min(total_bytes.map_or(u64::MAX, |total| total.saturating_sub(1)));
        match self.done_bytes < floor {
            true => {
                let note = self.note.or_else(|| Some(AGAIN.to_owned()));
                Self { total_bytes, done_bytes: floor, note, ..self }
            }
            false => Self { total_bytes, ..self },
        }
    }
}

/// The note of the progress while bytes are fetched again.
const AGAIN: &str = "fetching again what was not right";

/// Adds the rows `now` to the rows `before`, followed by the rows of new paths. Old rates become 0.
fn joined(before: &[PathProgress], now: &[PathProgress]) -> Vec<PathProgress> {
    let mut rows: Vec<PathProgress> =
        before.iter().map(|row| PathProgress { rate_bytes: 0, ..row.clone() }).collect();
    add(&mut rows, now);
    share(&mut rows);
    rows
}

/// Merges the rows of connections that are in use at the same time into one row for each path, with its
/// share. A path has several connections if it leads to two URLs of one server, or if small files arrive over
/// two connections at once.
pub(crate) fn one_a_path(connections: impl Iterator<Item = PathProgress>) -> Vec<PathProgress> {
    let mut rows: Vec<PathProgress> = Vec::new();
    for row in connections {
        match rows.iter_mut().find(|known| is_same(known, &row)) {
            Some(known) => {
                if known.state == PathState::NoAnswerYet || row.state == PathState::Open {
                    known.state = row.state;
                }
                known.rate_bytes += row.rate_bytes;
                known.srtt_us = if known.srtt_us == 0 { row.srtt_us } else { known.srtt_us };
                known.cwnd += row.cwnd;
                known.bytes += row.bytes;
                known.timeouts += row.timeouts;
            }
            None => rows.push(row),
        }
    }
    share(&mut rows);
    rows
}

/// Adds the rows `now` to the rows of their paths, or appends them if their paths have none.
pub(crate) fn add(rows: &mut Vec<PathProgress>, now: &[PathProgress]) {
    for row in now {
        match rows.iter_mut().find(|known| is_same(known, row)) {
            Some(known) => *known = sum(known, row),
            None => rows.push(row.clone()),
        }
    }
}

/// Returns the sum of the row `before` and the later row `now` of one path.
fn sum(before: &PathProgress, now: &PathProgress) -> PathProgress {
    let state = if now.state == PathState::NoAnswerYet { &before.state } else { &now.state }.clone();
    let (bytes, timeouts) = (before.bytes + now.bytes, before.timeouts + now.timeouts);
    PathProgress { state, bytes, timeouts, ..now.clone() }
}

/// Returns whether both rows belong to one path.
fn is_same(a: &PathProgress, b: &PathProgress) -> bool {
    (&a.source, &a.via) == (&b.source, &b.via)
}

/// Computes the share of all bytes that came over each path.
pub(crate) fn share(rows: &mut [PathProgress]) {
    let all: u64 = rows.iter().map(|row| row.bytes).sum();
    for row in rows {
        row.share_percent = row.bytes as f64 * 100.0 / all.max(1) as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::PathState::{Failing, NoAnswerYet, Open};
    use super::*;

    #[test]
    fn groups_are_a_sentence() {
        let path = |source: &str, via: &str| GroupedPath { source: source.into(), via: via.into() };
        let (a, b, c) = (path("192.0.2.1:9", "lo"), path("192.0.2.1:9", "eth0"), path("h:9", "lo"));
        let of = |groups| PathGroups { elapsed_s: 10.6, groups }.to_string();
        assert_eq!(of(vec![vec![a.clone(), b.clone(), c.clone()]]), "paths may share one bottleneck");
        let wanted = "paths pass 2 different bottlenecks, it seems: 192.0.2.1:9 via lo, h:9 via lo | \
                      192.0.2.1:9 via eth0";
        assert_eq!(of(vec![vec![a, c], vec![b]]), wanted);
    }

    #[test]
    fn states_are_the_words_that_scripts_know() {
        let json = |state| serde_json::to_string(&PathProgress { state, ..PathProgress::default() });
        let has = |state, words: &str| {
            let json = json(state).expect("JSON");
            assert!(json.contains(&format!(r#""state":"{words}","#)), "{json}");
        };
        has(NoAnswerYet, "no answer yet");
        has(PathState::InterfaceGone, "interface gone");
        has(PathState::Banned("wrong bytes in block 3".into()), "banned: wrong bytes in block 3");
        has(PathState::GivenUp("the file has changed".into()), "the file has changed");
    }

    #[test]
    fn what_came_before_counts() {
        let row = |source: &str, bytes: u64, state: PathState| PathProgress {
            source: source.into(),
            state,
            rate_bytes: bytes,
            bytes,
            ..PathProgress::default()
        };
        let before = [row("a", 100, Open), row("b", 200, Failing), row("c", 0, NoAnswerYet)];
        let now = [row("b", 50, Open), row("a", 0, NoAnswerYet), row("d", 50, Open)];
        let joined = joined(&before, &now);
        let told: Vec<(&str, u64, u64, &PathState)> =
            joined.iter().map(|r| (r.source.as_str(), r.bytes, r.rate_bytes, &r.state)).collect();
        assert_eq!(
            told,
            [("a", 100, 0, &Open), ("b", 250, 50, &Open), ("c", 0, 0, &NoAnswerYet), ("d", 50, 50, &Open)]
        );
        assert_eq!(joined[1].share_percent, 62.5);
        assert_eq!(super::joined(&[], &now)[0].share_percent, 50.0);
    }

    #[test]
    fn an_empty_report_does_not_claim_a_check() {
        assert_eq!(Report::default().verdict(), "UNVERIFIED");
    }

    #[test]
    fn what_only_servers_say_is_not_called_verified() {
        let of = |verified, complete, by| {
            let report = Report { verified, complete, verified_by: Some(by), ..Report::default() };
            (report.verdict(), serde_json::to_value(&report).expect("JSON")["verified_by"].clone())
        };
        let (a, b) = ("a.example".to_owned(), "b.example".to_owned());
        for verified in [Verified::Blocks, Verified::Pieces, Verified::Whole, Verified::Files] {
            assert_eq!(of(verified, true, VouchedBy::User), ("verified".into(), "user".into()));
            let (says, json) = of(verified, true, VouchedBy::Hosts(vec![a.clone()]));
            assert_eq!(says, "UNVERIFIED, but as a.example itself says");
            assert_eq!(json, "self-asserted by a.example");
        }
        let both = VouchedBy::Hosts(vec![a, b]);
        let (says, json) = of(Verified::Blocks, false, both.clone());
        assert_eq!(says, "UNVERIFIED, but as a.example and b.example themselves say");
        assert_eq!(json, "self-asserted by a.example, b.example");
        assert_eq!(of(Verified::Whole, false, both).0, "not verified yet");
    }

    #[test]
    fn progress_never_goes_backwards() {
        let of = |done_bytes, total_bytes| Progress { done_bytes, total_bytes, ..Progress::default() };
        let told = |last: &Progress, now: Progress| {
            let told = now.no_less_than(last);
            (told.done_bytes, told.total_bytes, told.note.is_some())
        };
        let half = of(50, Some(100));
        assert_eq!(told(&half, of(60, Some(100))), (60, Some(100), false));
        assert_eq!(told(&half, of(0, Some(100))), (50, Some(100), true), "a block was wrong");
        assert_eq!(told(&half, of(0, Some(200))), (50, Some(200), true), "another variant, which is longer");
        assert_eq!(told(&half, of(0, Some(10))), (5, Some(10), true), "one that is shorter");
        assert_eq!(told(&half, of(0, None)), (50, Some(100), true), "servers are asked again");
        assert_eq!(told(&of(100, Some(100)), of(0, Some(100))), (99, Some(100), true), "all of it was wrong");
        assert_eq!(told(&of(100, Some(100)), of(100, Some(100))), (100, Some(100), false));
        assert_eq!(told(&Progress::default(), of(0, None)), (0, None, false));
    }

    #[test]
    fn two_urls_on_one_server_are_one_path() {
        let row = |source: &str, bytes: u64, state| PathProgress {
            source: source.into(),
            state,
            rate_bytes: bytes,
            bytes,
            ..PathProgress::default()
        };
        let connections = [row("a", 30, NoAnswerYet), row("b", 20, Open), row("a", 50, Open)];
        let rows = one_a_path(connections.into_iter());
        let told: Vec<(&str, u64, u64, f64, &PathState)> = rows
            .iter()
            .map(|r| (r.source.as_str(), r.bytes, r.rate_bytes, r.share_percent, &r.state))
            .collect();
        assert_eq!(told, [("a", 80, 80, 80.0, &Open), ("b", 20, 20, 20.0, &Open)]);
        let first = Progress::default().and(&Progress { paths: rows.clone(), ..Progress::default() });
        assert_eq!(first.paths[0].rate_bytes, 80);
    }
}
