//! A receiver: pulls contents from many sources over many paths.
//!
//! One *path* (subflow) is a source seen from one local address; it has its own window, timers and pending
//! requests, and the windows of a group of paths are coupled ([`algo::control`]). The receiver decides
//! everything: what is asked of whom (`subscriber/ask.rs`), what is lost ([`algo::sent_packets`]),
//! whether bytes are right (`subscriber/object.rs`). Sources only answer.
//!
//! **Pending never exceeds the window**: `in_flight ≤ cwnd` after each request, but for one probe before a
//! timeout.
//!
//! **Expiry.** What expires once is asked again on its path; the second time any path with room may ask. A
//! path that timed out has had its probe unanswered, so all that it has pending goes to the others at once
//! and it is tried with single requests from then on.

mod arrive;
mod ask;
mod blame;
mod grouping;
mod hope;
mod lend;
mod mtu;
mod object;
mod path;
mod tags;
mod talk;

use std::collections::{BTreeSet, VecDeque};

use algo::control::{CongestionCause, Group, MEMBERS_MAX, SubflowStats};
use algo::{Machine, Output, Span, Time};

use crate::id::{ContentId, Cut};
use crate::wire;
use ask::Batch;
use grouping::Groups;
use object::Object;
use path::{Asked, Path};
use tags::Tags;

pub use ask::GROUPS_OPEN_MAX;
pub use grouping::Grouping;
pub use object::{SOURCES_MAX, SourceId};
pub use path::{PathConfig, PathCounters, RETRY_MAX, State};
pub use talk::{Event, Input, PathReport, Transmit};

/// A path, by the order in which it was added.
pub type PathId = usize;
/// A content, by the order in which it was wanted.
pub type ObjectId = u32;
/// The most paths one subscriber can have.
pub const PATHS_MAX: usize = 256;

/// One packet's worth of something to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// One chunk.
    Data { cut: Cut, chunk: u64 },
    /// One packet of chaining values.
    Hash { level: u8, first: u64 },
    /// What the content is.
    Meta,
}

/// The same, of which content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Work {
    object: ObjectId,
    what: What,
}

/// Whether something is still missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// And this source may bring it.
    Yes,
    /// But only from another source.
    NotFrom,
    /// No.
    No,
}

#[derive(Default)]
struct Source {
    struck: bool,
    lacks: BTreeSet<ObjectId>,
}

/// The machine of a receiver.
pub struct Subscriber {
    tags: Tags,
    sources: Vec<Source>,
    paths: Vec<Path>,
    objects: Vec<Object>,
    /// No object before this one has idle groups.
    first_idle: usize,
    /// Contents that are not complete.
    active: Vec<ObjectId>,
    /// Groups asked for and not verified.
    open: usize,
    /// What expired twice: any path may ask.
    orphans: VecDeque<Work>,
    out: VecDeque<Transmit>,
    events: VecDeque<Event>,
    deadline: Time,
    dirty: bool,
    doubled: u64,
    /// Whose turn it is to ask first.
    turn: usize,
    members: Vec<SubflowStats>,
    groups: Groups,
}

impl Subscriber {
    /// A subscriber that wants nothing yet. The seed makes its tags: secret on a real network, any for a
    /// simulation.
    #[must_use]
    pub fn new(seed: &[u8; 32]) -> Self {
        Self {
            tags: Tags::new(seed),
            sources: Vec::new(),
            paths: Vec::new(),
            objects: Vec::new(),
            first_idle: 0,
            active: Vec::new(),
            open: 0,
            orphans: VecDeque::new(),
            out: VecDeque::new(),
            events: VecDeque::new(),
            deadline: Time::ZERO,
            dirty: true,
            doubled: 0,
            turn: 0,
            members: Vec::new(),
            groups: Groups::default(),
        }
    }

    /// Adds a source; `None` when there are [`SOURCES_MAX`].
    pub fn add_source(&mut self) -> Option<SourceId> {
        let id = SourceId::try_from(self.sources.len()).ok().filter(|id| usize::from(*id) < SOURCES_MAX)?;
        self.sources.push(Source::default());
        Some(id)
    }

