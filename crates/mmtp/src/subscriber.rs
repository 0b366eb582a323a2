//! A receiver: pulls contents from many sources over many paths.
//!
//! One *path* (subflow) is a source seen from one local address; it has its own window, timers and pending
//! requests, and the windows of a group of paths are coupled ([`algo::control`]). The receiver decides
//! everything: what is asked of whom (`subscriber/schedule.rs`), what is lost ([`algo::sent_packets`]),
//! whether bytes are right (`subscriber/download.rs`). Sources only answer.
//!
//! **Pending never exceeds the window**: `in_flight ≤ cwnd` after each request, but for one probe before a
//! timeout.
//!
//! **Expiry.** What expires once is asked again on its path; the second time any path with room may ask. A
//! path that timed out has had its probe unanswered, so all that it has pending goes to the others at once
//! and it is tried with single requests from then on.

mod api;
mod availability;
mod download;
mod downloads;
mod grouping;
mod item;
mod mtu;
mod path;
mod poisoning;
mod receive;
mod request_tags;
mod reservation;
mod schedule;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use algo::control::{CongestionCause, Group, MEMBERS_MAX, SubflowStats};
use algo::{Machine, Output, Span, Time};

use crate::id::ContentId;
use crate::wire;
use download::Download;
use downloads::Downloads;
use grouping::GroupDetector;
use item::GiveUp;
use path::{Path, PendingRequest};
use request_tags::RequestTags;
use schedule::RequestBuilder;

pub use api::{Event, Input, PathReport, Transmit};
pub use download::BLOCKS_OPEN_MAX;
pub use grouping::Grouping;
pub use item::{DownloadId, PATHS_MAX, PathId, SOURCES_MAX, SourceId};
pub use path::{PathConfig, PathCounters, PathState, RETRY_MAX};

/// In debug builds the state of everything missing is [checked](Subscriber::check) after every so many turns,
/// if no more blocks than this are left.
const CHECK_EVERY: usize = 64;
const CHECK_BLOCKS_MAX: u64 = 16_384;

#[derive(Default)]
struct Source {
    banned: bool,
    unavailable: BTreeSet<DownloadId>,
}

/// The machine of a receiver.
pub struct Subscriber {
    tags: RequestTags,
    sources: Vec<Source>,
    paths: Vec<Path>,
    downloads: Downloads,
    /// Blocks asked for and not verified.
    open: usize,
    out: VecDeque<Transmit>,
    events: VecDeque<Event>,
    deadline: Time,
    dirty: bool,
    redundant: u64,
    /// Whose turn it is to ask first.
    turn: usize,
    members: Vec<SubflowStats>,
    group_detector: GroupDetector,
}

