//! The status of a source that speaks mmTP.

use anabranch_mmtp::subscriber::{self, PathReport};
use anabranch_mmtp::wire::Reason;

use crate::{Error, PathState};

/// A source as it is reported.
pub(super) struct Source {
    pub(super) name: String,
    /// The reason why the source is banned.
    pub(super) banned: Option<String>,
    pub(super) refused: Option<Reason>,
}

/// Returns the error for a transfer that has no source left for the missing blocks. `kept` says whether a
/// later transfer finds the blocks that have arrived.
pub(super) fn given_up(sources: &[Source], kept: bool) -> Error {
    let kept = if kept { "what was verified is kept: " } else { "" };
    let liars: Vec<&str> = sources.iter().filter(|s| s.banned.is_some()).map(|s| s.name.as_str()).collect();
    if liars.is_empty() && sources.iter().any(|s| s.refused == Some(Reason::Changed)) {
        return Error::not_found(format!(
            "the file has changed at its last source; {kept}try another `from_source`"
        ));
    }
    if liars.is_empty() {
        return Error::not_found("no source has this content: check the URI and the sources");
    }
    Error::corrupt(format!(
        "every source that had it sent wrong bytes and was banned ({}); {kept}name another source with \
         `from_source`",
        liars.join(", ")
    ))
}

/// Returns the state of a path to `source` for reports.
pub(super) fn state(report: &PathReport, source: &Source) -> PathState {
    match (report.state, &source.banned, source.refused) {
        (_, Some(reason), _) => PathState::Banned(reason.clone()),
        (_, _, Some(reason)) => PathState::GivenUp(reason.to_string()),
        (subscriber::PathState::Opening, ..) => PathState::NoAnswerYet,
        (subscriber::PathState::Open, ..) => PathState::Open,
        (subscriber::PathState::Unresponsive, ..) => PathState::Silent,
        (subscriber::PathState::Down, ..) => PathState::InterfaceGone,
        (subscriber::PathState::Closed, ..) => PathState::Closed,
    }
}