    /// Adds a path to `source`; `None` when there are [`PATHS_MAX`], or no such source.
    pub fn add_path(&mut self, source: SourceId, config: &PathConfig) -> Option<PathId> {
        if self.paths.len() >= PATHS_MAX || usize::from(source) >= self.sources.len() {
            return None;
        }
        self.paths.push(Path::new(source, config));
        self.groups.added();
        self.dirty = true;
        Some(self.paths.len() - 1)
    }

    /// Wants a content. `have` says which groups are here already and not to be fetched; with `meta`, sources
    /// are asked what it is.
    pub fn want(&mut self, id: ContentId, meta: bool, have: impl Fn(u64) -> bool) -> ObjectId {
        let object = self.objects.len() as ObjectId;
        self.objects.push(Object::new(id, meta, have));
        let new = &self.objects[object as usize];
        if new.is_complete() {
            self.events.push_back(Event::Complete { object });
        } else {
            self.active.push(object);
            self.first_idle = self.first_idle.min(object as usize);
            if meta {
                self.orphans.push_front(Work { object, what: What::Meta });
            }
        }
        self.dirty = true;
        object
    }

    /// All paths, as numbers.
    pub fn paths(&self) -> impl Iterator<Item = PathReport> {
        self.paths.iter().map(|path| PathReport {
            source: path.source,
            group: path.group,
            state: path.state,
            srtt: path.rtt.srtt(),
            cwnd: path.cwnd,
            in_flight: path.sent_packets.in_flight(),
            chunk_bytes: path.mtu.cut().chunk_bytes(),
            counters: path.counters,
        })
    }

    /// Whether everything wanted is here.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// Groups of a content that are not verified yet.
    #[must_use]
    pub fn groups_left(&self, object: ObjectId) -> u64 {
        self.objects.get(object as usize).map_or(0, Object::groups_left)
    }

    /// Packets that were asked for a second time while pending elsewhere, at the end.
    #[must_use]
    pub const fn doubled(&self) -> u64 {
        self.doubled
    }

