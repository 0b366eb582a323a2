//! The machines that come to this host: prepared, then run or given up, by the rules of
//! [`journal`](crate::journal). `shadows` has those that come without memory.

mod shadows;

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_net::Clock;
use serde_json::{Value, json};

use crate::beat::Listener;
use crate::config::{Config, Places, disk_node, nic_id};
use crate::disks;
use crate::error::{Error, Result};
use crate::journal::{Arrival, Asked, Departure, Start, answer, started};
use crate::key::{self, KEY_ID};
use crate::launch;
use crate::limits::{Allowed, check_opened};
use crate::memory::available_bytes;
use crate::qmp::{Qmp, Version};
use crate::shadow;
use crate::store::{Incoming, Machine, Origin, Store};
use crate::wire::{MoveId, Prepare, Told};

/// What a guest takes besides its memory, and what this host keeps for itself, bytes.
const SPARE_BYTES: u64 = 192 << 20;
/// How long the rest of a machine's state may take to be there when the machine is to run.
const REST: Span = Span::from_secs(15);
/// How long QEMU may refuse to run a machine: another host may still hold a lock of a disk.
const REFUSES: Span = Span::from_secs(2);
/// The most machines that come at once.
const WAITING_MAX: usize = 8;
/// A machine whose move is not over.
pub(crate) struct Live {
    /// The connection to its QEMU, until it runs: then others may have it.
    qmp: Option<Qmp>,
    child: Option<Child>,
    beat: Option<Listener>,
    /// When the source asked for what is done: it runs.
    resumed: Option<Time>,
    memory_bytes: u64,
}

/// What came of a source's request.
pub(crate) struct Decided {
    /// The answer.
    pub(crate) told: Told,
    /// The machine, if its move is known here.
    pub(crate) name: Option<String>,
    /// What the user of this host should know.
    pub(crate) note: Option<String>,
}

/// All machines that come to this host.
pub(crate) struct Arrivals {
    pub(crate) store: Store,
    pub(crate) allowed: Allowed,
    pub(crate) clock: Clock,
    pub(crate) qemu: Version,
    live: Mutex<BTreeMap<MoveId, Live>>,
}

impl Arrivals {
    /// Reads what an earlier agent has left: a machine that did not run yet is given up, and one that was to
    /// run does. Returns what was done, for people. What cannot be settled now is said there, too: it waits
    /// for its source, or for the next start.
    pub(crate) fn recover(store: Store, allowed: Allowed, clock: Clock) -> Result<(Self, Vec<String>)> {
        let qemu = launch::installed()?;
        let arrivals = Self { store, allowed, clock, qemu, live: Mutex::default() };
        let mut done = Vec::new();
        for arrival in arrivals.store.arrivals()? {
            match arrival {
                Ok(arrival) => {
                    let of = format!("{} from {}", arrival.name, arrival.client);
                    let text =
                        arrivals.settle(arrival).unwrap_or_else(|e| Some(format!("is not settled: {e}")));
                    done.extend(text.map(|text| format!("{of} {text}")));
                }
                Err(e) => done.push(format!("a move is not known any more: {e}")),
            }
        }
        Ok((arrivals, done))
    }

    /// Settles a move that an earlier agent has left.
    fn settle(&self, mut arrival: Incoming) -> Result<Option<String>> {
        match arrival.state {
            Arrival::Running => Ok(None),
            // The storage daemon has gone on without an agent, and its source asks for it.
            Arrival::Waiting if arrival.shadow.is_some() => Ok(None),
            Arrival::Starting if arrival.shadow.is_some() => {
                // A failover may be under way, which does the same.
                let Some(_lock) = self.store.lock(&arrival.name)? else { return Ok(None) };
                shadow::run(&self.store, &mut arrival, self.clock)?;
                Ok(Some("runs".to_owned()))
            }
            Arrival::Waiting | Arrival::Refused => {
                self.set(&mut arrival, Arrival::Refused)?;
                self.give_up(None, &arrival)?;
                Ok(Some("had not arrived, and is given up".to_owned()))
            }
            Arrival::Starting => {
                let note = self.begin(&mut arrival, None, self.clock.now())?;
                if arrival.state == Arrival::Refused {
                    self.give_up(None, &arrival)?;
                }
                Ok(Some(note.unwrap_or_else(|| "runs".to_owned())))
            }
        }
    }

