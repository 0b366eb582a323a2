//! The machines that come to this host: prepared, then run or given up, by the rules of
//! [`journal`](crate::journal).

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_net::Clock;
use anabranch_net::private_file::{Access, PrivateDir};
use serde_json::{Value, json};

use crate::beat::Listener;
use crate::config::{Config, Places, nic_id};
use crate::error::{Error, Result};
use crate::journal::{Arrival, Asked, Departure, answer};
use crate::launch;
use crate::memory::available_bytes;
use crate::qmp::{Qmp, Version};
use crate::store::{Incoming, Machine, Origin, Store};
use crate::wire::{Prepare, Told};

/// What a guest takes besides its memory, and what this host keeps for itself, bytes.
const SPARE_BYTES: u64 = 192 << 20;
/// How long the rest of a machine's state may take to be there when the machine is to run.
const REST: Span = Span::from_secs(15);
/// The most machines that come at once.
const WAITING_MAX: usize = 8;
/// The name of the key for the connection of a move, in QEMU.
pub(crate) const KEY_ID: &str = "anabranch-key";
/// The user of that key.
pub(crate) const KEY_USER: &str = "anabranch";

/// What an agent lets guests have.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// The most memory of all machines that come, bytes; without it, what the host has.
    pub memory_bytes: Option<u64>,
    /// The directories in which disks may be.
    pub disks: Vec<PathBuf>,
    /// What network cards may be connected to, besides `user`.
    pub nets: Vec<String>,
}

/// A machine whose move is not over.
pub(crate) struct Live {
    /// The connection to its QEMU, until it runs: then others may have it.
    qmp: Option<Qmp>,
    child: Option<Child>,
    beat: Option<Listener>,
    /// When the source asked to run it.
    resumed: Option<Time>,
    memory_bytes: u64,
}

/// All machines that come to this host.
pub(crate) struct Arrivals {
    pub(crate) store: Store,
    allowed: Allowed,
    clock: Clock,
    qemu: Version,
    live: Mutex<BTreeMap<String, Live>>,
}

