//! A file that is there already, and what tells whether it is the one that is wanted.

use std::sync::atomic::Ordering;

use mmtp::ContentId;
use net::Clock;

use super::End;
use super::look::{Found, There};
use crate::exit::{Failure, Outcome};
use crate::host::shared_stop;
use crate::target::{DestPath, is_there};
use crate::view::{Snapshot, Summary, Verified, View};

/// How it ends if the file is there already and that is known by something else than what verifies the
/// transfer; where that verifies the whole too, the target looks itself.
///
/// # Errors
/// Exit status 6 if another file is there and `force` is not given, 130 on Ctrl-C.
pub(super) fn already(
    force: bool,
    found: &Found,
    place: &mut dyn FnMut() -> Outcome<DestPath>,
    view: &mut View,
) -> Outcome<Option<End>> {
    let Some(There { id, proof, since }) = found.there.clone() else { return Ok(None) };
    if force && since.is_some() {
        // Whoever says so wants it fetched: nothing shows that it is right.
        return Ok(None);
    }
    let (_, stop) = shared_stop().map_err(|e| Failure::other(format!("cannot catch signals: {e}")))?;
    let clock = Clock::start();
    let mut progress = |done_bytes: u64| {
        view.checking(clock.now(), Snapshot { total_bytes: id.length, done_bytes, ..Snapshot::default() });
        !stop.load(Ordering::Relaxed)
    };
    let Some(root) = is_there(&place()?, id, proof, force, &mut progress)? else { return Ok(None) };
    let id = ContentId { root, ..id };
    let last = Snapshot {
        total_bytes: id.length,
        done_bytes: id.length,
        resumed_bytes: id.length,
        ..Snapshot::default()
    };
    let verified = if since.is_some() { Verified::Unchanged } else { Verified::Whole };
    let summary = Summary {
        last,
        content: Some(id.to_string()),
        complete: true,
        verified,
        unverified_since: since,
        ..Summary::default()
    };
    Ok(Some(End { id, summary, whole: Ok(()) }))
}
