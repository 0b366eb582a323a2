//! Shadows: disks of machines that run at other hosts, kept at this one by QEMU's storage daemon, without
//! memory or a processor. When the source is lost, a shadow becomes the machine.
//!
//! A shadow has the same record as a move ([`Incoming`]), in the state [`Arrival::Waiting`], and the rules of
//! [`journal`](crate::journal) say when it runs. The storage daemon outlives this program, as guests do.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;

use anabranch_net::Clock;
use serde::{Deserialize, Serialize};

use crate::config::Places;
use crate::disks;
use crate::error::{Error, Result};
use crate::journal::{Arrival, Asked, answer};
use crate::key;
use crate::launch;
use crate::qmp::Qmp;
use crate::store::{Incoming, Machine, Origin, Store};

/// The name of the disk for stamps.
pub(crate) const STAMP: &str = "stamp";
/// What the source of a shadow has said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// When that was, ms since this host was started.
    pub at_ms: u64,
    /// How far the shadow was behind, ms.
    pub lag_ms: u64,
}

/// How a machine was taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TakenOver {
    /// How far the shadow was behind, ms, as its source said last.
    pub lag_ms: Option<u64>,
    /// How long ago its source said that, ms.
    pub silent_ms: Option<u64>,
}

/// Returns the time since this host was started, ms. All programs of a host read this clock, and it cannot be
/// set.
pub(crate) fn host_ms() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    time.map_or(0, |time| time.tv_sec() as u64 * 1_000 + time.tv_nsec() as u64 / 1_000_000)
}

/// Writes a file that is read by other programs while it changes, and that a power failure may take.
pub(crate) fn publish(path: &Path, value: &impl Serialize) {
    let draft = path.with_extension("new");
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    // What cannot be written now is written again soon.
    let _ = fs::write(&draft, bytes).and_then(|()| fs::rename(&draft, path));
}

pub(crate) fn socket(places: &Places) -> PathBuf {
    places.dir.join("shadow")
}

pub(crate) fn said_file(places: &Places) -> PathBuf {
    places.dir.join("said.json")
}

/// Returns what the source of a machine's shadow has said last.
#[must_use]
pub fn said(store: &Store, name: &str) -> Option<Said> {
    let bytes = fs::read(said_file(&store.places(name).ok()?)).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Whether the storage daemon of a machine's shadow lives.
#[must_use]
pub fn serves(store: &Store, name: &str) -> bool {
    store.places(name).is_ok_and(|places| UnixStream::connect(socket(&places)).is_ok())
}

pub(crate) fn refused<T>(text: String) -> Result<T> {
    Err(Error::Refused(text))
}

/// Writes the state of a shadow.
pub(crate) fn set(store: &Store, arrival: &mut Incoming, state: Arrival) -> Result {
    if arrival.state != state {
        arrival.state = state;
        store.set_arrival(arrival)?;
    }
    Ok(())
}

/// Ends the storage daemon of a shadow: nothing comes in any more.
fn cut(store: &Store, name: &str, clock: Clock) -> Result {
    match Qmp::connect(&socket(&store.places(name)?), clock) {
        Ok(qmp) => launch::end(qmp, clock),
        Err(Error::NotFound(_)) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Removes a shadow that does not run.
pub(crate) fn remove(store: &Store, arrival: &Incoming, clock: Clock) -> Result {
    cut(store, &arrival.name, clock)?;
    disks::remove(&arrival.disks);
    key::remove(&store.places(&arrival.name)?);
    store.forget_arrival(&arrival.id)
}

/// Runs a shadow that is written to be starting; its lock is held. May be repeated.
pub(crate) fn run(store: &Store, arrival: &mut Incoming, clock: Clock) -> Result {
    let Some(shadow) = &arrival.shadow else { return Ok(()) };
    let (name, config) = (&arrival.name, &shadow.config);
    cut(store, name, clock)?;
    let places = store.places(name)?;
    let mut machine = Machine {
        name: name.clone(),
        config: Some(config.clone()),
        qmp: places.qmp(),
        look: Some(places.look()),
        beat: Some(places.beat()),
        pid: None,
        origin: Origin::Arrived,
    };
    // An earlier attempt may have started it.
    if UnixStream::connect(places.qmp()).is_err() {
        let mut started = launch::start(config, &places, false, clock)?;
        machine.pid = i32::try_from(started.child.id()).ok();
        let _ = thread::Builder::new().name("qemu".to_owned()).spawn(move || started.child.wait());
        store.put(&machine)?;
    }
    key::remove(&places);
    set(store, arrival, Arrival::Running)
}

/// Runs the shadow of a machine at this host, by the command of a person: its source is not asked, and may be
/// dead. If it is not, its machine ends as soon as it hears of this.
///
/// # Errors
/// `NotFound` if there is no shadow of this name; `Refused` if its first copy is not complete, or it runs.
/// After another error, it may be repeated.
pub fn take_over(store: &Store, name: &str, clock: Clock) -> Result<TakenOver> {
    let busy = || Error::Refused(format!("{name} is in use by another command: try again"));
    let _lock = store.lock(name)?.ok_or_else(busy)?;
    let none =
        || Error::NotFound(format!("there is no shadow of a machine `{}` here", name.escape_default()));
    let mut arrival = store.shadow(name)?.ok_or_else(none)?;
    let is_whole = arrival.shadow.as_ref().is_some_and(|shadow| shadow.is_whole);
    match (arrival.state, is_whole) {
        (Arrival::Waiting, false) => refused(format!(
            "the first copy of {name} is not complete, so its disks here are none yet: a failover has to \
             wait for it"
        )),
        (Arrival::Running, _) => {
            refused(format!("{name} was taken over before, and runs here: there is no shadow"))
        }
        (Arrival::Refused, _) => refused(format!("the shadow of {name} was given up")),
        (Arrival::Waiting | Arrival::Starting, _) => {
            let said = said(store, name);
            let state = answer(Some(arrival.state), Asked::Resume, is_whole);
            set(store, &mut arrival, state)?;
            run(store, &mut arrival, clock)?;
            Ok(TakenOver {
                lag_ms: said.map(|said| said.lag_ms),
                silent_ms: said.map(|said| host_ms().saturating_sub(said.at_ms)),
            })
        }
    }
}