impl Arrivals {
    /// Reads what an earlier agent has left: a machine that did not run yet is given up, and one that was to
    /// run does. Returns what was done, for people.
    pub(crate) fn recover(store: Store, allowed: Allowed, clock: Clock) -> Result<(Self, Vec<String>)> {
        let qemu = launch::installed()?;
        let mut done = Vec::new();
        for mut arrival in store.arrivals()? {
            let name = arrival.name.clone();
            match arrival.state {
                Arrival::Refused => {}
                Arrival::Waiting => {
                    arrival.state = Arrival::Refused;
                    store.set_arrival(&arrival)?;
                    if let Ok(qmp) = Qmp::connect(&store.places(&name)?.qmp(), clock) {
                        launch::end(qmp, clock)?;
                    }
                    store.forget(&name)?;
                    done.push(format!("{name} from {} had not arrived, and is given up", arrival.client));
                }
                Arrival::Running if !arrival.has_started => {
                    let mut qmp = Qmp::connect(&store.places(&name)?.qmp(), clock)?;
                    qmp.execute("cont", json!({}))?;
                    arrival.has_started = true;
                    store.set_arrival(&arrival)?;
                    done.push(format!("{name} from {} runs", arrival.client));
                }
                Arrival::Running => {}
            }
        }
        Ok((Self { store, allowed, clock, qemu, live: Mutex::default() }, done))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Describes this host.
    pub(crate) fn hello(&self, addresses: Vec<IpAddr>) -> Told {
        Told::Hello { qemu: self.qemu, addresses, memory_bytes: self.memory_left(&self.lock()) }
    }

    /// Returns the memory that a machine can have. What waits has not taken its memory yet.
    fn memory_left(&self, live: &BTreeMap<String, Live>) -> u64 {
        let coming: u64 = live.values().map(|live| live.memory_bytes).sum();
        let free = available_bytes().unwrap_or(u64::MAX).saturating_sub(SPARE_BYTES);
        let left = self.allowed.memory_bytes.unwrap_or(u64::MAX).min(free);
        left.saturating_sub(coming)
    }

    /// Starts a QEMU that waits for a machine's state, and returns the port at which it waits.
    pub(crate) fn prepare(&self, client: &str, prepare: &Prepare) -> Result<u16> {
        let Prepare { id, config, .. } = prepare;
        let is_id = id.len() == 32 && id.bytes().all(|c| c.is_ascii_hexdigit());
        if !is_id {
            return Err(Error::Refused("this is no number of a move".to_owned()));
        }
        let config = self.check(config)?;
        let mut live = self.lock();
        if let Some(known) = self.store.arrival(id)? {
            return Err(Error::Refused(format!("the move {id} is over here: {:?}", known.state)));
        }
        if self.store.find(&config.name)?.is_some() {
            return Err(Error::Refused(format!(
                "there is a machine `{}` at the destination already, or one of this name is on its way",
                config.name
            )));
        }
        match self.store.departure(&config.name)?.map(|departure| departure.state) {
            None => {}
            // It went from here once, and comes back.
            Some(Departure::Gone) => self.store.set_departure(&config.name, None)?,
            Some(Departure::Moving | Departure::Given) => {
                return Err(Error::Refused(format!(
                    "`{}` is on its way from the destination itself",
                    config.name
                )));
            }
        }
        let (left, wanted) = (self.memory_left(&live), config.memory_mb << 20);
        if wanted > left {
            let (wanted, left) = (config.memory_mb, left >> 20);
            return Err(Error::Refused(format!(
                "the destination has {left} MB of memory left, and the machine needs {wanted} MB"
            )));
        }
        if live.len() >= WAITING_MAX {
            return Err(Error::Refused(format!(
                "{WAITING_MAX} machines are on their way there: try again later"
            )));
        }
        let name = config.name.clone();
        let mut arrival = Incoming {
            id: id.clone(),
            client: client.to_owned(),
            name,
            state: Arrival::Waiting,
            has_started: false,
        };
        self.store.set_arrival(&arrival)?;
        match self.start(prepare, &config) {
            Ok((started, port)) => {
                live.insert(id.clone(), started);
                Ok(port)
            }
            Err(e) => {
                arrival.state = Arrival::Refused;
                self.store.set_arrival(&arrival)?;
                self.store.forget(&arrival.name)?;
                Err(e)
            }
        }
    }

    /// Refuses what this host does not give, and returns the configuration with the paths of this host.
    fn check(&self, config: &Config) -> Result<Config> {
        let refused = |text: String| Err(Error::Refused(text));
        config.check()?;
        let mut config = config.clone();
        for image in [&mut config.kernel, &mut config.initrd].into_iter().flatten() {
            let name = image.to_string_lossy().into_owned();
            let is_hash = name.len() == 64 && name.bytes().all(|c| c.is_ascii_hexdigit());
            *image = self.store.image(&name);
            if !is_hash || !image.is_file() {
                return refused(format!("the image {} is not there", name.escape_default()));
            }
        }
        for disk in &mut config.disks {
            let path = disk.path.display().to_string();
            if !disk.shared {
                return refused(format!(
                    "{path} is a disk of one host: only disks that both hosts share can move"
                ));
            }
            let Ok(real) = disk.path.canonicalize() else {
                return refused(format!("the destination has no {path}: is the shared storage there?"));
            };
            if !self.allowed.disks.iter().any(|dir| real.starts_with(dir)) {
                return refused(format!(
                    "the agent lets no guest have {path}: it needs --disks with a directory above it"
                ));
            }
            disk.path = real;
        }
        for nic in &config.nics {
            if nic.to != "user" && !self.allowed.nets.contains(&nic.to) {
                return refused(format!(
                    "the agent lets no guest have {}: it needs --net {}",
                    nic.to, nic.to
                ));
            }
        }
        if let Some(machine) = config.machine.as_deref().filter(|machine| !launch::knows_machine(machine)) {
            let qemu = self.qemu;
            return refused(format!("QEMU {qemu} at the destination has no machine type {machine}"));
        }
        Ok(config)
    }

    fn start(&self, prepare: &Prepare, config: &Config) -> Result<(Live, u16)> {
        let places = self.store.places(&config.name)?;
        put_key(&places, &prepare.key)?;
        let started = launch::start(config, &places, true, self.clock)?;
        let (mut qmp, mut child) = (started.qmp, started.child);
        let machine = Machine {
            name: config.name.clone(),
            config: Some(config.clone()),
            qmp: places.qmp(),
            look: Some(places.look()),
            beat: Some(places.beat()),
            pid: i32::try_from(child.id()).ok(),
            origin: Origin::Arrived,
        };
        let listening =
            self.store.put(&machine).and_then(|()| listen(&mut qmp, &places, prepare, self.clock));
        match listening {
            Ok(port) => {
                let beat = Listener::begin(&places.beat(), self.clock).ok();
                let memory_bytes = config.memory_mb << 20;
                Ok((Live { qmp: Some(qmp), child: Some(child), beat, resumed: None, memory_bytes }, port))
            }
            Err(e) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(e)
            }
        }
    }

