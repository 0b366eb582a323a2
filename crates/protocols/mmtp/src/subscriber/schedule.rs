//! Chooses what a path asks for next. This is the place where a chunk is chosen.
//!
//! The order of preference is:
//!
//! 1. packets that expired on this path;
//! 2. packets that expired twice, on any path;
//! 3. the rest of the block that the path has begun;
//! 4. the blocks assigned to the path;
//! 5. the next segment that is not assigned;
//! 6. a part of the blocks assigned to the path that would need longest for them;
//! 7. in the last round trip, a second copy of packets that are pending on another path and would arrive
//!    later from there.
//!
//! Each [`Download`] knows which of these it has. A request is for one download, the first that has
//! something.

use anabranch_algo::Time;

use super::download::{BLOCKS_OPEN_MAX, Download, bits};
use super::item::{DownloadId, Item, Need, PathId, Queue, SourceId};
use super::path::{self, Path, PathState, REQUEST_PACKETS_MAX};
use super::state::Subscriber;
use crate::cookie::AMPLIFICATION;
use crate::id::ChunksPerBlock;
use crate::peer::HEADER_BYTES_MAX;
use crate::publisher::REPLY_BYTES_MAX;
use crate::wire::{COOKIE_PACKET, DATA_HEADER, NAME_MAX, PREFIX, RANGES_MAX, Range, RangeKind};

/// The download and the source that a packet is asked of.
#[derive(Clone, Copy)]
struct Asking {
    download: DownloadId,
    source: SourceId,
    /// Whether the packet is a second copy of one that is in flight on another path.
    redundant: bool,
}

/// A request that is being built.
pub(super) struct RequestBuilder {
    pub(super) download: Option<DownloadId>,
    pub(super) ranges: Vec<Range>,
    pub(super) packets: u32,
    packets_max: u32,
    bytes_max: usize,
    /// The bytes that each packet of the answer counts besides its payload.
    header: usize,
}

impl RequestBuilder {
    fn new(room: u32, proven: bool, cut: ChunksPerBlock) -> Self {
        // These are the larger headers, IPv6's. With those of IPv4 there would be more room only for answers
        // of three packets or more, and fewer fit anyway.
        let header = if proven { 0 } else { HEADER_BYTES_MAX };
        let paid = AMPLIFICATION * (Self::padded_len(cut) + header) - (COOKIE_PACKET + header);
        Self {
            download: None,
            ranges: Vec::new(),
            packets: 0,
            packets_max: room.min(REQUEST_PACKETS_MAX),
            bytes_max: if proven { REPLY_BYTES_MAX } else { paid },
            header,
        }
    }

    /// Returns the length of a request that has to pay for its answer. It is as long as one chunk of `cut`,
    /// so that it fits wherever the answer does.
    pub(super) const fn padded_len(cut: ChunksPerBlock) -> usize {
        DATA_HEADER + cut.chunk_bytes()
    }

    fn has_room(&self, download: DownloadId, bytes: usize) -> bool {
        self.download.is_none_or(|o| o == download)
            && self.packets < self.packets_max
            && bytes + self.header <= self.bytes_max
            && self.ranges.len() < RANGES_MAX
    }

    /// Whether the request already asks for this packet.
    fn contains(&self, download: DownloadId, item: Item) -> bool {
        self.download == Some(download) && path::index(&self.ranges, item).is_some()
    }

