//! A file that exists at the destination before anything is fetched: whether it is the one that is wanted.

use mmtp::ContentId;
use net::Clock;

use super::discovered_file::{DiscoveredFile, ExistingFile};
use super::outcome::FileOutcome;
use crate::Result;
use crate::event::Observer;
use crate::target::{DestPath, is_there};
use crate::{Progress, Report, Verified, VouchedBy};

/// How it ends if the file is there already and that is known by something else than what verifies the
/// transfer; where that verifies the whole too, the target looks itself.
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
    let Some(ExistingFile { id, proof, since }) = found.there.clone() else { return Ok(None) };
    if force && since.is_some() {
        // Whoever says so wants it fetched: nothing shows that it is right.
        return Ok(None);
    }
    let clock = Clock::start();
    let mut progress = |done_bytes: u64| {
        observer
            .checking(clock.now(), Progress { total_bytes: id.length, done_bytes, ..Progress::default() });
        !observer.is_stopped()
    };
    let Some(root) = is_there(&destination()?, id, proof, force, &mut progress)? else { return Ok(None) };
    let id = ContentId { root, ..id };
    let last = Progress {
        total_bytes: id.length,
        done_bytes: id.length,
        resumed_bytes: id.length,
        ..Progress::default()
    };
    let verified = if since.is_some() { Verified::Unchanged } else { Verified::Whole };
    let report = Report {
        last,
        content: Some(id.to_string()),
        complete: true,
        verified,
        // What servers say alone tells nothing of a file that is there already.
        verified_by: Some(VouchedBy::User).filter(|_| verified == Verified::Whole),
        unverified_since: since,
        ..Report::default()
    };
    Ok(Some(FileOutcome { id, report, result: Ok(()) }))
}
