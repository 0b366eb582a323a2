//! What a path asks for next. This is the place where a chunk is chosen.
//!
//! In order: what expired on this path; what expired twice anywhere; the path's own run of groups; the next
//! idle segment; a part of the run of the path that would need longest for it; and in the last round trip a
//! second copy of what is pending where it would arrive later.

use algo::Time;

use super::object::SourceId;
use super::path::{self, BATCH_MAX, Path, Run, State};
use super::{PathId, Subscriber, Wanted, What, Work};
use crate::cookie::AMPLIFICATION;
use crate::id::Cut;
use crate::publisher::REPLY_BYTES_MAX;
use crate::wire::{COOKIE_PACKET, DATA_HEADER, Kind, NAME_MAX, PREFIX, RANGES_MAX, Range};

/// Groups asked for and not verified, over all contents: 32 MiB, the larger part of what a transfer needs of
/// memory.
pub const GROUPS_OPEN_MAX: usize = 2_048;
/// How many expired pieces a path looks at for one that its source may bring.
const ORPHANS_SCANNED: usize = 256;

/// One request in the making.
pub(super) struct Batch {
    pub(super) object: Option<u32>,
    pub(super) ranges: Vec<Range>,
    pub(super) packets: u32,
    packets_max: u32,
    bytes_max: usize,
}

impl Batch {
    fn new(room: u32, proven: bool, cut: Cut) -> Self {
        let bytes_max =
            if proven { REPLY_BYTES_MAX } else { AMPLIFICATION * Self::paid_len(cut) - COOKIE_PACKET };
        Self { object: None, ranges: Vec::new(), packets: 0, packets_max: room.min(BATCH_MAX), bytes_max }
    }

    /// How large a request is that has to pay for its answer: as one chunk of `cut`, so that it fits
    /// wherever the answer does.
    pub(super) const fn paid_len(cut: Cut) -> usize {
        DATA_HEADER + cut.chunk_bytes()
    }

    fn takes(&self, object: u32, bytes: usize) -> bool {
        self.object.is_none_or(|o| o == object)
            && self.packets < self.packets_max
            && bytes <= self.bytes_max
            && self.ranges.len() < RANGES_MAX
    }

    /// Whether the answer has this packet already.
    fn holds(&self, object: u32, what: What) -> bool {
        self.object == Some(object) && path::index(&self.ranges, what).is_some()
    }

    /// Adds one packet of the answer; false if it does not fit. What is there already is not asked twice: one
    /// of the two would count as lost for ever.
    fn push(&mut self, object: u32, what: What, hashes: usize) -> bool {
        if self.holds(object, what) {
            return true;
        }
        let bytes = match what {
            What::Meta => PREFIX + 64 + NAME_MAX,
            What::Hash { .. } => DATA_HEADER + hashes * 32,
            What::Data { cut, .. } => DATA_HEADER + cut.chunk_bytes(),
        };
        if !self.takes(object, bytes) {
            return false;
        }
        self.object = Some(object);
        self.packets += 1;
        self.bytes_max -= bytes;
        match (what, self.ranges.last_mut()) {
            (What::Data { cut, chunk }, Some(last))
                if last.kind == Kind::Data(cut) && last.first + u64::from(last.count) == chunk =>
            {
                last.count += 1;
            }
            (What::Data { cut, chunk }, _) => {
                self.ranges.push(Range { kind: Kind::Data(cut), first: chunk, count: 1 });
            }
            (What::Hash { level, first }, _) => {
                let count = u16::try_from(hashes).unwrap_or(u16::MAX);
                self.ranges.push(Range { kind: Kind::Hashes { level }, first, count });
            }
            (What::Meta, _) => self.ranges.push(Range { kind: Kind::Meta, first: 0, count: 1 }),
        }
        true
    }
}

impl Subscriber {
    /// The next request of path `p`, for at most `room` packets.
    pub(super) fn gather(&mut self, now: Time, p: PathId, room: u32) -> Option<Batch> {
        let path = &self.paths[p];
        let mut batch = Batch::new(room, path.cookie.is_some(), path.mtu.cut());
        if path.probe_due {
            self.gather_probe(p, &mut batch);
        } else {
            self.gather_expired(p, &mut batch);
            self.gather_runs(p, &mut batch);
            if batch.packets == 0 {
                self.gather_doubles(now, p, &mut batch);
            }
            if batch.packets == 0 && matches!(self.paths[p].state, State::Opening | State::Silent) {
                self.gather_greeting(p, &mut batch);
            }
        }
        (batch.packets > 0).then_some(batch)
    }

