//! Many small files, each fetched whole: decides which to request from which server, over which connection,
//! and when.
//!
//! A *connection* is a server seen from one local address. Unlike in
//! [`range_scheduler`](crate::range_scheduler) it has many requests at once, so that a file does not wait for
//! the round trip of the one before it.
//!
//! 1. **How many at once** (`file_scheduler/connection.rs`): twice what the connection delivers in a round
//!    trip, from [`WINDOW_MIN_BYTES`] to [`WINDOW_MAX_BYTES`], and as many files as the client pipelines.
//!    There is one queue of files: a faster connection drains faster, and takes more of it.
//! 2. **Handover** (`file_scheduler/connection_handover.rs`). Servers end a connection after a number of
//!    requests (nginx after 1,000), and the next one begins in slow start. The scheduler learns that number
//!    when it happens, and sends no more requests on a connection. A connection may have a second one beside
//!    it, which begins while the first is still busy; as the second brings more, the first is asked for less.
//! 3. **The end** (`file_scheduler/endgame.rs`): a connection without work requests a second copy of a file
//!    that would come later, or not at all, from another one.
//! 4. **Failures** hold a connection back for half a second, then twice as long and so on; then it has to
//!    prove itself with one file. A file that a server lacks is asked of others; what all lack, or what has
//!    failed [`TRIES_MAX`] times, is lost, and the rest goes on.
//! 5. **Wrong bytes** (`file_scheduler/bad_content.rs`): the caller verifies each whole file and reports a
//!    wrong one; its server is not asked for that file again. After [`BAD_FILES_MAX`] wrong files a server is
//!    not used any more; its earlier files were verified, so they stay. Only a file that was requested alone
//!    counts, because a server or a proxy may mix up pipelined answers.
//!
//! [`FileScheduler`] is a [`Machine`]. It holds no bytes of any file.

mod api;
mod bad_content;
mod connection;
mod connection_handover;
mod connection_pair;
mod delivery;
mod endgame;
mod receive;

use std::collections::{BTreeSet, VecDeque};

use anabranch_algo::{Machine, Output, Span, Time};

pub use crate::fetch_id::{CONNECTIONS_MAX, ConnectionId, FetchId, connection_of};
pub use crate::range_scheduler::State;
pub use api::{Command, ConnectionReport, Counters, Event, Failure, FileId, FileSpec, Input, ServerId};
pub use connection::{UNRESPONSIVE_AFTER, WINDOW_MAX_BYTES, WINDOW_MIN_BYTES};
pub use connection_pair::KEEPALIVE_REQUESTS_DEFAULT;

use crate::fetch_id::fetch_id;
use connection::{Connection, Request};
use connection_pair::{ConnectionLimit, ConnectionPair};

/// The most servers of one machine.
pub const SERVERS_MAX: usize = 64;
/// A file is lost after so many failed requests that were each the first to fail on their connection.
pub const TRIES_MAX: u32 = 10;
/// A server that has sent wrong bytes for so many files is not used any more.
pub const BAD_FILES_MAX: u32 = 8;
/// Requests of all connections together.
pub const ALL_OUTSTANDING_MAX: usize = 2_048;
/// How often a connection without work is compared again with those that have some.
const TAIL_TICK: Span = Span::from_millis(50);

/// The state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileState {
    /// Nobody has been asked for it.
    Idle,
    /// So many requests for it are under way.
    Requested(u8),
    Done,
    Lost,
}

struct File {
    bytes: u64,
    urls: Vec<FileUrl>,
    state: FileState,
    tries: u32,
}

/// A URL of a file.
#[derive(Clone, Copy)]
struct FileUrl {
    server: ServerId,
    gone: bool,
}

#[derive(Default)]
struct Server {
    /// Files that it can be asked for, those with the fewest failures first.
    idle: BTreeSet<(u32, FileId)>,
    closed: bool,
    /// Files that it had with wrong bytes.
    bad_files: u32,
    /// When it ends connections.
    limit: ConnectionLimit,
}

/// The machine; see the [module](self).
pub struct FileScheduler {
    files: Vec<File>,
    servers: Vec<Server>,
    connections: Vec<Connection>,
    pairs: Vec<ConnectionPair>,
    /// Unanswered requests of one connection at most.
    outstanding_max: usize,
    /// Files that are neither done nor lost.
    left: usize,
    /// Requests made so far.
    asked: u64,
    out: VecDeque<Command>,
    events: VecDeque<Event>,
    deadline: Time,
    dirty: bool,
}

