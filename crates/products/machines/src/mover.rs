//! Moves a running machine to another host over all paths.
//!
//! QEMU copies the memory, over one connection of Multipath TCP that is encrypted with a key of this move
//! alone. The rules of [`journal`](crate::journal) say who may run the machine.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_house::random::random;
use anabranch_kernel::uplinks::Session;
use anabranch_net::Clock;
use nix::fcntl::Flock;
use serde::Serialize;
use serde_json::{Value, json};

use crate::arrivals::set_capabilities;
use crate::beat::Listener;
use crate::config::Config;
use crate::disks::{self, Node, Server};
use crate::error::{Error, Result};
use crate::journal::{Departure, Guarded};
use crate::key::{self, KEY_ID};
use crate::launch;
use crate::model::{Prediction, TIMES_MAX};
use crate::outlook::{Outlook, Survey, measure};
use crate::paths::{self, Carried, Path};
use crate::qmp::{Qmp, Version};
use crate::remote::{Remote, unexpected};
use crate::settle::{self, Settled};
use crate::store::{Machine, Move, Store};
use crate::wire::{Ask, MoveId, Prepare, Told};

/// The longest pause of the guest, as QEMU counts, unless the user says another.
pub const PAUSE_MAX: Span = Span::from_millis(300);
/// How long the lock of a machine that does not move is waited for.
const LOCK: Span = Span::from_secs(8);
/// The time between two looks at QEMU.
const LOOK: Span = Span::from_millis(200);
/// The same while disks are copied.
const LOOK_DISKS: Duration = Duration::from_millis(100);
/// After this time every path that was named has to carry something.
const JOIN: Span = Span::from_secs(4);
/// A path that carries nothing for this long while others do is lost.
const SILENT: Span = Span::from_millis(1_500);
/// How long the destination may take to answer by the connection that is there, before others are tried.
const PROMPT: Duration = Duration::from_secs(5);
/// The same if a link was lost, on which that connection may be.
const PROMPT_LOST: Duration = Duration::from_secs(1);
/// How long the destination may take to say that the machine runs.
const WORD: Span = Span::from_secs(60);
/// How long the guest's heartbeat is waited for.
const BEAT: Span = Span::from_secs(15);

/// How a machine is to move.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the host that it moves to.
    pub to: String,
    /// The links to use; none: all that lead there.
    pub via: Vec<String>,
    /// The longest pause of the guest, as QEMU counts.
    pub pause_max: Span,
    /// Whether the guest is slowed down, ever more, until the move ends.
    pub auto_converge: bool,
    /// Whether the guest runs at the destination before all of its memory is there.
    pub post_copy: bool,
    /// Whether to begin although the move would never end.
    pub anyway: bool,
    /// Whether to measure and predict before.
    pub predicts: bool,
}

/// How far a move is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// QEMU's word for it; `disks` while these are copied, before the memory.
    pub state: String,
    /// The time since the beginning, ms.
    pub elapsed_ms: u64,
    /// The number of the pass over the memory, from 1.
    pub pass: u64,
    /// What remains to be sent, bytes of memory or of disks.
    pub remaining_bytes: u64,
    /// The memory, bytes; while disks are copied, their length.
    pub memory_bytes: u64,
    /// What was sent.
    pub sent_bytes: u64,
    /// What the guest changes, bytes a second, as QEMU counted in the last pass.
    pub changed_bytes: u64,
    /// What each link has carried, bytes.
    pub paths: BTreeMap<String, u64>,
}

/// What a move reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Something that the user should know.
    Note(String),
    /// The paths that are used.
    Paths(Vec<Path>),
    /// What was measured and predicted.
    Outlook(Outlook),
    /// The destination waits, and the memory is copied from now on.
    Begins,
    /// How far it is.
    Progress(Progress),
    /// A link carries nothing any more; the others go on.
    PathLost(String),
    /// A link carries again.
    PathBack(String),
    /// All is there, and the destination is asked to run the machine.
    Given,
    /// The machine runs at the destination.
    Runs,
}

/// What a move was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// From the beginning of the copy until the machine ran at the destination, ms.
    pub total_ms: u64,
    /// How long the guest stood still, ms, as QEMU counts.
    pub qemu_pause_ms: Option<u64>,
    /// How long the guest stood still, ms, from its stop here until it ran there.
    pub stood_still_ms: Option<u64>,
    /// How long nothing was heard of the guest, ms, if it has a heartbeat.
    pub felt_ms: Option<u64>,
    /// The passes over the memory.
    pub passes: u64,
    /// What was sent, bytes.
    pub sent_bytes: u64,
    /// What each link has carried, bytes.
    pub paths: BTreeMap<String, u64>,
    /// What was predicted.
    pub predicted: Option<Prediction>,
}

