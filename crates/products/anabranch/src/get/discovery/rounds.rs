//! Runs a transfer in at most two rounds. The servers that answer at the start are to deliver the file. If
//! they do not have it, the servers that the user named and that did not answer may have it: a second round
//! asks them once more, until the time-out. It resumes the part file of the first round, as after an
//! interruption.

use std::collections::BTreeSet;

use super::Round;
use crate::Result;
use crate::error::ErrorKind;
use crate::filenames::first_few;
use crate::get::event_loop::EventLoop;
use crate::get::request::Request;

/// Runs the first round, and a second one if the first did not deliver the file. `run` runs a round and adds
/// the servers that could not be asked to its second argument. `error` returns the kind of error with which
/// an outcome ended. `deaf` collects the servers that did not answer in a second round either; these alone
/// are no reason for another second round.
///
/// # Errors
/// The error of the round whose result is returned.
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
        // If the second round could not start, the error of the first round says more.
        Err(error) if !error.kind().ends_all() => first,
        second => second,
    }
}

/// Whether another server may have the file, after a round ended with this kind of error.
const fn may_have_been_in_vain(error: ErrorKind) -> bool {
    use ErrorKind::{Corrupt, NotFound, Refused, Unreachable};
    matches!(error, Corrupt | Unreachable | NotFound | Refused)
}
