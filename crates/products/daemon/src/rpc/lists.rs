//! Methods that show jobs.

use serde_json::{Value, json};

use super::params::Params;
use super::view::{self, Keys};
use super::{Call, Failure};
use crate::daemon::State;
use crate::gid::Gid;
use crate::job::{Job, Source, Status};
use crate::options::{self, Scope};

/// Shows a job to `look`.
fn with_job<T>(
    call: &Call<'_>,
    params: Params<'_>,
    look: impl FnOnce(&State, &Job) -> Result<T, String>,
    missing: impl FnOnce(Gid) -> String,
) -> Result<T, Failure> {
    let gid = call.gid(params)?;
    let found = call.daemon.look(|state| state.queue.job(gid).map(|job| look(state, job)));
    found.unwrap_or_else(|| Err(missing(gid))).map_err(Failure::new)
}

pub(super) fn tell_status(call: &Call<'_>, params: Params<'_>) -> Result<Value, Failure> {
    let keys = Keys::new(params.texts_if_any(1)?);
    let base = call.daemon.base();
    let missing = |gid| format!("No such download for GID#{gid}");
    with_job(call, params, |state, job| Ok(view::status(state, base, job, &keys)), missing)
}

pub(super) fn uris(call: &Call<'_>, params: Params<'_>) -> Result<Value, Failure> {
    let missing = |gid| format!("No URI data is available for GID#{gid}");
    let look = |state: &State, job: &Job| match job.status.is_result() {
        true => Err(missing(job.gid)),
        false => Ok(view::uris(state, job)),
    };
    with_job(call, params, look, missing)
}

pub(super) fn files(call: &Call<'_>, params: Params<'_>) -> Result<Value, Failure> {
    let base = call.daemon.base();
    let missing = |gid| format!("No file data is available for GID#{gid}");
    with_job(call, params, |state, job| Ok(view::files(state, base, job)), missing)
}

pub(super) fn servers(call: &Call<'_>, params: Params<'_>) -> Result<Value, Failure> {
    let missing = |gid| format!("No active download for GID#{gid}");
    let look = |state: &State, job: &Job| match job.status {
        Status::Active => Ok(view::servers(state, job)),
        _ => Err(missing(job.gid)),
    };
    with_job(call, params, look, missing)
}

/// Shows the paths of an active job as `anabranch get --json` does: each server over each link.
pub(super) fn paths(call: &Call<'_>, params: Params<'_>) -> Result<Value, Failure> {
    let missing = |gid| format!("No active download for GID#{gid}");
    let look = |state: &State, job: &Job| match state.transfer(job.gid) {
        Some(transfer) if job.status == Status::Active => Ok(json!(transfer.progress().paths)),
        _ => Err(missing(job.gid)),
    };
    with_job(call, params, look, missing)
}

/// There are no peers without BitTorrent.
pub(super) fn peers(call: &Call<'_>, params: Params<'_>) -> Result<Value, Failure> {
    let missing = |gid| format!("No peer data is available for GID#{gid}");
    let look = |_: &State, job: &Job| match job.status.is_result() {
        true => Err(missing(job.gid)),
        false => Ok(json!([])),
    };
    with_job(call, params, look, missing)
}

pub(super) fn option(call: &Call<'_>, params: Params<'_>) -> Result<Value, Failure> {
    let base = call.daemon.base();
    let look = |_: &State, job: &Job| {
        let mut all = options::shown(&job.options, |scope| scope == Scope::Job);
        if let Source::Uris(uris) = &job.source
            && all.get("referer").is_some_and(|referer| referer == "*")
        {
            all.insert("referer".to_owned(), uris.first().cloned().unwrap_or_default());
        }
        all.insert("dir".to_owned(), view::directory(base, job));
        Ok(json!(all))
    };
    with_job(call, params, look, |gid| format!("Cannot get option for GID#{gid}"))
}

pub(super) fn tell_active(call: &Call<'_>, params: Params<'_>) -> Result<Value, Failure> {
    let (keys, base) = (Keys::new(params.texts_if_any(0)?), call.daemon.base());
    Ok(call
        .daemon
        .look(|state| state.queue.active().map(|job| view::status(state, base, job, &keys)).collect()))
}

/// Shows a part of the waiting jobs, or of the results.
pub(super) fn tell_page(call: &Call<'_>, params: Params<'_>, which: Status) -> Result<Value, Failure> {
    let (offset, number) = (params.integer(0)?, params.integer_from(1, 0)?);
    let (keys, base) = (Keys::new(params.texts_if_any(2)?), call.daemon.base());
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    Ok(call.daemon.look(|state| {
        let show = |job| view::status(state, base, job, &keys);
        let [_, waiting, results] = state.queue.counts();
        match which {
            Status::Waiting => page(state.queue.waiting(), waiting, offset, number).map(show).collect(),
            _ => page(state.queue.results(), results, offset, number).map(show).collect(),
        }
    }))
}

/// Returns `number` of `length` items from an offset on. A negative offset counts from the end, and the items
/// then come in reverse order.
fn page<'a>(
    items: impl DoubleEndedIterator<Item = &'a Job> + 'a,
    length: usize,
    offset: i64,
    number: usize,
) -> Box<dyn Iterator<Item = &'a Job> + 'a> {
    match usize::try_from(offset) {
        Ok(offset) => Box::new(items.skip(offset).take(number)),
        Err(_) => {
            let before = usize::try_from(offset.unsigned_abs() - 1).unwrap_or(usize::MAX);
            // aria2 shows nothing if the offset is before the first item.
            let number = if before < length { number } else { 0 };
            Box::new(items.rev().skip(before).take(number))
        }
    }
}
