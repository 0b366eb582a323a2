//! The client's servers: opens each connection at the one that [`ServerChoice`] chooses.
//!
//! A server comes from the settings, from DNS, or from another server that names it. Whatever named it, it
//! gets a trunk only if it proves a key that the client knows, so a poisoned list names servers in vain.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use anabranch_net::Clock;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::client::service_records::{self, Found};
use crate::client::trunks::{LegSource, Making, Trunks};
use crate::event::{Event, Reports};
use crate::pool::servers::{ServerChoice, ServerView};
use crate::random::random;
use crate::relay::Ending;
use crate::status::{KnownServer, ServerState};
use crate::trunk::{Destination, GoAwayReason, Reason};
use crate::trunk_task::{Learner, Stream};

/// The most servers of a client; more are refused.
pub const SERVERS_MAX: usize = 16;
/// The most names of servers that are remembered as refused.
const REFUSED_MAX: usize = 64;
/// The longest time that a program waits for a trunk if there is none.
const PROGRAM_WAITS: Duration = Duration::from_secs(15);
/// The time until service records are looked up again that were not found.
const RECORDS_AGAIN: Duration = Duration::from_secs(10);
/// The time between two checks of what servers have said.
const TICK: Duration = Duration::from_millis(500);

/// Where the name of a server came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The user's settings.
    Settings,
    /// Another server.
    Server,
    /// The service records of the name with this index.
    Records(usize),
}

/// What names servers in the user's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerName {
    /// One server.
    At(Destination),
    /// The service records (RFC 2782) of `_anabranch-proxy._tcp.` and this name.
    Records(String),
}

impl From<Destination> for ServerName {
    fn from(server: Destination) -> Self {
        Self::At(server)
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(server) => server.fmt(f),
            Self::Records(name) => write!(f, "srv:{name}"),
        }
    }
}

#[derive(Clone, Debug)]
struct Member {
    id: u64,
    source: Source,
    trunks: Trunks,
}

#[derive(Debug, Default)]
struct State {
    members: Vec<Member>,
    next_id: u64,
    /// The servers that another one has named and that showed no known key, or were too many.
    refused: BTreeSet<Destination>,
}

#[derive(Debug)]
struct Shared {
    making: Making,
    state: Mutex<State>,
    choice: Arc<Mutex<ServerChoice>>,
    /// The names whose service records name servers.
    records: Vec<String>,
    clock: Clock,
    reports: Reports,
    /// Wakes the task that keeps the servers.
    work: Arc<Notify>,
    /// Changes whenever those who wait for a trunk should look again.
    news: Arc<watch::Sender<u64>>,
}

/// The client's servers. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Servers {
    shared: Arc<Shared>,
}

/// The client's servers, as long as the client runs.
#[derive(Clone, Debug)]
pub(super) struct WeakServers(Weak<Shared>);

