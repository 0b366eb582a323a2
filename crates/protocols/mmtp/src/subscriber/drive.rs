//! Handles losses, timeouts and changes of links. Then sends the requests that the windows allow.

use anabranch_algo::control::CongestionCause;
use anabranch_algo::{Machine, Output, Time};

use super::api::{Event, Input, Transmit};
use super::item::{CacheId, DownloadId, GiveUp, PathId, SourceId};
use super::path::{PathState, PendingRequest, RETRY_MAX};
use super::schedule::RequestBuilder;
use super::state::Subscriber;
use super::timer::{Reason, Timer};
use crate::wire;

impl Subscriber {
    /// Bans a source that is proven to have sent wrong bytes.
    pub(super) fn ban(&mut self, source: SourceId, download: DownloadId, block: u64) {
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

    /// Records that a cache has sent a part of a wrong block or page. No cache may answer on its path from
    /// now on.
    pub(super) fn distrust(&mut self, cache: CacheId) {
        let CacheId { path, node } = cache;
        let distrusted = &mut self.paths[path].distrusted;
        if !distrusted.contains(&node) {
            distrusted.push(node);
            self.events.push_back(Event::CacheDistrusted { path, node });
        }
    }

    /// Stops using a path. The other paths take over its pending and assigned blocks.
    pub(super) fn close(&mut self, p: PathId, state: PathState) {
        let before = self.paths[p].state;
        self.paths[p].state = state;
        self.expire_all(p);
        self.unassign(p);
        self.report_state(p, before);
    }

    /// Gives up everything that is pending on a path, so that any path may ask for it.
    fn expire_all(&mut self, p: PathId) {
        let Self { paths, downloads, group_detector, .. } = self;
        let path = &mut paths[p];
        let lost = path.subflow.abandon(|asked, i| downloads.give_up(asked, i, GiveUp::Elsewhere));
        path.counters.lost += u64::from(lost);
        group_detector.lost(p, lost);
    }

    /// Handles losses, timeouts and path MTU probes. Then every path asks for as much as its window allows.
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
        // Paths that answer come first. Among equals the order rotates. Otherwise a packet that only one path
        // may ask for could go to the same dead path for ever.
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

    /// Returns when there is something to do after `now`, if nothing arrives.
    fn next_timer(&self, now: Time) -> Timer {
        if self.downloads.is_empty() {
            return Timer::NEVER;
        }
        let paths = self.paths.iter().map(|path| path.next_timer(now)).min().unwrap_or(Timer::NEVER);
        // If no path has anything in flight, the detector gets no samples, so the end of its interval need
        // not wake us.
        if self.paths.iter().all(|path| path.sent_packets().in_flight() == 0) {
            return paths;
        }
        paths.min(Timer::new(self.group_detector.deadline(), Reason::Grouping))
    }

    /// Declares the packets lost that later ones have overtaken.
    fn detect(&mut self, now: Time, p: PathId) {
        let Self { paths, downloads, sources, .. } = self;
        let path = &mut paths[p];
        let source = &sources[usize::from(path.source)];
        let how = if now < path.busy_until { GiveUp::Elsewhere } else { GiveUp::Lost(p) };
        let mut lost = 0;
        let newest = path.subflow.detect(now, |asked, i| {
            lost += 1;
            downloads.give_up(asked, i, source.give_up(asked.download, how));
        });
        path.counters.lost += u64::from(lost);
        self.group_detector.lost(p, lost);
        // Answers to a request that was lost long ago are still welcome for a while. Then its tag is
        // forgotten.
        let keep = path.rtt().rto().times(2);
        let before = Time::from_nanos(now.as_nanos().saturating_sub(keep.as_nanos()));
        let tags = &mut path.tags;
        path.subflow.forget_before(before, |asked: PendingRequest| {
            tags.remove(&asked.tag);
        });
        if let Some(seq) = newest {
            self.coupled(p, |path, group| path.subflow.congestion(now, CongestionCause::Loss, seq, group));
        }
    }

    pub(super) fn timeout(&mut self, now: Time, p: PathId) {
        let before = self.paths[p].state;
        self.coupled(p, |path, group| path.timed_out(now, group));
        self.expire_all(p);
        self.unassign(p);
        self.report_state(p, before);
    }

    /// Treats the path as timed out, and blocks it for one retransmission timeout.
    pub(super) fn unreachable(&mut self, now: Time, p: PathId) {
        self.timeout(now, p);
        self.paths[p].blocked_until = now + self.paths[p].rtt().rto().min(RETRY_MAX);
    }

    fn probe_mtu(&mut self, now: Time, p: PathId) {
        let (path, tags) = (&mut self.paths[p], &mut self.tags);
        if path.state != PathState::Open || now < path.mtu.deadline() {
            return;
        }
        for (size, tag) in path.mtu.probes(now, path.rtt().probe_timeout(), || tags.next()) {
            let mut bytes = Vec::new();
            wire::emit_probe(&mut bytes, tag, path.cookie.as_ref(), size);
            self.out.push_back(Transmit { path: p, bytes });
        }
    }

    fn fill_window(&mut self, now: Time, p: PathId) {
        loop {
            let path = &mut self.paths[p];
            let mut room = path.room(now);
            if path.probe_due && now >= path.blocked_until && !path.sent_packets().is_full() {
                room = room.max(1);
            } else if !path.may_ask(now) {
                return;
            }
            let room = room.min(self.paths[p].piece());
            let Some(request) = self.build_request(now, p, room) else {
                self.paths[p].probe_due = false;
                return;
            };
            self.send_request(now, p, request);
            if self.paths[p].state == PathState::Unresponsive {
                // This is the only request on trial; the other paths may ask for the rest of its block.
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
                path.sent_packets().in_flight() + request.packets <= path.cwnd(),
                "pending exceeds the window"
            );
        }
        let caches = path.distrusted.is_empty();
        if !caches {
            wire::set_no_caches(&mut bytes);
        }
        let (ranges, proven) = (request.ranges, path.cookie.is_some());
        let asked = PendingRequest { download, epoch, tag, ranges, proven, caches };
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
            if !self.dirty && now < self.timer.at {
                return Output::Wait(self.timer.at);
            }
            self.drive(now);
            self.dirty = false;
            // The next timer may be due already: a loss can make the path forget reordering, so that other
            // packets count as lost at once.
            let next = self.next_timer(now);
            let served = std::mem::replace(&mut self.timer, next);
            debug_assert!(self.timer.at > now || self.timer != served, "{served:?} is not served");
            debug_assert_eq!(self.check_now_and_then(), Ok(()));
        }
    }
}
