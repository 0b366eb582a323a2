//! Methods about the daemon as a whole.

use serde_json::{Value, json};

use super::params::Params;
use super::{Call, Failure, view};
use crate::options::{self, Scope};

pub(super) fn stat(call: &Call<'_>) -> Value {
    call.daemon.look(|state| {
        let [active, waiting, results] = state.queue.counts();
        let speed: u64 = state.queue.active().map(|job| view::speed(state, job)).sum();
        json!({
            "downloadSpeed": speed.to_string(),
            "uploadSpeed": "0",
            "numActive": active.to_string(),
            "numWaiting": waiting.to_string(),
            "numStopped": results.to_string(),
            "numStoppedTotal": state.queue.ended_total().max(results as u64).to_string(),
        })
    })
}

pub(super) fn option(call: &Call<'_>) -> Value {
    let given = call.daemon.look(|state| state.options.clone());
    let mut all = options::shown(&given, |scope| scope != Scope::JobOnly);
    let dir = call.daemon.base().destination(&given).map(|place| place.dir);
    let dir = dir.unwrap_or_else(|_| call.daemon.base().path().to_owned());
    all.insert("dir".to_owned(), dir.to_string_lossy().into_owned());
    json!(all)
}

pub(super) fn change(call: &Call<'_>, params: Params<'_>) -> Result<Value, Failure> {
    let given = options::read(params.object(0)?, |scope| scope != Scope::JobOnly);
    let given = given.map_err(|e| Failure::new(e.to_string()))?;
    call.daemon.base().destination(&given).map_err(Failure::new)?;
    call.daemon.set_options(given);
    Ok(json!("OK"))
}