    /// Asks `source` for one more packet, if there is room. Returns `false`, and changes nothing, if there is
    /// none. A packet that the request already asks for is not added, because one of the two would count as
    /// lost for ever.
    fn push(&mut self, asking: Asking, state: &mut Download, item: Item) -> bool {
        let Asking { download, source, redundant } = asking;
        if self.contains(download, item) {
            return true;
        }
        let hashes = if let Item::Hash { level, first } = item { state.hash_count(level, first) } else { 0 };
        let bytes = match item {
            Item::Meta => PREFIX + 64 + NAME_MAX,
            Item::Hash { .. } => DATA_HEADER + hashes * 32,
            Item::Data { cut, .. } => DATA_HEADER + cut.chunk_bytes(),
        };
        if !self.has_room(download, bytes) {
            return false;
        }
        state.request(item, source, redundant);
        self.download = Some(download);
        self.packets += 1;
        self.bytes_max -= bytes + self.header;
        match (item, self.ranges.last_mut()) {
            (Item::Data { cut, chunk }, Some(last))
                if last.kind == RangeKind::Data(cut) && last.first + u64::from(last.count) == chunk =>
            {
                last.count += 1;
            }
            (Item::Data { cut, chunk }, _) => {
                self.ranges.push(Range { kind: RangeKind::Data(cut), first: chunk, count: 1 });
            }
            (Item::Hash { level, first }, _) => {
                let count = u16::try_from(hashes).unwrap_or(u16::MAX);
                self.ranges.push(Range { kind: RangeKind::Hashes { level }, first, count });
            }
            (Item::Meta, _) => self.ranges.push(Range { kind: RangeKind::Meta, first: 0, count: 1 }),
        }
        true
    }
}

impl Subscriber {
    /// Builds the next request of path `p`, for at most `room` packets.
    pub(super) fn build_request(&mut self, now: Time, p: PathId, room: u32) -> Option<RequestBuilder> {
        let path = &self.paths[p];
        let mut request = RequestBuilder::new(room, path.cookie.is_some(), path.mtu.cut());
        if path.probe_due {
            self.add_probe(p, &mut request);
        } else {
            self.add_waiting(p, &mut request);
            self.add_assigned(p, &mut request);
            if request.packets == 0 {
                self.add_redundant(now, p, &mut request);
            }
            if request.packets == 0
                && matches!(self.paths[p].state, PathState::Opening | PathState::Unresponsive)
            {
                self.add_keepalive(p, &mut request);
            }
        }
        (request.packets > 0).then_some(request)
    }

    /// Asks once more for the oldest packet pending on this path. The answer tells whether the other packets
    /// are lost.
    fn add_probe(&mut self, p: PathId, request: &mut RequestBuilder) {
        request.packets_max = 1;
        let Self { paths, downloads, sources, .. } = self;
        let source = paths[p].source;
        let oldest = paths[p].sent_packets().outstanding().find_map(|(asked, i, _)| {
            let (item, state) = (asked.item(i)?, downloads.get(asked.download)?);
            let asks = !sources[usize::from(source)].refuses(asked.download);
            let probes = asks && state.need(item, source) == Need::ThisSource && state.has_room(item);
            probes.then_some((asked.download, item))
        });
        match oldest {
            Some((download, item)) => {
                let Some(state) = downloads.get_mut(download) else { return };
                request.push(Asking { download, source, redundant: false }, state, item);
            }
            None => self.add_assigned(p, request),
        }
    }

    /// Asks for the META, which is small. So a path without work learns its RTT and gets a cookie, and the
    /// return of an unresponsive path is noticed. Only a path that answers may take over the work of others.
    /// There is one such request at a time: the next one waits for the timeout of this one.
    fn add_keepalive(&mut self, p: PathId, request: &mut RequestBuilder) {
        if self.paths[p].sent_packets().in_flight() > 0 {
            return;
        }
        let source = self.paths[p].source;
        let download = self.downloads.iter().map(|(id, _)| id).find(|id| !self.cannot_provide(source, *id));
        if let Some(download) = download
            && let Some(state) = self.downloads.get_mut(download)
        {
            request.push(Asking { download, source, redundant: false }, state, Item::Meta);
        }
    }

