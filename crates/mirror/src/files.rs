//! Many small files, each fetched whole: which is asked of which server, over which way, when.
//!
//! A *way* is a server seen from one local address. Unlike in [`plan`](crate::plan) it has many requests at
//! once, so that a file does not wait for the round trip of the one before it.
//!
//! 1. **How many at once** (`files/way.rs`): twice what the way delivers in a round trip, from
//!    [`WINDOW_MIN_BYTES`] to [`WINDOW_MAX_BYTES`], and [`OUTSTANDING_MAX`] files. There is one queue of
//!    files: a faster way drains faster, and takes more of it.
//! 2. **A successor** (`files/lanes.rs`). Servers end a connection after so many requests (nginx after
//!    1,000), and a new one begins slowly: with small files, again and again. How many is learnt when it
//!    happens, and no more are asked on one connection. A way may have a second lane, whose connection
//!    begins while the first still has enough to do; what it brings, the first is asked less.
//! 3. **The end** (`files/tail.rs`): a way without work asks a second time for what would come later, or not
//!    at all, from another one.
//! 4. **Failures** hold a way back for half a second, then twice as long and so on; then it has to prove
//!    itself with one file. A file that a server lacks is asked of others; what all lack, or what has failed
//!    [`TRIES_MAX`] times, is lost, and the rest goes on.
//! 5. **Wrong bytes** (`files/wrong.rs`): whoever looks at a whole file says so, and its server is not asked
//!    for that file again. [`WRONG_MAX`] such files end the use of a server; what it brought before was
//!    looked at too, so it stands. Only what was asked alone counts, for answers may have been mixed up.
//!
//! The machine has the shape of [`algo::Machine`]: [`Files::handle`], then [`Files::poll`] until it answers
//! `Wait`. It holds no bytes of any file.

mod lanes;
mod tail;
mod talk;
mod way;
mod wrong;

use std::collections::{BTreeSet, VecDeque};

use algo::{Output, Span, Time};

pub use crate::plan::{FetchId, State, WayId};
pub use lanes::GUESSED_ANSWERS;
pub use talk::{Command, Counters, Event, Failure, FileId, Input, ServerId, Wanted, WayReport};
pub use way::{OUTSTANDING_MAX, SILENT_AFTER, WINDOW_MAX_BYTES, WINDOW_MIN_BYTES};
pub use wrong::WRONG_MAX;

use lanes::{Ends, Lanes};
use way::{Request, Way};

/// The most ways of one machine.
pub const WAYS_MAX: usize = crate::plan::WAYS_MAX;
/// The most servers of one machine.
pub const SERVERS_MAX: usize = 64;
/// A file whose requests have failed so often, each as the first of its connection to fail, is lost.
pub const TRIES_MAX: u32 = 10;
/// Requests of all ways together.
pub const ALL_OUTSTANDING_MAX: usize = 2_048;
/// How often it is looked again whether a way without work can help those that have some.
const TAIL_TICK: Span = Span::from_millis(50);

/// Where a file is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Nobody has been asked for it.
    Idle,
    /// So many requests for it are under way.
    Asked(u8),
    Done,
    Lost,
}

struct File {
    bytes: u64,
    places: Vec<Place>,
    fate: Fate,
    tries: u32,
}

/// A URL of a file.
#[derive(Clone, Copy)]
struct Place {
    server: ServerId,
    gone: bool,
}

#[derive(Default)]
struct Server {
    /// Those that may be asked of it, the ones that have failed least first.
    idle: BTreeSet<(u32, FileId)>,
    closed: bool,
    /// Files that it has sent other bytes for.
    wrong: u32,
    /// When it ends connections.
    ends: Ends,
}

/// The machine; see the [module](self).
pub struct Files {
    files: Vec<File>,
    servers: Vec<Server>,
    ways: Vec<Way>,
    lanes: Vec<Lanes>,
    /// Files that are neither done nor lost.
    left: usize,
    /// Requests made so far.
    asked: u64,
    out: VecDeque<Command>,
    events: VecDeque<Event>,
    deadline: Time,
    dirty: bool,
}

impl Files {
    /// A machine for these files, without ways. Places beyond [`SERVERS_MAX`] servers are left out.
    #[must_use]
    pub fn new(wanted: &[Wanted]) -> Self {
        let files = wanted.iter().map(|wanted| File {
            bytes: wanted.bytes,
            places: wanted
                .servers
                .iter()
                .map(|&server| Place { server, gone: usize::from(server) >= SERVERS_MAX })
                .collect(),
            fate: Fate::Idle,
            tries: 0,
        });
        let files: Vec<File> = files.collect();
        let places = files.iter().flat_map(|file| &file.places).filter(|place| !place.gone);
        let servers = places.map(|place| usize::from(place.server) + 1);
        let servers = (0..servers.max().unwrap_or(0)).map(|_| Server::default()).collect();
        let left = files.len();
        let mut new = Self {
            files,
            servers,
            ways: Vec::new(),
            lanes: Vec::new(),
            left,
            asked: 0,
            out: VecDeque::new(),
            events: VecDeque::new(),
            deadline: Time::ZERO,
            dirty: true,
        };
        (0..left).for_each(|file| new.put_back(file));
        new
    }

