//! Settles a move: the two hosts speak with each other until it is written on both where the machine runs,
//! and then it runs there. A move does this at its end; after a kill, its guard or `recover` does it.

use std::thread;
use std::time::Duration;

use anabranch_algo::Span;
use anabranch_net::Clock;
use serde_json::json;

use crate::disks;
use crate::error::{Error, Result};
use crate::journal::{Arrival, Asked, Departure, Guarded, Heard, Next, heard, next};
use crate::key::{self, KEY_ID};
use crate::launch;
use crate::paths;
use crate::qmp::Qmp;
use crate::remote::Remote;
use crate::store::{Move, Store};
use crate::wire::{Ask, Told};

/// How long a cancelled migration may take to end.
const CANCEL: Span = Span::from_secs(10);

/// Where a machine runs after its move was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Here, as before.
    Here,
    /// At the destination.
    There {
        /// How long after the request it ran, microseconds, if that request started it.
        runs_after_us: Option<u64>,
        /// How long the agent took to answer, microseconds.
        told_after_us: u64,
    },
    /// The QEMU at the source has ended before the machine was given away.
    Lost,
}

/// Asks the destination until it has decided, for as long as `patience`.
///
/// # Errors
/// `Unreachable` if it cannot be asked: the machine stands still then, and nobody may run it.
pub(crate) fn decide(
    store: &Store,
    departure: &Move,
    name: &str,
    patience: Span,
    clock: Clock,
) -> Result<(Settled, Remote)> {
    let deadline = clock.now() + patience;
    let (host, pairing) = store.host(&departure.to)?;
    let mut asked = Asked::Resume;
    loop {
        let asking = Remote::greet_any(&host, &pairing, &departure.addresses).and_then(|mut remote| {
            let told = remote.ask(&Ask::Decide { id: departure.id.clone(), asked })?;
            Ok((told, remote))
        });
        let why = match asking {
            Ok((Told::Decided { state, runs_after_us, told_after_us }, remote)) => {
                match next(Departure::Given, Some(state)) {
                    Next::Leave => return Ok((Settled::There { runs_after_us, told_after_us }, remote)),
                    Next::Stay => return Ok((Settled::Here, remote)),
                    // What the machine needs is not all there, so it stays.
                    Next::Ask => asked = Asked::Abort,
                }
                continue;
            }
            Ok((other, _)) => crate::remote::unexpected(&other),
            Err(e) => e,
        };
        if clock.now() >= deadline {
            return Err(Error::Unreachable(format!(
                "{name} stands still: {} has to say whether it runs there, and does not ({why})",
                departure.to
            )));
        }
        thread::sleep(Duration::from_millis(500));
    }
}

/// Settles the move that a killed program has left, if there is one. The caller holds the machine's lock.
///
/// # Errors
/// `Unreachable` if the destination does not say where the machine runs: it stands still then. The same if
/// the QEMU here is there and cannot be asked.
pub fn recover(store: &Store, name: &str, patience: Span, clock: Clock) -> Result<Option<Settled>> {
    let Some(mut departure) = store.departure(name)? else { return Ok(None) };
    let machine = store.find(name)?;
    let mut qmp = match machine.as_ref().map(|machine| Qmp::connect(&machine.qmp, clock)) {
        Some(Ok(qmp)) => Some(qmp),
        None | Some(Err(Error::NotFound(_))) => None,
        // It is busy, and so it lives: whoever settles this tries again.
        Some(Err(e)) => return Err(Error::Unreachable(format!("the QEMU of {name} cannot be asked: {e}"))),
    };
    if departure.state == Departure::Moving {
        let is_post_copy = match &mut qmp {
            Some(qmp) => is_in_post_copy(qmp)?,
            None => false,
        };
        if !is_post_copy {
            let settled = match qmp {
                Some(qmp) => stay(store, name, qmp, clock).map(|()| Settled::Here)?,
                None => {
                    store.set_departure(name, None)?;
                    Settled::Lost
                }
            };
            fence(store, name, tell_abort(store, &departure), clock)?;
            paths::clean_up();
            return Ok(Some(settled));
        }
        // Part of the memory is there alone, so there is no way back.
        departure.state = Departure::Given;
        store.set_departure(name, Some(&departure))?;
    }
    let settled = match departure.state {
        Departure::Gone => Settled::There { runs_after_us: None, told_after_us: 0 },
        _ => decide(store, &departure, name, patience, clock)?.0,
    };
    match (settled, qmp) {
        (Settled::Here, Some(qmp)) => stay(store, name, qmp, clock)?,
        (Settled::Here | Settled::Lost, None) => {
            store.set_departure(name, None)?;
            paths::clean_up();
            return Ok(Some(Settled::Lost));
        }
        (_, mut qmp) => {
            if let Some(qmp) = &mut qmp {
                wait_for_post_copy(qmp, clock, &mut || ())?;
            }
            leave(store, name, &mut departure, qmp, clock)?;
        }
    }
    paths::clean_up();
    Ok(Some(settled))
}

