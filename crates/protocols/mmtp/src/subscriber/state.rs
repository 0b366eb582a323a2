//! The state of a subscriber: sources, paths, downloads, and the events and packets that wait to be taken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anabranch_algo::RateLimits;
use anabranch_algo::control::{Group, MEMBERS_MAX, SubflowStats};

use super::api::{Event, PathReport, Transmit};
use super::download::Download;
use super::downloads::Downloads;
use super::grouping::GroupDetector;
use super::item::{DownloadId, GiveUp, PATHS_MAX, PathId, SOURCES_MAX, SourceId};
use super::path::{Path, PathConfig, PathState};
use super::request_tags::RequestTags;
use super::timer::Timer;
use crate::id::ContentId;

/// In debug builds, the state of everything missing is [checked](Subscriber::check) once in this many turns.
const CHECK_EVERY: usize = 64;
/// Debug builds check the state only if at most this many blocks are left.
const CHECK_BLOCKS_MAX: u64 = 16_384;

#[derive(Default)]
pub(super) struct Source {
    pub(super) banned: bool,
    pub(super) unavailable: BTreeSet<DownloadId>,
}

impl Source {
    /// Whether the source will not send a content.
    pub(super) fn refuses(&self, download: DownloadId) -> bool {
        self.banned || self.unavailable.contains(&download)
    }

    /// Returns how a packet of `download` is given up that one of the source's paths no longer expects. The
    /// path does not ask again for a content that the source refuses.
    pub(super) fn give_up(&self, download: DownloadId, how: GiveUp) -> GiveUp {
        if self.refuses(download) { GiveUp::Elsewhere } else { how }
    }
}

/// The state machine of a receiver.
pub struct Subscriber {
    pub(super) tags: RequestTags,
    pub(super) sources: Vec<Source>,
    pub(super) paths: Vec<Path>,
    pub(super) downloads: Downloads,
    /// The number of blocks that are asked for and not verified.
    pub(super) open: usize,
    pub(super) out: VecDeque<Transmit>,
    pub(super) events: VecDeque<Event>,
    pub(super) timer: Timer,
    pub(super) dirty: bool,
    pub(super) redundant: u64,
    /// Selects the path that asks first; it increases with each turn.
    pub(super) turn: usize,
    pub(super) members: Vec<SubflowStats>,
    pub(super) group_detector: GroupDetector,
}

impl Subscriber {
    /// Creates a subscriber without downloads. Its tags come from the seed, which must be secret on a real
    /// network; a simulation may use any.
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
            timer: Timer::NEVER,
            dirty: true,
            redundant: 0,
            turn: 0,
            members: Vec::new(),
            group_detector: GroupDetector::default(),
        }
    }

    /// Adds a source. Returns `None` if there are already [`SOURCES_MAX`].
    pub fn add_source(&mut self) -> Option<SourceId> {
        let id = SourceId::try_from(self.sources.len()).ok().filter(|id| usize::from(*id) < SOURCES_MAX)?;
        self.sources.push(Source::default());
        Some(id)
    }

    /// Adds a path to `source`. Returns `None` if there are already [`PATHS_MAX`] paths, or no such source.
    pub fn add_path(&mut self, source: SourceId, config: &PathConfig) -> Option<PathId> {
        if self.paths.len() >= PATHS_MAX || usize::from(source) >= self.sources.len() {
            return None;
        }
        self.paths.push(Path::new(source, config));
        self.group_detector.add_path(config.uplink);
        self.group_new_path();
        self.dirty = true;
        Some(self.paths.len() - 1)
    }

    /// Limits the rate at which a path asks for packets. All users of a shared limit must use the same clock.
    /// The UDP payload that is asked for is charged, whether or not it arrives.
    pub fn limit(&mut self, path: PathId, limits: RateLimits) {
        if let Some(path) = self.paths.get_mut(path) {
            path.limits = limits;
        }
    }

    /// Starts to fetch a content. `have` says which blocks the caller already has. With `meta`, sources are
    /// also asked to describe the content.
    pub fn add_download(&mut self, id: ContentId, meta: bool, have: impl Fn(u64) -> bool) -> DownloadId {
        let download = self.downloads.add(Download::new(id, meta, have));
        if self.downloads.get(download).is_none() {
            self.events.push_back(Event::Complete { download });
        }
        self.dirty = true;
        download
    }

    /// Returns figures about all paths.
    pub fn paths(&self) -> impl Iterator<Item = PathReport> {
        self.paths.iter().map(|path| PathReport {
            source: path.source,
            group: path.group,
            state: path.state,
            srtt: path.rtt().srtt(),
            cwnd: path.cwnd(),
            in_flight: path.sent_packets().in_flight(),
            chunk_bytes: path.mtu.cut().chunk_bytes(),
            counters: path.counters,
        })
    }

    /// Whether every download is complete.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.downloads.is_empty()
    }

    /// Returns how many blocks of a content are not verified yet.
    #[must_use]
    pub fn blocks_left(&self, download: DownloadId) -> u64 {
        self.downloads.get(download).map_or(0, Download::blocks_left)
    }

    /// Returns how many packets were asked for a second time while they were pending on another path.
    #[must_use]
    pub const fn redundant(&self) -> u64 {
        self.redundant
    }

    /// Calls `f` with a path and the published figures of its group.
    pub(super) fn coupled<T>(&mut self, p: PathId, f: impl FnOnce(&mut Path, &Group<'_>) -> T) -> T {
        let group = self.paths[p].group;
        self.members.clear();
        let mut me = 0;
        // A path that does not answer has no weight. If there are very many paths, the first ones stand for
        // all.
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

    pub(super) fn report_state(&mut self, p: PathId, before: PathState) {
        let state = self.paths[p].state;
        if state != before {
            self.events.push_back(Event::Path { path: p, state });
        }
    }

    /// Checks three rules. Every missing block and packet is in exactly one state. The packets in flight are
    /// those that the paths have outstanding. Each waiting packet has a path that can ask for it.
    ///
    /// # Errors
    /// If a rule does not hold; the error says which.
    pub fn check(&self) -> Result<(), String> {
        let mut outstanding: BTreeMap<DownloadId, BTreeMap<_, u32>> = BTreeMap::new();
        for (asked, i, _) in self.paths.iter().flat_map(|path| path.sent_packets().outstanding()) {
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
            let provides = |source: SourceId| !self.cannot_provide(source, id);
            let asks = |p: PathId| {
                self.paths.get(p).filter(|path| !path.state.is_unusable()).map(|path| path.source)
            };
            state.check_takers(provides, asks).map_err(|e| format!("download {id}: {e}"))?;
        }
        Ok(())
    }

    pub(super) fn check_now_and_then(&self) -> Result<(), String> {
        let left: u64 = self.downloads.iter().map(|(_, state)| state.blocks_left()).sum();
        if self.turn.is_multiple_of(CHECK_EVERY) && left <= CHECK_BLOCKS_MAX { self.check() } else { Ok(()) }
    }
}