    /// Adds a way to a server; `None` when there are [`WAYS_MAX`], or no file is there.
    pub fn add_way(&mut self, server: ServerId) -> Option<WayId> {
        if self.ways.len() >= WAYS_MAX || usize::from(server) >= self.servers.len() {
            return None;
        }
        let way = self.ways.len();
        self.ways.push(Way::new(server, self.lanes.len()));
        self.lanes.push(Lanes::new(way));
        self.dirty = true;
        Some(way)
    }

    /// Adds a second lane to a way: another connection of the same ends, which is a way of its own here.
    /// `None` when there are [`WAYS_MAX`], no such way, or it has one.
    pub fn add_lane(&mut self, first: WayId) -> Option<WayId> {
        let Way { server, lanes, .. } = *self.ways.get(first)?;
        let second = self.ways.len();
        if second >= WAYS_MAX || !self.lanes[lanes].add(second) {
            return None;
        }
        self.ways.push(Way::new(server, lanes));
        self.dirty = true;
        Some(second)
    }

    /// All ways, as numbers.
    pub fn ways(&self) -> impl Iterator<Item = WayReport> {
        self.ways.iter().map(Way::report)
    }

    /// Files that are neither done nor lost.
    #[must_use]
    pub const fn left(&self) -> usize {
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
        self.ways[p].requests.get(n).map(|request| request.file)
    }

    /// Whether nothing else has been under way beside a request, so that its answer is its own.
    #[must_use]
    pub fn is_alone(&self, fetch: FetchId) -> bool {
        self.find(fetch).and_then(|(p, n)| self.ways[p].requests.get(n)).is_some_and(|request| request.alone)
    }