    /// The oldest thing pending on this path, once more: its answer tells whether the rest is lost.
    fn gather_probe(&mut self, p: PathId, batch: &mut Batch) {
        batch.packets_max = 1;
        let (path, source) = (&self.paths[p], self.paths[p].source);
        let oldest = path.sent_packets.outstanding().find_map(|(asked, i, _)| {
            let what = asked.what(i)?;
            let wanted = self.objects[asked.object as usize].wants(what, source) == Wanted::Yes;
            wanted.then_some(Work { object: asked.object, what })
        });
        match oldest {
            Some(work) => drop(self.push(batch, work)),
            None => self.gather_runs(p, batch),
        }
    }

    /// Something small, so that a path without work learns its RTT and gets a cookie, and a silent one is
    /// found out when it is back: only a path that answers may take over the work of others. One at a time,
    /// so the next one waits for the timeout of this one.
    fn gather_greeting(&self, p: PathId, batch: &mut Batch) {
        let path = &self.paths[p];
        if path.sent_packets.in_flight() > 0 {
            return;
        }
        if let Some(&object) = self.active.iter().find(|o| !self.lacks(path.source, **o)) {
            batch.push(object, What::Meta, 0);
        }
    }

    fn push(&self, batch: &mut Batch, work: Work) -> bool {
        let hashes = match work.what {
            What::Hash { level, first } => self.objects[work.object as usize].hash_count(level, first),
            _ => 0,
        };
        batch.push(work.object, work.what, hashes)
    }

    /// First what expired here, then what expired twice anywhere.
    fn gather_expired(&mut self, p: PathId, batch: &mut Batch) {
        let source = self.paths[p].source;
        while let Some(&work) = self.paths[p].retry.front() {
            if !self.gather_one(p, source, work, batch) {
                break;
            }
            self.paths[p].retry.pop_front();
        }
        let mut i = 0;
        while i < self.orphans.len().min(ORPHANS_SCANNED) {
            let work = self.orphans[i];
            let wanted = self.objects[work.object as usize].wants(work.what, source);
            if self.lacks(source, work.object) || wanted == Wanted::NotFrom {
                i += 1;
            } else if self.gather_one(p, source, work, batch) {
                self.orphans.remove(i);
            } else {
                break;
            }
        }
    }

    /// Puts one expired piece into the request; false if the request is full. A piece that is no longer
    /// wanted, or wanted from others, is dealt with too.
    fn gather_one(&mut self, p: PathId, source: SourceId, work: Work, batch: &mut Batch) -> bool {
        let object = &mut self.objects[work.object as usize];
        match object.wants(work.what, source) {
            Wanted::No => return true,
            Wanted::NotFrom => {
                self.orphans.push_back(work);
                return true;
            }
            Wanted::Yes => {}
        }
        if let What::Data { cut, chunk } = work.what
            && !self.paths[p].mtu.carries(cut)
        {
            object.reopen(chunk / u64::from(cut.get()));
            self.first_idle = self.first_idle.min(work.object as usize);
            return true;
        }
        let pushed = self.push(batch, work);
        if pushed {
            self.objects[work.object as usize].bind(work.what, source);
        }
        pushed
    }