impl Subscriber {
    /// A subscriber that wants nothing yet. The seed makes its tags: secret on a real network, any for a
    /// simulation.
    #[must_use]
    pub fn new(seed: &[u8; 32]) -> Self {
        Self {
            tags: RequestTags::new(seed),
            sources: Vec::new(),
            paths: Vec::new(),
            downloads: Downloads::default(),
            open: 0,
            out: VecDeque::new(),
            events: VecDeque::new(),
            deadline: Time::ZERO,
            dirty: true,
            redundant: 0,
            turn: 0,
            members: Vec::new(),
            group_detector: GroupDetector::default(),
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
        self.group_detector.add_path();
        self.dirty = true;
        Some(self.paths.len() - 1)
    }

    /// Fetches a content. `have` says which blocks are here already and not to be fetched; with `meta`,
    /// sources are asked what it is.
    pub fn add_download(&mut self, id: ContentId, meta: bool, have: impl Fn(u64) -> bool) -> DownloadId {
        let download = self.downloads.add(Download::new(id, meta, have));
        if self.downloads.get(download).is_none() {
            self.events.push_back(Event::Complete { download });
        }
        self.dirty = true;
        download
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
        self.downloads.is_empty()
    }

    /// Blocks of a content that are not verified yet.
    #[must_use]
    pub fn blocks_left(&self, download: DownloadId) -> u64 {
        self.downloads.get(download).map_or(0, Download::blocks_left)
    }

    /// Packets that were asked for a second time while pending elsewhere, at the end.
    #[must_use]
    pub const fn redundant(&self) -> u64 {
        self.redundant
    }

    /// Calls `f` with a path and the published numbers of its group.
    fn coupled<T>(&mut self, p: PathId, f: impl FnOnce(&mut Path, &Group<'_>) -> T) -> T {
        let group = self.paths[p].group;
        self.members.clear();
        let mut me = 0;
        // What does not answer has no weight; of very many paths the first ones stand for all.
        let counts = |q: usize, path: &Path| path.group == group && (path.state == PathState::Open || q == p);
        for (q, path) in self.paths.iter().enumerate().filter(|(q, path)| counts(*q, path)) {
            if q == p {
                me = self.members.len().min(MEMBERS_MAX - 1);
                self.members.truncate(me);
            }
            self.members.push(path.member());
        }
        f(&mut self.paths[p], &Group { members: &self.members, me })
    }

    fn report_state(&mut self, p: PathId, before: PathState) {
        let state = self.paths[p].state;
        if state != before {
            self.events.push_back(Event::Path { path: p, state });
        }
    }

    /// A source is proven to have sent wrong bytes.
    fn ban(&mut self, source: SourceId, download: DownloadId, block: u64) {
        if std::mem::replace(&mut self.sources[usize::from(source)].banned, true) {
            return;
        }
        self.events.push_back(Event::Banned { source, download, block });
        for p in 0..self.paths.len() {
            if self.paths[p].source == source {
                self.close(p, PathState::Closed);
            }
        }
        self.downloads.values_mut().for_each(|download| download.discard_from(source));
    }

    /// Stops using a path: what it has pending and what it was to ask goes to the others.
    fn close(&mut self, p: PathId, state: PathState) {
        let before = self.paths[p].state;
        self.paths[p].state = state;
        self.expire_all(p);
        self.unassign(p);
        self.report_state(p, before);
    }

    /// Everything pending on a path has expired, and any path may ask for it.
    fn expire_all(&mut self, p: PathId) {
        let Self { paths, downloads, group_detector, .. } = self;
        let path = &mut paths[p];
        let lost = path.sent_packets.expire(|asked, i, _| downloads.give_up(asked, i, GiveUp::Elsewhere));
        path.counters.lost += u64::from(lost);
        group_detector.lost(p, lost);
    }

    /// Whether all that is missing is in exactly one state, and in flight where the paths have it outstanding.
    ///
    /// # Errors
    /// What is not so.
    pub fn check(&self) -> Result<(), String> {
        let mut outstanding: BTreeMap<DownloadId, BTreeMap<_, u32>> = BTreeMap::new();
        for (asked, i, _) in self.paths.iter().flat_map(|path| path.sent_packets.outstanding()) {
            let (Some(item), Some(state)) = (asked.item(i), self.downloads.get(asked.download)) else {
                continue;
            };
            if state.is_current(item, asked.epoch) {
                *outstanding.entry(asked.download).or_default().entry(item).or_default() += 1;
            }
        }
        for (id, state) in self.downloads.iter() {
            state
                .check(&outstanding.remove(&id).unwrap_or_default())
                .map_err(|e| format!("download {id}: {e}"))?;
            let lost = |p: &PathId| self.paths.get(*p).is_none_or(|path| path.fetches != Some(id));
            if let Some(p) = state.assignees().find(lost) {
                return Err(format!("download {id}: path {p} does not know what is assigned to it"));
            }
        }
        Ok(())
    }

    fn check_now_and_then(&self) -> Result<(), String> {
        let left: u64 = self.downloads.iter().map(|(_, state)| state.blocks_left()).sum();
        if self.turn.is_multiple_of(CHECK_EVERY) && left <= CHECK_BLOCKS_MAX { self.check() } else { Ok(()) }
    }

    /// Losses, timeouts, path MTU probes; then every path asks for what its window allows.
    fn drive(&mut self, now: Time) {
        self.regroup(now);
        self.open = self.downloads.blocks_open();
        for p in 0..self.paths.len() {
            self.detect(now, p);
            if self.paths[p].timer(now) {
                self.timeout(now, p);
            }
            self.probe_mtu(now, p);
        }
        if self.downloads.is_empty() {
            return;
        }
        // Paths that answer come first; among equals the turn goes round, or what only one may ask for could
        // fall to the same dead path for ever.
        self.turn = self.turn.wrapping_add(1);
        for open in [true, false] {
            for i in 0..self.paths.len() {
                let p = self.turn.wrapping_add(i) % self.paths.len();
                if (self.paths[p].state == PathState::Open) == open {
                    self.fill_window(now, p);
                }
            }
        }
    }

    /// Declares lost what others have overtaken.
    fn detect(&mut self, now: Time, p: PathId) {
        let Self { paths, downloads, .. } = self;
        let path = &mut paths[p];
        let (mut newest, rtt) = (None, path.rtt);
        let lost = path.sent_packets.detect(now, &rtt, |asked, i, seq| {
            newest = newest.max(Some(seq));
            downloads.give_up(asked, i, GiveUp::Lost(p));
        });
        path.counters.lost += u64::from(lost);
        self.group_detector.lost(p, lost);
        // Answers of a request long lost are still welcome; after that its tag is forgotten.
        let keep = path.rtt.rto().times(2);
        let before = Time::from_nanos(now.as_nanos().saturating_sub(keep.as_nanos()));
        let tags = &mut path.tags;
        path.sent_packets.forget(before, |asked: PendingRequest| {
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
        self.unassign(p);
        self.report_state(p, before);
    }

    /// A timeout, and no other attempt for as long as one takes.
    fn unreachable(&mut self, now: Time, p: PathId) {
        self.timeout(now, p);
        self.paths[p].blocked_until = now + self.paths[p].rtt.rto().min(RETRY_MAX);
    }

    fn probe_mtu(&mut self, now: Time, p: PathId) {
        let (path, tags) = (&mut self.paths[p], &mut self.tags);
        if path.state != PathState::Open || now < path.mtu.deadline() {
            return;
        }
        for (size, tag) in path.mtu.probes(now, path.rtt.probe_timeout(), || tags.next()) {
            let mut bytes = Vec::new();
            wire::emit_probe(&mut bytes, tag, path.cookie.as_ref(), size);
            self.out.push_back(Transmit { path: p, bytes });
        }
    }

    fn fill_window(&mut self, now: Time, p: PathId) {
        loop {
            let path = &self.paths[p];
            let mut room = path.room(now);
            if path.probe_due && now >= path.blocked_until && !path.sent_packets.is_full() {
                room = room.max(1);
            } else if room == 0 || (room < path.quantum() && path.sent_packets.in_flight() > 0) {
                return;
            }
            let Some(request) = self.build_request(now, p, room) else {
                self.paths[p].probe_due = false;
                return;
            };
            self.send_request(now, p, request);
            if self.paths[p].state == PathState::Unresponsive {
                // It has what it is tried with; the rest of that block must not wait for it.
                self.unassign(p);
            }
        }
    }

    fn send_request(&mut self, now: Time, p: PathId, request: RequestBuilder) {
        let Some(download) = request.download else { return };
        let tag = self.tags.next();
        let path = &mut self.paths[p];
        let mut bytes = Vec::new();
        let Some(state) = self.downloads.get(download) else { return };
        let (id, epoch) = (state.id, state.epoch());
        wire::emit_request(&mut bytes, tag, path.cookie.as_ref(), true, &id, &request.ranges);
        if path.cookie.is_none() {
            bytes.resize(bytes.len().max(RequestBuilder::padded_len(path.mtu.cut())), 0);
        }
        if std::mem::take(&mut path.probe_due) {
            path.counters.probes += 1;
        } else {
            debug_assert!(
                path.sent_packets.in_flight() + request.packets <= path.cwnd,
                "pending exceeds the window"
            );
        }
        let asked =
            PendingRequest { download, epoch, tag, ranges: request.ranges, proven: path.cookie.is_some() };
        path.sent(now, request.packets, asked);
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
                if self.paths.get(p).is_some_and(|path| !path.state.is_unusable()) {
                    self.unreachable(now, p);
                }
            }
            Input::Down { path: p } => {
                if self.paths.get(p).is_some_and(|path| path.state != PathState::Closed) {
                    self.close(p, PathState::Down);
                }
            }
            Input::Up { path: p } => {
                if self.paths.get(p).is_some_and(|path| path.state == PathState::Down) {
                    self.paths[p].restart();
                    self.group_detector.reset_path(p);
                    self.report_state(p, PathState::Down);
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
            self.drive(now);
            self.dirty = false;
            debug_assert_eq!(self.check_now_and_then(), Ok(()));
            self.deadline = if self.downloads.is_empty() {
                Time::NEVER
            } else {
                let paths = self.paths.iter().map(|path| path.deadline(now)).min().unwrap_or(Time::NEVER);
                // Where nothing is under way, an interval without news can end later.
                let idle = self.paths.iter().all(|path| path.sent_packets.in_flight() == 0);
                if idle { paths } else { paths.min(self.group_detector.deadline()) }
            };
            if self.events.is_empty() && self.out.is_empty() && now >= self.deadline {
                // A timer that is due has just been served; whatever is left is for the next tick.
                self.deadline = now + Span::from_micros(100);
            }
        }
    }
}
