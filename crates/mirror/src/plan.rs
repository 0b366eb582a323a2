//! Which bytes are asked of which mirror, over which way, and when.
//!
//! A *way* is a mirror seen from one local address: one connection that has one request at a time. Who
//! knows which groups are missing is a [`Pool`]; [`Mirrors`] takes ranges from it, asks for them, makes
//! groups of what comes and brings them.
//!
//! 1. **How much at once** (`plan/share.rs`): seven eighths of a way's fair part of what nobody has been
//!    asked for: in the round trip between two requests its link is idle, and what is too much is taken
//!    over at the end. A way of unknown rate is asked for [`FIRST_GROUPS`], one that
//!    failed for [`TRIAL_GROUPS`].
//! 2. **The end** (`plan/tail.rs`): a way without work takes over the tail of the range that would finish
//!    last, such that both finish together; when that no longer pays, it asks a second time for what would
//!    arrive later than from here.
//! 3. **Stalls.** A way from which nothing has come for a second, or four times what is usual, has its
//!    groups put back at once. Its request lives on for a while, for what it may still bring; then it is
//!    tried anew with small ranges.
//! 4. **Failures** hold a way back for half a second, then twice as long and so on; a mirror that will
//!    never bring anything, or that lied, is not used again.
//! 5. **Friendliness** (`plan/coupling.rs`): ways of a group advertise windows that are coupled.
//!
//! The machine has the shape of [`algo::Machine`]: [`Mirrors::handle`], then [`Mirrors::poll`] until it
//! answers `Wait`; both are lent the pool.

mod coupling;
mod flow;
mod share;
mod tail;
mod talk;
mod way;

use std::collections::VecDeque;
use std::ops::Range;

use algo::control::{Group, MEMBERS_MAX, Member};
use algo::{Output, Span, Time};
use mmtp::id::GROUP_BYTES;

pub use coupling::{SEGMENTS_MIN, Sample, WINDOW_INITIAL_BYTES, WINDOW_LIFTED_BYTES};
pub use flow::{PATIENCE_MAX, PATIENCE_MIN, PATIENCE_OPENING};
pub use share::{ASK_GROUPS_MAX, ASK_SPAN_MAX, FIRST_GROUPS, TRIAL_GROUPS};
pub use tail::{COPY_GROUPS_MAX, SAVING_MIN};
pub use talk::{
    Command, Counters, Event, Failure, FetchId, Input, MirrorId, Pool, State, WayConfig, WayId, WayReport,
};
pub(crate) use way::backoff;
pub use way::{BUSY_MAX, RECONNECT, RETRY_MAX, RETRY_MIN, STALL_RETRY_MAX, STALL_RETRY_MIN};

use way::{Fetch, Purpose, Way};

/// The most ways of one machine.
pub const WAYS_MAX: usize = 256;
/// How often it is looked again whether a way without work can help those that have some.
const TAIL_TICK: Span = Span::from_millis(50);

/// How often a server without ranges is asked for everything, when not all that it sends is of use.
const WHOLES_MAX: u32 = 3;