    fn set(&self, arrival: &mut Incoming, state: Arrival) -> Result {
        if arrival.state != state {
            self.store.set_arrival(&Incoming { state, ..arrival.clone() })?;
            arrival.state = state;
        }
        Ok(())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<MoveId, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Describes this host.
    pub(crate) fn hello(&self, addresses: Vec<IpAddr>) -> Told {
        Told::Hello { qemu: self.qemu, addresses, memory_bytes: self.memory_left(&self.lock()) }
    }

    /// Returns the memory that a machine can have. What waits has not taken its memory yet; what runs has,
    /// and counts against the user's limit for as long as its QEMU lives.
    pub(crate) fn memory_left(&self, live: &BTreeMap<MoveId, Live>) -> u64 {
        let coming: u64 = live.values().map(|live| live.memory_bytes).sum();
        let free = available_bytes().unwrap_or(u64::MAX).saturating_sub(SPARE_BYTES).saturating_sub(coming);
        let Some(most) = self.allowed.memory_bytes else { return free };
        most.saturating_sub(self.memory_given()).min(free)
    }

    /// Returns the memory of all machines that came and whose QEMU lives.
    fn memory_given(&self) -> u64 {
        let names = self.store.machines().unwrap_or_default();
        let machines = names.iter().filter_map(|name| self.store.find(name).ok().flatten());
        let lives = |machine: &Machine| {
            machine.origin == Origin::Arrived
                && UnixStream::connect(machine.look.as_ref().unwrap_or(&machine.qmp)).is_ok()
        };
        machines.filter(lives).filter_map(|machine| machine.config).map(|config| config.memory_mb << 20).sum()
    }

    /// Starts a QEMU that waits for a machine's state, and tells the ports at which it waits.
    pub(crate) fn prepare(&self, client: &str, prepare: &Prepare) -> Result<Told> {
        let Prepare { id, config, .. } = prepare;
        let config = self.allowed.check(&self.store, self.qemu, config)?;
        let (config, disks) = match self.allowed.disks.first() {
            Some(dir) => disks::place(&config, id, dir),
            None => (config, Vec::new()),
        };
        let mut live = self.lock();
        if let Some(known) = self.store.arrival(id)? {
            return Err(Error::Refused(format!("the move {id} is over here: {:?}", known.state)));
        }
        let busy = || Error::Refused(format!("`{}` is in use by another command there", config.name));
        let _lock = self.store.lock(&config.name)?.ok_or_else(busy)?;
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
        let mut arrival = Incoming {
            id: id.clone(),
            client: client.to_owned(),
            name: config.name.clone(),
            state: Arrival::Waiting,
            disks,
            shadow: None,
        };
        self.store.set_arrival(&arrival)?;
        let started =
            disks::make(&arrival.disks, &prepare.disk_bytes).and_then(|()| self.start(prepare, &config));
        match started {
            Ok((started, ready)) => {
                live.insert(id.clone(), started);
                Ok(ready)
            }
            Err(e) => {
                self.set(&mut arrival, Arrival::Refused)?;
                self.give_up(None, &arrival)?;
                Err(e)
            }
        }
    }

    fn start(&self, prepare: &Prepare, config: &Config) -> Result<(Live, Told)> {
        let places = self.store.places(&config.name)?;
        key::put(&places, &prepare.key)?;
        let mut machine = Machine {
            name: config.name.clone(),
            config: Some(config.clone()),
            qmp: places.qmp(),
            look: Some(places.look()),
            beat: Some(places.beat()),
            pid: None,
            origin: Origin::Arrived,
        };
        // The machine is stored before its QEMU starts: no other machine takes its name, and a restarted
        // agent can end its QEMU.
        self.store.put(&machine)?;
        let started = launch::start(config, &places, true, self.clock)?;
        let (mut qmp, mut child) = (started.qmp, started.child);
        machine.pid = i32::try_from(child.id()).ok();
        let listening = self
            .store
            .put(&machine)
            .and_then(|()| check_opened(&mut qmp, config))
            .and_then(|()| listen(&mut qmp, &places, prepare, self.clock))
            .and_then(|port| Ok(Told::Ready { port, disks: take_disks(&mut qmp, config, prepare.ipv6)? }));
        match listening {
            Ok(ready) => {
                let beat = Listener::begin(&places.beat(), self.clock).ok();
                let memory_bytes = config.memory_mb << 20;
                Ok((Live { qmp: Some(qmp), child: Some(child), beat, resumed: None, memory_bytes }, ready))
            }
            Err(e) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(e)
            }
        }
    }

