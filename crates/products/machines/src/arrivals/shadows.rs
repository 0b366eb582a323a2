//! Shadows among the machines that come to this host: made, told of, and run when their sources give them.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use serde_json::json;

use super::{Arrivals, Decided};
use crate::config::{Config, comma, disk_node};
use crate::disks;
use crate::error::{Error, Result};
use crate::journal::{Arrival, Asked, Departure, Guarded, answer};
use crate::key;
use crate::launch;
use crate::shadow::{STAMP, Said, host_ms, publish, refused, remove, run, said_file, serves, set, socket};
use crate::store::{Incoming, Shadow};
use crate::wire::{MoveId, Prepare, Told};

/// The program that keeps disks.
const PROGRAM: &str = "qemu-storage-daemon";
/// The length of the disk for stamps, bytes.
const STAMP_BYTES: u64 = 4_096;

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
        key::put(&places, &prepare.key)?;
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
        let serves = key::give(&mut started.qmp, &places, "server")
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
