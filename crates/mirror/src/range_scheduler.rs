//! Which bytes are asked of which mirror, over which connection, and when.
//!
//! A *connection* is a mirror seen from one local address: one TCP connection, made anew where it ends. Who
//! knows which blocks are missing is a [`Pool`]; [`RangeScheduler`] takes ranges from it, asks for them,
//! makes blocks of what comes and delivers them.
//!
//! 1. **How much at once** (`range_scheduler/sizing.rs`): half of a connection's fair part of what nobody has
//!    been asked for, at most [`REQUEST_SPAN`]; more where the link is idle between two answers, and the
//!    longer it is. A connection of unknown rate is asked for [`FIRST_BLOCKS`], one that failed for
//!    [`TRIAL_BLOCKS`].
//! 2. **The next range ahead** (`range_scheduler/sizing.rs`, `range_scheduler/cancel.rs`): two round trips
//!    and [`PREFETCH_MARGIN`] before an answer has come, the connection is asked for the next range, or its
//!    link would be idle for a round trip and its server's whole window would burst into an empty queue after
//!    that. There is one such range at most, and only behind one of the connection's own that is being
//!    answered: whether a server has ranges, and the file, is known by then. Its turn comes when the one
//!    before is done; what its head takes is counted from there, and tells whether the server minds requests
//!    that come early. It shares the fate of the one before: it cannot be called off alone, for the TCP
//!    connection would have to go, and where that goes, or nothing comes any more, it is put back as well.
//! 3. **The end** (`range_scheduler/endgame.rs`): a connection without work takes over the tail of what would
//!    be through last, such that both finish together; when that no longer pays, it asks a second time for
//!    what would arrive later than from here. What is asked ahead is part of a connection's work, and goes
//!    first.
//! 4. **Stalls.** A connection from which nothing has come for a second, or four times what is usual, has its
//!    blocks put back at once. Its requests live on for a while, for what they may still bring; then it is
//!    tried anew with small ranges.
//! 5. **Failures** hold a connection back for half a second, then twice as long and so on; a mirror that will
//!    never bring anything, or that lied, is not used again.
//! 6. **Friendliness** (`range_scheduler/receive_window.rs`): connections of a group advertise windows that
//!    are coupled.
//!
//! The machine has the shape of [`algo::Machine`]: [`RangeScheduler::handle`], then [`RangeScheduler::poll`]
//! until it answers `Wait`; both are lent the pool.

mod api;
mod cancel;
mod connection;
mod endgame;
mod receive_window;
mod sizing;
mod throughput;

use std::collections::VecDeque;
use std::ops::Range;

use algo::control::{Group, MEMBERS_MAX, SubflowStats};
use algo::{Output, Span, Time};
use mmtp::id::BLOCK_BYTES;

pub use api::{
    Command, ConnectionConfig, ConnectionId, ConnectionReport, Counters, Event, Failure, FetchId, Input,
    MirrorId, Pool, State,
};
pub use connection::{
    BUSY_MAX, PREFETCH_MARGIN, RECONNECT_COST, RETRY_MAX, RETRY_MIN, STALL_RETRY_MAX, STALL_RETRY_MIN,
    backoff,
};
pub use endgame::{DUPLICATE_BLOCKS_MAX, SAVING_MIN};
pub use receive_window::{SEGMENTS_MIN, Sample, WINDOW_INITIAL_BYTES, WINDOW_LIFTED_BYTES};
pub use sizing::{FIRST_BLOCKS, REQUEST_BLOCKS_MAX, REQUEST_SPAN, REQUEST_SPAN_MAX, TRIAL_BLOCKS};
pub use throughput::{STALL_TIMEOUT_MAX, STALL_TIMEOUT_MIN, STALL_TIMEOUT_OPENING};

use connection::{Connection, Fetch, FetchRole};

/// The most connections of one machine.
pub const CONNECTIONS_MAX: usize = 256;
/// How often it is looked again whether a connection without work can help those that have some.
const TAIL_TICK: Span = Span::from_millis(50);

/// How often a server without ranges is asked for everything, when not all that it sends is of use.
const WHOLE_FILE_TRIES_MAX: u32 = 3;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The machine; see the [module](self).
pub struct RangeScheduler {
    length: u64,
    connections: Vec<Connection>,
    /// Requests made so far.
    asked: u64,
    out: VecDeque<Command>,
    events: VecDeque<Event>,
    deadline: Time,
    dirty: bool,
    /// Some connection had nothing to do, or nothing to do next, when that was last looked at.
    has_spare_capacity: bool,
    members: Vec<SubflowStats>,
}