    /// Tells the machine that something happened at `now`. What belongs to a request that is over, or to no
    /// way, is ignored.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.dirty = true;
        match input {
            Input::Answer { fetch, nth, last } => {
                if let Some((p, n)) = self.find(fetch) {
                    self.begun(now, p, n, nth, last);
                }
            }
            Input::Bytes { fetch, bytes } => {
                if let Some((p, n)) = self.find(fetch) {
                    self.ways[p].heard(now, n, bytes);
                }
            }
            Input::Done { fetch, right } => {
                if let Some((p, n)) = self.find(fetch) {
                    self.done(now, p, n, right);
                }
            }
            Input::Failed { fetch, failure } => {
                if let Some((p, n)) = self.find(fetch) {
                    self.failed(now, p, n, failure);
                }
            }
            Input::Sample { way, rtt } => {
                if let Some(way) = self.ways.get_mut(way) {
                    way.srtt = rtt;
                }
            }
            Input::Down { way } => self.down(way),
            Input::Resumed => self.ways.iter_mut().for_each(|way| way.resumed(now)),
            Input::Useless { server } => self.close_server(server),
        }
    }

    /// Asks for the next thing to do. After [`Output::Wait`] nothing more happens before that time or the
    /// next [`handle`](Self::handle).
    pub fn poll(&mut self, now: Time) -> Output<Command, Event> {
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

    /// The way that has this request, and its place there. The way's number is in the request's.
    fn find(&self, fetch: FetchId) -> Option<(WayId, usize)> {
        let p = (fetch % WAYS_MAX as u64) as usize;
        let n = self.ways.get(p)?.requests.iter().position(|request| request.id == fetch)?;
        Some((p, n))
    }

    fn work(&mut self, now: Time) {
        for p in 0..self.ways.len() {
            if self.ways[p].is_silent(now) {
                self.ways[p].fail(now);
                self.drop_requests(p);
            }
        }
        (0..self.lanes.len()).for_each(|pair| self.take_turns(now, pair));
        // One file each in turn: a short queue is shared by all.
        let mut any = true;
        while std::mem::take(&mut any) {
            for p in 0..self.ways.len() {
                if self.outstanding() >= ALL_OUTSTANDING_MAX {
                    break;
                }
                let server = usize::from(self.ways[p].server);
                let next = self.again(p).or(self.servers[server].idle.first().map(|(_, file)| *file));
                let Some(file) = next else { continue };
                if self.may_ask(now, p, self.files[file].bytes) {
                    self.ask(now, p, file);
                    any = true;
                }
            }
        }
        self.help(now);
        self.deadline = self.ways.iter().map(|way| way.due(now)).min().unwrap_or(Time::NEVER);
        let asked = self.ways.iter().any(|way| !way.requests.is_empty());
        if asked && self.ways.iter().any(|way| way.is_free(now)) {
            self.deadline = self.deadline.min(now + TAIL_TICK);
        }
    }

    fn outstanding(&self) -> usize {
        self.ways.iter().map(|way| way.requests.len()).sum()
    }

    fn ask(&mut self, now: Time, p: WayId, file: FileId) {
        let server = self.ways[p].server;
        let entry = &self.files[file];
        let Some(place) = entry.places.iter().position(|place| place.server == server && !place.gone) else {
            return;
        };
        let (bytes, before) = (entry.bytes, entry.fate);
        self.leave_queue(file);
        self.files[file].fate = match before {
            Fate::Asked(n) => Fate::Asked(n.saturating_add(1)),
            // To know whether the server has it wrong.
            Fate::Done => Fate::Done,
            Fate::Idle | Fate::Lost => Fate::Asked(1),
        };
        let id = self.asked * WAYS_MAX as u64 + p as u64;
        self.asked += 1;
        self.ways[p].doubted.take_if(|doubted| *doubted == file);
        self.ways[p].ask(Request::new(id, file, place, bytes, now));
        self.out.push_back(Command::Fetch { way: p, fetch: id, file, place });
    }

    /// A file is in no server's queue any more.
    fn leave_queue(&mut self, file: FileId) {
        let File { places, tries, .. } = &self.files[file];
        for place in places {
            if let Some(server) = self.servers.get_mut(usize::from(place.server)) {
                server.idle.remove(&(*tries, file));
            }
        }
    }

    /// One request less for a file, if there was one; what nobody brings now is in the queues again, or lost.
    fn put_back(&mut self, file: FileId) {
        let entry = &mut self.files[file];
        match entry.fate {
            Fate::Done | Fate::Lost => return,
            Fate::Asked(n) if n > 1 => {
                entry.fate = Fate::Asked(n - 1);
                return;
            }
            Fate::Asked(_) | Fate::Idle => entry.fate = Fate::Idle,
        }
        let servers = &mut self.servers;
        let mut any = false;
        if entry.tries < TRIES_MAX {
            for place in entry.places.iter().filter(|place| !place.gone) {
                if let Some(server) = servers.get_mut(usize::from(place.server)).filter(|s| !s.closed) {
                    server.idle.insert((entry.tries, file));
                    any = true;
                }
            }
        }
        if !any {
            entry.fate = Fate::Lost;
            self.left -= 1;
            self.events.push_back(Event::Lost { file });
        }
    }

    fn done(&mut self, now: Time, p: WayId, n: usize, right: bool) {
        let Some(request) = self.ways[p].answered(now, n) else { return };
        let file = request.file;
        if !right {
            self.wrong(p, &request);
            return;
        }
        let entry = &mut self.files[file];
        let counters = &mut self.ways[p].counters;
        if entry.fate == Fate::Done {
            counters.duplicate_bytes += entry.bytes;
            return;
        }
        // A late copy of what was given up is welcome.
        if entry.fate != Fate::Lost {
            self.left -= 1;
        }
        entry.fate = Fate::Done;
        counters.bytes += entry.bytes;
        self.leave_queue(file);
        self.events.push_back(Event::Complete { file, fetch: request.id });
    }

    fn failed(&mut self, now: Time, p: WayId, n: usize, failure: Failure) {
        let Some(request) = self.ways[p].take(n) else { return };
        self.ways[p].counters.failures += 1;
        if failure != Failure::Broken {
            // It answers.
            self.ways[p].heard(now, usize::MAX, 0);
        }
        let file = request.file;
        match failure {
            Failure::Broken => {
                // What was asked behind it fails with it, and is not to blame.
                if self.ways[p].is_news(&request) {
                    self.ways[p].fail(now);
                    self.leave_queue(file);
                    self.files[file].tries += 1;
                }
            }
            Failure::Busy { retry } => {
                let is_news = self.ways[p].is_news(&request);
                self.ways[p].busy(now, retry, is_news);
            }
            Failure::Lacking => {
                self.ways[p].proved();
                if request.alone {
                    // What came when there were several was perhaps no mixture either.
                    self.set_single(p, false);
                }
                self.leave_queue(file);
                if let Some(place) = self.files[file].places.get_mut(request.place) {
                    place.gone = true;
                }
            }
            Failure::Useless => {
                self.put_back(file);
                self.close_server(self.ways[p].server);
                return;
            }
        }
        self.put_back(file);
    }

    fn down(&mut self, p: WayId) {
        let Some(way) = self.ways.get_mut(p).filter(|way| way.is_usable()) else { return };
        way.state = State::Down;
        let server = way.server;
        self.drop_requests(p);
        if !self.ways.iter().any(|way| way.server == server && way.is_usable()) {
            self.close_server(server);
        }
    }

    /// A server is not asked any more; what only it has is lost.
    fn close_server(&mut self, server: ServerId) {
        let Some(entry) = self.servers.get_mut(usize::from(server)) else { return };
        if std::mem::replace(&mut entry.closed, true) {
            return;
        }
        let idle = std::mem::take(&mut entry.idle);
        for p in 0..self.ways.len() {
            if self.ways[p].server == server {
                if self.ways[p].state != State::Down {
                    self.ways[p].state = State::Closed;
                }
                self.drop_requests(p);
            }
        }
        for (_, file) in idle {
            if self.files[file].fate == Fate::Idle {
                // It stays in the queues of others, or is lost.
                self.put_back(file);
            }
        }
    }

    /// Nothing that a way has been asked for is waited for any more.
    fn drop_requests(&mut self, p: WayId) {
        for request in self.ways[p].clear() {
            self.out.push_back(Command::Cancel { fetch: request.id });
            self.put_back(request.file);
        }
    }
}