    /// Runs a machine, or gives it up, and answers what is written of it now.
    pub(crate) fn decide(&self, client: &str, id: &str, asked: Asked, asked_at: Time) -> Result<Told> {
        let mut live = self.lock();
        let known = self.store.arrival(id)?;
        if known.as_ref().is_some_and(|known| known.client != client) {
            return Err(Error::Refused("this is the move of another client".to_owned()));
        }
        let is_waiting = known.as_ref().is_some_and(|known| known.state == Arrival::Waiting);
        let is_whole = match live.get_mut(id) {
            Some(Live { qmp: Some(qmp), .. }) if is_waiting && asked == Asked::Resume => {
                wait_for_rest(qmp, self.clock)?
            }
            _ => false,
        };
        let state = answer(known.as_ref().map(|known| known.state), asked, is_whole);
        let name = known.as_ref().map(|known| known.name.clone()).unwrap_or_default();
        let mut arrival = known.clone().unwrap_or_else(|| Incoming {
            id: id.to_owned(),
            client: client.to_owned(),
            name,
            state,
            has_started: false,
        });
        if known.as_ref().map(|known| known.state) != Some(state) {
            arrival.state = state;
            self.store.set_arrival(&arrival)?;
        }
        let mut runs_after_us = None;
        match (state, live.get_mut(id)) {
            (Arrival::Running, Some(live)) if !arrival.has_started => {
                live.resumed = Some(asked_at);
                if let Some(beat) = &live.beat {
                    beat.forget();
                }
                let mut qmp = match live.qmp.take() {
                    Some(qmp) => qmp,
                    None => Qmp::connect(&self.store.places(&arrival.name)?.qmp(), self.clock)?,
                };
                run(&mut qmp, self.clock)?;
                runs_after_us = Some(self.clock.now().since(asked_at).as_micros());
                arrival.has_started = true;
                self.store.set_arrival(&arrival)?;
                let nics = self.store.machine(&arrival.name)?.config.map_or(0, |config| config.nics.len());
                follow(&mut qmp, nics);
                remove_key(&self.store.places(&arrival.name)?);
            }
            (Arrival::Refused, Some(_)) => self.give_up(live.remove(id), &arrival.name)?,
            _ => {}
        }
        Ok(Told::Decided {
            state,
            runs_after_us,
            told_after_us: self.clock.now().since(asked_at).as_micros(),
        })
    }

    fn give_up(&self, live: Option<Live>, name: &str) -> Result {
        let Some(Live { qmp, mut child, beat, .. }) = live else { return Ok(()) };
        drop(beat);
        let ended = qmp.map_or(Ok(()), |qmp| launch::end(qmp, self.clock));
        if let Some(child) = &mut child {
            let _ = child.kill();
            let _ = child.wait();
        }
        remove_key(&self.store.places(name)?);
        self.store.forget(name)?;
        ended
    }

    /// Gives up a move whose source has gone away before it said anything; returns the machine's name then.
    pub(crate) fn abandon(&self, id: &str) -> Result<Option<String>> {
        let mut live = self.lock();
        let Some(mut arrival) = self.store.arrival(id)?.filter(|arrival| arrival.state == Arrival::Waiting)
        else {
            return Ok(None);
        };
        arrival.state = Arrival::Refused;
        self.store.set_arrival(&arrival)?;
        self.give_up(live.remove(id), &arrival.name)?;
        Ok(Some(arrival.name))
    }

    /// Waits until the guest is heard, and lets its QEMU go its own way.
    pub(crate) fn beat(&self, id: &str, wait: Span) -> Told {
        let Some(Live { beat, resumed, .. }) = self.release(id) else { return Told::Beat { after_us: None } };
        let first = beat.as_ref().and_then(|beat| beat.first_until(self.clock.now() + wait));
        let after_us = first.zip(resumed).map(|(first, resumed)| first.since(resumed).as_micros());
        Told::Beat { after_us }
    }

    /// Whether this agent still holds the QEMU of a move.
    pub(crate) fn holds(&self, id: &str) -> bool {
        self.lock().contains_key(id)
    }

    /// Lets the QEMU of a machine that runs go its own way.
    pub(crate) fn release(&self, id: &str) -> Option<Live> {
        let mut all = self.lock();
        if all.get(id).is_none_or(|live| live.resumed.is_none()) {
            return None;
        }
        let mut live = all.remove(id)?;
        if let Some(mut child) = live.child.take() {
            // The process is waited for when it ends, however long the guest lives.
            let _ = thread::Builder::new().name("qemu".to_owned()).spawn(move || child.wait());
        }
        Some(live)
    }
}