    /// Runs a machine, or gives it up, and answers what is written of it now. "Running" is answered only of a
    /// machine that was seen to run, and "refused" only when its QEMU has ended.
    pub(crate) fn decide(&self, client: &str, id: &MoveId, asked: Asked, asked_at: Time) -> Result<Decided> {
        let mut live = self.lock();
        let told = |state, runs_after_us| {
            let told_after_us = self.clock.now().since(asked_at).as_micros();
            Told::Decided { state, runs_after_us, told_after_us }
        };
        let Some(mut arrival) = self.store.arrival(id)? else {
            // This is the answer for ever, so nothing is written.
            return Ok(Decided { told: told(answer(None, asked, false), None), name: None, note: None });
        };
        if arrival.client != client {
            return Err(Error::Refused("this is the move of another client".to_owned()));
        }
        if arrival.shadow.is_some() {
            return self.decide_shadow(&arrival, asked, self.memory_left(&live), &told);
        }
        let is_asked = arrival.state == Arrival::Waiting && asked == Asked::Resume;
        let is_whole = match live.get_mut(id) {
            // A QEMU that has ended has nothing.
            Some(Live { qmp: Some(qmp), .. }) if is_asked => {
                wait_for_rest(qmp, self.clock).unwrap_or_default()
            }
            _ => false,
        };
        let state = answer(Some(arrival.state), asked, is_whole);
        self.set(&mut arrival, state)?;
        let (mut note, mut runs_after_us) = (None, None);
        if arrival.state == Arrival::Starting {
            note = self.begin(&mut arrival, live.get_mut(id), asked_at)?;
            let runs = arrival.state == Arrival::Running && note.is_none();
            runs_after_us = runs.then(|| self.clock.now().since(asked_at).as_micros());
        }
        let told = told(arrival.state, runs_after_us);
        if arrival.state == Arrival::Refused {
            self.give_up(live.remove(id), &arrival)?;
        }
        Ok(Decided {
            told,
            note: note.map(|note| format!("{} {note}", arrival.name)),
            name: Some(arrival.name),
        })
    }

    /// Has QEMU run a machine, and writes what came of it; returns what is to be said of a machine that does
    /// not run. After an error nothing is known, and the next request tries again.
    fn begin(
        &self,
        arrival: &mut Incoming,
        live: Option<&mut Live>,
        asked_at: Time,
    ) -> Result<Option<String>> {
        let places = self.store.places(&arrival.name)?;
        let config = self.store.find(&arrival.name)?.and_then(|machine| machine.config);
        let mut held = None;
        let mut resumed = None;
        if let Some(Live { qmp, beat, resumed: at, .. }) = live {
            beat.iter().for_each(Listener::forget);
            held = qmp.take();
            resumed = Some(at);
        }
        let connected = held.map_or_else(|| Qmp::connect(&places.qmp(), self.clock), Ok);
        let (start, note) = match connected {
            Ok(mut qmp) => {
                disks::stop_serving(&mut qmp);
                let (start, note) = run(&mut qmp, self.clock)?;
                if start == Start::Ran {
                    self.set(arrival, started(start))?;
                    follow(&mut qmp, config.map_or(0, |config| config.nics.len()));
                }
                (start, note)
            }
            // It may have run before. A disk would show that, and must not be used by an older state.
            Err(Error::NotFound(_)) => match config.is_none_or(|config| config.disks.is_empty()) {
                true => (Start::Never, Some("has ended, and runs on at its source".to_owned())),
                false => (Start::Ran, Some("is lost: its QEMU has ended, maybe after it ran".to_owned())),
            },
            Err(e) => return Err(e),
        };
        self.set(arrival, started(start))?;
        if let Some(resumed) = resumed.filter(|_| start == Start::Ran) {
            *resumed = Some(asked_at);
        }
        key::remove(&places);
        Ok(note)
    }

    /// Ends the QEMU of a move that is refused, and forgets the move: what is not known is refused, too.
    fn give_up(&self, live: Option<Live>, arrival: &Incoming) -> Result {
        let places = self.store.places(&arrival.name)?;
        let known = self.store.find(&arrival.name)?;
        let is_its = known.is_some_and(|machine| machine.origin == Origin::Arrived);
        match live {
            Some(Live { child: Some(mut child), .. }) => {
                let failed = |e: std::io::Error| Error::Failed(e.to_string());
                child.kill().map_err(failed)?;
                child.wait().map_err(failed)?;
            }
            _ if is_its => match Qmp::connect(&places.qmp(), self.clock) {
                Ok(qmp) => launch::end(qmp, self.clock)?,
                Err(Error::NotFound(_)) => {}
                Err(e) => return Err(e),
            },
            _ => {}
        }
        key::remove(&places);
        disks::remove(&arrival.disks);
        if is_its {
            self.store.forget(&arrival.name)?;
        }
        self.store.forget_arrival(&arrival.id)
    }

    /// Gives up a move whose source has gone away before it said anything; returns the machine's name then.
    pub(crate) fn abandon(&self, id: &MoveId) -> Result<Option<String>> {
        let mut live = self.lock();
        let Some(mut arrival) = self.store.arrival(id)?.filter(|arrival| arrival.state == Arrival::Waiting)
        else {
            return Ok(None);
        };
        self.set(&mut arrival, Arrival::Refused)?;
        self.give_up(live.remove(id), &arrival)?;
        Ok(Some(arrival.name))
    }

