//! Shadows: disks of machines that run at other hosts, kept at this one by QEMU's storage daemon, without
//! memory or a processor. When the source is lost, a shadow becomes the machine.
//!
//! The record of a shadow is that of a move ([`Incoming`]) in [`Arrival::Waiting`], and the same rules say
//! when it runs; see [`journal`](crate::journal). The storage daemon outlives this program, as guests do.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anabranch_net::Clock;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::arrivals::{Arrivals, Decided, put_key, remove_key, use_key};
use crate::config::{Config, Places, comma, disk_node};
use crate::disks;
use crate::error::{Error, Result};
use crate::journal::{Arrival, Asked, Departure, Guarded, answer};
use crate::launch;
use crate::qmp::Qmp;
use crate::store::{Incoming, Machine, Origin, Shadow, Store};
use crate::wire::{MoveId, Prepare, Told};

/// The program that keeps disks.
const PROGRAM: &str = "qemu-storage-daemon";
/// The name of the disk for stamps.
pub(crate) const STAMP: &str = "stamp";
/// Its length, bytes.
const STAMP_BYTES: u64 = 4_096;

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

/// Returns the time since this host was started, ms: all programs of a host have this clock, and nobody sets
/// it.
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

fn socket(places: &Places) -> PathBuf {
    places.dir.join("shadow")
}