const GROUP: u64 = GROUP_BYTES as u64;

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
    /// Some way had nothing to do when that was last looked at.
    hungry: bool,
    members: Vec<Member>,
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
    /// [`handle`](Self::handle), or until groups come back to the pool.
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

    /// The way that has this request now. Its number is in the request's.
    fn way_of(&self, fetch: FetchId) -> Option<WayId> {
        let p = (fetch % WAYS_MAX as u64) as usize;
        let current = self.ways.get(p)?.fetch.as_ref()?;
        (current.id == fetch).then_some(p)
    }

    fn groups(&self) -> u64 {
        self.length.div_ceil(GROUP)
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
        let before = way.state;
        let Some(fetch) = &mut way.fetch else { return };
        if !std::mem::replace(&mut fetch.has_head, true) {
            way.flow.begin(now, now.since(fetch.asked_at));
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
            let group = fetch.at / GROUP;
            let have = fetch.partial.len();
            let len = length.saturating_sub(group * GROUP).min(GROUP) as usize;
            let (piece, after) = rest.split_at(rest.len().min(len - have));
            (rest, fetch.at) = (after, fetch.at + piece.len() as u64);
            let whole = have + piece.len() == len;
            if have > 0 || !whole {
                fetch.partial.extend_from_slice(piece);
            }
            if !whole {
                break;
            }
            if pool.is_wanted_from(way.mirror, group) {
                pool.bring(way.mirror, group, if have > 0 { &fetch.partial } else { piece });
                way.counters.bytes += len as u64;
            } else {
                way.counters.duplicate_bytes += len as u64;
                if fetch.purpose == Purpose::Own && pool.is_wanted(group) {
                    // From others: whoever is to bring it, it is not this one.
                    pool.put_back(group..group + 1);
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

    /// Something came: is the rest of this answer worth reading?
    fn go_on(&mut self, p: WayId, pool: &mut dyn Pool) {
        let Some(fetch) = &self.ways[p].fetch else { return };
        if fetch.at >= fetch.end {
            return;
        }
        match fetch.purpose {
            Purpose::Own | Purpose::Copy(_) if fetch.groups().is_empty() => self.at_its_end(p, pool),
            Purpose::Loose => {
                let next = fetch.groups().start;
                let elsewhere = self.ways.iter().enumerate().any(|(q, other)| {
                    let own = other.fetch.as_ref().filter(|f| q != p && f.purpose == Purpose::Own);
                    own.is_some_and(|f| f.groups().contains(&next))
                });
                let wanted = pool.is_wanted_from(self.ways[p].mirror, next);
                if elsewhere || !wanted || fetch.groups().is_empty() {
                    self.cancel(p, pool);
                }
            }
            _ => {}
        }
    }

    /// A request has brought all that it is to bring; more was asked for.
    fn at_its_end(&mut self, p: WayId, pool: &mut dyn Pool) {
        let way = &mut self.ways[p];
        let (reconnect, rate) = (way.reconnect(), way.flow.rate().unwrap_or(0));
        let Some(fetch) = &mut way.fetch else { return };
        let rest = algo::Rate::from_bytes(rate).time_for(fetch.end - fetch.at);
        if pool.idle() > 0 && fetch.has_head && rest <= reconnect {
            fetch.purpose = Purpose::Rest;
        } else {
            if fetch.has_head {
                way.proved();
            }
            self.cancel(p, pool);
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
        if whole && pool.idle() > 0 {
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
    }

    fn failed(&mut self, now: Time, p: WayId, failure: Failure, pool: &mut dyn Pool) {
        let got = self.ways[p].fetch.as_ref().map_or(0, |fetch| fetch.got);
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

    /// Gives up a way's request: its connection with it.
    fn cancel(&mut self, p: WayId, pool: &mut dyn Pool) {
        if let Some(fetch) = self.release(p, pool) {
            self.ways[p].cold = true;
            self.ways[p].counters.cancelled += 1;
            self.out.push_back(Command::Cancel { fetch });
        }
    }

    /// A way's request is over; what it owned and did not bring is idle again.
    fn release(&mut self, p: WayId, pool: &mut dyn Pool) -> Option<FetchId> {
        self.disown(p, pool);
        self.ways[p].flow.pause();
        Some(self.ways[p].fetch.take()?.id)
    }

    /// What a way's request owns is idle again, what it copies may be copied by others.
    fn disown(&mut self, p: WayId, pool: &mut dyn Pool) {
        let Some(fetch) = &mut self.ways[p].fetch else { return };
        match std::mem::replace(&mut fetch.purpose, Purpose::Loose) {
            Purpose::Own => {
                let groups = fetch.groups();
                if !groups.is_empty() {
                    pool.put_back(groups);
                }
            }
            Purpose::Copy(of) => {
                if let Some(other) = self.way_of(of).and_then(|q| self.ways[q].fetch.as_mut()) {
                    other.doubled = false;
                }
            }
            kept => fetch.purpose = kept,
        }
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
            }
        }
        self.hungry = self.ways.iter().any(|way| way.is_free(now));
        let busy = self.ways.iter().any(|way| way.fetch.is_some());
        let tick = if self.hungry && busy { now + TAIL_TICK } else { Time::NEVER };
        self.deadline = self.ways.iter().map(|way| deadline(now, way)).fold(tick, Time::min);
    }

    /// Takes from the end of a way's range what others have brought.
    fn trim(&mut self, p: WayId, pool: &mut dyn Pool) {
        let way = &mut self.ways[p];
        let Some(fetch) = &mut way.fetch else { return };
        if matches!(fetch.purpose, Purpose::Rest | Purpose::Whole) || fetch.at >= fetch.end {
            return;
        }
        let mut left = fetch.groups();
        while !left.is_empty() && !pool.is_wanted_from(way.mirror, left.end - 1) {
            left.end -= 1;
            fetch.keep = left.end;
            if fetch.purpose == Purpose::Own && pool.is_wanted(left.end) {
                pool.put_back(left.end..left.end + 1);
            }
        }
        if left.is_empty() {
            self.at_its_end(p, pool);
        }
    }

    fn timer(&mut self, now: Time, p: WayId, pool: &mut dyn Pool) {
        let before = self.ways[p].state;
        if now >= self.ways[p].stalls_at() {
            self.disown(p, pool);
            self.ways[p].stall(now);
            self.set_state(p, before);
        } else if before == State::Stalled && self.ways[p].fetch.is_some() && now >= self.ways[p].hold {
            self.cancel(p, pool);
        }
    }

    fn ask(&mut self, now: Time, p: WayId, groups: Range<u64>, purpose: Purpose) -> FetchId {
        debug_assert!(!groups.is_empty() && groups.end <= self.groups(), "no such groups: {groups:?}");
        debug_assert!(self.ways[p].fetch.is_none(), "one request at a time");
        let id = self.asked * WAYS_MAX as u64 + p as u64;
        self.asked += 1;
        let (first, end) = (groups.start * GROUP, (groups.end * GROUP).min(self.length));
        let way = &mut self.ways[p];
        way.counters.fetches += 1;
        way.fetch = Some(Fetch {
            id,
            purpose,
            at: first,
            end,
            keep: groups.end,
            doubled: false,
            asked_at: now,
            heard: now,
            has_head: false,
            got: 0,
            partial: Vec::new(),
        });
        if way.state == State::Stalled {
            // A new request is a new chance: its silence is its own.
            way.state = State::Opening;
            self.set_state(p, State::Stalled);
        }
        self.out.push_back(Command::Fetch { way: p, fetch: id, first_byte: first, end_byte: end });
        id
    }
}

/// When there is something to do for a way that is not at `now`: what is due by then has been done.
fn deadline(now: Time, way: &Way) -> Time {
    if !way.is_usable() {
        return Time::NEVER;
    }
    let held = way.hold > now && (way.fetch.is_none() || way.state == State::Stalled);
    if held { way.hold } else { way.stalls_at() }
}