    /// Waits until the guest is heard, and lets its QEMU go its own way.
    pub(crate) fn beat(&self, id: &MoveId, wait: Span) -> Told {
        let Some(Live { beat, resumed, .. }) = self.release(id) else { return Told::Beat { after_us: None } };
        let first = beat.as_ref().and_then(|beat| beat.first_until(self.clock.now() + wait));
        let after_us = first.zip(resumed).map(|(first, resumed)| first.since(resumed).as_micros());
        Told::Beat { after_us }
    }

    /// Empties logs of machines that came if they are longer: a guest writes as much to its console as it
    /// likes.
    pub(crate) fn shorten_logs(&self, bytes_max: u64) {
        for name in self.store.machines().unwrap_or_default() {
            let is_its = matches!(self.store.find(&name), Ok(Some(m)) if m.origin == Origin::Arrived);
            let Some(places) = self.store.places(&name).ok().filter(|_| is_its) else { continue };
            for path in [places.console(), places.messages()] {
                // A file that was emptied keeps its length for a writer that does not append.
                if fs::metadata(&path).is_ok_and(|data| data.blocks() * 512 > bytes_max) {
                    let _ = fs::OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(0));
                }
            }
        }
    }

    /// Whether this agent still holds the QEMU of a move.
    pub(crate) fn holds(&self, id: &MoveId) -> bool {
        self.lock().contains_key(id)
    }

    /// Lets the QEMU of a machine that runs go its own way.
    pub(crate) fn release(&self, id: &MoveId) -> Option<Live> {
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

/// Sets which of QEMU's ways of migration are used. Both ends have to have the same.
pub(crate) fn set_capabilities(
    qmp: &mut Qmp,
    auto_converge: bool,
    post_copy: bool,
    has_disks: bool,
) -> Result {
    let wanted = [
        ("events", true),
        ("return-path", true),
        ("auto-converge", auto_converge),
        ("postcopy-ram", post_copy),
        // The copies of disks end while the guest stands still, before QEMU gives the disks away.
        ("pause-before-switchover", has_disks),
    ];
    let list: Vec<Value> =
        wanted.iter().map(|(name, state)| json!({"capability": name, "state": state})).collect();
    qmp.execute("migrate-set-capabilities", json!({"capabilities": list})).map(drop)
}

/// Lets a QEMU wait for the state of another one, and returns the port.
fn listen(qmp: &mut Qmp, places: &Places, prepare: &Prepare, clock: Clock) -> Result<u16> {
    key::give(qmp, places, "server")?;
    set_capabilities(qmp, false, prepare.post_copy, !prepare.disk_bytes.is_empty())?;
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

/// Lets a QEMU take the bytes of disks that are not shared, and returns the port.
fn take_disks(qmp: &mut Qmp, config: &Config, ipv6: bool) -> Result<Option<u16>> {
    let own = config.disks.iter().enumerate().filter(|(_, disk)| !disk.shared);
    let nodes: Vec<_> = own.map(|(n, _)| (disk_node(n), disks::export_name(n))).collect();
    if nodes.is_empty() { Ok(None) } else { disks::serve(qmp, &nodes, ipv6).map(Some) }
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

/// Runs a guest, and waits until it does; tells what is known, and what is to be said if it does not run.
fn run(qmp: &mut Qmp, clock: Clock) -> Result<(Start, Option<String>)> {
    let (deadline, patience) = (clock.now() + Span::from_secs(10), clock.now() + REFUSES);
    loop {
        let refusal = match qmp.execute("cont", json!({})) {
            Ok(_) => None,
            Err(Error::Refused(why)) => Some(why),
            Err(e) => return Err(e),
        };
        let status = qmp.status()?;
        while let Some(event) = qmp.event(clock.now())? {
            if event.name == "RESUME" {
                return Ok((Start::Ran, stands(&status)));
            }
        }
        let has_not_run = matches!(status.as_str(), "paused" | "inmigrate" | "prelaunch" | "preconfig");
        match refusal {
            _ if !has_not_run => return Ok((Start::Ran, stands(&status))),
            Some(why) if clock.now() > patience => {
                return Ok((
                    Start::Never,
                    Some(format!("cannot run here, and runs on at its source: {why}")),
                ));
            }
            None if clock.now() > deadline => {
                return Err(Error::Failed("the machine is here, and QEMU does not run it".to_owned()));
            }
            Some(_) => thread::sleep(Duration::from_millis(200)),
            None => thread::sleep(Duration::from_millis(3)),
        }
    }
}

/// Says that a guest that is here stands still.
fn stands(status: &str) -> Option<String> {
    (status != "running").then(|| format!("is here and stands still: QEMU says {status}"))
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

#[cfg(test)]
mod tests;