fn said_file(places: &Places) -> PathBuf {
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

fn refused<T>(text: String) -> Result<T> {
    Err(Error::Refused(text))
}

impl Arrivals {
    /// Makes a shadow, and tells the port at which its disks come in.
    pub(crate) fn shadow(&self, client: &str, prepare: &Prepare) -> Result<Told> {
        let Prepare { id, config, .. } = prepare;
        let config = self.allowed.check(&self.store, self.qemu, config)?;
        let dir = self.allowed.disks.first();
        let Some(dir) = dir.filter(|_| config.disks.iter().all(|disk| !disk.shared)) else {
            return refused(format!(
                "{} has a disk that both hosts share, or none: only disks of one host alone have a shadow",
                config.name
            ));
        };
        let (config, disks) = disks::place(&config, id, dir);
        let busy = || Error::Refused(format!("`{}` is in use by another command there", config.name));
        let _lock = self.store.lock(&config.name)?.ok_or_else(busy)?;
        if self.store.arrival(id)?.is_some() {
            return refused(format!("the shadow {id} is there already"));
        }
        self.make_way(client, &config.name)?;
        let memory_left = self.memory_left(&self.lock());
        let mut arrival = Incoming {
            id: id.clone(),
            client: client.to_owned(),
            name: config.name.clone(),
            state: Arrival::Waiting,
            disks,
            shadow: Some(Shadow { config: config.clone(), port: 0, is_whole: false }),
        };
        check_memory(&arrival, memory_left)?;
        disks::make(&arrival.disks, &prepare.disk_bytes)?;
        let made =
            self.store.set_arrival(&arrival).and_then(|()| self.serve(prepare, &config)).and_then(|port| {
                arrival.shadow = Some(Shadow { config, port, is_whole: false });
                self.store.set_arrival(&arrival).map(|()| port)
            });
        match made {
            Ok(port) => Ok(Told::Ready { port, disks: Some(port) }),
            Err(e) => {
                remove(&self.store, &arrival, self.clock)?;
                Err(e)
            }
        }
    }

    /// Sees that nothing of this name is here that a shadow would be in the way of.
    fn make_way(&self, client: &str, name: &str) -> Result {
        if let Some(machine) = self.store.find(name)? {
            let lives = UnixStream::connect(machine.look.as_ref().unwrap_or(&machine.qmp)).is_ok();
            match self.store.protection(name)? {
                // It was taken over by the host that sends it back. Its disks here are not used again.
                Some(mut protection) if !lives => {
                    protection.state = Guarded::Lost;
                    self.store.set_protection(name, Some(&protection))?;
                    self.store.forget(name)?;
                }
                _ => return refused(format!("there is a machine `{name}` at the destination already")),
            }
        }
        match self.store.departure(name)?.map(|departure| departure.state) {
            None => {}
            Some(Departure::Gone) => self.store.set_departure(name, None)?,
            Some(_) => return refused(format!("`{name}` is on its way from the destination itself")),
        }
        for old in self.store.arrivals()?.into_iter().flatten() {
            match old.state {
                _ if old.name != name || old.shadow.is_none() => {}
                // Its machine has left.
                Arrival::Running => self.store.forget_arrival(&old.id)?,
                Arrival::Waiting | Arrival::Refused if old.client == client => {
                    remove(&self.store, &old, self.clock)?;
                }
                _ => return refused(format!("there is a shadow of `{name}` at the destination already")),
            }
        }
        Ok(())
    }

    /// Starts the storage daemon of a shadow, and returns its port.
    fn serve(&self, prepare: &Prepare, config: &Config) -> Result<u16> {
        let places = self.store.places(&config.name)?;
        put_key(&places, &prepare.key)?;
        let stamp = places.dir.join("stamp.raw");
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&stamp);
        file.and_then(|file| file.set_len(STAMP_BYTES)).map_err(|e| Error::of_path(&stamp, &e))?;
        let disks = config.disks.iter().enumerate();
        let mut nodes: Vec<(String, String, PathBuf)> =
            disks.map(|(n, disk)| (disk_node(n), disks::export_name(n), disk.path.clone())).collect();
        nodes.push((STAMP.to_owned(), STAMP.to_owned(), stamp));
        let socket = socket(&places);
        let mut command = Command::new(PROGRAM);
        command.args(["--chardev", &format!("socket,id=qmp,path={},server=on,wait=off", comma(&socket))]);
        command.args(["--monitor", "chardev=qmp"]);
        for (node, _, path) in &nodes {
            let file = json!({"driver": "file", "filename": path});
            let block = json!({"driver": "raw", "node-name": node, "file": file, "discard": "unmap"});
            command.args(["--blockdev", &block.to_string()]);
        }
        let log = places.dir.join("shadow.log");
        let mut started = launch::spawn(command, &socket, &log, self.clock)?;
        let exports: Vec<(String, String)> = nodes.into_iter().map(|(node, name, _)| (node, name)).collect();
        let serves = use_key(&mut started.qmp, &places, "server")
            .and_then(|()| disks::serve(&mut started.qmp, &exports, prepare.ipv6));
        if serves.is_err() {
            let _ = started.child.kill();
        }
        // The process is waited for when it ends, however long the shadow is kept.
        let _ = thread::Builder::new().name("shadow".to_owned()).spawn(move || started.child.wait());
        serves
    }

    /// Takes what the source of a shadow says, and tells what is written of the shadow.
    pub(crate) fn follow(&self, client: &str, id: &MoveId, is_whole: bool, lag_ms: u64) -> Result<Told> {
        let Some(arrival) = self.store.arrival(id)?.filter(|arrival| arrival.client == client) else {
            return Ok(Told::Shadow { state: None, is_whole: false, serves: false });
        };
        let name = &arrival.name;
        let mut known_whole = arrival.shadow.as_ref().is_some_and(|shadow| shadow.is_whole);
        // Another command may be about to run it: the next word comes soon.
        let lock = if is_whole && !known_whole { self.store.lock(name)? } else { None };
        if lock.is_some()
            && let Some(mut known) = self.store.arrival(id)?
        {
            known.shadow.iter_mut().for_each(|shadow| shadow.is_whole = true);
            self.store.set_arrival(&known)?;
            known_whole = true;
        }
        if arrival.state == Arrival::Waiting {
            publish(&said_file(&self.store.places(name)?), &Said { at_ms: host_ms(), lag_ms });
        }
        let serves = serves(&self.store, name);
        Ok(Told::Shadow { state: Some(arrival.state), is_whole: known_whole, serves })
    }

    /// Runs a shadow for its source, which has sent all and stands still, or gives it up.
    pub(crate) fn decide_shadow(
        &self,
        arrival: &Incoming,
        asked: Asked,
        memory_left: u64,
        told: &dyn Fn(Arrival, Option<u64>) -> Told,
    ) -> Result<Decided> {
        let busy = || Error::Refused(format!("`{}` is in use by another command there", arrival.name));
        let _lock = self.store.lock(&arrival.name)?.ok_or_else(busy)?;
        let Some(mut arrival) = self.store.arrival(&arrival.id)? else {
            return Ok(Decided { told: told(Arrival::Refused, None), name: None, note: None });
        };
        let (before, asked_at) = (arrival.state, self.clock.now());
        let is_whole = arrival.shadow.as_ref().is_some_and(|shadow| shadow.is_whole);
        set(&self.store, &mut arrival, answer(Some(before), asked, is_whole))?;
        let (mut note, mut runs_after_us) = (None, None);
        if arrival.state == Arrival::Starting {
            let enough = match before {
                Arrival::Waiting => check_memory(&arrival, memory_left),
                // It may run already, and has its memory then.
                _ => Ok(()),
            };
            match enough.and_then(|()| run(&self.store, &mut arrival, self.clock)) {
                Ok(()) => runs_after_us = Some(self.clock.now().since(asked_at).as_micros()),
                // QEMU did not start, so nothing was written, and the source goes on.
                Err(e) if before == Arrival::Waiting => {
                    note = Some(format!("{} cannot run here: {e}", arrival.name));
                    set(&self.store, &mut arrival, Arrival::Refused)?;
                }
                Err(e) => return Err(e),
            }
        }
        if arrival.state == Arrival::Refused {
            remove(&self.store, &arrival, self.clock)?;
        }
        Ok(Decided { told: told(arrival.state, runs_after_us), name: Some(arrival.name), note })
    }
}

fn set(store: &Store, arrival: &mut Incoming, state: Arrival) -> Result {
    if arrival.state != state {
        arrival.state = state;
        store.set_arrival(arrival)?;
    }
    Ok(())
}

/// Refuses a shadow whose machine could not have its memory.
fn check_memory(arrival: &Incoming, left: u64) -> Result {
    let wanted = arrival.shadow.as_ref().map_or(0, |shadow| shadow.config.memory_mb << 20);
    match wanted > left {
        true => refused(format!(
            "the destination has {} MB of memory left, and the machine needs {} MB",
            left >> 20,
            wanted >> 20
        )),
        false => Ok(()),
    }
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
fn remove(store: &Store, arrival: &Incoming, clock: Clock) -> Result {
    cut(store, &arrival.name, clock)?;
    disks::remove(&arrival.disks);
    remove_key(&store.places(&arrival.name)?);
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
    remove_key(&places);
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
