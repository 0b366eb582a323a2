//! Which bytes are asked of which mirror, over which way, and when.
//!
//! A *way* is a mirror seen from one local address: one connection. Who knows which blocks are missing is a
//! [`Pool`]; [`Mirrors`] takes ranges from it, asks for them, makes blocks of what comes and brings them.
//!
//! 1. **How much at once** (`plan/share.rs`): half of a way's fair part of what nobody has been asked for,
//!    at most [`ASK_SPAN`]; more where the link is idle between two answers, and the longer it is. A way of
//!    unknown rate is asked for [`FIRST_BLOCKS`], one that failed for [`TRIAL_BLOCKS`].
//! 2. **The next range ahead** (`plan/share.rs`, `plan/over.rs`): two round trips and [`AHEAD_MARGIN`]
//!    before an answer has come, the way is asked for the next range, or its link would be idle for a round
//!    trip and its server's whole window would burst into an empty queue after that. There is one such range
//!    at most, and only behind one of the way's own that is being answered: whether a server has ranges, and
//!    the file, is known by then. Its turn comes when the one before is done; what its head takes is counted
//!    from there, and tells whether the server minds requests that come early. It shares the fate of
//!    the one before: it cannot be called off alone, for the connection would have to go, and where the
//!    connection goes, or nothing comes any more, it is put back as well.
//! 3. **The end** (`plan/tail.rs`): a way without work takes over the tail of what would be through
//!    last, such that both finish together; when that no longer pays, it asks a second time for what would
//!    arrive later than from here. What is asked ahead is part of a way's work, and goes first.
//! 4. **Stalls.** A way from which nothing has come for a second, or four times what is usual, has its
//!    blocks put back at once. Its requests live on for a while, for what they may still bring; then it is
//!    tried anew with small ranges.
//! 5. **Failures** hold a way back for half a second, then twice as long and so on; a mirror that will
//!    never bring anything, or that lied, is not used again.
//! 6. **Friendliness** (`plan/coupling.rs`): ways of a group advertise windows that are coupled.
//!
//! The machine has the shape of [`algo::Machine`]: [`Mirrors::handle`], then [`Mirrors::poll`] until it
//! answers `Wait`; both are lent the pool.

mod coupling;
mod flow;
mod over;
mod share;
mod tail;
mod talk;
mod way;

use std::collections::VecDeque;
use std::ops::Range;

use algo::control::{Group, MEMBERS_MAX, SubflowStats};
use algo::{Output, Span, Time};
use mmtp::id::BLOCK_BYTES;

pub use coupling::{SEGMENTS_MIN, Sample, WINDOW_INITIAL_BYTES, WINDOW_LIFTED_BYTES};
pub use flow::{PATIENCE_MAX, PATIENCE_MIN, PATIENCE_OPENING};
pub use share::{ASK_BLOCKS_MAX, ASK_SPAN, ASK_SPAN_MAX, FIRST_BLOCKS, TRIAL_BLOCKS};
pub use tail::{COPY_BLOCKS_MAX, SAVING_MIN};
pub use talk::{
    Command, Counters, Event, Failure, FetchId, Input, MirrorId, Pool, State, WayConfig, WayId, WayReport,
};
pub use way::{
    AHEAD_MARGIN, BUSY_MAX, RECONNECT, RETRY_MAX, RETRY_MIN, STALL_RETRY_MAX, STALL_RETRY_MIN, backoff,
};

use way::{Fetch, Purpose, Way};

/// The most ways of one machine.
pub const WAYS_MAX: usize = 256;
/// How often it is looked again whether a way without work can help those that have some.
const TAIL_TICK: Span = Span::from_millis(50);

/// How often a server without ranges is asked for everything, when not all that it sends is of use.
const WHOLES_MAX: u32 = 3;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The machine; see the [module](self).
pub struct Mirrors {
    length: u64,
    ways: Vec<Way>,
    /// Requests made so far.
    asked: u64,
    out: VecDeque<Command>,
    events: VecDeque<Event>,
    deadline: Time,
    dirty: bool,
    /// Some way had nothing to do, or nothing to do next, when that was last looked at.
    hungry: bool,
    members: Vec<SubflowStats>,
}

