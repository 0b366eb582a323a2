//! A file that exists at the destination before anything is fetched: whether it is the one that is wanted.

use mmtp::ContentId;
use net::Clock;

use super::discovered_file::{DiscoveredFile, ExistingFile};
use super::outcome::FileOutcome;
use super::request::Request;
use crate::Result;
use crate::event::{CHECKING_PART, Observer};
use crate::target::{DestPath, FinalCheck, is_there, is_there_in_pieces, is_there_of_another_length};
use crate::{Progress, Report, Verified};

/// How it ends if the file is there already and that is known by what came in an earlier transfer alone, by
/// hashes of pieces alone, or by a hash while servers have a file of another length. Where a hash is of the
/// same length, and where a signature tells, the target looks itself.
///
/// # Errors
/// [`Error::Target`](crate::Error::Target) if another file is there and `force` is not given,
/// [`Error::Interrupted`](crate::Error::Interrupted) if the caller stops.
pub(super) fn already(
    request: &Request,
    found: &DiscoveredFile,
    destination: &mut dyn FnMut() -> Result<DestPath>,
    observer: &mut Observer<'_>,
) -> Result<Option<FileOutcome>> {
    if found.signed.is_some() {
        // It is to be signed at the end.
        return Ok(None);
    }
    let clock = Clock::start();
    let length = found.id.length;
    let mut progress = |done_bytes: u64| {
        let progress = Progress { total_bytes: length.max(done_bytes), done_bytes, ..Progress::default() };
        observer.checking(clock.now(), CHECKING_PART, progress);
        !observer.is_stopped()
    };
    let report = match &found.there {
        _ if request.reader.is_some() => return Ok(None),
        // Nothing shows that it is right: whoever says so wants it fetched.
        Some(_) if request.force => return Ok(None),
        Some(ExistingFile { id, since }) => {
            let root = is_there(&destination()?, *id, FinalCheck::ROOT, false, &mut progress)?;
            let id = root.map(|root| ContentId { root, ..*id });
            let (verified, since) = (Verified::Unchanged, Some(since.clone()));
            id.map(|id| (id, Report { verified, unverified_since: since, ..Report::default() }))
        }
        None if found.proof.digests.is_empty() => {
            let Some(pieces) = found.pieces().filter(|_| !found.proof.is_something()) else {
                return Ok(None);
            };
            let id = is_there_in_pieces(&destination()?, &pieces, request.force, &mut progress)?;
            let (verified, verified_by) = (Verified::Pieces, found.vouched_by.clone());
            id.map(|id| (id, Report { verified, verified_by, ..Report::default() }))
        }
        None => {
            let id = is_there_of_another_length(&destination()?, length, &found.proof, &mut progress)?;
            if id.is_some() {
                observer.notice(&format!("servers have a file of {length} bytes by now"));
            }
            let (verified, verified_by) = (Verified::Whole, found.vouched_by.clone());
            id.map(|id| (id, Report { verified, verified_by, ..Report::default() }))
        }
    };
    let Some((id, report)) = report else { return Ok(None) };
    let all = id.length;
    let last = Progress { total_bytes: all, done_bytes: all, resumed_bytes: all, ..Progress::default() };
    let report = Report { last, content: Some(id.to_string()), complete: true, ..report };
    Ok(Some(FileOutcome { id, report, result: Ok(()), has_dissent: false }))
}