    /// Asks first for packets that expired on this path, then for those that expired twice on any path.
    fn add_waiting(&mut self, p: PathId, request: &mut RequestBuilder) {
        let source = self.paths[p].source;
        for queue in [Queue::Retry(p), Queue::Any] {
            let waits = |id: DownloadId, download: &Download| {
                request.download.is_none_or(|only| only == id)
                    && download.next_waiting(queue, None).is_some()
                    && !self.cannot_provide(source, id)
            };
            let waiting = self.downloads.iter().filter(|(id, download)| waits(*id, download));
            for id in waiting.map(|(id, _)| id).collect::<Vec<_>>() {
                if !self.add_queue(p, id, queue, request) {
                    return;
                }
            }
        }
    }

    /// Asks for the packets in one queue of one download. Returns `false` if not all of them fit.
    fn add_queue(&mut self, p: PathId, download: DownloadId, queue: Queue, to: &mut RequestBuilder) -> bool {
        let Self { paths, downloads, .. } = self;
        let (path, Some(state)) = (&paths[p], downloads.get_mut(download)) else { return true };
        let asking = Asking { download, source: path.source, redundant: false };
        let mut last = None;
        while let Some(unit) = state.next_waiting(queue, last) {
            last = Some(unit);
            if !state.permits(unit, path.source) {
                continue;
            }
            for i in bits(state.queued(queue, unit)) {
                let Some(item) = state.item_of(unit, i) else { break };
                if let Item::Data { cut, chunk } = item
                    && !path.mtu.carries(cut)
                {
                    state.reopen(chunk / u64::from(cut.get()));
                    break;
                }
                if !to.push(asking, state, item) {
                    return false;
                }
            }
        }
        true
    }

    /// Asks for blocks in order: of the path's own assignment, else of the next unassigned segment, else of a
    /// part of another path's assignment.
    fn add_assigned(&mut self, p: PathId, request: &mut RequestBuilder) {
        loop {
            let Some(download) = self.paths[p].fetches.or_else(|| self.assign(p, request.download)) else {
                return;
            };
            self.paths[p].fetches = Some(download);
            let path = &self.paths[p];
            let (cut, source, opening) = (path.mtu.cut(), path.source, path.state == PathState::Opening);
            let chunk_bytes = DATA_HEADER + cut.chunk_bytes();
            // First comes the rest of the block that the path has begun.
            if !request.has_room(download, chunk_bytes)
                || !self.add_queue(p, download, Queue::First(p), request)
                || !request.has_room(download, chunk_bytes)
            {
                return;
            }
            let state = self.downloads.get_mut(download).filter(|state| state.assigned(p) > 0);
            let Some(state) = state else {
                self.paths[p].fetches = None;
                continue;
            };
            if self.open >= BLOCKS_OPEN_MAX {
                return;
            }
            let Some(block) = state.begin(p, cut, source) else { return };
            self.open += 1;
            for item in state.open_pages(block, Queue::Retry(p), opening) {
                if state.need(item, source) == Need::ThisSource {
                    request.push(Asking { download, source, redundant: false }, state, item);
                }
            }
        }
    }

    /// Assigns blocks to path `p`, which has none. Returns their download, or `None` if there is nothing for
    /// the path (of download `only`, if it is given).
    fn assign(&mut self, p: PathId, only: Option<DownloadId>) -> Option<DownloadId> {
        let source = self.paths[p].source;
        let first = self
            .downloads
            .iter()
            .find(|(id, state)| state.blocks_unrequested() > 0 && !self.cannot_provide(source, *id));
        let Some((download, _)) = first else { return self.steal(p, only) };
        if only.is_some_and(|only| only != download) {
            return None;
        }
        self.downloads.get_mut(download)?.assign(p).then_some(download)
    }

    /// Takes over the end of the assignment that would take longest, so that both paths finish together.
    fn steal(&mut self, p: PathId, only: Option<DownloadId>) -> Option<DownloadId> {
        let me = &self.paths[p];
        if me.state != PathState::Open {
            return None;
        }
        let slowest = self.slowest(Some(p), me.source, me.rate_bytes(), me.rtt().srtt(), only)?;
        self.downloads.get_mut(slowest.download)?.reassign(slowest.path, p, slowest.share);
        Some(slowest.download)
    }