/// What a mover uses of the program around it.
pub struct Program<'a> {
    /// Takes what is reported.
    pub events: &'a mut dyn FnMut(Event),
    /// Whether the user wants an end.
    pub stop: &'a dyn Fn() -> bool,
    /// Starts whoever settles the move if this process is killed. Called once, before anything depends on it.
    pub guard: &'a mut dyn FnMut() -> Result,
}

/// The end of a copy.
enum Copied {
    /// All memory is there.
    All,
    /// The guest has to run there now, and the rest follows.
    Most,
}

/// What is observed while memory is copied.
#[derive(Default)]
struct Watch {
    began: Time,
    /// The ports at which the QEMU at the destination listens.
    ports: Vec<u16>,
    /// The disks that are copied, too.
    disks: Vec<Node>,
    carried: Carried,
    /// What each link had carried, and when that grew.
    grew: BTreeMap<String, (u64, Time)>,
    lost: Vec<String>,
    has_joined: bool,
    stopped: Option<Time>,
    last: Progress,
}

struct Mover<'a, 'p> {
    store: &'a Store,
    machine: Machine,
    options: &'a Options,
    program: &'a mut Program<'p>,
    clock: Clock,
    qmp: Qmp,
    remote: Remote,
    addresses: Vec<IpAddr>,
    paths: Vec<Path>,
    /// The kernel's endpoints for the paths, for the time of the move.
    _session: Option<Session>,
    departure: Move,
    predicted: Option<Prediction>,
}

/// Moves a machine. When this returns without an error, the machine runs at the destination; after an error
/// it runs here, unless the error says that it stands still.
///
/// # Errors
/// See [`Error`].
pub fn run(store: &Store, name: &str, options: &Options, program: &mut Program<'_>) -> Result<Report> {
    let clock = Clock::start();
    let _lock = lock(store, name, clock)?;
    if store.departure(name)?.is_some_and(|departure| departure.state != Departure::Gone) {
        settle::recover(store, name, WORD, clock)?;
        (program.events)(Event::Note("an earlier move was interrupted, and has been settled".to_owned()));
    }
    if store.protection(name)?.is_some_and(|protection| protection.state != Guarded::Lost) {
        return Err(Error::Refused(format!(
            "{name} is protected, and its shadow would follow the wrong machine: `anabranch vm unprotect \
             {name}` first"
        )));
    }
    let mut mover = Mover::prepare(store, name, options, program, clock)?;
    mover.config()?;
    let outlook = if options.predicts { Some(mover.look()?) } else { None };
    mover.predicted = outlook.as_ref().and_then(Outlook::all).map(|all| all.prediction);
    let config = mover.send_images()?;
    let places = store.places(name)?;
    let key: [u8; 32] =
        random().ok_or_else(|| Error::Failed("the system gives no random numbers".to_owned()))?;
    let key = data_encoding::HEXLOWER.encode(&key);
    key::put(&places, &key)?;
    // From here on a kill leaves something to settle.
    store.set_departure(name, Some(&mover.departure))?;
    let copied = (mover.program.guard)().and_then(|()| mover.copy(config, key));
    match copied {
        Ok((watch, beat)) => mover.hand_over(watch, beat),
        Err(why) => Err(mover.go_back(why)),
    }
}

/// Measures and predicts a move, and does not begin it.
///
/// # Errors
/// See [`Error`].
pub fn look(store: &Store, name: &str, options: &Options, program: &mut Program<'_>) -> Result<Outlook> {
    let options = Options { anyway: true, ..options.clone() };
    Mover::prepare(store, name, &options, program, Clock::start())?.look()
}

/// Takes the lock of a machine. Whoever has just settled a move may hold it a moment longer.
fn lock(store: &Store, name: &str, clock: Clock) -> Result<Flock<File>> {
    let deadline = clock.now() + LOCK;
    loop {
        if let Some(held) = store.lock(name)? {
            return Ok(held);
        }
        let is_moving = store.departure(name)?.is_some_and(|departure| departure.state != Departure::Gone);
        if is_moving || clock.now() > deadline {
            return Err(Error::Failed(format!("another move of {name}, or a recovery, is under way")));
        }
        thread::sleep(Duration::from_millis(50));
    }
}