    /// Groups in order: the path's own run, else the next idle segment, else a part of somebody's run.
    fn gather_runs(&mut self, p: PathId, batch: &mut Batch) {
        loop {
            if self.paths[p].runs.is_empty() && !self.acquire(p, batch.object) {
                return;
            }
            let path = &mut self.paths[p];
            let (cut, source, opening) = (path.mtu.cut(), path.source, path.state == State::Opening);
            let Some(run) = path.runs.front_mut() else { return };
            if !batch.takes(run.object, DATA_HEADER + cut.chunk_bytes()) {
                return;
            }
            let object = &mut self.objects[run.object as usize];
            if run.chunk == 0 && !object.is_missing(run.group) {
                // Somebody to whom it was lent has brought it after all.
                run.group += 1;
                if run.group == run.end {
                    path.runs.pop_front();
                }
                continue;
            }
            if run.chunk == 0 {
                if self.open >= GROUPS_OPEN_MAX {
                    return;
                }
                // An open group has had its pages asked: the rest did not fit into the last request.
                let anew = opening && object.cut_of(run.group).is_none();
                for (level, first) in object.ask_pages(run.group, anew) {
                    let what = What::Hash { level, first };
                    if !batch.push(run.object, what, object.hash_count(level, first)) {
                        path.retry.push_back(Work { object: run.object, what });
                    }
                }
                let before = object.groups_open();
                object.open(run.group, cut, source);
                self.open += object.groups_open() - before;
            }
            // Without a cut the group was taken back after some of it had been asked: whoever takes it asks
            // all of it.
            let chunks = object.chunks_of(run.group);
            while let Some(cut) = object.cut_of(run.group).filter(|_| run.chunk < chunks) {
                let chunk = run.group * u64::from(cut.get()) + u64::from(run.chunk);
                if !batch.push(run.object, What::Data { cut, chunk }, 0) {
                    return;
                }
                run.chunk += 1;
            }
            (run.group, run.chunk) = (run.group + 1, 0);
            if run.group == run.end {
                path.runs.pop_front();
            }
        }
    }

    /// Gives path `p` a run; false if there is nothing for it (of content `only`, if given).
    fn acquire(&mut self, p: PathId, only: Option<u32>) -> bool {
        let source = self.paths[p].source;
        while self.objects.get(self.first_idle).is_some_and(|o| o.idle.is_empty()) {
            self.first_idle += 1;
        }
        let object = (self.first_idle..self.objects.len())
            .find(|&o| !self.objects[o].idle.is_empty() && !self.lacks(source, o as u32));
        if let Some(object) = object {
            if only.is_some_and(|only| only as usize != object) {
                return false;
            }
            let Some(taken) = self.objects[object].idle.take_segment() else { return false };
            let run = Run { object: object as u32, group: taken.start, chunk: 0, end: taken.end };
            self.paths[p].runs.push_back(run);
            return true;
        }
        self.steal(p, only)
    }

    /// Takes over the end of the run that would take longest, so that both finish together.
    fn steal(&mut self, p: PathId, only: Option<u32>) -> bool {
        let me = &self.paths[p];
        if me.state != State::Open {
            return false;
        }
        let (source, rate_bytes, patience) = (me.source, me.rate_bytes(), me.rtt.srtt());
        let Some(run) = self.take_over(Some(p), source, rate_bytes, patience, only) else { return false };
        self.paths[p].runs.push_back(run);
        true
    }

    /// A second copy of what is pending elsewhere and would arrive later than from here. Each packet is
    /// doubled at most once until it expires, so at most what is in flight at the very end is asked for
    /// twice. A silent path may try itself on what others as silent hold, or a good one would never be found
    /// out.
    fn gather_doubles(&mut self, now: Time, p: PathId, batch: &mut Batch) {
        let me = &self.paths[p];
        if !matches!(me.state, State::Open | State::Silent) || !me.rtt.has_sample() {
            return;
        }
        let (source, here) = (me.source, now + me.rtt.srtt());
        for q in (0..self.paths.len()).filter(|&q| q != p) {
            let other = &self.paths[q];
            for (asked, i, sent_at) in other.sent_packets.outstanding() {
                if batch.packets == batch.packets_max {
                    return;
                }
                if expected(other, now, sent_at) <= here {
                    continue;
                }
                let (Some(what), object) = (asked.what(i), asked.object) else { continue };
                let other_content = batch.object.is_some_and(|o| o != object);
                if self.lacks(source, object) || other_content || batch.holds(object, what) {
                    continue;
                }
                if let What::Data { cut, .. } = what
                    && !self.paths[p].mtu.carries(cut)
                {
                    continue;
                }
                let state = &mut self.objects[object as usize];
                let hashes =
                    if let What::Hash { level, first } = what { state.hash_count(level, first) } else { 0 };
                if state.wants(what, source) == Wanted::Yes && state.double(what) {
                    self.doubled += u64::from(batch.push(object, what, hashes));
                }
            }
        }
    }