impl Mirrors {
    /// A machine without ways, for a content of `length` bytes.
    #[must_use]
    pub const fn new(length: u64) -> Self {
        Self {
            length,
            ways: Vec::new(),
            asked: 0,
            out: VecDeque::new(),
            events: VecDeque::new(),
            deadline: Time::ZERO,
            dirty: true,
            hungry: false,
            members: Vec::new(),
        }
    }

    /// Adds a way; `None` when there are [`WAYS_MAX`].
    pub fn add_way(&mut self, config: &WayConfig) -> Option<WayId> {
        if self.ways.len() >= WAYS_MAX {
            return None;
        }
        self.ways.push(Way::new(config));
        self.dirty = true;
        Some(self.ways.len() - 1)
    }

    /// Puts a way into another group.
    pub fn set_group(&mut self, way: WayId, group: u32) {
        if let Some(way) = self.ways.get_mut(way) {
            way.group = group;
        }
    }

    /// All ways, as numbers.
    pub fn ways(&self) -> impl Iterator<Item = WayReport> {
        self.ways.iter().map(Way::report)
    }

    /// Whether some way may still bring something: not closed.
    #[must_use]
    pub fn has_hope(&self) -> bool {
        self.ways.iter().any(|way| way.state != State::Closed)
    }

    /// Whether a request is not over: what comes of it, and its failure, still counts.
    #[must_use]
    pub fn is_live(&self, fetch: FetchId) -> bool {
        self.way_of(fetch).is_some()
    }

    /// Tells the machine that something happened at `now`. What belongs to a request that is over, or to no
    /// way, is ignored.
    pub fn handle(&mut self, now: Time, input: Input<'_>, pool: &mut dyn Pool) {
        self.dirty = true;
        match input {
            Input::Head { fetch } => self.head(now, fetch),
            Input::Whole { fetch } => self.whole(now, fetch, pool),
            Input::Body { fetch, bytes } => self.body(now, fetch, bytes, pool),
            Input::Done { fetch } => self.done(now, fetch, pool),
            Input::Failed { fetch, failure } => {
                if let Some(p) = self.way_of(fetch) {
                    self.failed(now, p, failure, pool);
                }
            }
            Input::Sample { way, sample } => {
                if self.ways.get(way).is_some_and(Way::is_usable) {
                    self.sample(now, way, &sample);
                }
            }
            Input::Down { way } => {
                if self.ways.get(way).is_some_and(Way::is_usable) {
                    self.close(way, State::Down, pool);
                }
            }
            Input::Up { way } => {
                if self.ways.get(way).is_some_and(|way| way.state == State::Down) {
                    self.ways[way].restart();
                    self.events.push_back(Event::Way { way, state: State::Opening });
                }
            }
            Input::Struck { mirror } => self.close_mirror(mirror, pool),
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
            let due = self.dirty || now >= self.deadline || (self.hungry && pool.idle() > 0);
            if worked || !due {
                // A timer that is due has just been served; whatever is left is for the next tick.
                return Output::Wait(self.deadline.max(now + Span::from_micros(100)));
            }
            self.work(now, pool);
            (self.dirty, worked) = (false, true);
        }
    }

    /// The way whose turn of answering this request is now: not that of one asked ahead. Its number is in
    /// the request's.
    fn way_of(&self, fetch: FetchId) -> Option<WayId> {
        let p = (fetch % WAYS_MAX as u64) as usize;
        let current = self.ways.get(p)?.fetch.as_ref()?;
        (current.id == fetch).then_some(p)
    }

    fn blocks(&self) -> u64 {
        self.length.div_ceil(BLOCK)
    }

    fn set_state(&mut self, p: WayId, before: State) {
        let state = self.ways[p].state;
        if state != before {
            self.events.push_back(Event::Way { way: p, state });
        }
    }

    fn head(&mut self, now: Time, fetch: FetchId) {
        let Some(p) = self.way_of(fetch) else { return };
        let way = &mut self.ways[p];
        let (before, round_trip) = (way.state, way.round_trip());
        let Some(fetch) = &mut way.fetch else { return };
        if !std::mem::replace(&mut fetch.has_head, true) {
            let after = now.since(fetch.asked_at);
            match fetch.early {
                None => way.flow.begin(now, after, way.cold),
                // A request that came late says nothing of what one in time would have met.
                Some(early) => way.flow.resume(now, (early >= round_trip).then_some(after)),
            }
        }
        fetch.heard = now;
        (way.state, way.cold) = (State::Open, false);
        // It answers, so what was waited for is over.
        way.hold = Time::ZERO;
        self.set_state(p, before);
    }