impl RangeScheduler {
    /// A machine without connections, for a content of `length` bytes.
    #[must_use]
    pub const fn new(length: u64) -> Self {
        Self {
            length,
            connections: Vec::new(),
            asked: 0,
            out: VecDeque::new(),
            events: VecDeque::new(),
            deadline: Time::ZERO,
            dirty: true,
            has_spare_capacity: false,
            members: Vec::new(),
        }
    }

    /// Adds a connection; `None` when there are [`CONNECTIONS_MAX`].
    pub fn add_connection(&mut self, config: &ConnectionConfig) -> Option<ConnectionId> {
        if self.connections.len() >= CONNECTIONS_MAX {
            return None;
        }
        self.connections.push(Connection::new(config));
        self.dirty = true;
        Some(self.connections.len() - 1)
    }

    /// Puts a connection into another group.
    pub fn set_group(&mut self, connection: ConnectionId, group: u32) {
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.group = group;
        }
    }

    /// All connections, as numbers.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionReport> {
        self.connections.iter().map(Connection::report)
    }

    /// Whether some connection may still bring something: not closed.
    #[must_use]
    pub fn has_usable_connection(&self) -> bool {
        self.connections.iter().any(|connection| connection.state != State::Closed)
    }

    /// Whether a request is not over: what comes of it, and its failure, still counts.
    #[must_use]
    pub fn is_live(&self, fetch: FetchId) -> bool {
        self.connection_of(fetch).is_some()
    }

    /// Tells the machine that something happened at `now`. What belongs to a request that is over, or to no
    /// connection, is ignored.
    pub fn handle(&mut self, now: Time, input: Input<'_>, pool: &mut dyn Pool) {
        self.dirty = true;
        match input {
            Input::Head { fetch } => self.head(now, fetch),
            Input::Whole { fetch } => self.whole(now, fetch, pool),
            Input::Body { fetch, bytes } => self.body(now, fetch, bytes, pool),
            Input::Done { fetch } => self.done(now, fetch, pool),
            Input::Failed { fetch, failure } => {
                if let Some(p) = self.connection_of(fetch) {
                    self.failed(now, p, failure, pool);
                }
            }
            Input::Sample { connection, sample } => {
                if self.connections.get(connection).is_some_and(Connection::is_usable) {
                    self.sample(now, connection, &sample);
                }
            }
            Input::Down { connection } => {
                if self.connections.get(connection).is_some_and(Connection::is_usable) {
                    self.close(connection, State::Down, pool);
                }
            }
            Input::Up { connection } => {
                if self.connections.get(connection).is_some_and(|connection| connection.state == State::Down)
                {
                    self.connections[connection].restart();
                    self.events.push_back(Event::StateChanged { connection, state: State::Opening });
                }
            }
            Input::Banned { mirror } => self.close_mirror(mirror, pool),
        }
    }

    /// Asks for the next thing to do. After [`Output::Wait`] nothing more happens before that time, the next
    /// [`handle`](Self::handle), or until blocks come back to the pool.
    pub fn poll(&mut self, now: Time, pool: &mut dyn Pool) -> Output<Command, Event> {
        let mut worked = false;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Output::Event(event);
            }
            if let Some(command) = self.out.pop_front() {
                return Output::Send(command);
            }
            let due = self.dirty || now >= self.deadline || (self.has_spare_capacity && pool.idle() > 0);
            if worked || !due {
                // A timer that is due has just been served; whatever is left is for the next tick.
                return Output::Wait(self.deadline.max(now + Span::from_micros(100)));
            }
            self.work(now, pool);
            (self.dirty, worked) = (false, true);
        }
    }

    /// The connection whose turn of answering this request is now: not that of one asked ahead. Its number is
    /// in the request's.
    fn connection_of(&self, fetch: FetchId) -> Option<ConnectionId> {
        let p = (fetch % CONNECTIONS_MAX as u64) as usize;
        let current = self.connections.get(p)?.fetch.as_ref()?;
        (current.id == fetch).then_some(p)
    }

    fn blocks(&self) -> u64 {
        self.length.div_ceil(BLOCK)
    }

    fn set_state(&mut self, p: ConnectionId, before: State) {
        let state = self.connections[p].state;
        if state != before {
            self.events.push_back(Event::StateChanged { connection: p, state });
        }
    }

    fn head(&mut self, now: Time, fetch: FetchId) {
        let Some(p) = self.connection_of(fetch) else { return };
        let connection = &mut self.connections[p];
        let (before, round_trip) = (connection.state, connection.round_trip());
        let Some(fetch) = &mut connection.fetch else { return };
        if !std::mem::replace(&mut fetch.has_head, true) {
            let after = now.since(fetch.asked_at);
            match fetch.early {
                None => connection.throughput.begin(now, after, connection.cold),
                // A request that came late says nothing of what one in time would have met.
                Some(early) => connection.throughput.resume(now, (early >= round_trip).then_some(after)),
            }
        }
        fetch.last_rx = now;
        (connection.state, connection.cold) = (State::Open, false);
        // It answers, so what was waited for is over.
        connection.blocked_until = Time::ZERO;
        self.set_state(p, before);
    }

    fn body(&mut self, now: Time, fetch: FetchId, bytes: &[u8], pool: &mut dyn Pool) {
        self.head_if_none(now, fetch);
        let Some(p) = self.connection_of(fetch) else { return };
        let (length, before) = (self.length, self.connections[p].state);
        let connection = &mut self.connections[p];
        let Some(fetch) = &mut connection.fetch else { return };
        // The world promises no more than was asked for; what is beyond is nobody's.
        let beyond = usize::try_from(fetch.end - fetch.at).unwrap_or(usize::MAX);
        let mut rest = &bytes[..bytes.len().min(beyond)];
        connection.throughput.add(now, rest.len() as u64, before == State::Stalled);
        (fetch.last_rx, connection.state, connection.blocked_until) = (now, State::Open, Time::ZERO);
        fetch.got += rest.len() as u64;
        while !rest.is_empty() {
            let block = fetch.at / BLOCK;
            let have = fetch.partial.len();
            let len = length.saturating_sub(block * BLOCK).min(BLOCK) as usize;
            let (piece, after) = rest.split_at(rest.len().min(len - have));
            (rest, fetch.at) = (after, fetch.at + piece.len() as u64);
            let whole = have + piece.len() == len;
            if have > 0 || !whole {
                fetch.partial.extend_from_slice(piece);
            }
            if !whole {
                break;
            }
            if pool.is_wanted_from(connection.mirror, block) {
                pool.deliver(connection.mirror, block, if have > 0 { &fetch.partial } else { piece });
                connection.counters.bytes += len as u64;
                fetch.new_bytes += len as u64;
                connection.breaks_at = None;
            } else {
                connection.counters.duplicate_bytes += len as u64;
                if connection.breaks_at.is_some() {
                    connection.counters.vain_bytes += len as u64;
                }
                if fetch.role == FetchRole::Owner && pool.is_wanted(block) {
                    // From others: whoever is to bring it, it is not this one.
                    pool.release(block..block + 1);
                }
            }
            fetch.partial.clear();
        }
        self.set_state(p, before);
        self.continue_or_cancel(p, pool);
    }

    /// A body whose head was not told of has one all the same.
    fn head_if_none(&mut self, now: Time, fetch: FetchId) {
        let p = self.connection_of(fetch);
        if p.and_then(|p| self.connections[p].fetch.as_ref()).is_some_and(|fetch| !fetch.has_head) {
            self.head(now, fetch);
        }
    }

    fn done(&mut self, now: Time, fetch: FetchId, pool: &mut dyn Pool) {
        let Some(p) = self.connection_of(fetch) else { return };
        let Some(fetch) = &self.connections[p].fetch else { return };
        if fetch.at < fetch.end {
            // Shorter than the world's own promise.
            self.failed(now, p, Failure::Broken, pool);
            return;
        }
        let (whole, got) = (fetch.role == FetchRole::WholeFile, fetch.got);
        self.end_fetch(p, pool);
        self.connections[p].on_success();
        if whole && pool.idle_for(self.connections[p].mirror) > 0 {
            // All of it came, and something was not right. It may be another time, but not for ever.
            self.connections[p].failed_whole_files += 1;
            if self.connections[p].failed_whole_files >= WHOLE_FILE_TRIES_MAX {
                self.close_mirror(self.connections[p].mirror, pool);
                return;
            }
            let before = self.connections[p].state;
            self.connections[p].fail(now, got.min(1));
            self.set_state(p, before);
        }
        self.promote_prefetched(now, p, pool);
    }

    fn failed(&mut self, now: Time, p: ConnectionId, failure: Failure, pool: &mut dyn Pool) {
        let got = self.connections[p].fetch.as_ref().map_or(0, Fetch::progress_bytes);
        // What was asked ahead would be asked again over a new TCP connection, as a whole: the connection has
        // to prove itself with less.
        self.cancel_prefetch(p, pool);
        self.end_fetch(p, pool);
        let before = self.connections[p].state;
        match failure {
            Failure::Broken => self.connections[p].fail(now, got),
            Failure::Busy { retry } => self.connections[p].busy(now, retry),
            Failure::NoRanges => {
                self.connections[p].counters.failures += 1;
                self.without_ranges(self.connections[p].mirror);
            }
            Failure::Useless => {
                self.connections[p].counters.failures += 1;
                self.close_mirror(self.connections[p].mirror, pool);
                return;
            }
        }
        self.set_state(p, before);
    }

    fn close_mirror(&mut self, mirror: MirrorId, pool: &mut dyn Pool) {
        for p in 0..self.connections.len() {
            if self.connections[p].mirror == mirror && self.connections[p].state != State::Closed {
                self.close(p, State::Closed, pool);
            }
        }
    }

    fn close(&mut self, p: ConnectionId, state: State, pool: &mut dyn Pool) {
        let before = std::mem::replace(&mut self.connections[p].state, state);
        if self.connections[p].fetch.is_some() {
            self.cancel(p, pool);
        }
        self.set_state(p, before);
    }

    fn sample(&mut self, now: Time, p: ConnectionId, sample: &Sample) {
        self.connections[p].receive_window.on_rtt(now, sample);
        self.members.clear();
        let mut me = 0;
        for (q, connection) in self.connections.iter().enumerate() {
            if connection.group != self.connections[p].group || (q != p && !connection.is_flowing()) {
                continue;
            }
            if q == p {
                // Of very many connections the first ones stand for all.
                me = self.members.len().min(MEMBERS_MAX - 1);
                self.members.truncate(me);
            }
            self.members.push(connection.member());
        }
        let group = Group { members: &self.members, me };
        let connection = &mut self.connections[p];
        connection.receive_window.on_sample(now, sample, &group);
        if let Some(bytes) = connection.receive_window.update(group.is_alone()) {
            self.out.push_back(Command::Window { connection: p, bytes });
        }
    }

    fn work(&mut self, now: Time, pool: &mut dyn Pool) {
        for p in 0..self.connections.len() {
            self.trim(p, pool);
            self.timer(now, p, pool);
        }
        for p in 0..self.connections.len() {
            if self.connections[p].is_free(now) {
                self.assign(now, p, pool);
            } else if self.connections[p].prefetch_at() <= now {
                self.prefetch(now, p, pool);
            }
        }
        let free = self.connections.iter().any(|connection| connection.is_free(now));
        self.has_spare_capacity =
            free || self.connections.iter().any(|connection| connection.prefetch_at() <= now);
        let busy = self.connections.iter().any(|connection| connection.fetch.is_some());
        let tick = if free && busy { now + TAIL_TICK } else { Time::NEVER };
        self.deadline =
            self.connections.iter().map(|connection| deadline(now, connection)).fold(tick, Time::min);
    }

    fn timer(&mut self, now: Time, p: ConnectionId, pool: &mut dyn Pool) {
        let before = self.connections[p].state;
        if now >= self.connections[p].stalls_at() {
            self.release_all(p, pool);
            self.connections[p].stall(now);
            self.set_state(p, before);
        } else if before == State::Stalled
            && self.connections[p].fetch.is_some()
            && now >= self.connections[p].blocked_until
        {
            self.cancel(p, pool);
        }
    }

    /// Asks for these blocks: at once, or behind what the connection is asked for now.
    fn ask(&mut self, now: Time, p: ConnectionId, blocks: Range<u64>, role: FetchRole) {
        debug_assert!(!blocks.is_empty() && blocks.end <= self.blocks(), "no such blocks: {blocks:?}");
        debug_assert!(self.connections[p].prefetch.is_none(), "one request, and one ahead");
        let id = self.asked * CONNECTIONS_MAX as u64 + p as u64;
        self.asked += 1;
        let (first, end) = (blocks.start * BLOCK, (blocks.end * BLOCK).min(self.length));
        let connection = &mut self.connections[p];
        connection.counters.fetches += 1;
        let fetch = Fetch {
            id,
            role,
            at: first,
            end,
            keep: blocks.end,
            duplicated: false,
            asked_at: now,
            last_rx: now,
            early: None,
            has_head: false,
            got: 0,
            new_bytes: 0,
            partial: Vec::new(),
        };
        let turn = if connection.fetch.is_none() { &mut connection.fetch } else { &mut connection.prefetch };
        *turn = Some(fetch);
        if connection.state == State::Stalled {
            // A new request is a new chance: its silence is its own.
            connection.state = State::Opening;
            self.set_state(p, State::Stalled);
        }
        self.out.push_back(Command::Fetch { connection: p, fetch: id, first_byte: first, end_byte: end });
    }
}

/// When there is something to do for a connection that is not at `now`: what is due by then has been done.
fn deadline(now: Time, connection: &Connection) -> Time {
    if !connection.is_usable() {
        return Time::NEVER;
    }
    let held =
        connection.blocked_until > now && (connection.fetch.is_none() || connection.state == State::Stalled);
    if held {
        return connection.blocked_until;
    }
    let follows = Some(connection.prefetch_at()).filter(|at| *at > now);
    connection.stalls_at().min(follows.unwrap_or(Time::NEVER))
}
