//! Handles packets that arrive on a path: finds the request that each answers, its content, and what it says
//! about the path.

use anabranch_algo::control::CongestionCause;
use anabranch_algo::sent_packets::Delivery;
use anabranch_algo::{Span, Time};

use super::api::Event;
use super::download::{Download, IngestResult};
use super::item::{CacheId, DownloadId, GiveUp, Item, PathId, Sender};
use super::path;
use super::path::PathState;
use super::state::Subscriber;
use crate::wire::{self, Packet, Reason};

/// A source that ignores the newest cookie this often in a row is treated as one that does not answer.
const COOKIES_IGNORED_MAX: u32 = 3;

impl Subscriber {
    /// Handles UDP payloads that arrived on path `p`.
    pub(super) fn datagrams(&mut self, now: Time, p: PathId, bytes: &[u8], stride: usize, marked: bool) {
        let Some(path) = self.paths.get(p) else { return };
        if path.state.is_unusable() {
            return;
        }
        let mut rx = RxSummary::default();
        for payload in bytes.chunks(stride.max(1)) {
            match wire::parse(payload) {
                Ok(packet) => self.packet(now, p, payload.len(), &packet, &mut rx),
                Err(_) => self.paths[p].counters.malformed += 1,
            }
            if self.paths[p].state == PathState::Closed {
                // This packet got its source banned, so discard the source's other packets too.
                return;
            }
        }
        let before = self.paths[p].state;
        if rx.answered {
            self.paths[p].on_reply(now, rx.data);
        }
        if let Some(sent_at) = rx.sent_at {
            self.paths[p].subflow.sample(now, sent_at);
        }
        if rx.acked > 0 {
            self.paths[p].counters.packets += u64::from(rx.acked);
            self.paths[p].counters.cached += u64::from(rx.cached);
            self.paths[p].took(rx.took, rx.acked, rx.cached > 0);
            self.group_detector.delivered(p, rx.acked);
            self.coupled(p, |path, group| path.acked(now, rx.acked, rx.seq, group));
            if marked {
                self.paths[p].counters.marked += u64::from(rx.acked);
                self.coupled(p, |path, group| {
                    path.subflow.congestion(now, CongestionCause::EcnCe, rx.seq, group);
                });
            }
        }
        self.report_state(p, before);
    }

    fn packet(&mut self, now: Time, p: PathId, len: usize, packet: &Packet<'_>, rx: &mut RxSummary) {
        let tag = packet.tag();
        if let Packet::Padded { .. } = packet {
            if !self.paths[p].mtu.confirm(tag, len) {
                self.paths[p].counters.stray += 1;
            }
            return;
        }
        if rx.last.is_none_or(|(last, _)| last != tag) {
            rx.last = self.paths[p].tags.get(&tag).map(|id| (tag, *id));
        }
        let Some((_, id)) = rx.last else {
            self.paths[p].counters.stray += 1;
            return;
        };
        let item = match packet {
            Packet::Data(data) => Item::Data { cut: data.cut, chunk: data.chunk },
            Packet::Hashes(hashes) => Item::Hash { level: hashes.level, first: hashes.first },
            Packet::Meta(_) => Item::Meta,
            Packet::Cookie { cookie, .. } => {
                // A source that sends nothing but cookies must not keep pending packets from their timeout.
                rx.answered |= self.paths[p].cookie.is_none();
                return self.cookie(now, p, id, *cookie);
            }
            Packet::Refuse { reason, retry_ms, .. } => {
                // Nor may a second refusal of the same request keep pending packets from their timeout.
                rx.answered |= self.refused(now, p, id, *reason, *retry_ms);
                return;
            }
            Packet::Padded { .. } | Packet::Request(_) | Packet::Probe { .. } => return,
        };
        self.answer(now, p, id, item, packet, rx);
    }

