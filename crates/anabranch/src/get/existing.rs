//! A file that exists at the destination before anything is fetched: whether it is the one that is wanted.

use mmtp::ContentId;
use net::Clock;

use super::discovered_file::{DiscoveredFile, ExistingFile};
use super::outcome::FileOutcome;
use crate::Result;
use crate::event::{CHECKING_PART, Observer};
use crate::target::{DestPath, FinalCheck, is_there};
use crate::{Progress, Report, Verified};

/// How it ends if the file is there already and that is known by what came in an earlier transfer alone.
/// Where a hash or a signature tells, the target looks itself.
///
/// # Errors
/// [`Error::Target`](crate::Error::Target) if another file is there and `force` is not given,
/// [`Error::Interrupted`](crate::Error::Interrupted) if the caller stops.
pub(super) fn already(
    force: bool,
    found: &DiscoveredFile,
    destination: &mut dyn FnMut() -> Result<DestPath>,
    observer: &mut Observer<'_>,
) -> Result<Option<FileOutcome>> {
    let Some(ExistingFile { id, since }) = found.there.clone() else { return Ok(None) };
    if force || found.signed.is_some() {
        // Nothing shows that it is right: whoever says so wants it fetched, or signed.
        return Ok(None);
    }
    let clock = Clock::start();
    let mut progress = |done_bytes: u64| {
        observer.checking(
            clock.now(),
            CHECKING_PART,
            Progress { total_bytes: id.length, done_bytes, ..Progress::default() },
        );
        !observer.is_stopped()
    };
    let Some(root) = is_there(&destination()?, id, FinalCheck::ROOT, force, &mut progress)? else {
        return Ok(None);
    };
    let id = ContentId { root, ..id };
    let last = Progress {
        total_bytes: id.length,
        done_bytes: id.length,
        resumed_bytes: id.length,
        ..Progress::default()
    };
    let report = Report {
        last,
        content: Some(id.to_string()),
        complete: true,
        verified: Verified::Unchanged,
        unverified_since: Some(since),
        ..Report::default()
    };
    Ok(Some(FileOutcome { id, report, result: Ok(()), has_dissent: false }))
}