impl<'a, 'p> Mover<'a, 'p> {
    /// Looks at both ends and at the paths; nothing is changed but the kernel's endpoints.
    fn prepare(
        store: &'a Store,
        name: &str,
        options: &'a Options,
        program: &'a mut Program<'p>,
        clock: Clock,
    ) -> Result<Self> {
        let machine = store.machine(name)?;
        let (host, pairing) = store.host(&options.to)?;
        let mut qmp = Qmp::connect(&machine.qmp, clock)?;
        launch::check(qmp.version())?;
        let status = qmp.status()?;
        if status != "running" {
            return Err(Error::Refused(format!("{name} does not run: it is {status}")));
        }
        let (remote, hello) = Remote::greet(&host, &pairing)?;
        let number = |version: Version| (version.major, version.minor);
        if number(hello.qemu) < number(qmp.version()) {
            let (there, here) = (hello.qemu, qmp.version());
            return Err(Error::Refused(format!(
                "QEMU at {} is {there}, older than {here} here: a machine moves only to the same or a newer \
                 one",
                options.to
            )));
        }
        let paths = paths::find(&options.via, &hello.addresses)?;
        let session = paths::set_up(&paths)?;
        (program.events)(Event::Paths(paths.clone()));
        let id: [u8; 16] =
            random().ok_or_else(|| Error::Failed("the system gives no random numbers".to_owned()))?;
        let addresses = hello.addresses.clone();
        let departure =
            Move { id: MoveId::new(id), to: options.to.clone(), addresses, state: Departure::Moving };
        Ok(Self {
            store,
            machine,
            options,
            program,
            clock,
            qmp,
            remote,
            addresses: hello.addresses,
            paths,
            _session: session,
            departure,
            predicted: None,
        })
    }

    /// Returns what the machine is made of.
    fn config(&self) -> Result<Config> {
        let name = &self.machine.name;
        self.machine.config.clone().ok_or_else(|| {
            Error::Usage(format!(
                "{name} was attached, and nothing tells the destination how to start it: attach it again \
                 with what it is made of"
            ))
        })
    }