/// Whether the guest may run at the destination while part of its memory is still here.
pub(crate) fn is_in_post_copy(qmp: &mut Qmp) -> Result<bool> {
    let state = qmp.execute("query-migrate", json!({}))?;
    Ok(state["status"].as_str().is_some_and(|status| status.starts_with("postcopy")))
}

/// Waits until the memory of a guest that runs at the destination is there.
pub(crate) fn wait_for_post_copy(qmp: &mut Qmp, clock: Clock, look: &mut dyn FnMut()) -> Result {
    let mut deadline = clock.now() + CANCEL;
    let mut sent = 0;
    loop {
        let state = qmp.execute("query-migrate", json!({}))?;
        match state["status"].as_str() {
            Some("postcopy-active" | "device") => {}
            Some("postcopy-paused") => {
                return Err(Error::Unreachable(
                    "the paths are lost while part of the memory is at each host: the guest waits for it"
                        .to_owned(),
                ));
            }
            _ => return Ok(()),
        }
        let now = state["ram"]["transferred"].as_u64().unwrap_or(0);
        if now != sent {
            (sent, deadline) = (now, clock.now() + CANCEL);
        }
        look();
        if clock.now() > deadline {
            return Err(Error::Unreachable("the rest of the memory does not get through".to_owned()));
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Lets the machine run on here: cancels what is under way, and removes the record of the move.
pub(crate) fn stay(store: &Store, name: &str, mut qmp: Qmp, clock: Clock) -> Result {
    let deadline = clock.now() + CANCEL;
    loop {
        let state = qmp.execute("query-migrate", json!({}))?;
        match state["status"].as_str() {
            None | Some("none" | "completed" | "cancelled" | "failed") => break,
            Some("cancelling") => {}
            _ => drop(qmp.execute("migrate_cancel", json!({}))?),
        }
        if clock.now() > deadline {
            return Err(Error::Failed(format!("QEMU does not cancel the migration of {name}")));
        }
        thread::sleep(Duration::from_millis(20));
    }
    disks::give_up(&mut qmp, clock)?;
    // QEMU lets the guest run by itself after a cancelled migration, but not after a completed one.
    if qmp.status()? != "running" {
        qmp.execute("cont", json!({}))?;
    }
    let _ = qmp.execute("migrate-set-parameters", json!({"tls-creds": ""}));
    let _ = qmp.execute("object-del", json!({"id": KEY_ID}));
    key::remove(&store.places(name)?);
    store.set_departure(name, None)
}

/// Ends the QEMU of a machine that runs at the destination, and says so in the record of the move.
pub(crate) fn leave(
    store: &Store,
    name: &str,
    departure: &mut Move,
    qmp: Option<Qmp>,
    clock: Clock,
) -> Result {
    departure.state = Departure::Gone;
    store.set_departure(name, Some(departure))?;
    if let Some(qmp) = qmp {
        launch::end(qmp, clock)?;
    }
    key::remove(&store.places(name)?);
    store.forget(name)
}

/// Tells the destination that a machine does not come. If it cannot be told now, it finds out by itself.
/// Returns what it has written then.
pub(crate) fn tell_abort(store: &Store, departure: &Move) -> Option<Arrival> {
    let (host, pairing) = store.host(&departure.to).ok()?;
    let mut remote = Remote::greet_any(&host, &pairing, &departure.addresses).ok()?;
    match remote.ask(&Ask::Decide { id: departure.id.clone(), asked: Asked::Abort }) {
        Ok(Told::Decided { state, .. }) => Some(state),
        _ => None,
    }
}

/// Ends a machine that was taken over by the host of its shadow, if that says so. It never runs here again by
/// itself.
///
/// # Errors
/// If the record of it cannot be written.
pub(crate) fn fence(store: &Store, name: &str, word: Option<Arrival>, clock: Clock) -> Result {
    let Some(mut protection) = store.protection(name)? else { return Ok(()) };
    if word.is_none() || heard(word) != Heard::Fence {
        return Ok(());
    }
    protection.state = Guarded::Lost;
    store.set_protection(name, Some(&protection))?;
    match store.find(name)? {
        Some(machine) => launch::kill(&machine, clock),
        None => Ok(()),
    }
}