    /// Handles a packet of the answer to request `id`, which brings `item`.
    fn answer(&mut self, now: Time, p: PathId, id: u64, item: Item, packet: &Packet<'_>, rx: &mut RxSummary) {
        let path = &mut self.paths[p];
        let source = path.source;
        let asked = path.sent_packets().get(id);
        let asked = asked.map(|asked| (asked.download, asked.epoch, asked.caches, asked.index(item)));
        let Some((download, epoch, caches, Some(index))) = asked else {
            path.counters.stray += 1;
            return;
        };
        // A packet that cannot be the answer is ignored. The item stays pending until it is lost.
        if self.downloads.get(download).is_some_and(|state| !state.is_well_formed(packet)) {
            path.counters.malformed += 1;
            return;
        }
        // A sender that calls itself a cache where no cache may answer is treated as the source.
        let cache = responder(packet).filter(|_| caches).map(|node| CacheId { path: p, node });
        let pending = match self.delivered(now, p, id, index, cache.is_some(), rx) {
            Delivery::Acked { .. } => Some(epoch),
            Delivery::SpuriousLoss { .. } => None,
            Delivery::Duplicate | Delivery::Unknown => return,
        };
        rx.answered = true;
        self.bring(p, download, Sender { source, cache }, packet, pending, rx);
    }

    /// Records about the path that packet `index` of the answer to request `id` has arrived.
    fn delivered(
        &mut self,
        now: Time,
        p: PathId,
        id: u64,
        index: u32,
        cached: bool,
        rx: &mut RxSummary,
    ) -> Delivery {
        let path = &mut self.paths[p];
        // A cache is nearer than the source. Its answers do not tell how long the source takes, nor which
        // packets of the source are overdue.
        let delivery = if cached {
            path.subflow.delivered_aside(now, id, index)
        } else {
            path.subflow.delivered(now, id, index)
        };
        match delivery {
            Delivery::Acked { sent_at, seq } => {
                rx.acked += 1;
                rx.seq = rx.seq.max(seq);
                rx.took = rx.took + now.since(sent_at);
                if cached {
                    rx.cached += 1;
                } else {
                    if index == 0 {
                        self.group_detector.sample(p, now, now.since(sent_at), path.rtt().min());
                    }
                    rx.sent_at = Some(rx.sent_at.map_or(sent_at, |t| t.max(sent_at)));
                }
            }
            Delivery::SpuriousLoss { .. } => path.counters.late += 1,
            Delivery::Duplicate | Delivery::Unknown => path.counters.stray += 1,
        }
        delivery
    }

    /// Hands the content of a packet to its download. `pending` is the epoch of its request, if the packet
    /// was still pending.
    fn bring(
        &mut self,
        p: PathId,
        download: DownloadId,
        sender: Sender,
        packet: &Packet<'_>,
        pending: Option<u64>,
        rx: &mut RxSummary,
    ) {
        let counters = &mut self.paths[p].counters;
        let mut state = self.downloads.get_mut(download);
        let result = match packet {
            Packet::Data(data) => {
                rx.data = true;
                let result = state
                    .map(|state| state.insert_chunk(sender, data.cut, data.chunk, data.payload, pending))
                    .unwrap_or_default();
                let bytes = if result.fresh { &mut counters.bytes } else { &mut counters.bytes_duplicate };
                *bytes += data.payload.len() as u64;
                result
            }
            Packet::Hashes(hashes) => {
                let result = state
                    .map(|state| state.insert_hashes(sender, hashes.level, hashes.first, hashes.cvs, pending))
                    .unwrap_or_default();
                counters.hashes += u64::from(result.fresh);
                result
            }
            Packet::Meta(meta) if state.as_mut().is_some_and(|state| state.insert_meta()) => {
                let (name, collection) = (meta.name.to_vec(), meta.collection);
                self.events.push_back(Event::Meta { download, source: sender.source, name, collection });
                IngestResult::default()
            }
            _ => return,
        };
        self.apply(download, result);
    }

    /// Reports the effects of an arrival: verified blocks, bans, the end of a download.
    pub(super) fn apply(&mut self, download: DownloadId, result: IngestResult) {
        for (block, bytes, cv) in result.verified {
            self.events.push_back(Event::Block { download, block, bytes, cv });
        }
        for cache in result.suspects {
            self.distrust(cache);
        }
        for (source, block) in result.culprits {
            self.ban(source, download, block);
        }
        if self.downloads.get(download).is_some_and(Download::is_complete) {
            self.downloads.remove(download);
            for source in &mut self.sources {
                source.unavailable.remove(&download);
            }
            self.events.push_back(Event::Complete { download });
        }
    }

