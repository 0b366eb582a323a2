//! Schedules many small files, each fetched whole: decides which file to request next, from which server and
//! over which connection.
//!
//! A *connection* is a server seen from one local address. It has many requests outstanding at once, so that
//! a file does not wait for the round trip of the file before it. (A connection of
//! [`range_scheduler`](crate::range_scheduler) has one request and few prefetched ones.)
//!
//! 1. **Amount outstanding** (`file_scheduler/connection.rs`): twice the bytes that the connection delivers
//!    in a round trip, from [`WINDOW_MIN_BYTES`] to [`WINDOW_MAX_BYTES`], and at most as many files as the
//!    client pipelines. All connections to a server draw from one queue of files, so a faster connection
//!    takes more files.
//! 2. **Handover** (`file_scheduler/connection_handover.rs`). Servers end a TCP connection after a number of
//!    requests (nginx after 1,000), and the next one begins in slow start. The scheduler learns this number
//!    when a server ends a connection, and from then on sends no more requests than that on one TCP
//!    connection. A connection may have a second one beside it, which begins while the first is still busy.
//!    As the second delivers more, the first is asked for less.
//! 3. **Endgame** (`file_scheduler/endgame.rs`): a connection without work requests a second copy of a file
//!    that another connection would deliver later, or not at all.
//! 4. **Failures** hold a connection back for half a second, then twice as long, and so on. After the wait
//!    the connection gets a single file as a test. A file that a server lacks is requested from other
//!    servers. A file that all servers lack, or that has failed [`TRIES_MAX`] times, is lost; the other files
//!    go on.
//! 5. **Wrong bytes** (`file_scheduler/bad_content.rs`): the caller verifies each whole file and reports a
//!    wrong one. If other requests were outstanding on the connection, the file is requested again, alone,
//!    because a server or a proxy may mix up pipelined answers. If the request was alone, that URL is not
//!    used for the file again. After [`BAD_FILES_MAX`] such files a server is not used any more; its earlier
//!    files were verified, so they stay.
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
use connection::{Connection, HEAD_BYTES, Request};
use connection_pair::{ConnectionLimit, ConnectionPair};

/// The most servers that one scheduler uses.
pub const SERVERS_MAX: usize = 64;
/// The number of failed requests after which a file is lost. Of requests that fail together on one connection
/// only the first counts.
pub const TRIES_MAX: u32 = 10;
/// The number of files with wrong bytes after which a server is not used any more.
pub const BAD_FILES_MAX: u32 = 8;
/// The most outstanding requests of all connections together.
pub const ALL_OUTSTANDING_MAX: usize = 2_048;
/// The most outstanding requests of one connection, unless files are so small that these have less than
/// [`PIPELINED_BYTES`].
pub const PIPELINED_FILES: usize = 64;
/// The bytes that the outstanding requests for tiny files may have on one connection.
pub const PIPELINED_BYTES: u64 = 256 << 10;
/// How often a connection without work is compared again with those that have requests.
const TAIL_TICK: Span = Span::from_millis(50);

/// The state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileState {
    /// No request for this file is outstanding.
    Idle,
    /// The number of outstanding requests for this file.
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
    /// The files that this server can be asked for, those with the fewest failures first.
    idle: BTreeSet<(u32, FileId)>,
    closed: bool,
    /// The number of files for which this server sent wrong bytes.
    bad_files: u32,
    /// The number of answers after which this server ends a TCP connection.
    limit: ConnectionLimit,
}

/// The scheduler of small files; see the [module](self).
pub struct FileScheduler {
    files: Vec<File>,
    servers: Vec<Server>,
    connections: Vec<Connection>,
    pairs: Vec<ConnectionPair>,
    /// The most outstanding requests of one connection.
    outstanding_max: usize,
    /// The number of files that are neither done nor lost.
    left: usize,
    /// The number of requests made so far.
    asked: u64,
    out: VecDeque<Command>,
    events: VecDeque<Event>,
    deadline: Time,
    dirty: bool,
}

