//! Protects a running machine: its disks are copied to a shadow at another host, and what the guest writes
//! follows. The lag that is shown is measured, see `lag`. When this host is lost, the other one
//! takes the machine over (a failover); when it is back, the machine is copied back and returns (a failback).
//!
//! QEMU copies by itself. The keeper, a process for each protected machine, watches it: it measures the lag,
//! tells the other host of it, and ends the machine here if that has taken it over. A keeper that was killed
//! can be started again: it takes up the copy that is there.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_house::random::random;
use anabranch_kernel::uplinks::Session;
use anabranch_net::Clock;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::disks::{self, Node, Server};
use crate::error::{Error, Result};
use crate::journal::{Arrival, Asked, Departure, Guarded, Heard, heard};
use crate::key;
use crate::lag::{Backlog, Stamps};
use crate::paths::{self, Carried};
use crate::qmp::Qmp;
use crate::remote::{Remote, unexpected};
use crate::settle::{self, Settled};
use crate::shadow::{host_ms, publish};
use crate::store::{Machine, Move, Protection, Store};
use crate::wire::{Ask, MoveId, Prepare, Told};

/// The time between two looks at QEMU.
const LOOK: Duration = Duration::from_millis(100);
/// The time between two words with the other host.
const WORD: Duration = Duration::from_millis(500);
/// How long the other host may take to make a shadow.
const MAKES: Duration = Duration::from_secs(20);
/// How long a keeper may take to end.
const END: Span = Span::from_secs(15);
/// A shadow that is further behind is not ready for a failback, ms.
const LAG_MAX_MS: u64 = 5_000;
/// How long the other host may take to say that the machine runs there.
const RUNS: Span = Span::from_secs(60);

/// How a protection is now. It is written for other programs several times a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// When it was looked, ms since this host was started.
    pub at_ms: u64,
    /// What had certainly arrived was written so long before, ms; none before the first copy is complete.
    pub lag_ms: Option<u64>,
    /// What was sent and has been confirmed, bytes.
    pub sent_bytes: u64,
    /// What is left to be sent, bytes.
    pub left_bytes: u64,
    /// What each link has carried, bytes.
    pub paths: BTreeMap<String, u64>,
    /// Why nothing follows any more, if that is so.
    pub ended: Option<String>,
}

/// A protection, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its record.
    pub protection: Protection,
    /// How it is.
    pub now: Now,
    /// The lag, ms, which includes the time since it was measured.
    pub lag_ms: Option<u64>,
    /// Whether its keeper lives.
    pub is_kept: bool,
}

fn new_id() -> Result<[u8; 16]> {
    random().ok_or_else(|| Error::Failed("the system gives no random numbers".to_owned()))
}

fn refused<T>(text: String) -> Result<T> {
    Err(Error::Refused(text))
}

/// Returns how the protection of a machine is, if it has one.
///
/// # Errors
/// If its record cannot be read.
pub fn status(store: &Store, name: &str) -> Result<Option<Status>> {
    let Some(protection) = store.protection(name)? else { return Ok(None) };
    let is_kept = store.lock_keeper(name)?.is_none();
    let bytes = fs::read(store.places(name)?.dir.join("now.json")).unwrap_or_default();
    let now: Now = serde_json::from_slice(&bytes).unwrap_or_default();
    let lag_ms = now.lag_ms.map(|lag| lag + host_ms().saturating_sub(now.at_ms));
    Ok(Some(Status { protection, now, lag_ms, is_kept }))
}

