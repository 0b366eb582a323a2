//! What a path asks for next. This is the place where a chunk is chosen.
//!
//! In order: what expired on this path; what expired twice anywhere; the path's own assignment of blocks; the
//! next segment that nobody has been asked for; a part of the assignment of the path that would need longest
//! for it; and in the last round trip a second copy of what is pending where it would arrive later.

use algo::Time;

use super::download::{Download, SourceId};
use super::path::{self, Assignment, Path, PathState, REQUEST_PACKETS_MAX};
use super::{Item, Need, PathId, Subscriber, WantedItem};
use crate::cookie::AMPLIFICATION;
use crate::id::ChunksPerBlock;
use crate::publisher::REPLY_BYTES_MAX;
use crate::wire::{COOKIE_PACKET, DATA_HEADER, NAME_MAX, PREFIX, RANGES_MAX, Range, RangeKind};

/// Blocks asked for and not verified, over all contents: 32 MiB, the larger part of what a transfer needs of
/// memory.
pub const BLOCKS_OPEN_MAX: usize = 2_048;
/// How many expired items a path looks at for one that its source may bring.
const REQUEUED_SCANNED: usize = 256;

/// One request in the making.
pub(super) struct RequestBuilder {
    pub(super) download: Option<u32>,
    pub(super) ranges: Vec<Range>,
    pub(super) packets: u32,
    packets_max: u32,
    bytes_max: usize,
}

impl RequestBuilder {
    fn new(room: u32, proven: bool, cut: ChunksPerBlock) -> Self {
        let bytes_max =
            if proven { REPLY_BYTES_MAX } else { AMPLIFICATION * Self::padded_len(cut) - COOKIE_PACKET };
        Self {
            download: None,
            ranges: Vec::new(),
            packets: 0,
            packets_max: room.min(REQUEST_PACKETS_MAX),
            bytes_max,
        }
    }

    /// How large a request is that has to pay for its answer: as one chunk of `cut`, so that it fits
    /// wherever the answer does.
    pub(super) const fn padded_len(cut: ChunksPerBlock) -> usize {
        DATA_HEADER + cut.chunk_bytes()
    }

    fn has_room(&self, download: u32, bytes: usize) -> bool {
        self.download.is_none_or(|o| o == download)
            && self.packets < self.packets_max
            && bytes <= self.bytes_max
            && self.ranges.len() < RANGES_MAX
    }

    /// Whether the answer has this packet already.
    fn contains(&self, download: u32, item: Item) -> bool {
        self.download == Some(download) && path::index(&self.ranges, item).is_some()
    }