    /// Handles a cookie. If the request carried one already, the source has forgotten it (it was restarted,
    /// or an hour has passed). The unanswered packets are then asked for again, and no source is blamed.
    fn cookie(&mut self, now: Time, p: PathId, id: u64, cookie: wire::Cookie) {
        let path = &mut self.paths[p];
        let newest = path.sent_packets().sent_at(id).is_some_and(|at| at >= path.cookie_at);
        if path.cookie != Some(cookie) {
            (path.cookie, path.cookie_at) = (Some(cookie), now);
        }
        path.mtu.begin(now);
        if path.sent_packets().get(id).is_none_or(|asked| !asked.proven) {
            return;
        }
        path.cookies_ignored += u32::from(newest);
        if path.cookies_ignored >= COOKIES_IGNORED_MAX {
            // The source demands another proof whatever cookie it is sent, so other paths have to do its
            // work.
            path.cookies_ignored = 0;
            return self.unreachable(now, p);
        }
        self.cancel(p, id, GiveUp::Again(p));
        let path = &mut self.paths[p];
        // A source that always forgets its cookie must not be asked as fast as it answers.
        path.blocked_until = now + path.rtt().srtt().max(Span::from_millis(10));
    }

    /// Gives up the outstanding packets of request `id`. Returns its download and their number.
    fn cancel(&mut self, p: PathId, id: u64, how: GiveUp) -> Option<(DownloadId, u32)> {
        let Self { paths, downloads, sources, .. } = self;
        let source = &sources[usize::from(paths[p].source)];
        let subflow = &mut paths[p].subflow;
        let asked = subflow.sent_packets().get(id)?;
        let (download, epoch) = (asked.download, asked.epoch);
        let how = source.give_up(download, how);
        let count = asked.ranges.iter().map(path::packets).sum();
        let mut state = downloads.get_mut(download);
        let mut cancelled = 0;
        for i in 0..count {
            let item = subflow.sent_packets().get(id).and_then(|asked| asked.item(i));
            if subflow.cancel(id, i) {
                cancelled += 1;
                if let (Some(state), Some(item)) = (&mut state, item) {
                    state.give_up(item, epoch, how);
                }
            }
        }
        Some((download, cancelled))
    }

    /// Handles a refusal of request `id`. Returns `false` if nothing of the request was pending.
    fn refused(&mut self, now: Time, p: PathId, id: u64, reason: Reason, retry_ms: u16) -> bool {
        let Some((download, 1..)) = self.cancel(p, id, GiveUp::Elsewhere) else { return false };
        if reason == Reason::Busy {
            let until = now + Span::from_millis(u64::from(retry_ms).clamp(100, 10_000));
            (self.paths[p].blocked_until, self.paths[p].busy_until) = (until, until);
            // Other paths need not wait for the packets that this path would ask for later.
            self.unassign(p);
        } else {
            self.refuse(self.paths[p].source, download, reason);
        }
        true
    }
}

/// Returns the node of the cache that has sent this packet, if the packet names one.
fn responder(packet: &Packet<'_>) -> Option<u16> {
    match packet {
        Packet::Data(data) => data.responder,
        Packet::Hashes(hashes) => hashes.responder,
        _ => None,
    }
}

/// A summary of the datagrams of one [`Input`](super::Input).
#[derive(Default)]
struct RxSummary {
    /// The tag that was looked up last, and its request. Most packets answer the same request as the packet
    /// before.
    last: Option<(u64, u64)>,
    answered: bool,
    data: bool,
    acked: u32,
    /// The packets among `acked` that came from caches.
    cached: u32,
    /// The sum of the times that these packets took.
    took: Span,
    seq: u64,
    /// When the newest request was sent among those that the source answered.
    sent_at: Option<Time>,
}