/// Writes the key of a connection where QEMU reads it.
pub(crate) fn put_key(places: &Places, key: &str) -> Result {
    let dir = places.dir.join("key");
    let failed = |e| Error::of_path(&dir, &e);
    let made = PrivateDir::make(&dir, Access::Secret).map_err(failed)?;
    made.replace("keys.psk", Access::Secret, format!("{KEY_USER}:{key}\n").as_bytes()).map_err(failed)
}

/// Removes the key of a connection.
pub(crate) fn remove_key(places: &Places) {
    let _ = fs::remove_dir_all(places.dir.join("key"));
}

/// Gives a QEMU the key of the connection of a move.
pub(crate) fn use_key(qmp: &mut Qmp, places: &Places, endpoint: &str) -> Result {
    // One of an earlier move may be there.
    let _ = qmp.execute("object-del", json!({"id": KEY_ID}));
    let mut key = json!({
        "qom-type": "tls-creds-psk", "id": KEY_ID, "endpoint": endpoint,
        "dir": places.dir.join("key"), "verify-peer": true,
    });
    if endpoint == "client" {
        key["username"] = KEY_USER.into();
    }
    qmp.execute("object-add", key).map(drop)
}

/// Sets which of QEMU's ways of migration are used. Both ends have to have the same.
pub(crate) fn set_capabilities(qmp: &mut Qmp, auto_converge: bool, post_copy: bool) -> Result {
    let wanted = [
        ("events", true),
        ("return-path", true),
        ("auto-converge", auto_converge),
        ("postcopy-ram", post_copy),
    ];
    let list: Vec<Value> =
        wanted.iter().map(|(name, state)| json!({"capability": name, "state": state})).collect();
    qmp.execute("migrate-set-capabilities", json!({"capabilities": list})).map(drop)
}

/// Lets a QEMU wait for the state of another one, and returns the port.
fn listen(qmp: &mut Qmp, places: &Places, prepare: &Prepare, clock: Clock) -> Result<u16> {
    use_key(qmp, places, "server")?;
    set_capabilities(qmp, false, prepare.post_copy)?;
    qmp.execute("migrate-set-parameters", json!({"tls-creds": KEY_ID}))?;
    let host = if prepare.ipv6 { "[::]" } else { "0.0.0.0" };
    qmp.execute("migrate-incoming", json!({"uri": format!("tcp:{host}:0,mptcp=on")}))?;
    let deadline = clock.now() + Span::from_secs(5);
    loop {
        let state = qmp.execute("query-migrate", json!({}))?;
        let port = state["socket-address"][0]["port"].as_str().and_then(|port| port.parse().ok());
        if let Some(port) = port {
            return Ok(port);
        }
        if clock.now() > deadline {
            return Err(Error::Failed(format!("QEMU does not say where it listens: {state}")));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until all that a machine needs to run is there; returns whether it is.
fn wait_for_rest(qmp: &mut Qmp, clock: Clock) -> Result<bool> {
    let deadline = clock.now() + REST;
    loop {
        let state = qmp.execute("query-migrate", json!({}))?;
        match state["status"].as_str() {
            Some("completed") => return Ok(true),
            // The guest runs as soon as its processors are there, which the state of the machine shows.
            Some("postcopy-active") if qmp.status()? == "paused" => return Ok(true),
            Some("failed" | "cancelled") => return Ok(false),
            _ if clock.now() > deadline => return Ok(false),
            _ => thread::sleep(Duration::from_millis(3)),
        }
    }
}

/// Runs a guest, and waits until it does.
fn run(qmp: &mut Qmp, clock: Clock) -> Result {
    qmp.execute("cont", json!({}))?;
    let deadline = clock.now() + Span::from_secs(10);
    while qmp.status()? != "running" {
        if clock.now() > deadline {
            return Err(Error::Failed("the machine is here, and QEMU does not run it".to_owned()));
        }
        thread::sleep(Duration::from_millis(3));
    }
    Ok(())
}

/// Tells the networks of a guest where it is now: its links go down and up, so that it asks for an address or
/// opens subflows anew, and its addresses are announced. This has an effect only while the guest runs.
fn follow(qmp: &mut Qmp, nics: usize) {
    for up in [false, true] {
        for n in 0..nics {
            let _ = qmp.execute("set_link", json!({"name": nic_id(n), "up": up}));
        }
    }
    if nics > 0 {
        let _ = qmp.execute("announce-self", json!({"initial": 50, "max": 550, "rounds": 5, "step": 100}));
    }
}