    /// Adds one packet of the answer; false if it does not fit. What is there already is not asked twice: one
    /// of the two would count as lost for ever.
    fn push(&mut self, download: u32, item: Item, hashes: usize) -> bool {
        if self.contains(download, item) {
            return true;
        }
        let bytes = match item {
            Item::Meta => PREFIX + 64 + NAME_MAX,
            Item::Hash { .. } => DATA_HEADER + hashes * 32,
            Item::Data { cut, .. } => DATA_HEADER + cut.chunk_bytes(),
        };
        if !self.has_room(download, bytes) {
            return false;
        }
        self.download = Some(download);
        self.packets += 1;
        self.bytes_max -= bytes;
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
    /// The next request of path `p`, for at most `room` packets.
    pub(super) fn build_request(&mut self, now: Time, p: PathId, room: u32) -> Option<RequestBuilder> {
        let path = &self.paths[p];
        let mut request = RequestBuilder::new(room, path.cookie.is_some(), path.mtu.cut());
        if path.probe_due {
            self.add_probe(p, &mut request);
        } else {
            self.add_expired(p, &mut request);
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

    /// The oldest thing pending on this path, once more: its answer tells whether the rest is lost.
    fn add_probe(&mut self, p: PathId, request: &mut RequestBuilder) {
        request.packets_max = 1;
        let (path, source) = (&self.paths[p], self.paths[p].source);
        let oldest = path.sent_packets.outstanding().find_map(|(asked, i, _)| {
            let item = asked.item(i)?;
            let need = self.downloads[asked.download as usize].need(item, source) == Need::ThisSource;
            need.then_some(WantedItem { download: asked.download, item })
        });
        match oldest {
            Some(wanted) => drop(self.push_item(request, wanted)),
            None => self.add_assigned(p, request),
        }
    }

    /// Something small, so that a path without work learns its RTT and gets a cookie, and an unresponsive
    /// one is found out when it is back: only a path that answers may take over the work of others. One at a
    /// time, so the next one waits for the timeout of this one.
    fn add_keepalive(&self, p: PathId, request: &mut RequestBuilder) {
        let path = &self.paths[p];
        if path.sent_packets.in_flight() > 0 {
            return;
        }
        if let Some(&download) = self.active.iter().find(|o| !self.cannot_provide(path.source, **o)) {
            request.push(download, Item::Meta, 0);
        }
    }

    fn push_item(&self, request: &mut RequestBuilder, wanted: WantedItem) -> bool {
        let hashes = match wanted.item {
            Item::Hash { level, first } => self.downloads[wanted.download as usize].hash_count(level, first),
            _ => 0,
        };
        request.push(wanted.download, wanted.item, hashes)
    }

    /// First what expired here, then what expired twice anywhere.
    fn add_expired(&mut self, p: PathId, request: &mut RequestBuilder) {
        let source = self.paths[p].source;
        while let Some(&wanted) = self.paths[p].retry.front() {
            if !self.add_item(p, source, wanted, request) {
                break;
            }
            self.paths[p].retry.pop_front();
        }
        let mut i = 0;
        while i < self.requeued.len().min(REQUEUED_SCANNED) {
            let wanted = self.requeued[i];
            let need = self.downloads[wanted.download as usize].need(wanted.item, source);
            if self.cannot_provide(source, wanted.download) || need == Need::OtherSource {
                i += 1;
            } else if self.add_item(p, source, wanted, request) {
                self.requeued.remove(i);
            } else {
                break;
            }
        }
    }

    /// Puts one expired item into the request; false if the request is full. An item that is no longer
    /// wanted, or wanted from others, is dealt with too.
    fn add_item(
        &mut self,
        p: PathId,
        source: SourceId,
        wanted: WantedItem,
        request: &mut RequestBuilder,
    ) -> bool {
        let download = &mut self.downloads[wanted.download as usize];
        match download.need(wanted.item, source) {
            Need::None => return true,
            Need::OtherSource => {
                self.requeued.push_back(wanted);
                return true;
            }
            Need::ThisSource => {}
        }
        if let Item::Data { cut, chunk } = wanted.item
            && !self.paths[p].mtu.carries(cut)
        {
            download.reopen(chunk / u64::from(cut.get()));
            self.first_unrequested = self.first_unrequested.min(wanted.download as usize);
            return true;
        }
        let pushed = self.push_item(request, wanted);
        if pushed {
            self.downloads[wanted.download as usize].bind_source(wanted.item, source);
        }
        pushed
    }

    /// Blocks in order: of the path's own assignment, else of the next segment that nobody has been asked
    /// for, else of a part of another path's assignment.
    fn add_assigned(&mut self, p: PathId, request: &mut RequestBuilder) {
        loop {
            if self.paths[p].assignments.is_empty() && !self.assign(p, request.download) {
                return;
            }
            let path = &mut self.paths[p];
            let (cut, source, opening) = (path.mtu.cut(), path.source, path.state == PathState::Opening);
            let Some(assignment) = path.assignments.front_mut() else { return };
            if !request.has_room(assignment.download, DATA_HEADER + cut.chunk_bytes()) {
                return;
            }
            let download = &mut self.downloads[assignment.download as usize];
            if assignment.chunk == 0 && !download.is_missing(assignment.block) {
                // Whoever had reserved it has delivered it after all.
                assignment.block += 1;
                if assignment.block == assignment.end {
                    path.assignments.pop_front();
                }
                continue;
            }
            if assignment.chunk == 0 {
                if self.open >= BLOCKS_OPEN_MAX {
                    return;
                }
                // An open block has had its pages asked: the rest did not fit into the last request.
                let anew = opening && download.cut_of(assignment.block).is_none();
                for (level, first) in download.request_pages(assignment.block, anew) {
                    let item = Item::Hash { level, first };
                    if !request.push(assignment.download, item, download.hash_count(level, first)) {
                        path.retry.push_back(WantedItem { download: assignment.download, item });
                    }
                }
                let before = download.blocks_open();
                download.open(assignment.block, cut, source);
                self.open += download.blocks_open() - before;
            }
            // Without a cut the block was taken back after some of it had been asked: whoever takes it asks
            // all of it.
            let chunks = download.chunks_of(assignment.block);
            while let Some(cut) = download.cut_of(assignment.block).filter(|_| assignment.chunk < chunks) {
                let chunk = assignment.block * u64::from(cut.get()) + u64::from(assignment.chunk);
                if !request.push(assignment.download, Item::Data { cut, chunk }, 0) {
                    return;
                }
                assignment.chunk += 1;
            }
            (assignment.block, assignment.chunk) = (assignment.block + 1, 0);
            if assignment.block == assignment.end {
                path.assignments.pop_front();
            }
        }
    }

    /// Gives path `p` an assignment; false if there is nothing for it (of content `only`, if given).
    fn assign(&mut self, p: PathId, only: Option<u32>) -> bool {
        let source = self.paths[p].source;
        while self.downloads.get(self.first_unrequested).is_some_and(|o| o.unrequested.is_empty()) {
            self.first_unrequested += 1;
        }
        let download = (self.first_unrequested..self.downloads.len())
            .find(|&o| self.downloads[o].has_requestable() && !self.cannot_provide(source, o as u32));
        if let Some(download) = download {
            if only.is_some_and(|only| only as usize != download) {
                return false;
            }
            let Download { unrequested, horizon, .. } = &mut self.downloads[download];
            let Some(taken) = unrequested.take_segment_below(*horizon) else { return false };
            let assignment =
                Assignment { download: download as u32, block: taken.start, chunk: 0, end: taken.end };
            self.paths[p].assignments.push_back(assignment);
            return true;
        }
        self.steal(p, only)
    }

    /// Takes over the end of the assignment that would take longest, so that both finish together.
    fn steal(&mut self, p: PathId, only: Option<u32>) -> bool {
        let me = &self.paths[p];
        if me.state != PathState::Open {
            return false;
        }
        let (source, rate_bytes, threshold) = (me.source, me.rate_bytes(), me.rtt.srtt());
        let Some(assignment) = self.split_slowest(Some(p), source, rate_bytes, threshold, only) else {
            return false;
        };
        self.paths[p].assignments.push_back(assignment);
        true
    }

    /// A second copy of what is pending elsewhere and would arrive later than from here. Each packet is
    /// requested redundantly at most once until it expires, so at most what is in flight at the very end is
    /// asked for twice. An unresponsive path may request what other unresponsive ones have pending, or a good
    /// one would never be found out.
    fn add_redundant(&mut self, now: Time, p: PathId, request: &mut RequestBuilder) {
        let me = &self.paths[p];
        if !matches!(me.state, PathState::Open | PathState::Unresponsive) || !me.rtt.has_sample() {
            return;
        }
        let (source, here) = (me.source, now + me.rtt.srtt());
        for q in (0..self.paths.len()).filter(|&q| q != p) {
            let other = &self.paths[q];
            for (asked, i, sent_at) in other.sent_packets.outstanding() {
                if request.packets == request.packets_max {
                    return;
                }
                if expected(other, now, sent_at) <= here {
                    continue;
                }
                let (Some(item), download) = (asked.item(i), asked.download) else { continue };
                let other_content = request.download.is_some_and(|o| o != download);
                if self.cannot_provide(source, download) || other_content || request.contains(download, item)
                {
                    continue;
                }
                if let Item::Data { cut, .. } = item
                    && !self.paths[p].mtu.carries(cut)
                {
                    continue;
                }
                let state = &mut self.downloads[download as usize];
                let hashes =
                    if let Item::Hash { level, first } = item { state.hash_count(level, first) } else { 0 };
                if state.need(item, source) == Need::ThisSource && state.mark_redundant(item) {
                    self.redundant += u64::from(request.push(download, item, hashes));
                }
            }
        }
    }

    /// Takes back what path `p` was to fetch and has not asked for.
    pub(super) fn unassign(&mut self, p: PathId) {
        let path = &mut self.paths[p];
        let (source, retry, assignments) =
            (path.source, std::mem::take(&mut path.retry), std::mem::take(&mut path.assignments));
        path.probe_due = false;
        for wanted in retry {
            self.requeue(wanted, source);
        }
        for mut assignment in assignments {
            if assignment.chunk > 0 {
                let download = &self.downloads[assignment.download as usize];
                if let Some(cut) = download.cut_of(assignment.block) {
                    for i in assignment.chunk..download.chunks_of(assignment.block) {
                        let chunk = assignment.block * u64::from(cut.get()) + u64::from(i);
                        self.requeue(
                            WantedItem { download: assignment.download, item: Item::Data { cut, chunk } },
                            source,
                        );
                    }
                }
                assignment.block += 1;
            }
            self.downloads[assignment.download as usize]
                .unrequested
                .insert_new(assignment.block..assignment.end);
            self.first_unrequested = self.first_unrequested.min(assignment.download as usize);
        }
    }
}

/// When what was asked of `path` at `sent_at` should arrive.
fn expected(path: &Path, now: Time, sent_at: Time) -> Time {
    let at = sent_at + path.rtt.srtt();
    let overdue = now > at + path.rtt.rttvar().times(4);
    if path.state != PathState::Open || overdue { Time::NEVER } else { at }
}

#[cfg(test)]
mod tests {
    use algo::control::Algorithm;
    use algo::{Machine as _, Output};

    use super::*;
    use crate::id::{BLOCK_BYTES, ContentId};
    use crate::subscriber::PathConfig;
    use crate::wire::{self, Packet};

    #[test]
    fn the_same_packet_is_asked_once_a_request() {
        let cut = ChunksPerBlock::new(14).expect("in range");
        let mut request = RequestBuilder::new(10, false, cut);
        let chunks = [3, 4, 3].map(|chunk| Item::Data { cut, chunk });
        for item in chunks.into_iter().chain([Item::Meta, Item::Meta]) {
            assert!(request.push(0, item, 0));
        }
        assert_eq!(request.packets, 3);
        let ranges: Vec<_> = request.ranges.iter().map(|r| (r.first, r.count)).collect();
        assert_eq!(ranges, [(3, 2), (0, 1)]);
    }

    #[test]
    fn a_request_that_pays_takes_a_packet_of_hashes_at_every_cut() {
        for cut in [14, 16].map(|n| ChunksPerBlock::new(n).expect("in range")) {
            let mut request = RequestBuilder::new(10, false, cut);
            assert!(request.push(0, Item::Hash { level: 0, first: 0 }, 32));
            assert!(request.push(0, Item::Data { cut, chunk: 0 }, 0));
        }
    }

    /// The dissertation's example of its Algorithm 1 (Fig. 4.3), in its fast form, with a block of one chunk
    /// for a packet: of 13.. the other subflow has asked 13, 15, 18 and 19, packet 14 is here, our own 16 and
    /// 17 are pending; the window is 4. PendingRequest next: 20 and 21, and the next unrequested one is 22.
    #[test]
    fn the_example_of_algorithm_1() {
        let mut subscriber = Subscriber::new(&[0; 32]);
        let source = subscriber.add_source().expect("the first");
        let control = Algorithm::by_name("reno").expect("it is there");
        let config = PathConfig { group: 0, control, payload_max: 65_507, receive_buffer: 1 << 22 };
        let p = subscriber.add_path(source, &config).expect("the first");
        let now = Time::ZERO;
        // One packet of 16 KiB a block, a proven address, a window of 4.
        let path = &mut subscriber.paths[p];
        path.mtu.begin(now);
        for (size, tag) in path.mtu.probes(now, algo::Span::from_millis(1), || 7) {
            path.mtu.confirm(tag, usize::from(size));
        }
        path.cookie = Some(wire::Cookie([0; 16]));
        path.state = PathState::Open;
        path.cwnd = 4;
        assert_eq!(path.mtu.cut().get(), 1);
        // Of one block nothing but the block itself has to be known, so look at the data requests only.
        let id = ContentId { root: [1; 32], length: 30 * BLOCK_BYTES as u64 };
        let download = subscriber.add_download(id, false, |block| block < 13 || block == 14 || block >= 30);
        let state = &mut subscriber.downloads[download as usize];
        for _ in 0..2 {
            state.unrequested.take_segment();
        }
        state.request_pages(0, false);
        state.unrequested.insert_new(20..30);
        for block in [13, 15, 18, 19] {
            state.open(block, ChunksPerBlock::new(1).expect("in range"), 9);
        }
        for block in [16, 17] {
            state.open(block, ChunksPerBlock::new(1).expect("in range"), source);
            let asked = path::PendingRequest { download, tag: block, ranges: Vec::new(), proven: true };
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
        assert_eq!(path.sent_packets.in_flight(), 4, "pending is the window");
        assert_eq!(
            path.assignments.front().map(|assignment| assignment.block),
            Some(22),
            "the next unrequested packet"
        );
    }
}