impl WeakServers {
    /// Returns the servers for the status; none after the client's end.
    pub(super) fn status(&self) -> Vec<KnownServer> {
        self.0.upgrade().map(|shared| Servers { shared }.status()).unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Servers {
    /// Creates the client's servers.
    pub(super) fn new(making: Making, servers: Vec<ServerName>, reports: Reports) -> Self {
        // Without random numbers every client would draw the same servers, which is no error.
        let seed = random().map_or(0, u64::from_ne_bytes);
        let (mut records, mut named) = (Vec::new(), Vec::new());
        for server in servers {
            match server {
                ServerName::At(server) => named.push(server),
                ServerName::Records(name) => records.push(name),
            }
        }
        let shared = Shared {
            making,
            records,
            state: Mutex::default(),
            choice: Arc::new(Mutex::new(ServerChoice::new(seed))),
            clock: Clock::start(),
            reports,
            work: Arc::default(),
            news: Arc::new(watch::Sender::new(0)),
        };
        let all = Self { shared: Arc::new(shared) };
        for server in named {
            all.shared.add(server, Source::Settings);
        }
        all
    }

    /// Returns a reference that does not keep the servers once the client has ended.
    pub(super) fn weak(&self) -> WeakServers {
        WeakServers(Arc::downgrade(&self.shared))
    }

    fn members(&self) -> Vec<Member> {
        lock(&self.shared.state).members.clone()
    }

    /// Opens a stream at the best server. Waits for a trunk if there is none.
    pub(super) async fn open(&self, to: &Destination, wants_reply: bool) -> Result<Stream, Ending> {
        let mut news = self.shared.news.subscribe();
        let opening = async {
            loop {
                if let Some(stream) = self.open_now(to, wants_reply)? {
                    return Ok(stream);
                }
                // `changed` fails only if the sender is gone, and `self` holds the sender.
                let _ = news.changed().await;
            }
        };
        let late = || {
            let first = self.members().first().map(|member| member.trunks.no_stream());
            first.unwrap_or(Ending { reason: Reason::TrunkGone, why: Some("there is no server".to_owned()) })
        };
        timeout(PROGRAM_WAITS, opening).await.unwrap_or_else(|_| Err(late()))
    }

    fn open_now(&self, to: &Destination, wants_reply: bool) -> Result<Option<Stream>, Ending> {
        let members = self.members();
        let mut views: Vec<ServerView> = members.iter().map(|member| member.trunks.view(member.id)).collect();
        let now = self.shared.clock.now();
        loop {
            let chosen = lock(&self.shared.choice).choose(now, to.host(), &views);
            let Some(place) = chosen else { break };
            match members[place].trunks.open_now(to, wants_reply) {
                Ok(Some(stream)) => {
                    if members.len() > 1 {
                        self.shared.ask_distance(to, members[place].id, &stream);
                    }
                    return Ok(Some(stream));
                }
                // The trunk ended a moment ago.
                Ok(None) | Err(_) => views[place].is_open = false,
            }
        }
        // No server has a trunk. Each is asked for one.
        let mut refused = None;
        for member in &members {
            match member.trunks.open_now(to, wants_reply) {
                Ok(Some(stream)) => return Ok(Some(stream)),
                Ok(None) => {}
                Err(ending) => refused = refused.or(Some(ending)),
            }
        }
        let are_all_refused = members.iter().all(|member| member.trunks.is_refused());
        refused.filter(|_| are_all_refused).map_or(Ok(None), Err)
    }

    /// Keeps as many trunks to each server as are wanted. Never returns.
    pub(super) async fn keep(&self) {
        let mut tasks = JoinSet::new();
        let mut running: BTreeMap<u64, AbortHandle> = BTreeMap::new();
        for index in 0..self.shared.records.len() {
            let shared = Arc::clone(&self.shared);
            tasks.spawn(async move { shared.follow_records(index).await });
        }
        loop {
            self.shared.take_named();
            let members = self.members();
            for member in &members {
                let trunks = member.trunks.clone();
                let task = || tasks.spawn(async move { trunks.keep().await });
                running.entry(member.id).or_insert_with(task);
            }
            running.retain(|id, task| {
                let is_there = members.iter().any(|member| member.id == *id);
                if !is_there {
                    task.abort();
                }
                is_there
            });
            if members.len() > 1 {
                members.iter().for_each(|member| member.trunks.measure());
            }
            self.shared.making.links.note_full(members.iter().any(|member| member.trunks.is_full()));
            tokio::select! {
                () = self.shared.work.notified() => {}
                () = sleep(TICK) => {}
                Some(_) = tasks.join_next() => {}
            }
        }
    }

    /// Returns the addresses of all servers. Repeats the lookup until any name has one.
    pub(super) async fn server_addresses(&self) -> Vec<SocketAddr> {
        loop {
            let mut all = Vec::new();
            for member in self.members() {
                all.extend(member.trunks.server_addresses().await);
            }
            if !all.is_empty() {
                return all;
            }
            sleep(TICK).await;
        }
    }

    /// Returns the trunk that answers of the server that is nearest. Waits for one if there is none.
    pub(super) async fn leg_source(&self) -> LegSource {
        let mut news = self.shared.news.subscribe();
        loop {
            if let Some(source) = self.nearest_leg_source() {
                return source;
            }
            // A trunk that is silent may answer again later.
            let _ = timeout(TICK, news.changed()).await;
        }
    }

    fn nearest_leg_source(&self) -> Option<LegSource> {
        let mut members = self.members();
        members.sort_by_key(|member| {
            let view = member.trunks.view(member.id);
            (view.is_suspect, view.rtt.is_none(), view.rtt)
        });
        members.iter().find_map(|member| member.trunks.leg_source())
    }

    /// Whether there is a trunk that answers.
    pub(super) fn answers(&self) -> bool {
        self.nearest_leg_source().is_some()
    }

    /// Whether bytes move on any trunk.
    pub(super) fn is_moving(&self) -> bool {
        self.members().iter().any(|member| member.trunks.is_moving())
    }

    /// Closes all trunks.
    pub(super) fn close(&self) {
        self.members().iter().for_each(|member| member.trunks.close());
    }

    /// Returns the servers for the status.
    pub(super) fn status(&self) -> Vec<KnownServer> {
        let one = |member: &Member| {
            let view = member.trunks.view(member.id);
            let (away, why) = member.trunks.says();
            let state = match (view.is_open, away) {
                (true, _) if view.is_suspect => ServerState::Silent,
                (true, _) => ServerState::Up,
                (false, Some(GoAwayReason::Drains)) => ServerState::Drains,
                (false, _) => ServerState::Down,
            };
            KnownServer {
                name: member.trunks.server().to_string(),
                state,
                rtt_us: view.rtt.map(|rtt| rtt.as_micros()),
                open: view.load.map(|load| load.open),
                capacity: view.load.map(|load| load.capacity),
                is_named_by_server: member.source == Source::Server,
                why: why.or_else(|| away.map(|away| away.to_string())).filter(|_| state != ServerState::Up),
            }
        };
        self.members().iter().map(one).collect()
    }
}

impl Shared {
    /// Adds a server unless it is there already. Returns its number, or `None` if there are too many.
    fn add(&self, server: Destination, source: Source) -> Option<u64> {
        let mut state = lock(&self.state);
        if let Some(known) = state.members.iter().find(|member| *member.trunks.server() == server) {
            return Some(known.id);
        }
        if state.members.len() >= SERVERS_MAX {
            return None;
        }
        let (id, index) = (state.next_id, state.members.len());
        state.next_id += 1;
        let keys = self.making.keys.as_ref().map(|keys| keys.beginning_at(index));
        let making = Making { keys, ..self.making.clone() };
        let (reports, news, work) = (self.reports.clone(), Arc::clone(&self.news), Arc::clone(&self.work));
        state.members.push(Member { id, source, trunks: Trunks::new((server, making), reports, news, work) });
        drop(state);
        self.work.notify_one();
        Some(id)
    }

    /// Looks service records up again and again. Never returns.
    async fn follow_records(&self, index: usize) {
        let name = &self.records[index];
        let mut said = None;
        loop {
            let found = service_records::look_up(name).await;
            let failure = found.as_ref().err().map(|e| format!("no servers of srv:{name}: {e}"));
            if failure.is_some() && failure != said {
                failure.clone().into_iter().for_each(|text| self.reports.put(Event::Notice(text)));
            }
            said = failure;
            // What was found before stays if DNS fails.
            let again = found.map_or(RECORDS_AGAIN, |found| self.take_records(index, found));
            sleep(again).await;
        }
    }

    /// Takes the servers of service records, and drops those that are in them no more. Their trunks end with
    /// their last streams. Returns when to look again.
    fn take_records(&self, index: usize, found: Found) -> Duration {
        let mut state = lock(&self.state);
        let is_there = |member: &Member| {
            member.source != Source::Records(index) || found.servers.contains(member.trunks.server())
        };
        let gone: Vec<Member> = state.members.extract_if(.., |member| !is_there(member)).collect();
        drop(state);
        for member in gone {
            lock(&self.choice).forget(member.id);
            member.trunks.leave();
        }
        for server in found.servers {
            if self.add(server.clone(), Source::Records(index)).is_none() {
                let text = format!("DNS names the server {server}: there are {SERVERS_MAX} already");
                self.refuse(server, text);
            }
        }
        found.again
    }

    /// Asks how far the destination is from the server, if that is not known.
    fn ask_distance(&self, to: &Destination, server: u64, stream: &Stream) {
        let now = self.clock.now();
        if !lock(&self.choice).wants_distance(now, to.host(), server) {
            return;
        }
        let (choice, host, clock) = (Arc::clone(&self.choice), to.host().clone(), self.clock);
        stream.ask_distance(Learner(Box::new(move |rtt| {
            lock(&choice).learn(clock.now(), &host, server, rtt);
        })));
    }

    /// Takes the servers that others have named, and drops those that showed no known key.
    fn take_named(&self) {
        let members = lock(&self.state).members.clone();
        for member in &members {
            for (server, is_wanted) in member.trunks.take_named() {
                self.take_one(member, server, is_wanted);
            }
        }
        for member in members.iter().filter(|m| m.source == Source::Server && m.trunks.is_refused()) {
            let server = member.trunks.server().clone();
            let text = format!("{server}, which another server has named, shows no key that is known here");
            self.refuse(server, text);
            lock(&self.state).members.retain(|one| one.id != member.id);
            lock(&self.choice).forget(member.id);
        }
    }

    fn take_one(&self, by: &Member, server: Destination, is_wanted: bool) {
        if lock(&self.state).refused.contains(&server) {
            return;
        }
        let from = by.trunks.server();
        let is_known = lock(&self.state).members.iter().any(|member| *member.trunks.server() == server);
        if self.making.keys.is_none() && !is_known {
            let text = format!("{from} names the server {server}: without keys only `server` does");
            return self.refuse(server, text);
        }
        let Some(id) = self.add(server.clone(), Source::Server) else {
            let text = format!("{from} names the server {server}: there are {SERVERS_MAX} already");
            return self.refuse(server, text);
        };
        if is_wanted && id != by.id {
            lock(&self.choice).move_to(by.id, id);
        }
        if !is_known {
            self.reports.put(Event::Notice(format!("{from} names the server {server}")));
        }
    }

    fn refuse(&self, server: Destination, text: String) {
        let mut state = lock(&self.state);
        if state.refused.len() >= REFUSED_MAX {
            state.refused.pop_first();
        }
        if state.refused.insert(server) {
            self.reports.put(Event::Notice(text));
        }
    }
}