    /// Asks for a second copy of packets that are pending on another path and would come later from there
    /// than from here. Each packet is asked for redundantly at most once until it expires. So at most the
    /// packets in flight at the very end are asked for twice. An unresponsive path may ask for packets that
    /// are pending on other unresponsive paths; otherwise its return would not be noticed.
    fn add_redundant(&mut self, now: Time, p: PathId, request: &mut RequestBuilder) {
        let me = &self.paths[p];
        if !matches!(me.state, PathState::Open | PathState::Unresponsive) || !me.rtt().has_sample() {
            return;
        }
        let (source, here) = (me.source, now + me.rtt().srtt());
        let provides = |id: DownloadId| !self.cannot_provide(source, id);
        let provides: Vec<_> = self.downloads.iter().map(|(id, _)| id).filter(|id| provides(*id)).collect();
        let Self { paths, downloads, redundant, .. } = self;
        for q in (0..paths.len()).filter(|&q| q != p) {
            for (asked, i, sent_at) in paths[q].sent_packets().outstanding() {
                if request.packets == request.packets_max {
                    return;
                }
                if expected(&paths[q], now, sent_at) <= here {
                    continue;
                }
                let (Some(item), download) = (asked.item(i), asked.download) else { continue };
                let other_content = request.download.is_some_and(|o| o != download);
                if other_content || request.contains(download, item) || !provides.contains(&download) {
                    continue;
                }
                if let Item::Data { cut, .. } = item
                    && !paths[p].mtu.carries(cut)
                {
                    continue;
                }
                let asking = Asking { download, source, redundant: true };
                if let Some(state) = downloads.get_mut(download)
                    && state.may_copy(item, source)
                    && request.push(asking, state, item)
                {
                    *redundant += 1;
                }
            }
        }
    }

    /// Takes the blocks away from path `p` that are assigned to it and not asked for yet.
    pub(super) fn unassign(&mut self, p: PathId) {
        self.paths[p].probe_due = false;
        self.paths[p].fetches = None;
        let source = self.paths[p].source;
        self.downloads.values_mut().for_each(|download| download.unassign(p, source));
    }
}

/// Returns when a packet that `path` was asked for at `sent_at` should arrive.
fn expected(path: &Path, now: Time, sent_at: Time) -> Time {
    let at = sent_at + path.rtt().srtt();
    let overdue = now > at + path.rtt().rttvar().times(4);
    if path.state != PathState::Open || overdue { Time::NEVER } else { at }
}

#[cfg(test)]
mod tests {
    use anabranch_algo::control::Algorithm;
    use anabranch_algo::{Machine as _, Output};

    use super::*;
    use crate::id::{BLOCK_BYTES, ContentId};
    use crate::subscriber::path::PathConfig;
    use crate::wire::{self, Packet};

    /// Creates a download of this many blocks with nothing asked for.
    fn asking(blocks: u64) -> (Download, Asking) {
        let id = ContentId { root: [1; 32], length: blocks * BLOCK_BYTES as u64 };
        (Download::new(id, true, |_| false), Asking { download: 0, source: 0, redundant: false })
    }

    #[test]
    fn the_same_packet_is_asked_once_a_request() {
        let cut = ChunksPerBlock::new(14).expect("in range");
        let mut request = RequestBuilder::new(10, false, cut);
        let (mut state, asking) = asking(4);
        state.assign(0);
        state.begin(0, cut, 0);
        let chunks = [3, 4, 3].map(|chunk| Item::Data { cut, chunk });
        for item in chunks.into_iter().chain([Item::Meta, Item::Meta]) {
            assert!(request.push(asking, &mut state, item));
        }
        assert_eq!(request.packets, 3);
        let ranges: Vec<_> = request.ranges.iter().map(|r| (r.first, r.count)).collect();
        assert_eq!(ranges, [(3, 2), (0, 1)]);
    }