    /// Takes back what path `p` was to fetch and has not asked for.
    pub(super) fn release(&mut self, p: PathId) {
        let path = &mut self.paths[p];
        let (source, retry, runs) =
            (path.source, std::mem::take(&mut path.retry), std::mem::take(&mut path.runs));
        path.probe_due = false;
        for work in retry {
            self.orphan(work, source);
        }
        for mut run in runs {
            if run.chunk > 0 {
                let object = &self.objects[run.object as usize];
                if let Some(cut) = object.cut_of(run.group) {
                    for i in run.chunk..object.chunks_of(run.group) {
                        let chunk = run.group * u64::from(cut.get()) + u64::from(i);
                        self.orphan(Work { object: run.object, what: What::Data { cut, chunk } }, source);
                    }
                }
                run.group += 1;
            }
            self.objects[run.object as usize].idle.put_new(run.group..run.end);
            self.first_idle = self.first_idle.min(run.object as usize);
        }
    }
}

/// When what was asked of `path` at `sent_at` should arrive.
fn expected(path: &Path, now: Time, sent_at: Time) -> Time {
    let at = sent_at + path.rtt.srtt();
    let overdue = now > at + path.rtt.rttvar().times(4);
    if path.state != State::Open || overdue { Time::NEVER } else { at }
}

#[cfg(test)]
mod tests {
    use algo::control::Algorithm;
    use algo::{Machine as _, Output};

    use super::*;
    use crate::id::{ContentId, GROUP_BYTES};
    use crate::subscriber::PathConfig;
    use crate::wire::{self, Packet};

    #[test]
    fn the_same_packet_is_asked_once_a_request() {
        let cut = Cut::new(14).expect("in range");
        let mut batch = Batch::new(10, false, cut);
        let chunks = [3, 4, 3].map(|chunk| What::Data { cut, chunk });
        for what in chunks.into_iter().chain([What::Meta, What::Meta]) {
            assert!(batch.push(0, what, 0));
        }
        assert_eq!(batch.packets, 3);
        let ranges: Vec<_> = batch.ranges.iter().map(|r| (r.first, r.count)).collect();
        assert_eq!(ranges, [(3, 2), (0, 1)]);
    }

    #[test]
    fn a_request_that_pays_takes_a_packet_of_hashes_at_every_cut() {
        for cut in [14, 16].map(|n| Cut::new(n).expect("in range")) {
            let mut batch = Batch::new(10, false, cut);
            assert!(batch.push(0, What::Hash { level: 0, first: 0 }, 32));
            assert!(batch.push(0, What::Data { cut, chunk: 0 }, 0));
        }
    }

    /// The dissertation's example of its Algorithm 1 (Fig. 4.3), in its fast form, with a group of one chunk
    /// for a packet: of 13.. the other subflow has asked 13, 15, 18 and 19, packet 14 is here, our own 16 and
    /// 17 are pending; the window is 4. Asked next: 20 and 21, and the next idle one is 22.
    #[test]
    fn the_example_of_algorithm_1() {
        let mut subscriber = Subscriber::new(&[0; 32]);
        let source = subscriber.add_source().expect("the first");
        let control = Algorithm::by_name("reno").expect("it is there");
        let config = PathConfig { group: 0, control, payload_max: 65_507, receive_buffer: 1 << 22 };
        let p = subscriber.add_path(source, &config).expect("the first");
        let now = Time::ZERO;
        // One packet of 16 KiB a group, a proven address, a window of 4.
        let path = &mut subscriber.paths[p];
        path.mtu.begin(now);
        for (size, tag) in path.mtu.probes(now, algo::Span::from_millis(1), || 7) {
            path.mtu.confirm(tag, usize::from(size));
        }
        path.cookie = Some(wire::Cookie([0; 16]));
        path.state = State::Open;
        path.cwnd = 4;
        assert_eq!(path.mtu.cut().get(), 1);
        // Of one group nothing but the group itself has to be known, so look at the data requests only.
        let id = ContentId { root: [1; 32], length: 30 * GROUP_BYTES as u64 };
        let object = subscriber.want(id, false, |group| group < 13 || group == 14 || group >= 30);
        let state = &mut subscriber.objects[object as usize];
        for _ in 0..2 {
            state.idle.take_segment();
        }
        state.ask_pages(0, false);
        state.idle.put_new(20..30);
        for group in [13, 15, 18, 19] {
            state.open(group, Cut::new(1).expect("in range"), 9);
        }
        for group in [16, 17] {
            state.open(group, Cut::new(1).expect("in range"), source);
            let asked = path::Asked { object, tag: group, ranges: Vec::new(), proven: true };
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
        assert_eq!(path.runs.front().map(|run| run.group), Some(22), "the next idle packet");
    }
}