impl FileScheduler {
    /// A machine for these files, without connections. URLs beyond [`SERVERS_MAX`] servers are left out. The
    /// client sends at most `outstanding_max` requests ahead on a connection.
    #[must_use]
    pub fn new(wanted: &[FileSpec], outstanding_max: usize) -> Self {
        let files = wanted.iter().map(|wanted| File {
            bytes: wanted.bytes,
            urls: wanted
                .servers
                .iter()
                .map(|&server| FileUrl { server, gone: usize::from(server) >= SERVERS_MAX })
                .collect(),
            state: FileState::Idle,
            tries: 0,
        });
        let files: Vec<File> = files.collect();
        let urls = files.iter().flat_map(|file| &file.urls).filter(|url| !url.gone);
        let servers = urls.map(|url| usize::from(url.server) + 1);
        let servers = (0..servers.max().unwrap_or(0)).map(|_| Server::default()).collect();
        let left = files.len();
        let mut new = Self {
            files,
            servers,
            connections: Vec::new(),
            pairs: Vec::new(),
            outstanding_max,
            left,
            asked: 0,
            out: VecDeque::new(),
            events: VecDeque::new(),
            deadline: Time::ZERO,
            dirty: true,
        };
        (0..left).for_each(|file| new.requeue(file));
        new
    }

    /// Adds a connection to a server; `None` when there are [`CONNECTIONS_MAX`], or no file is there.
    pub fn add_connection(&mut self, server: ServerId) -> Option<ConnectionId> {
        if self.connections.len() >= CONNECTIONS_MAX || usize::from(server) >= self.servers.len() {
            return None;
        }
        let connection = self.connections.len();
        self.connections.push(Connection::new(server, self.pairs.len()));
        self.pairs.push(ConnectionPair::new(connection));
        self.dirty = true;
        Some(connection)
    }

    /// Adds a second connection between the same two ends, to take over where the first one ends.
    /// `None` when there are [`CONNECTIONS_MAX`], no such connection, or it has one.
    pub fn add_second_connection(&mut self, first: ConnectionId) -> Option<ConnectionId> {
        let Connection { server, pair, .. } = *self.connections.get(first)?;
        let second = self.connections.len();
        if second >= CONNECTIONS_MAX || !self.pairs[pair].add(second) {
            return None;
        }
        self.connections.push(Connection::new(server, pair));
        self.dirty = true;
        Some(second)
    }