impl FileScheduler {
    /// Creates a scheduler for the files `wanted`, without connections. URLs of servers beyond the first
    /// [`SERVERS_MAX`] are ignored. The client pipelines at most `pipeline_max` requests on a connection; of
    /// files that are not tiny, the scheduler has at most [`PIPELINED_FILES`] outstanding.
    #[must_use]
    pub fn new(wanted: &[FileSpec], pipeline_max: usize) -> Self {
        let outstanding_max = outstanding_max(wanted, pipeline_max);
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

    /// Adds a connection to a server. Returns `None` if there are [`CONNECTIONS_MAX`] already, or if no file
    /// has a URL on this server or on one with a higher number.
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

    /// Adds a second connection between the same two ends as `first`, which takes over where the first one
    /// ends. Returns `None` if there are [`CONNECTIONS_MAX`] already, if `first` does not exist, or if it has
    /// a second connection already.
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

    /// Returns a report of each connection.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionReport> {
        self.connections.iter().map(Connection::report)
    }

    /// Returns the number of files that are neither complete nor given up for good.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.left
    }

    /// Whether a server is not used any more.
    #[must_use]
    pub fn is_closed(&self, server: ServerId) -> bool {
        self.servers.get(usize::from(server)).is_none_or(|server| server.closed)
    }

    /// Returns the file that an outstanding request is for.
    #[must_use]
    pub fn file_of(&self, fetch: FetchId) -> Option<FileId> {
        let (p, n) = self.find(fetch)?;
        self.connections[p].requests.get(n).map(|request| request.file)
    }

    /// Whether this request was the only one outstanding on its connection all the time, so that the answer
    /// cannot belong to another request.
    #[must_use]
    pub fn was_unpipelined(&self, fetch: FetchId) -> bool {
        self.find(fetch)
            .and_then(|(p, n)| self.connections[p].requests.get(n))
            .is_some_and(|request| request.unpipelined)
    }

    /// Returns the connection of an outstanding request and the index of the request in its queue.
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
        // Give each connection one file in turn, so that all connections get a part of a short queue.
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
            // The file is done, but its answer shows whether this server has wrong bytes.
            FileState::Done => FileState::Done,
            FileState::Idle | FileState::Lost => FileState::Requested(1),
        };
        let id = fetch_id(self.asked, p);
        self.asked += 1;
        self.connections[p].suspect.take_if(|suspect| *suspect == file);
        self.connections[p].ask(Request::new(id, file, url_index, bytes, now));
        self.out.push_back(Command::Fetch { connection: p, fetch: id, file, url_index });
    }

    /// Removes a file from the queues of all servers.
    fn leave_queue(&mut self, file: FileId) {
        let File { urls, tries, .. } = &self.files[file];
        for url in urls {
            if let Some(server) = self.servers.get_mut(usize::from(url.server)) {
                server.idle.remove(&(*tries, file));
            }
        }
    }

    /// Counts one outstanding request less for a file, if there was one. A file without requests is queued
    /// again; if no server is left for it, it is lost.
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

    /// Stops using a server. Files that only this server has are lost.
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
                // The file stays in the queues of other servers, or is lost.
                self.requeue(file);
            }
        }
    }

    /// Cancels all requests of a connection and queues their files again.
    fn drop_requests(&mut self, p: ConnectionId) {
        for request in self.connections[p].clear() {
            self.out.push_back(Command::Cancel { fetch: request.id });
            self.requeue(request.file);
        }
    }
}

/// Returns the most outstanding requests of one connection for files of this mean size.
fn outstanding_max(wanted: &[FileSpec], pipeline_max: usize) -> usize {
    let all = wanted.iter().map(|file| file.bytes.saturating_add(HEAD_BYTES));
    let bytes = all.fold(0, u64::saturating_add);
    let of_tiny = PIPELINED_BYTES.saturating_mul(wanted.len() as u64).checked_div(bytes).unwrap_or(0);
    usize::try_from(of_tiny).unwrap_or(usize::MAX).max(PIPELINED_FILES).min(pipeline_max)
}

impl Machine for FileScheduler {
    type Input<'a> = Input;
    type Transmit = Command;
    type Event = Event;

    /// Tells the scheduler that something happened at `now`. An input for a request that is over, or for a
    /// connection that does not exist, is ignored.
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