/// Writes that a machine is to be protected, which a keeper then does.
///
/// # Errors
/// `Refused` if the machine's state does not allow it; `NotFound` if there is no such machine or host.
pub fn begin(store: &Store, name: &str, to: &str, via: &[String]) -> Result {
    let busy = || Error::Refused(format!("{name} is in use by another command: try again"));
    let _lock = store.lock(name)?.ok_or_else(busy)?;
    if store.departure(name)?.is_some_and(|departure| departure.state != Departure::Gone) {
        return refused(format!("a move of {name} is not settled: `anabranch vm recover {name}` does that"));
    }
    let known = store.protection(name)?;
    if let Some(known) = &known {
        let machine = store.find(name)?;
        if known.state == Guarded::Lost && machine.is_none_or(|machine| !lives(&machine)) {
            return refused(format!(
                "{name} was taken over by {}, and does not run here: a failback there brings it back",
                known.to
            ));
        }
        if store.lock_keeper(name)?.is_none() {
            return refused(format!("{name} is protected already, by a shadow at {}", known.to));
        }
    }
    let machine = store.machine(name)?;
    store.host(to)?;
    let Some(config) = &machine.config else {
        return Err(Error::Usage(format!(
            "{name} was attached, and nothing tells {to} how to start it: attach it again with what it is \
             made of"
        )));
    };
    if config.disks.is_empty() || config.disks.iter().any(|disk| disk.shared) {
        return refused(format!(
            "{name} has a disk that both hosts share, or none: only disks of one host alone have a shadow"
        ));
    }
    let again = known.filter(|known| known.to == to && known.state != Guarded::Lost);
    let (to, via) = (to.to_owned(), via.to_vec());
    let protection = match again {
        Some(known) => Protection { via, ..known },
        None => {
            let (id, state) = (MoveId::new(new_id()?), Guarded::Copying);
            Protection { id, to, via, addresses: vec![], port: 0, nodes: vec![], state }
        }
    };
    let _ = fs::remove_file(store.places(name)?.dir.join("now.json"));
    store.set_protection(name, Some(&protection))
}

fn lives(machine: &Machine) -> bool {
    std::os::unix::net::UnixStream::connect(machine.look.as_ref().unwrap_or(&machine.qmp)).is_ok()
}

/// What the keeper and the thread that speaks with the other host share.
#[derive(Debug, Default)]
struct Shared {
    is_whole: AtomicBool,
    is_over: AtomicBool,
    lag_ms: Mutex<u64>,
    /// What the other host has said last.
    word: Mutex<Option<Word>>,
}

/// What the other host says of a shadow.
#[derive(Clone, Copy, Debug)]
struct Word {
    state: Option<Arrival>,
    is_whole: bool,
    serves: bool,
}