    /// All connections, as numbers.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionReport> {
        self.connections.iter().map(Connection::report)
    }

    /// Files that are neither done nor lost.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.left
    }

    /// Whether a server is not asked any more.
    #[must_use]
    pub fn is_closed(&self, server: ServerId) -> bool {
        self.servers.get(usize::from(server)).is_none_or(|server| server.closed)
    }

    /// The file that a request under way is for.
    #[must_use]
    pub fn file_of(&self, fetch: FetchId) -> Option<FileId> {
        let (p, n) = self.find(fetch)?;
        self.connections[p].requests.get(n).map(|request| request.file)
    }

    /// Whether no other request was under way beside this one, so that the answer must be its own.
    #[must_use]
    pub fn was_unpipelined(&self, fetch: FetchId) -> bool {
        self.find(fetch)
            .and_then(|(p, n)| self.connections[p].requests.get(n))
            .is_some_and(|request| request.unpipelined)
    }

    /// The connection that has this request, and its place there.
    fn find(&self, fetch: FetchId) -> Option<(ConnectionId, usize)> {
        let p = connection_of(fetch);
        let n = self.connections.get(p)?.requests.iter().position(|request| request.id == fetch)?;
        Some((p, n))
    }

    fn work(&mut self, now: Time) {
        for p in 0..self.connections.len() {
            if self.connections[p].is_unresponsive(now) {
                self.connections[p].fail(now);
                self.drop_requests(p);
            }
        }
        (0..self.pairs.len()).for_each(|pair| self.hand_over(now, pair));
        // One file each in turn, so that all share a short queue.
        let mut any = true;
        while std::mem::take(&mut any) {
            for p in 0..self.connections.len() {
                if self.outstanding() >= ALL_OUTSTANDING_MAX {
                    break;
                }
                let server = usize::from(self.connections[p].server);
                let next = self.recheck(p).or(self.servers[server].idle.first().map(|(_, file)| *file));
                let Some(file) = next else { continue };
                if self.may_ask(now, p, self.files[file].bytes) {
                    self.ask(now, p, file);
                    any = true;
                }
            }
        }
        self.steal(now);
        self.deadline =
            self.connections.iter().map(|connection| connection.due(now)).min().unwrap_or(Time::NEVER);
        let asked = self.connections.iter().any(|connection| !connection.requests.is_empty());
        if asked && self.connections.iter().any(|connection| connection.is_free(now)) {
            self.deadline = self.deadline.min(now + TAIL_TICK);
        }
    }

    fn outstanding(&self) -> usize {
        self.connections.iter().map(|connection| connection.requests.len()).sum()
    }

    fn ask(&mut self, now: Time, p: ConnectionId, file: FileId) {
        let server = self.connections[p].server;
        let entry = &self.files[file];
        let Some(url_index) = entry.urls.iter().position(|url| url.server == server && !url.gone) else {
            return;
        };
        let (bytes, before) = (entry.bytes, entry.state);
        self.leave_queue(file);
        self.files[file].state = match before {
            FileState::Requested(n) => FileState::Requested(n.saturating_add(1)),
            // This tells whether the server has wrong bytes.
            FileState::Done => FileState::Done,
            FileState::Idle | FileState::Lost => FileState::Requested(1),
        };
        let id = fetch_id(self.asked, p);
        self.asked += 1;
        self.connections[p].suspect.take_if(|suspect| *suspect == file);
        self.connections[p].ask(Request::new(id, file, url_index, bytes, now));
        self.out.push_back(Command::Fetch { connection: p, fetch: id, file, url_index });
    }

    /// A file is in no server's queue any more.
    fn leave_queue(&mut self, file: FileId) {
        let File { urls, tries, .. } = &self.files[file];
        for url in urls {
            if let Some(server) = self.servers.get_mut(usize::from(url.server)) {
                server.idle.remove(&(*tries, file));
            }
        }
    }

    /// One request less for a file, if there was one. A file without requests is queued again, or lost.
    fn requeue(&mut self, file: FileId) {
        let entry = &mut self.files[file];
        match entry.state {
            FileState::Done | FileState::Lost => return,
            FileState::Requested(n) if n > 1 => {
                entry.state = FileState::Requested(n - 1);
                return;
            }
            FileState::Requested(_) | FileState::Idle => entry.state = FileState::Idle,
        }
        let servers = &mut self.servers;
        let mut any = false;
        if entry.tries < TRIES_MAX {
            for url in entry.urls.iter().filter(|url| !url.gone) {
                if let Some(server) = servers.get_mut(usize::from(url.server)).filter(|s| !s.closed) {
                    server.idle.insert((entry.tries, file));
                    any = true;
                }
            }
        }
        if !any {
            entry.state = FileState::Lost;
            self.left -= 1;
            self.events.push_back(Event::Lost { file });
        }
    }

    fn down(&mut self, p: ConnectionId) {
        let Some(connection) = self.connections.get_mut(p).filter(|connection| connection.is_usable()) else {
            return;
        };
        connection.state = State::Down;
        let server = connection.server;
        self.drop_requests(p);
        if !self.connections.iter().any(|connection| connection.server == server && connection.is_usable()) {
            self.close_server(server);
        }
    }

    /// A server is not used any more; files that only it has are lost.
    fn close_server(&mut self, server: ServerId) {
        let Some(entry) = self.servers.get_mut(usize::from(server)) else { return };
        if std::mem::replace(&mut entry.closed, true) {
            return;
        }
        let idle = std::mem::take(&mut entry.idle);
        for p in 0..self.connections.len() {
            if self.connections[p].server == server {
                if self.connections[p].state != State::Down {
                    self.connections[p].state = State::Closed;
                }
                self.drop_requests(p);
            }
        }
        for (_, file) in idle {
            if self.files[file].state == FileState::Idle {
                // It stays in the queues of others, or is lost.
                self.requeue(file);
            }
        }
    }

    /// Ends all requests of a connection.
    fn drop_requests(&mut self, p: ConnectionId) {
        for request in self.connections[p].clear() {
            self.out.push_back(Command::Cancel { fetch: request.id });
            self.requeue(request.file);
        }
    }
}

impl Machine for FileScheduler {
    type Input<'a> = Input;
    type Transmit = Command;
    type Event = Event;

    /// What belongs to a request that is over, or to no connection, is ignored.
    fn handle(&mut self, now: Time, input: Input) {
        self.dirty = true;
        match input {
            Input::Head { fetch, nth, last } => {
                if let Some((p, n)) = self.find(fetch) {
                    self.on_head(now, p, n, nth, last);
                }
            }
            Input::Bytes { fetch, bytes } => {
                if let Some((p, n)) = self.find(fetch) {
                    self.connections[p].on_data(now, n, bytes);
                }
            }
            Input::Done { fetch, valid } => {
                if let Some((p, n)) = self.find(fetch) {
                    self.done(now, p, n, valid);
                }
            }
            Input::Failed { fetch, failure } => {
                if let Some((p, n)) = self.find(fetch) {
                    self.failed(now, p, n, failure);
                }
            }
            Input::Sample { connection, rtt } => {
                if let Some(connection) = self.connections.get_mut(connection) {
                    connection.delivery.srtt = rtt;
                }
            }
            Input::Down { connection } => self.down(connection),
            Input::Resumed => self.connections.iter_mut().for_each(|connection| connection.resumed(now)),
            Input::Useless { server } => self.close_server(server),
        }
    }

    fn poll(&mut self, now: Time) -> Output<Command, Event> {
        let mut worked = false;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Output::Event(event);
            }
            if let Some(command) = self.out.pop_front() {
                return Output::Send(command);
            }
            if worked || !(self.dirty || now >= self.deadline) {
                return Output::Wait(self.deadline.max(now + Span::from_micros(100)));
            }
            self.work(now);
            (self.dirty, worked) = (false, true);
        }
    }
}