    fn check_stop(&self) -> Result {
        if (self.program.stop)() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Measures and predicts, and refuses a move that would never end.
    fn look(&mut self) -> Result<Outlook> {
        let (_, pairing) = self.store.host(&self.options.to)?;
        let survey = Survey {
            pairing: &pairing,
            port: self.remote.peer().port(),
            paths: &self.paths,
            pid: self.machine.pid,
            pause_max: self.options.pause_max,
        };
        let outlook = measure(&mut self.qmp, &survey, self.clock)?;
        self.check_stop()?;
        (self.program.events)(Event::Outlook(outlook.clone()));
        let Options { anyway, auto_converge, post_copy, .. } = self.options;
        let ends = outlook.all().is_none_or(|all| all.prediction.ends());
        match ends || *anyway || *auto_converge || *post_copy {
            true => Ok(outlook),
            false => {
                let (changed, carried) =
                    (outlook.changed_bytes, outlook.all().map_or(0, |all| all.rate_bytes));
                Err(Error::Never(format!(
                    "the move would never end: the guest changes {:.1} MB/s, and the paths carry {:.1} MB/s",
                    changed as f64 / 1e6,
                    carried as f64 / 1e6
                )))
            }
        }
    }

    /// Sends the files that QEMU reads at its start, and returns the configuration with their hashes as
    /// names.
    fn send_images(&mut self) -> Result<Config> {
        let mut config = self.config()?;
        for image in [&mut config.kernel, &mut config.initrd].into_iter().flatten() {
            *image = self.remote.put(image)?.into();
            self.check_stop()?;
        }
        Ok(config)
    }

    /// Has the destination wait, and copies disks and memory.
    fn copy(&mut self, config: Config, key: String) -> Result<(Watch, Option<Listener>)> {
        let first = self.paths[0].remote;
        let Options { auto_converge, post_copy, pause_max, .. } = self.options;
        let id = self.departure.id.clone();
        // The names here are those of this host still: those of the destination are its own matter.
        let here = self.config()?;
        let nodes = disks::own(&mut self.qmp, &here)?;
        if *post_copy && !nodes.is_empty() {
            return Err(Error::Usage(
                "--post-copy is for machines whose disks are shared: a guest that ran at the destination \
                 before all of its memory was there could not go back to its disks here"
                    .to_owned(),
            ));
        }
        let disk_bytes = nodes.iter().map(|node| node.bytes).collect();
        let prepare = Prepare { id, config, key, post_copy: *post_copy, ipv6: first.is_ipv6(), disk_bytes };
        let (port, disk_port) = match self.remote.ask(&Ask::Prepare(Box::new(prepare)))? {
            Told::Ready { port, disks } => (port, disks),
            other => return Err(unexpected(&other)),
        };
        key::give(&mut self.qmp, &self.store.places(&self.machine.name)?, "client")?;
        set_capabilities(&mut self.qmp, *auto_converge, *post_copy, !nodes.is_empty())?;
        let parameters = json!({
            "tls-creds": KEY_ID, "downtime-limit": pause_max.as_millis(), "max-bandwidth": 1_u64 << 40,
        });
        self.qmp.execute("migrate-set-parameters", parameters)?;
        let beat = self.machine.beat.as_ref().and_then(|path| Listener::begin(path, self.clock).ok());
        let host = if first.is_ipv6() { format!("[{first}]") } else { first.to_string() };
        // One path is one TCP connection, which cannot leave it.
        let multipath = if self.paths.len() > 1 { ",mptcp=on" } else { "" };
        let mut watch = Watch { began: self.clock.now(), ports: vec![port], ..Watch::default() };
        if let Some(port) = disk_port {
            watch.ports.push(port);
            self.copy_disks(&mut watch, nodes, SocketAddr::new(first, port))?;
        }
        self.qmp.execute("migrate", json!({"uri": format!("tcp:{host}:{port}{multipath}")}))?;
        (self.program.events)(Event::Begins);
        let copied = self.watch(&mut watch)?;
        self.departure.state = Departure::Given;
        self.store.set_departure(&self.machine.name, Some(&self.departure))?;
        if let Copied::Most = copied {
            (self.program.events)(Event::Note("the rest of the memory follows the guest".to_owned()));
        }
        Ok((watch, beat))
    }

    /// Copies disks until only what the guest writes remains to be sent: that follows by itself.
    fn copy_disks(&mut self, watch: &mut Watch, nodes: Vec<Node>, to: SocketAddr) -> Result {
        let server = Server { at: to, multipath: self.paths.len() > 1, waits: false };
        disks::begin(&mut self.qmp, &nodes, &server)?;
        watch.disks = nodes;
        let total = watch.disks.iter().map(|node| node.bytes).sum();
        loop {
            self.check_stop()?;
            let copied = disks::copied(&mut self.qmp, &watch.disks)?;
            drop(watch.carried.read(&self.addresses, &watch.ports)?);
            watch.last = Progress {
                state: "disks".to_owned(),
                elapsed_ms: self.clock.now().since(watch.began).as_millis(),
                remaining_bytes: copied.iter().map(|disk| disk.left).sum(),
                memory_bytes: total,
                sent_bytes: copied.iter().map(|disk| disk.sent).sum(),
                paths: watch.carried.by_device(),
                ..Progress::default()
            };
            (self.program.events)(Event::Progress(watch.last.clone()));
            if copied.iter().all(|disk| disk.follows) {
                watch.last = Progress::default();
                return Ok(());
            }
            thread::sleep(LOOK_DISKS);
        }
    }

    /// Follows QEMU until all is there, or as much as the user wants.
    fn watch(&mut self, watch: &mut Watch) -> Result<Copied> {
        let mut next_look = watch.began;
        let mut is_asked = false;
        loop {
            self.check_stop()?;
            let event = self.qmp.event(next_look)?;
            let is_news = event.as_ref().is_some_and(|event| event.name == "MIGRATION");
            if let Some(event) = event.filter(|event| event.name == "STOP") {
                watch.stopped = Some(event.at);
            }
            if !is_news && self.clock.now() < next_look {
                continue;
            }
            next_look = self.clock.now() + LOOK;
            let state = self.qmp.execute("query-migrate", json!({}))?;
            let status = state["status"].as_str().unwrap_or_default().to_owned();
            self.observe(watch, &state)?;
            match status.as_str() {
                "completed" => return Ok(Copied::All),
                // The guest stands still, and the disks are QEMU's to write for the last time.
                "pre-switchover" => {
                    while let Some(event) = self.qmp.event(Time::ZERO)? {
                        let at = (event.name == "STOP").then_some(event.at);
                        watch.stopped = watch.stopped.or(at);
                    }
                    disks::complete(&mut self.qmp, &watch.disks, self.clock)?;
                    self.qmp.execute("migrate-continue", json!({"state": "pre-switchover"}))?;
                }
                "postcopy-active" => return Ok(Copied::Most),
                "failed" | "cancelled" | "none" => {
                    let why = state["error-desc"].as_str().unwrap_or("QEMU does not say why").to_owned();
                    return Err(Error::Failed(format!("the copy of the memory {status}: {why}")));
                }
                "active" if self.options.post_copy && !is_asked && watch.last.pass > 1 => {
                    self.qmp.execute("migrate-start-postcopy", json!({}))?;
                    is_asked = true;
                }
                _ => {}
            }
        }
    }

    /// Reports how far it is, and sees that the paths are those that were wanted.
    fn observe(&mut self, watch: &mut Watch, state: &Value) -> Result {
        let now = self.clock.now();
        let there = watch.carried.read(&self.addresses, &watch.ports)?;
        let paths = watch.carried.by_device();
        let ram = |key: &str| state["ram"][key].as_u64().unwrap_or(0);
        watch.last = Progress {
            state: state["status"].as_str().unwrap_or_default().to_owned(),
            elapsed_ms: now.since(watch.began).as_millis(),
            pass: ram("dirty-sync-count"),
            remaining_bytes: ram("remaining"),
            memory_bytes: ram("total"),
            sent_bytes: ram("transferred").max(watch.last.sent_bytes),
            changed_bytes: ram("dirty-pages-rate") * ram("page-size"),
            paths: paths.clone(),
        };
        (self.program.events)(Event::Progress(watch.last.clone()));
        if watch.last.state != "active" {
            return Ok(());
        }
        let named = &self.options.via;
        if let Some(other) = there.iter().find(|device| !named.is_empty() && !named.contains(*device)) {
            return Err(Error::Refused(format!(
                "the copy went over {other}, which was not named: another program has told Multipath TCP of \
                 it"
            )));
        }
        let Options { anyway, auto_converge, post_copy, .. } = self.options;
        let is_too_long = watch.last.sent_bytes > TIMES_MAX * watch.last.memory_bytes;
        if is_too_long && !(*anyway || *auto_converge || *post_copy) {
            let (pass, changed) = (watch.last.pass, watch.last.changed_bytes as f64 / 1e6);
            return Err(Error::Never(format!(
                "the move does not end: after {pass} passes the guest still changes {changed:.1} MB/s, as \
                 much as the paths carry"
            )));
        }
        if self.paths.len() > 1 {
            self.check_joined(watch, &there, now)?;
            self.look_for_silence(watch, &paths, now);
        }
        Ok(())
    }

    /// Reports links that carry nothing any more while others do, and those that carry again.
    fn look_for_silence(&mut self, watch: &mut Watch, paths: &BTreeMap<String, u64>, now: Time) {
        for path in &self.paths {
            let bytes = paths.get(&path.device).copied().unwrap_or(0);
            let seen = watch.grew.entry(path.device.clone()).or_insert((bytes, now));
            let is_lost = watch.lost.contains(&path.device);
            if bytes > seen.0 {
                *seen = (bytes, now);
                if is_lost {
                    watch.lost.retain(|device| *device != path.device);
                    (self.program.events)(Event::PathBack(path.device.clone()));
                }
            } else if watch.has_joined && !is_lost && now.since(seen.1) > SILENT {
                watch.lost.push(path.device.clone());
                (self.program.events)(Event::PathLost(path.device.clone()));
            }
        }
    }

    /// Sees once, after a while, that every path has a subflow.
    fn check_joined(&mut self, watch: &mut Watch, there: &[String], now: Time) -> Result {
        let missing: Vec<&str> = self
            .paths
            .iter()
            .map(|path| path.device.as_str())
            .filter(|device| !there.iter().any(|t| t == device))
            .collect();
        if watch.has_joined || (!missing.is_empty() && now.since(watch.began) < JOIN) {
            return Ok(());
        }
        watch.has_joined = true;
        if missing.is_empty() {
            return Ok(());
        }
        let text =
            format!("{} carries nothing: Multipath TCP opened no subflow there", missing.join(" and "));
        match self.options.via.is_empty() {
            true => (self.program.events)(Event::Note(text)),
            false => return Err(Error::Unreachable(text)),
        }
        Ok(())
    }

    /// Has the destination run the machine, and ends it here.
    fn hand_over(mut self, mut watch: Watch, beat: Option<Listener>) -> Result<Report> {
        let name = self.machine.name.clone();
        let last_beat = beat.as_ref().and_then(|beat| beat.heard().last);
        (self.program.events)(Event::Given);
        let asked_at = self.clock.now();
        // The connection that was prepared by is tried first: it is there, unless a link is lost.
        self.remote.set_patience(if watch.lost.is_empty() { PROMPT } else { PROMPT_LOST });
        let told = self
            .remote
            .ask(&Ask::Decide { id: self.departure.id.clone(), asked: crate::journal::Asked::Resume });
        let settled = match told {
            Ok(Told::Decided { state: crate::journal::Arrival::Running, runs_after_us, told_after_us }) => {
                Settled::There { runs_after_us, told_after_us }
            }
            _ => {
                // Addresses behind links that carry come first.
                let is_lost = |ip: &IpAddr| {
                    let mut behind = self.paths.iter().filter(|path| path.remote == *ip);
                    behind.any(|path| watch.lost.contains(&path.device))
                };
                self.departure.addresses.sort_by_key(is_lost);
                let (settled, remote) = settle::decide(self.store, &self.departure, &name, WORD, self.clock)?;
                self.remote = remote;
                settled
            }
        };
        let answered_at = self.clock.now();
        let Settled::There { runs_after_us, told_after_us } = settled else {
            let why = Error::Refused(format!("{} does not run {name}", self.options.to));
            return Err(self.go_back(why));
        };
        (self.program.events)(Event::Runs);
        // The request was on its way for half of the time that the agent did not take.
        let way = answered_at.since(asked_at).as_micros().saturating_sub(told_after_us) / 2;
        let since = |from: Option<Time>, after_us: Option<u64>| {
            Some((asked_at.since(from?).as_micros() + way + after_us?) / 1_000)
        };
        let runs_at_us = asked_at.since(watch.began).as_micros() + way + runs_after_us.unwrap_or(0);
        let beat_after_us = self.beat_after(last_beat);
        if last_beat.is_some() && beat_after_us.is_none() {
            let text = format!(
                "{name} was heard here and is silent there: look at its console at {}",
                self.options.to
            );
            (self.program.events)(Event::Note(text));
        }
        let mut state = self.qmp.execute("query-migrate", json!({}))?;
        if state["status"] == "postcopy-active" {
            let (carried, addresses) = (&mut watch.carried, &self.addresses);
            settle::wait_for_post_copy(&mut self.qmp, self.clock, &mut || {
                drop(carried.read(addresses, &watch.ports));
            })?;
            state = self.qmp.execute("query-migrate", json!({}))?;
        }
        let report = Report {
            total_ms: runs_at_us / 1_000,
            qemu_pause_ms: state["downtime"].as_u64(),
            stood_still_ms: since(watch.stopped, runs_after_us),
            felt_ms: since(last_beat, beat_after_us),
            passes: state["ram"]["dirty-sync-count"].as_u64().unwrap_or(watch.last.pass),
            sent_bytes: state["ram"]["transferred"].as_u64().unwrap_or(0).max(watch.last.sent_bytes),
            paths: watch.carried.by_device(),
            predicted: self.predicted,
        };
        drop(beat);
        settle::leave(self.store, &name, &mut self.departure, Some(self.qmp), self.clock)?;
        Ok(report)
    }

    /// Asks when the guest was heard; without a heartbeat here there will be none there.
    fn beat_after(&mut self, last: Option<Time>) -> Option<u64> {
        let wait_ms = if last.is_some() { BEAT.as_millis() } else { 0 };
        match self.remote.ask(&Ask::Beat { id: self.departure.id.clone(), wait_ms }) {
            Ok(Told::Beat { after_us }) => after_us,
            _ => None,
        }
    }

    /// Lets the machine run on here, and returns the error.
    fn go_back(self, why: Error) -> Error {
        let name = self.machine.name.clone();
        match settle::stay(self.store, &name, self.qmp, self.clock) {
            Ok(()) => {
                settle::tell_abort(self.store, &self.departure);
                why
            }
            Err(e) => Error::Failed(format!("{why}; and {name} could not be let run on: {e}")),
        }
    }
}