/// Speaks with the other host, until it is dropped.
struct Talk {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Talk {
    fn begin(store: &Store, protection: &Protection) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let (ours, store, protection) = (Arc::clone(&shared), store.clone(), protection.clone());
        let talk = move || {
            while !ours.is_over.load(Ordering::SeqCst) {
                let _ = talk(&ours, &store, &protection);
                thread::sleep(WORD);
            }
        };
        let thread = thread::Builder::new().name("talk".to_owned()).spawn(talk);
        Ok(Self { shared, thread: Some(thread.map_err(|e| Error::Failed(e.to_string()))?) })
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn talk(shared: &Shared, store: &Store, protection: &Protection) -> Result {
    let (host, pairing) = store.host(&protection.to)?;
    let mut remote = Remote::greet_any(&host, &pairing, &protection.addresses)?;
    // One path may be dead, and another address is tried then.
    remote.set_patience(Duration::from_secs(3));
    while !shared.is_over.load(Ordering::SeqCst) {
        let lag_ms = *shared.lag_ms.lock().unwrap_or_else(PoisonError::into_inner);
        let is_whole = shared.is_whole.load(Ordering::SeqCst);
        let word = match remote.ask(&Ask::Follow { id: protection.id.clone(), is_whole, lag_ms })? {
            Told::Shadow { state, is_whole, serves } => Word { state, is_whole, serves },
            other => return Err(unexpected(&other)),
        };
        *shared.word.lock().unwrap_or_else(PoisonError::into_inner) = Some(word);
        thread::sleep(WORD);
    }
    Ok(())
}

/// A keeper at work.
struct Keeper<'a> {
    store: &'a Store,
    name: &'a str,
    protection: Protection,
    qmp: Qmp,
    clock: Clock,
    stamps: Stamps,
    talk: Talk,
    carried: Carried,
    backlogs: Vec<Backlog>,
    /// The kernel's endpoints for the paths.
    session: Option<Session>,
}

/// Keeps the protection of a machine that was written by [`begin`], until it is to end. What it sees, and why
/// it ended, it writes for [`status`].
///
/// # Errors
/// If nothing follows any more: the machine or its shadow has ended.
pub fn keep(store: &Store, name: &str, stop: &dyn Fn() -> bool) -> Result {
    let busy = || Error::Refused(format!("another program keeps the protection of {name}"));
    let mut keeper = store.lock_keeper(name)?;
    // A command that looks whether there is a keeper holds the lock for a moment.
    for _ in 0..20 {
        if keeper.is_none() {
            thread::sleep(LOOK);
            keeper = store.lock_keeper(name)?;
        }
    }
    let _keeper = keeper.ok_or_else(busy)?;
    let kept = Keeper::begin(store, name).and_then(|mut keeper| {
        keeper.follow(stop)?;
        // The copy goes on without a keeper, and needs its paths.
        if let Some(session) = keeper.session.take() {
            session.leave();
        }
        Ok(())
    });
    if let Err(e) = &kept {
        let path = store.places(name)?.dir.join("now.json");
        let mut now: Now = serde_json::from_slice(&fs::read(&path).unwrap_or_default()).unwrap_or_default();
        now.ended = Some(e.to_string());
        publish(&path, &now);
    }
    kept
}

impl<'a> Keeper<'a> {
    fn begin(store: &'a Store, name: &'a str) -> Result<Self> {
        let clock = Clock::start();
        let none = || Error::NotFound(format!("{name} is not protected"));
        let mut protection = store.protection(name)?.ok_or_else(none)?;
        let machine = store.machine(name)?;
        let mut qmp = Qmp::connect(&machine.qmp, clock)?;
        let (host, pairing) = store.host(&protection.to)?;
        let is_there = !protection.nodes.is_empty()
            && matches!(protection.state, Guarded::Copying | Guarded::Following)
            && disks::copied(&mut qmp, &protection.nodes).is_ok();
        if !is_there {
            disks::give_up(&mut qmp, clock)?;
        }
        let (mut remote, hello) = match is_there {
            true => (None, protection.addresses.clone()),
            false => Remote::greet(&host, &pairing).map(|(remote, hello)| (Some(remote), hello.addresses))?,
        };
        let paths = paths::find(&protection.via, &hello)?;
        let session = paths::set_up(&paths)?;
        let ip = paths[0].remote;
        let is_new = remote.is_some();
        if let Some(remote) = &mut remote {
            prepare(store, &machine, &mut protection, &mut qmp, remote, ip, hello)?;
        }
        let at = SocketAddr::new(ip, protection.port);
        let server = Server { at, multipath: paths.len() > 1, waits: true };
        if is_new {
            disks::begin(&mut qmp, &protection.nodes, &server)?;
        }
        let stamps = Stamps::begin(&server, &store.places(name)?.dir.join("key"), clock)?;
        let talk = Talk::begin(store, &protection)?;
        let carried = Carried::default();
        Ok(Self { store, name, protection, qmp, clock, stamps, talk, carried, backlogs: Vec::new(), session })
    }