    /// Calls `f` with a path and the published numbers of its group.
    fn coupled<T>(&mut self, p: PathId, f: impl FnOnce(&mut Path, &Group<'_>) -> T) -> T {
        let group = self.paths[p].group;
        self.members.clear();
        let mut me = 0;
        // What does not answer has no weight; of very many paths the first ones stand for all.
        let counts = |q: usize, path: &Path| path.group == group && (path.state == State::Open || q == p);
        for (q, path) in self.paths.iter().enumerate().filter(|(q, path)| counts(*q, path)) {
            if q == p {
                me = self.members.len().min(MEMBERS_MAX - 1);
                self.members.truncate(me);
            }
            self.members.push(path.member());
        }
        f(&mut self.paths[p], &Group { members: &self.members, me })
    }

    fn set_state(&mut self, p: PathId, before: State) {
        let state = self.paths[p].state;
        if state != before {
            self.events.push_back(Event::Path { path: p, state });
        }
    }

    /// A source is proven to have sent wrong bytes.
    fn strike(&mut self, source: SourceId, object: ObjectId, group: u64) {
        if std::mem::replace(&mut self.sources[usize::from(source)].struck, true) {
            return;
        }
        self.events.push_back(Event::Struck { source, object, group });
        for p in 0..self.paths.len() {
            if self.paths[p].source == source {
                self.close(p, State::Closed);
            }
        }
        for &object in &self.active {
            let again = self.objects[object as usize].disown(source);
            self.orphans.extend(again.into_iter().map(|what| Work { object, what }));
            self.first_idle = self.first_idle.min(object as usize);
        }
    }

    /// Stops using a path: what it has pending and what it was to ask goes to the others.
    fn close(&mut self, p: PathId, state: State) {
        let before = self.paths[p].state;
        self.paths[p].state = state;
        self.expire_all(p);
        self.release(p);
        self.set_state(p, before);
    }

    /// Everything pending on a path has expired, and any path may ask for it.
    fn expire_all(&mut self, p: PathId) {
        let path = &mut self.paths[p];
        let source = path.source;
        let mut lost = Vec::new();
        path.sent_packets.expire(|asked, i, _| {
            lost.extend(asked.what(i).map(|what| Work { object: asked.object, what }));
        });
        path.counters.lost += lost.len() as u64;
        self.groups.lost(p, lost.len() as u32);
        for work in lost {
            self.orphan(work, source);
        }
    }

    /// What was asked of `source`, or was to be, is free for any path. A group that it alone was to fill is
    /// idle again: nobody else may finish it.
    fn orphan(&mut self, work: Work, source: SourceId) {
        let object = &mut self.objects[work.object as usize];
        match object.wants(work.what, source) {
            Wanted::No => return,
            Wanted::NotFrom => {}
            Wanted::Yes => {
                object.expire(work.what);
                if let Some(group) = object.is_alone(work.what) {
                    object.reopen(group);
                    self.first_idle = self.first_idle.min(work.object as usize);
                    return;
                }
            }
        }
        self.orphans.push_back(work);
    }

    /// Losses, timeouts, path MTU probes; then every path asks for what its window allows.
    fn work(&mut self, now: Time) {
        self.regroup(now);
        self.open = self.active.iter().map(|o| self.objects[*o as usize].groups_open()).sum();
        for p in 0..self.paths.len() {
            self.detect(now, p);
            if self.paths[p].timer(now) {
                self.timeout(now, p);
            }
            self.probe_mtu(now, p);
        }
        if self.active.is_empty() {
            return;
        }
        // Paths that answer come first; among equals the turn goes round, or what only one may ask for could
        // fall to the same dead path for ever.
        self.turn = (self.turn + 1) % self.paths.len().max(1);
        for open in [true, false] {
            for i in 0..self.paths.len() {
                let p = (self.turn + i) % self.paths.len();
                if (self.paths[p].state == State::Open) == open {
                    self.fill(now, p);
                }
            }
        }
    }

    /// Declares lost what others have overtaken.
    fn detect(&mut self, now: Time, p: PathId) {
        let Self { paths, objects, orphans, first_idle, .. } = self;
        let path = &mut paths[p];
        let (mut newest, source) = (None, path.source);
        let (rtt, retry) = (path.rtt, &mut path.retry);
        let lost = path.sent_packets.detect(now, &rtt, |asked, i, seq| {
            newest = newest.max(Some(seq));
            let Some(what) = asked.what(i) else { return };
            let object = &mut objects[asked.object as usize];
            let work = Work { object: asked.object, what };
            match object.wants(what, source) {
                Wanted::No => {}
                Wanted::NotFrom => orphans.push_back(work),
                Wanted::Yes if object.expire(what) => match object.is_alone(what) {
                    // Nobody else may finish it, so somebody else may have to begin it anew.
                    Some(group) => {
                        object.reopen(group);
                        *first_idle = (*first_idle).min(work.object as usize);
                    }
                    None => orphans.push_back(work),
                },
                Wanted::Yes => retry.push_back(work),
            }
        });
        path.counters.lost += u64::from(lost);
        self.groups.lost(p, lost);
        // Answers of a request long lost are still welcome; after that its tag is forgotten.
        let keep = path.rtt.rto().times(2);
        let before = Time::from_nanos(now.as_nanos().saturating_sub(keep.as_nanos()));
        let tags = &mut path.tags;
        path.sent_packets.forget(before, |asked: Asked| {
            tags.remove(&asked.tag);
        });
        if let Some(seq) = newest {
            self.coupled(p, |path, group| path.congestion(now, CongestionCause::Loss, seq, group));
        }
    }

    fn timeout(&mut self, now: Time, p: PathId) {
        let before = self.paths[p].state;
        self.coupled(p, |path, group| path.timed_out(now, group));
        self.expire_all(p);
        self.release(p);
        self.set_state(p, before);
    }

    /// A timeout, and no other attempt for as long as one takes.
    fn unreachable(&mut self, now: Time, p: PathId) {
        self.timeout(now, p);
        self.paths[p].hold = now + self.paths[p].rtt.rto().min(RETRY_MAX);
    }

    fn probe_mtu(&mut self, now: Time, p: PathId) {
        let (path, tags) = (&mut self.paths[p], &mut self.tags);
        if path.state != State::Open || now < path.mtu.deadline() {
            return;
        }
        for (size, tag) in path.mtu.probes(now, path.rtt.probe_timeout(), || tags.next()) {
            let mut bytes = Vec::new();
            wire::emit_probe(&mut bytes, tag, path.cookie.as_ref(), size);
            self.out.push_back(Transmit { path: p, bytes });
        }
    }

    fn fill(&mut self, now: Time, p: PathId) {
        loop {
            let path = &self.paths[p];
            let mut room = path.room(now);
            if path.probe_due && now >= path.hold && !path.sent_packets.is_full() {
                room = room.max(1);
            } else if room == 0 || (room < path.quantum() && path.sent_packets.in_flight() > 0) {
                return;
            }
            let Some(batch) = self.gather(now, p, room) else {
                self.paths[p].probe_due = false;
                return;
            };
            self.ask(now, p, batch);
            if self.paths[p].state == State::Silent {
                // It has what it is tried with; the rest of that group must not wait for it.
                self.release(p);
            }
        }
    }

    fn ask(&mut self, now: Time, p: PathId, batch: Batch) {
        let Some(object) = batch.object else { return };
        let tag = self.tags.next();
        let path = &mut self.paths[p];
        let mut bytes = Vec::new();
        let id = self.objects[object as usize].id;
        wire::emit_request(&mut bytes, tag, path.cookie.as_ref(), true, &id, &batch.ranges);
        if path.cookie.is_none() {
            bytes.resize(bytes.len().max(Batch::paid_len(path.mtu.cut())), 0);
        }
        if std::mem::take(&mut path.probe_due) {
            path.counters.probes += 1;
        } else {
            debug_assert!(
                path.sent_packets.in_flight() + batch.packets <= path.cwnd,
                "pending exceeds the window"
            );
        }
        let asked = Asked { object, tag, ranges: batch.ranges, proven: path.cookie.is_some() };
        path.sent(now, batch.packets, asked);
        self.out.push_back(Transmit { path: p, bytes });
    }
}

impl Machine for Subscriber {
    type Input<'a> = Input<'a>;
    type Transmit = Transmit;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_>) {
        self.dirty = true;
        match input {
            Input::Datagrams { path, bytes, stride, marked } => {
                self.datagrams(now, path, bytes, stride, marked);
            }
            Input::Unreachable { path: p } => {
                if self.paths.get(p).is_some_and(|path| !path.state.is_shut()) {
                    self.unreachable(now, p);
                }
            }
            Input::Down { path: p } => {
                if self.paths.get(p).is_some_and(|path| path.state != State::Closed) {
                    self.close(p, State::Down);
                }
            }
            Input::Up { path: p } => {
                if self.paths.get(p).is_some_and(|path| path.state == State::Down) {
                    self.paths[p].restart();
                    self.groups.restarted(p);
                    self.set_state(p, State::Down);
                }
            }
        }
    }

    fn poll(&mut self, now: Time) -> Output<Transmit, Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Output::Event(event);
            }
            if let Some(transmit) = self.out.pop_front() {
                return Output::Send(transmit);
            }
            if !self.dirty && now < self.deadline {
                return Output::Wait(self.deadline);
            }
            self.work(now);
            self.dirty = false;
            self.deadline = if self.active.is_empty() {
                Time::NEVER
            } else {
                let paths = self.paths.iter().map(|path| path.deadline(now)).min().unwrap_or(Time::NEVER);
                // Where nothing is under way, an interval without news can end later.
                let idle = self.paths.iter().all(|path| path.sent_packets.in_flight() == 0);
                if idle { paths } else { paths.min(self.groups.deadline()) }
            };
            if self.events.is_empty() && self.out.is_empty() && now >= self.deadline {
                // A timer that is due has just been served; whatever is left is for the next tick.
                self.deadline = now + Span::from_micros(100);
            }
        }
    }
}
