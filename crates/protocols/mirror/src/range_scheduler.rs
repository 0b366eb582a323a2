//! Schedules ranges of one file: decides which bytes to request next, from which mirror and over which
//! connection.
//!
//! A *connection* is a mirror seen from one local address: one TCP connection at a time, replaced when it
//! ends. A [`Pool`] knows which blocks are missing. [`RangeScheduler`] takes ranges from it, requests them,
//! assembles blocks and delivers these to the pool.
//!
//! 1. **Size of requests** (`range_scheduler/sizing.rs`): half of a connection's fair share of the bytes that
//!    are still to be requested, at most [`REQUEST_SPAN`]. The longer the link is idle between two answers,
//!    the larger a request is. A connection of unknown rate gets [`FIRST_BLOCKS`], and one that failed gets
//!    [`TRIAL_BLOCKS`]. Where mirrors are compared with each other, a slow mirror gets short ranges, so that
//!    it compares more often.
//! 2. **Prefetch** (`range_scheduler/sizing.rs`, `range_scheduler/cancel.rs`): a connection gets the request
//!    for its next range two round trips and [`PREFETCH_MARGIN`] before the end of the current answer.
//!    Otherwise the link would be idle for a round trip, and then the server would send its whole window in
//!    one burst. A connection has prefetched requests only while an answer is arriving, or behind one block
//!    on a connection that has answered before: by then the scheduler knows that the server has ranges, and
//!    the right file. It has mostly one of them, and more where ranges are short. The turn of a prefetched
//!    request comes when the answer before it is done. The time from there to its head shows whether the
//!    server handles early requests. A prefetched request is cancelled only together with the current one,
//!    because cancelling it alone would cost the TCP connection. If the TCP connection breaks or stalls, the
//!    blocks of all its requests go back to the pool.
//! 3. **Endgame** (`range_scheduler/endgame.rs`): a connection without work takes over the tail of the range
//!    that would finish last, so that both connections finish together. When that no longer pays, it requests
//!    a second copy of blocks that would arrive later from their owner. Prefetched ranges are taken over
//!    first.
//! 4. **Servers without ranges** (`range_scheduler/stream.rs`) send everything from the first byte on. Such a
//!    server delivers the beginning of a long content, for as long as its answer goes on. The other
//!    connections deliver the end, until both meet.
//! 5. **Stalls.** The blocks of a connection go back to the pool when nothing has arrived from it for a
//!    second, or for four times the usual gap if that is longer. Its requests stay open for a while, because
//!    they may still deliver something. Then the connection is tried again with small ranges.
//! 6. **Short answers** (`range_scheduler/short.rs`): a server may send less of a range than was requested.
//!    Then the rest is requested, and later ranges are no longer than the range that the server sent.
//! 7. **Failures** hold a connection back for half a second, then twice as long, and so on. A mirror that
//!    cannot deliver anything, or that is banned, is not used again.
//! 8. **Friendliness** ([`receive_windows`](crate::receive_windows)): connections that share a queue together
//!    take about what one connection would take.
//!
//! **Not an [`anabranch_algo::Machine`]**, though used like one: call [`RangeScheduler::handle`], then
//! [`RangeScheduler::poll`] until it returns `Wait`. Both need the pool, which the scheduler cannot own:
//! where mmTP sources have the same content, the pool is their subscriber, which is a machine itself and has
//! its own driver. The `poll` of the trait has no argument for the pool.

mod api;
mod cancel;
mod connection;
mod endgame;
mod limits;
mod receive;
mod short;
mod sizing;
mod stream;
mod throughput;

use std::collections::VecDeque;
use std::ops::Range;

use anabranch_algo::{Output, Span, TcpSample, Time};

pub use crate::backoff::{BUSY_MAX, RETRY_MAX, RETRY_MIN, backoff};
pub use crate::fetch_id::{CONNECTIONS_MAX, ConnectionId, FetchId, connection_of};
pub use api::{
    Command, ConnectionConfig, ConnectionReport, Counters, Event, Failure, Input, MirrorId, Pool, State,
};
pub use connection::{PREFETCH_MARGIN, RECONNECT_COST, STALL_RETRY_MAX, STALL_RETRY_MIN};
pub use limits::{
    DUPLICATE_BLOCKS_MAX, FIRST_BLOCKS, REQUEST_BLOCKS_MAX, REQUEST_SPAN, REQUEST_SPAN_MAX, SAVING_MIN,
    STREAM_MIN_BLOCKS, TRIAL_BLOCKS, TRICKLE,
};
pub use throughput::{STALL_TIMEOUT_MAX, STALL_TIMEOUT_MIN, STALL_TIMEOUT_OPENING};

use crate::fetch_id::fetch_id;
use crate::receive_windows::ReceiveWindows;
use connection::{BLOCK, Connection, Fetch, FetchRole};

/// How often a connection without work is compared again with those that have requests.
const TAIL_TICK: Span = Span::from_millis(50);

/// The scheduler of ranges; see the [module](self).
pub struct RangeScheduler {
    length: u64,
    connections: Vec<Connection>,
    /// The number of requests made so far.
    asked: u64,
    out: VecDeque<Command>,
    events: VecDeque<Event>,
    deadline: Time,
    dirty: bool,
    /// Whether some connection had no request, or too few prefetched ones, at the last check.
    has_spare_capacity: bool,
    windows: ReceiveWindows,
}

impl RangeScheduler {
    /// Creates a scheduler for a content of `length` bytes, without connections.
    #[must_use]
    pub fn new(length: u64) -> Self {
        Self {
            length,
            connections: Vec::new(),
            asked: 0,
            out: VecDeque::new(),
            events: VecDeque::new(),
            deadline: Time::ZERO,
            dirty: true,
            has_spare_capacity: false,
            windows: ReceiveWindows::new(),
        }
    }

