//! The servers that answer at the start bring the file. If they do not have it, those that the user named and
//! that did not answer may: they are asked once more, until the time-out. The second round takes up the part
//! of the first, as after an interruption.

use std::collections::BTreeSet;

use super::Round;
use crate::Result;
use crate::error::ErrorKind;
use crate::filenames::first_few;
use crate::get::event_loop::EventLoop;
use crate::get::request::Request;

/// Runs the first round, and a second one if the first did not bring the file. `run` reports the servers that
/// could not be asked; `error` gives the kind of error that an outcome ended with. `deaf` collects servers
/// that did not answer in a second round either: a second round is not begun for these alone.
///
/// # Errors
/// What a round fails with.
pub(in crate::get) fn in_rounds<T>(
    request: &Request,
    deaf: &mut BTreeSet<String>,
    events: &mut EventLoop<'_, '_>,
    mut run: impl FnMut(Round, &mut Vec<String>, &mut EventLoop<'_, '_>) -> Result<T>,
    error: impl Fn(&T) -> Option<ErrorKind>,
) -> Result<T> {
    let mut absent = Vec::new();
    let first = run(Round::First, &mut absent, events);
    let kind = first.as_ref().map_or_else(|error| Some(error.kind()), &error);
    let is_in_vain = kind.is_some_and(may_have_been_in_vain);
    if !is_in_vain || absent.iter().all(|name| deaf.contains(name)) {
        return first;
    }
    let (names, seconds) = (first_few(absent, " and "), request.timeout.as_millis() / 1_000);
    events.observer.notice(&format!(
        "what is wanted has not come: once more to those that could not be asked, {names}; gives up in \
         {seconds} s"
    ));
    let mut absent = Vec::new();
    let second = run(Round::Second, &mut absent, events);
    deaf.extend(absent);
    match second {
        // No server answers any more: the error of the first round says more.
        Err(error) if !error.kind().ends_all() => first,
        second => second,
    }
}

/// Whether another server may have what a round has not brought, which ended so.
const fn may_have_been_in_vain(error: ErrorKind) -> bool {
    use ErrorKind::{Corrupt, NotFound, Refused, Unreachable};
    matches!(error, Corrupt | Unreachable | NotFound | Refused)
}