    #[test]
    fn a_request_that_pays_takes_a_packet_of_hashes_at_every_cut() {
        for cut in [14, 16].map(|n| ChunksPerBlock::new(n).expect("in range")) {
            let mut request = RequestBuilder::new(10, false, cut);
            let (mut state, asking) = asking(64);
            state.assign(0);
            state.begin(0, cut, 0);
            state.open_pages(0, Queue::Any, false);
            assert!(request.push(asking, &mut state, Item::Hash { level: 0, first: 0 }));
            assert!(request.push(asking, &mut state, Item::Data { cut, chunk: 0 }));
        }
    }

    /// This is the dissertation's example of its Algorithm 1 (Fig. 4.3), in its fast form, with a block of
    /// one chunk as a packet. From packet 13 on, the other subflow has asked for 13, 15, 18 and 19, packet 14
    /// has arrived, and our own 16 and 17 are pending. The window is 4. We ask for 20 and 21 next, and the
    /// next unrequested packet is 22.
    #[test]
    fn the_example_of_algorithm_1() {
        let mut subscriber = Subscriber::new(&[0; 32]);
        let source = subscriber.add_source().expect("the first");
        let control = Algorithm::by_name("reno").expect("it is there").into();
        let config =
            PathConfig { group: 0, uplink: None, control, payload_max: 65_507, receive_buffer: 1 << 22 };
        let p = subscriber.add_path(source, &config).expect("the first");
        let now = Time::ZERO;
        // A block is one packet of 16 KiB, the address is proven, and the window is 4.
        let path = &mut subscriber.paths[p];
        path.mtu.begin(now);
        for (size, tag) in path.mtu.probes(now, anabranch_algo::Span::from_millis(1), || 7) {
            path.mtu.confirm(tag, usize::from(size));
        }
        path.cookie = Some(wire::Cookie([0; 16]));
        path.state = PathState::Open;
        // Another request takes all but 4 packets of the window.
        let above = path.cwnd() - 4;
        let other = path::PendingRequest {
            download: 9,
            epoch: 0,
            tag: 9,
            ranges: Vec::new(),
            proven: true,
            caches: true,
        };
        path.sent(now, above, other);
        assert_eq!(path.mtu.cut().get(), 1);
        // The content has several blocks, so hashes are asked for too. Look at the data requests only.
        let id = ContentId { root: [1; 32], length: 30 * BLOCK_BYTES as u64 };
        let download = subscriber.add_download(id, false, |block| block < 13 || block == 14 || block >= 30);
        // The other subflow has number 9.
        let cut = ChunksPerBlock::new(1).expect("in range");
        let state = subscriber.downloads.get_mut(download).expect("under way");
        state.open_pages(13, Queue::First(9), false);
        let mut own = Vec::new();
        for (q, source, blocks) in [(9, 9, vec![13, 15, 18, 19]), (p, source, vec![16, 17])] {
            for block in blocks {
                state.assign_one(q, block);
                assert_eq!(state.begin(q, cut, source), Some(block));
                state.request(Item::Data { cut, chunk: block }, source, false);
                own.extend((q == p).then_some(block));
            }
        }
        let epoch = state.epoch();
        for block in own {
            let ranges = vec![Range { kind: RangeKind::Data(cut), first: block, count: 1 }];
            let asked =
                path::PendingRequest { download, epoch, tag: block, ranges, proven: true, caches: true };
            subscriber.paths[p].sent(now, 1, asked);
        }
        let mut asked = Vec::new();
        while let Output::Send(transmit) = subscriber.poll(now) {
            if let Ok(Packet::Request(request)) = wire::parse(&transmit.bytes) {
                asked.extend(request.ranges.flat_map(|r| r.first..r.first + u64::from(r.count)));
            }
        }
        assert_eq!(asked, [20, 21]);
        let path = &subscriber.paths[p];
        assert_eq!(path.sent_packets().in_flight(), above + 4, "pending is the window");
        let state = subscriber.downloads.get_mut(download).expect("under way");
        assert_eq!(state.begin(p, cut, source), Some(22), "the next unrequested packet");
    }
}