    /// Adds a connection. Returns `None` if there are [`CONNECTIONS_MAX`] already.
    pub fn add_connection(&mut self, config: &ConnectionConfig) -> Option<ConnectionId> {
        if self.connections.len() >= CONNECTIONS_MAX {
            return None;
        }
        self.connections.push(Connection::new(config));
        self.windows.add(config.sharing, config.control);
        self.dirty = true;
        Some(self.connections.len() - 1)
    }

    /// Returns a report of each connection.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionReport> {
        self.connections.iter().enumerate().map(|(p, connection)| connection.report(p, &self.windows))
    }

    /// Whether some connection is not closed, so that it may still deliver something.
    #[must_use]
    pub fn has_usable_connection(&self) -> bool {
        self.connections.iter().any(|connection| connection.state != State::Closed)
    }

    /// Whether a request is the current one of its connection, so that its answer or its failure still
    /// counts.
    #[must_use]
    pub fn is_live(&self, fetch: FetchId) -> bool {
        self.answering(fetch).is_some()
    }

    /// Tells the scheduler that something happened at `now`. An input for a request that is over, or for a
    /// connection that does not exist, is ignored.
    pub fn handle(&mut self, now: Time, input: Input<'_>, pool: &mut dyn Pool) {
        self.dirty = true;
        match input {
            Input::Head { fetch } => self.head(now, fetch),
            Input::Short { fetch, end_byte } => self.short(now, fetch, end_byte, pool),
            Input::Whole { fetch } => self.whole(now, fetch, pool),
            Input::Body { fetch, bytes } => self.body(now, fetch, bytes, pool),
            Input::Done { fetch } => self.done(now, fetch, pool),
            Input::Failed { fetch, failure } => {
                if let Some(p) = self.answering(fetch) {
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
                    self.windows.restart(connection);
                    self.events.push_back(Event::StateChanged { connection, state: State::Opening });
                }
            }
            Input::Banned { mirror } => self.close_mirror(mirror, pool),
        }
    }

    /// Returns the next thing to do. After [`Output::Wait`] there is nothing to do until that time, the next
    /// [`handle`](Self::handle), or until blocks go back to the pool.
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
                // A timer that was due has been served; further work is left for the next tick.
                return Output::Wait(self.deadline.max(now + Span::from_micros(100)));
            }
            self.work(now, pool);
            (self.dirty, worked) = (false, true);
        }
    }

    /// Returns the connection whose current request this is. `None` if the request is over, or is prefetched
    /// and its turn has not come.
    fn answering(&self, fetch: FetchId) -> Option<ConnectionId> {
        let p = connection_of(fetch);
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

    fn sample(&mut self, now: Time, p: ConnectionId, sample: &TcpSample) {
        self.windows.sample(now, p, sample);
        self.connections[p].srtt = self.windows.srtt(p);
        while let Some((connection, bytes)) = self.windows.next_window() {
            self.out.push_back(Command::Window { connection, bytes });
        }
    }

    fn work(&mut self, now: Time, pool: &mut dyn Pool) {
        for p in 0..self.connections.len() {
            self.trim(p, pool);
            self.shorten(p, pool);
            self.timer(now, p, pool);
        }
        self.begin_stream(now, pool);
        for p in 0..self.connections.len() {
            if self.connections[p].is_free(now) {
                self.assign(now, p, pool);
            } else {
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
            && self.connections[p].backoff.is_over(now)
        {
            self.cancel(p, pool);
        }
    }

    /// Requests `blocks` over a connection. If it has a request already, the new one is a prefetched one.
    fn ask(&mut self, now: Time, p: ConnectionId, blocks: Range<u64>, role: FetchRole) {
        debug_assert!(!blocks.is_empty() && blocks.end <= self.blocks(), "no such blocks: {blocks:?}");
        let end = (blocks.end * BLOCK).min(self.length);
        self.ask_up_to(now, p, blocks, end, role);
    }

    /// Requests all bytes from the first of `blocks` up to `end`, but assigns only `blocks` to the
    /// connection; other connections may deliver the rest. `blocks` may be empty.
    fn ask_up_to(&mut self, now: Time, p: ConnectionId, blocks: Range<u64>, end: u64, role: FetchRole) {
        let id = fetch_id(self.asked, p);
        self.asked += 1;
        let first = blocks.start * BLOCK;
        let connection = &mut self.connections[p];
        connection.counters.fetches += 1;
        let fetch = Fetch {
            id,
            role,
            at: first,
            end,
            answer_end: first,
            keep: blocks.end,
            streams: false,
            duplicated: false,
            asked_at: now,
            last_rx: now,
            early: None,
            has_head: false,
            got: 0,
            new_bytes: 0,
            partial: Vec::new(),
        };
        match &mut connection.fetch {
            Some(_) => connection.prefetch.push_back(fetch),
            none => *none = Some(fetch),
        }
        if connection.state == State::Stalled {
            // The time without an answer is measured anew for a new request.
            connection.state = State::Opening;
            self.set_state(p, State::Stalled);
        }
        self.out.push_back(Command::Fetch { connection: p, fetch: id, first_byte: first, end_byte: end });
    }
}

/// Returns the next time at which a timer of the connection is due: its back-off, its stall, or its prefetch.
fn deadline(now: Time, connection: &Connection) -> Time {
    if !connection.is_usable() {
        return Time::NEVER;
    }
    let held = !connection.backoff.is_over(now)
        && (connection.fetch.is_none() || connection.state == State::Stalled);
    if held {
        return connection.backoff.until;
    }
    let follows = Some(connection.prefetch_at()).filter(|at| *at > now);
    connection.stalls_at().min(follows.unwrap_or(Time::NEVER))
}