    fn body(&mut self, now: Time, fetch: FetchId, bytes: &[u8], pool: &mut dyn Pool) {
        self.head_if_none(now, fetch);
        let Some(p) = self.way_of(fetch) else { return };
        let (length, before) = (self.length, self.ways[p].state);
        let way = &mut self.ways[p];
        let Some(fetch) = &mut way.fetch else { return };
        // The world promises no more than was asked for; what is beyond is nobody's.
        let beyond = usize::try_from(fetch.end - fetch.at).unwrap_or(usize::MAX);
        let mut rest = &bytes[..bytes.len().min(beyond)];
        way.flow.add(now, rest.len() as u64, before == State::Stalled);
        (fetch.heard, way.state, way.hold) = (now, State::Open, Time::ZERO);
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
            if pool.is_wanted_from(way.mirror, block) {
                pool.bring(way.mirror, block, if have > 0 { &fetch.partial } else { piece });
                way.counters.bytes += len as u64;
                fetch.new_bytes += len as u64;
                way.breaks_at = None;
            } else {
                way.counters.duplicate_bytes += len as u64;
                if way.breaks_at.is_some() {
                    way.counters.vain_bytes += len as u64;
                }
                if fetch.purpose == Purpose::Own && pool.is_wanted(block) {
                    // From others: whoever is to bring it, it is not this one.
                    pool.put_back(block..block + 1);
                }
            }
            fetch.partial.clear();
        }
        self.set_state(p, before);
        self.go_on(p, pool);
    }

    /// A body whose head was not told of has one all the same.
    fn head_if_none(&mut self, now: Time, fetch: FetchId) {
        let p = self.way_of(fetch);
        if p.and_then(|p| self.ways[p].fetch.as_ref()).is_some_and(|fetch| !fetch.has_head) {
            self.head(now, fetch);
        }
    }

    fn done(&mut self, now: Time, fetch: FetchId, pool: &mut dyn Pool) {
        let Some(p) = self.way_of(fetch) else { return };
        let Some(fetch) = &self.ways[p].fetch else { return };
        if fetch.at < fetch.end {
            // Shorter than the world's own promise.
            self.failed(now, p, Failure::Broken, pool);
            return;
        }
        let (whole, got) = (fetch.purpose == Purpose::Whole, fetch.got);
        self.release(p, pool);
        self.ways[p].proved();
        if whole && pool.idle_for(self.ways[p].mirror) > 0 {
            // All of it came, and something was not right. It may be another time, but not for ever.
            self.ways[p].wholes += 1;
            if self.ways[p].wholes >= WHOLES_MAX {
                self.close_mirror(self.ways[p].mirror, pool);
                return;
            }
            let before = self.ways[p].state;
            self.ways[p].fail(now, got.min(1));
            self.set_state(p, before);
        }
        self.advance(now, p, pool);
    }

    fn failed(&mut self, now: Time, p: WayId, failure: Failure, pool: &mut dyn Pool) {
        let got = self.ways[p].fetch.as_ref().map_or(0, Fetch::progress_bytes);
        // What was asked ahead would be asked again over a new connection, as a whole: the way has to prove
        // itself with less.
        self.drop_ahead(p, pool);
        self.release(p, pool);
        let before = self.ways[p].state;
        match failure {
            Failure::Broken => self.ways[p].fail(now, got),
            Failure::Busy { retry } => self.ways[p].busy(now, retry),
            Failure::NoRanges => {
                self.ways[p].counters.failures += 1;
                self.without_ranges(self.ways[p].mirror);
            }
            Failure::Useless => {
                self.ways[p].counters.failures += 1;
                self.close_mirror(self.ways[p].mirror, pool);
                return;
            }
        }
        self.set_state(p, before);
    }

    fn close_mirror(&mut self, mirror: MirrorId, pool: &mut dyn Pool) {
        for p in 0..self.ways.len() {
            if self.ways[p].mirror == mirror && self.ways[p].state != State::Closed {
                self.close(p, State::Closed, pool);
            }
        }
    }

    fn close(&mut self, p: WayId, state: State, pool: &mut dyn Pool) {
        let before = std::mem::replace(&mut self.ways[p].state, state);
        if self.ways[p].fetch.is_some() {
            self.cancel(p, pool);
        }
        self.set_state(p, before);
    }

    fn sample(&mut self, now: Time, p: WayId, sample: &Sample) {
        self.ways[p].coupling.measured(now, sample);
        self.members.clear();
        let mut me = 0;
        for (q, way) in self.ways.iter().enumerate() {
            if way.group != self.ways[p].group || (q != p && !way.is_flowing()) {
                continue;
            }
            if q == p {
                // Of very many ways the first ones stand for all.
                me = self.members.len().min(MEMBERS_MAX - 1);
                self.members.truncate(me);
            }
            self.members.push(way.member());
        }
        let group = Group { members: &self.members, me };
        let way = &mut self.ways[p];
        way.coupling.feed(now, sample, &group);
        if let Some(bytes) = way.coupling.give(group.is_alone()) {
            self.out.push_back(Command::Window { way: p, bytes });
        }
    }

    fn work(&mut self, now: Time, pool: &mut dyn Pool) {
        for p in 0..self.ways.len() {
            self.trim(p, pool);
            self.timer(now, p, pool);
        }
        for p in 0..self.ways.len() {
            if self.ways[p].is_free(now) {
                self.employ(now, p, pool);
            } else if self.ways[p].follows_at() <= now {
                self.follow(now, p, pool);
            }
        }
        let free = self.ways.iter().any(|way| way.is_free(now));
        self.hungry = free || self.ways.iter().any(|way| way.follows_at() <= now);
        let busy = self.ways.iter().any(|way| way.fetch.is_some());
        let tick = if free && busy { now + TAIL_TICK } else { Time::NEVER };
        self.deadline = self.ways.iter().map(|way| deadline(now, way)).fold(tick, Time::min);
    }

    fn timer(&mut self, now: Time, p: WayId, pool: &mut dyn Pool) {
        let before = self.ways[p].state;
        if now >= self.ways[p].stalls_at() {
            self.disown_all(p, pool);
            self.ways[p].stall(now);
            self.set_state(p, before);
        } else if before == State::Stalled && self.ways[p].fetch.is_some() && now >= self.ways[p].hold {
            self.cancel(p, pool);
        }
    }

    /// Asks for these blocks: at once, or behind what the way is asked for now.
    fn ask(&mut self, now: Time, p: WayId, blocks: Range<u64>, purpose: Purpose) {
        debug_assert!(!blocks.is_empty() && blocks.end <= self.blocks(), "no such blocks: {blocks:?}");
        debug_assert!(self.ways[p].ahead.is_none(), "one request, and one ahead");
        let id = self.asked * WAYS_MAX as u64 + p as u64;
        self.asked += 1;
        let (first, end) = (blocks.start * BLOCK, (blocks.end * BLOCK).min(self.length));
        let way = &mut self.ways[p];
        way.counters.fetches += 1;
        let fetch = Fetch {
            id,
            purpose,
            at: first,
            end,
            keep: blocks.end,
            doubled: false,
            asked_at: now,
            heard: now,
            early: None,
            has_head: false,
            got: 0,
            new_bytes: 0,
            partial: Vec::new(),
        };
        let turn = if way.fetch.is_none() { &mut way.fetch } else { &mut way.ahead };
        *turn = Some(fetch);
        if way.state == State::Stalled {
            // A new request is a new chance: its silence is its own.
            way.state = State::Opening;
            self.set_state(p, State::Stalled);
        }
        self.out.push_back(Command::Fetch { way: p, fetch: id, first_byte: first, end_byte: end });
    }
}

/// When there is something to do for a way that is not at `now`: what is due by then has been done.
fn deadline(now: Time, way: &Way) -> Time {
    if !way.is_usable() {
        return Time::NEVER;
    }
    let held = way.hold > now && (way.fetch.is_none() || way.state == State::Stalled);
    if held {
        return way.hold;
    }
    let follows = Some(way.follows_at()).filter(|at| *at > now);
    way.stalls_at().min(follows.unwrap_or(Time::NEVER))
}
