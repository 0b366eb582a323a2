//! What a path looks like to people: its state in words, its rate, and what is said when nobody is left.

use algo::{Span, Time};
use mmtp::subscriber::{PathReport, PathState};
use mmtp::wire::Reason;

use super::transfer::Source;
use crate::exit::{Code, Failure};
use crate::view::NO_ANSWER_YET;

/// Nobody is left who could bring what is missing.
pub(super) fn given_up(sources: &[Source]) -> Failure {
    let liars: Vec<&str> = sources.iter().filter(|s| s.banned.is_some()).map(|s| s.name.as_str()).collect();
    if liars.is_empty() && sources.iter().any(|s| s.refused == Some(Reason::Changed)) {
        return Failure::new(
            Code::NotFound,
            "the file has changed at its last source; what was verified is kept: try another --from",
        );
    }
    if liars.is_empty() {
        return Failure::new(Code::NotFound, "no source has this content: check the URI and the sources");
    }
    Failure::new(
        Code::Corrupt,
        format!(
            "every source that had it sent wrong bytes and was banned ({}); what was verified is \
             kept: name another source with --from",
            liars.join(", ")
        ),
    )
}

pub(super) fn state(report: &PathReport, source: &Source) -> String {
    match (report.state, &source.banned, source.refused) {
        (_, Some(reason), _) => format!("banned: {reason}"),
        (_, _, Some(reason)) => reason.to_string(),
        (PathState::Opening, ..) => NO_ANSWER_YET.into(),
        (PathState::Open, ..) => "open".into(),
        (PathState::Unresponsive, ..) => "silent".into(),
        (PathState::Down, ..) => "interface gone".into(),
        (PathState::Closed, ..) => "closed".into(),
    }
}

/// Rates from counters, over the last half second or so.
pub(super) struct Rows {
    pub(super) start: Time,
    at: Time,
    bytes: Vec<u64>,
    rates: Vec<u64>,
}

impl Rows {
    pub(super) fn new(now: Time) -> Self {
        Self { start: now, at: now, bytes: Vec::new(), rates: Vec::new() }
    }

    /// Bytes a second for each of those that have brought so many bytes; at the end the mean over all.
    pub(super) fn rates(&mut self, now: Time, counts: &[u64], end: bool) -> Vec<u64> {
        if end {
            let span = now.since(self.start);
            return counts.iter().map(|bytes| algo::Rate::of(*bytes, span).as_bytes()).collect();
        }
        self.bytes.resize(counts.len(), 0);
        self.rates.resize(counts.len(), 0);
        let span = now.since(self.at);
        if span >= Span::from_millis(400) {
            for ((count, before), rate) in counts.iter().zip(&mut self.bytes).zip(&mut self.rates) {
                *rate = algo::Rate::of(count.saturating_sub(*before), span).as_bytes();
                *before = *count;
            }
            self.at = now;
        }
        self.rates.clone()
    }
}