    /// Watches the copy until it is to end.
    fn follow(&mut self, stop: &dyn Fn() -> bool) -> Result {
        let path = self.store.places(self.name)?.dir.join("now.json");
        while !stop() {
            // Another command may end it.
            let is_on = |known: &Protection| {
                known.id == self.protection.id && matches!(known.state, Guarded::Copying | Guarded::Following)
            };
            if !self.store.protection(self.name)?.as_ref().is_some_and(is_on) {
                return Ok(());
            }
            let copied = disks::copied(&mut self.qmp, &self.protection.nodes)?;
            let now = self.clock.now();
            if copied.iter().all(|disk| disk.follows) {
                self.talk.shared.is_whole.store(true, Ordering::SeqCst);
                self.backlogs.resize(copied.len(), Backlog::default());
            }
            let seen = self.backlogs.iter_mut().zip(&copied);
            let oldest = seen.map(|(backlog, disk)| backlog.see(now, disk.sent, disk.left)).min().flatten();
            let oldest = oldest.zip(self.stamps.as_of()).map(|(disks, stamp)| disks.min(stamp));
            // Nothing follows as long as the other host does not know that it does.
            let follows = self.protection.state == Guarded::Following;
            let lag_ms = oldest.filter(|_| follows).map(|as_of| now.since(as_of).as_millis());
            *self.talk.shared.lag_ms.lock().unwrap_or_else(PoisonError::into_inner) = lag_ms.unwrap_or(0);
            drop(self.carried.read(&self.protection.addresses, &[self.protection.port])?);
            publish(
                &path,
                &Now {
                    at_ms: host_ms(),
                    lag_ms,
                    sent_bytes: copied.iter().map(|disk| disk.sent).sum(),
                    left_bytes: copied.iter().map(|disk| disk.left).sum(),
                    paths: self.carried.by_device(),
                    ended: None,
                },
            );
            self.listen()?;
            disks::resume(&mut self.qmp)?;
            while self.qmp.event(Time::ZERO)?.is_some() {}
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Acts on what the other host has said.
    fn listen(&mut self) -> Result {
        let word = *self.talk.shared.word.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Word { state: word, is_whole, serves }) = word else { return Ok(()) };
        let (name, to) = (self.name, self.protection.to.clone());
        match heard(word) {
            Heard::Go if serves && is_whole && self.protection.state == Guarded::Copying => {
                self.protection.state = Guarded::Following;
                self.store.set_protection(self.name, Some(&self.protection))
            }
            Heard::Go if serves => Ok(()),
            Heard::Go => {
                disks::give_up(&mut self.qmp, self.clock)?;
                Err(Error::Unreachable(format!(
                    "{to} has lost the program that keeps the shadow of {name}: `anabranch vm protect` makes \
                     a new one"
                )))
            }
            Heard::Unprotected => {
                disks::give_up(&mut self.qmp, self.clock)?;
                Err(Error::Refused(format!("{to} has no shadow of {name} any more")))
            }
            Heard::Fence => {
                settle::fence(self.store, self.name, word, self.clock)?;
                Err(Error::Refused(format!("{to} has taken {name} over, and it has been ended here")))
            }
        }
    }
}

/// Has the other host make a shadow.
fn prepare(
    store: &Store,
    machine: &Machine,
    protection: &mut Protection,
    qmp: &mut Qmp,
    remote: &mut Remote,
    ip: IpAddr,
    addresses: Vec<IpAddr>,
) -> Result {
    let unknown = || Error::Usage(format!("nothing tells what {} is made of", machine.name));
    let mut config = machine.config.clone().ok_or_else(unknown)?;
    let nodes: Vec<Node> = disks::own(qmp, &config)?;
    for image in [&mut config.kernel, &mut config.initrd].into_iter().flatten() {
        *image = remote.put(image)?.into();
    }
    // The shadow of an earlier attempt, if there is one, is not known to be whole.
    *protection = Protection {
        id: MoveId::new(new_id()?),
        addresses,
        nodes,
        state: Guarded::Copying,
        ..protection.clone()
    };
    store.set_protection(&machine.name, Some(protection))?;
    let key: [u8; 32] =
        random().ok_or_else(|| Error::Failed("the system gives no random numbers".to_owned()))?;
    let key = data_encoding::HEXLOWER.encode(&key);
    let places = store.places(&machine.name)?;
    key::put(&places, &key)?;
    let prepare = Prepare {
        id: protection.id.clone(),
        config,
        key,
        post_copy: false,
        ipv6: ip.is_ipv6(),
        disk_bytes: protection.nodes.iter().map(|node| node.bytes).collect(),
    };
    remote.set_patience(MAKES);
    protection.port = match remote.ask(&Ask::Shadow(Box::new(prepare)))? {
        Told::Ready { port, .. } => port,
        other => return Err(unexpected(&other)),
    };
    store.set_protection(&machine.name, Some(protection))?;
    key::give(qmp, &places, "client")
}

/// Has the keeper of a machine end, and waits for that.
fn end_keeper(store: &Store, name: &str, protection: &mut Protection, clock: Clock) -> Result {
    protection.state = Guarded::Leaving;
    store.set_protection(name, Some(protection))?;
    let deadline = clock.now() + END;
    while store.lock_keeper(name)?.is_none() {
        if clock.now() > deadline {
            return Err(Error::Failed(format!("the keeper of {name} does not end")));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Ends the protection of a machine, which runs on: its shadow is removed.
///
/// # Errors
/// `Refused` if the other host has taken the machine over; `Unreachable` if it cannot be told: nothing
/// follows then, and this may be repeated.
pub fn unprotect(store: &Store, name: &str) -> Result {
    let clock = Clock::start();
    let none = || Error::Refused(format!("{name} is not protected"));
    let mut protection = store.protection(name)?.ok_or_else(none)?;
    if protection.state != Guarded::Lost {
        end_keeper(store, name, &mut protection, clock)?;
    }
    if let Some(machine) = store.find(name)?
        && let Ok(mut qmp) = Qmp::connect(&machine.qmp, clock)
    {
        disks::give_up(&mut qmp, clock)?;
    }
    paths::clean_up();
    let (host, pairing) = store.host(&protection.to)?;
    let mut remote = Remote::greet_any(&host, &pairing, &protection.addresses)?;
    match remote.ask(&Ask::Decide { id: protection.id.clone(), asked: Asked::Abort })? {
        Told::Decided { state: Arrival::Refused, .. } => store.set_protection(name, None),
        Told::Decided { state, .. } => {
            settle::fence(store, name, Some(state), clock)?;
            refused(format!("{} has taken {name} over: it runs there", protection.to))
        }
        other => Err(unexpected(&other)),
    }
}

/// Gives a machine to the host of its shadow: it stands still here until all has arrived, and is started
/// there. Nothing that it wrote is lost; what was in its memory alone is, as after a reset.
///
/// # Errors
/// `Refused` if the shadow is not ready. After an error the machine runs on here, unless the error says that
/// it stands still.
pub fn give_back(store: &Store, name: &str, guard: &mut dyn FnMut() -> Result) -> Result<Protection> {
    let clock = Clock::start();
    let status = status(store, name)?;
    let Some(Status { mut protection, lag_ms, is_kept: true, .. }) = status else {
        return refused(format!(
            "{name} has no shadow that follows it: `anabranch vm sync {name}` makes one"
        ));
    };
    let to = protection.to.clone();
    match (protection.state, lag_ms) {
        (Guarded::Following, Some(lag)) if lag <= LAG_MAX_MS => {}
        (Guarded::Following, lag) => {
            return refused(format!("the shadow of {name} at {to} is {} ms behind: wait", lag.unwrap_or(0)));
        }
        _ => return refused(format!("the first copy of {name} to {to} is not complete: wait for it")),
    }
    end_keeper(store, name, &mut protection, clock)?;
    let busy = || Error::Refused(format!("{name} is in use by another command: try again"));
    let _lock = store.lock(name)?.ok_or_else(busy)?;
    let machine = store.machine(name)?;
    let mut qmp = Qmp::connect(&machine.qmp, clock)?;
    let (id, addresses) = (protection.id.clone(), protection.addresses.clone());
    let mut departure = Move { id, to: to.clone(), addresses, state: Departure::Moving };
    store.set_departure(name, Some(&departure))?;
    let sent = guard().and_then(|()| qmp.execute("stop", json!({})).map(drop)).and_then(|()| {
        disks::complete(&mut qmp, &protection.nodes, clock)?;
        // As soon as the machine runs there, it is protected again, by a connection that must not lose its
        // path.
        paths::clean_up();
        departure.state = Departure::Given;
        store.set_departure(name, Some(&departure))
    });
    let settled = match sent {
        Ok(()) => settle::decide(store, &departure, name, RUNS, clock)?.0,
        Err(why) => {
            settle::stay(store, name, qmp, clock)?;
            settle::fence(store, name, settle::tell_abort(store, &departure), clock)?;
            return Err(why);
        }
    };
    store.set_protection(name, None)?;
    match settled {
        Settled::There { .. } => {
            settle::leave(store, name, &mut departure, Some(qmp), clock)?;
            Ok(protection)
        }
        Settled::Here | Settled::Lost => {
            settle::stay(store, name, qmp, clock)?;
            refused(format!("{to} does not run {name}, which runs on here without a shadow"))
        }
    }
}

/// Returns the host to which a machine that was taken over can go back: that from which it came.
///
/// # Errors
/// `Refused` if it was not taken over here, or no host of that name is trusted.
pub fn origin(store: &Store, name: &str) -> Result<String> {
    let taken = store.arrivals()?.into_iter().flatten().find(|arrival| {
        arrival.shadow.is_some() && arrival.name == name && arrival.state == Arrival::Running
    });
    let Some(taken) = taken else {
        return refused(format!(
            "{name} was not taken over here: `vm protect {name} --to HOST` makes a shadow"
        ));
    };
    match store.host(&taken.client) {
        Ok(_) => Ok(taken.client),
        Err(_) => refused(format!(
            "{name} came from {}, and no host of that name is trusted here: name it with --to",
            taken.client
        )),
    }
}
