//! What arrives on a path: which request it answers, what it brings, what it says about the path.

use algo::control::CongestionCause;
use algo::sent_packets::Delivery;
use algo::{Span, Time};

use super::object::Outcome;
use super::path::State;
use super::{Event, ObjectId, PathId, Subscriber, What, Work, path};
use crate::wire::{self, Packet, Reason};

/// A source that forgets its cookies this often in a row is taken not to answer.
const COOKIES_VAIN_MAX: u32 = 3;

impl Subscriber {
    /// UDP payloads on path `p`.
    pub(super) fn datagrams(&mut self, now: Time, p: PathId, bytes: &[u8], stride: usize, marked: bool) {
        let Some(path) = self.paths.get(p) else { return };
        if path.state.is_shut() {
            return;
        }
        let mut got = Got::default();
        for payload in bytes.chunks(stride.max(1)) {
            match wire::parse(payload) {
                Ok(packet) => self.packet(now, p, payload.len(), &packet, &mut got),
                Err(_) => self.paths[p].counters.malformed += 1,
            }
            if self.paths[p].state == State::Closed {
                // Struck off by this packet: the others are a liar's too.
                return;
            }
        }
        let before = self.paths[p].state;
        if got.answered {
            self.paths[p].heard(now, got.data);
        }
        if let Some(sent_at) = got.sent_at {
            self.paths[p].rtt.sample(now, now.since(sent_at));
        }
        if got.acked > 0 {
            self.paths[p].counters.packets += u64::from(got.acked);
            self.groups.delivered(p, got.acked);
            self.coupled(p, |path, group| path.acked(now, got.acked, got.seq, group));
            if marked {
                self.paths[p].counters.marked += u64::from(got.acked);
                self.coupled(p, |path, group| path.congestion(now, CongestionCause::EcnCe, got.seq, group));
            }
        }
        self.set_state(p, before);
    }

    fn packet(&mut self, now: Time, p: PathId, len: usize, packet: &Packet<'_>, got: &mut Got) {
        let tag = packet.tag();
        if let Packet::Padded { .. } = packet {
            if !self.paths[p].mtu.confirm(tag, len) {
                self.paths[p].counters.stray += 1;
            }
            return;
        }
        if got.last.is_none_or(|(last, _)| last != tag) {
            got.last = self.paths[p].tags.get(&tag).map(|id| (tag, *id));
        }
        let Some((_, id)) = got.last else {
            self.paths[p].counters.stray += 1;
            return;
        };
        let what = match packet {
            Packet::Data(data) => What::Data { cut: data.cut, chunk: data.chunk },
            Packet::Hashes(hashes) => What::Hash { level: hashes.level, first: hashes.first },
            Packet::Meta(_) => What::Meta,
            Packet::Cookie { cookie, .. } => {
                // A source that sends nothing but cookies must not keep what is pending from its timeout.
                got.answered |= self.paths[p].cookie.is_none();
                return self.cookie(now, p, id, *cookie);
            }
            Packet::Refuse { reason, retry_ms, .. } => {
                // Told twice, it must not keep what is pending from its timeout either.
                got.answered |= self.refused(now, p, id, *reason, *retry_ms);
                return;
            }
            Packet::Padded { .. } | Packet::Request(_) | Packet::Probe { .. } => return,
        };
        let path = &mut self.paths[p];
        let source = path.source;
        let asked = path.sent_packets.get(id).map(|asked| (asked.object, asked.index(what)));
        let Some((object, Some(index))) = asked else {
            path.counters.stray += 1;
            return;
        };
        // What cannot be the answer counts as none: it stays pending, is lost and is asked again.
        if !self.objects[object as usize].fits(packet) {
            path.counters.malformed += 1;
            return;
        }
        match path.sent_packets.deliver(now, id, index) {
            Delivery::Acked { sent_at, seq } => {
                if index == 0 {
                    self.groups.sample(p, now, now.since(sent_at));
                }
                got.acked += 1;
                got.seq = got.seq.max(seq);
                got.sent_at = Some(got.sent_at.map_or(sent_at, |t| t.max(sent_at)));
            }
            Delivery::SpuriousLoss { .. } => path.counters.late += 1,
            Delivery::Duplicate | Delivery::Unknown => {
                path.counters.stray += 1;
                return;
            }
        }
        got.answered = true;
        let state = &mut self.objects[object as usize];
        match packet {
            Packet::Data(data) => {
                got.data = true;
                let outcome = state.chunk(source, data.cut, data.chunk, data.payload);
                let counters = &mut self.paths[p].counters;
                if outcome.fresh {
                    counters.bytes += data.payload.len() as u64;
                } else {
                    counters.bytes_duplicate += data.payload.len() as u64;
                }
                self.outcome(object, outcome);
            }
            Packet::Hashes(hashes) => {
                let outcome = state.hashes(source, hashes.level, hashes.first, hashes.cvs);
                self.outcome(object, outcome);
            }
            Packet::Meta(meta) if state.meta_wanted => {
                state.meta_wanted = false;
                let (name, collection) = (meta.name.to_vec(), meta.collection);
                self.events.push_back(Event::Meta { object, source, name, collection });
                self.outcome(object, Outcome::default());
            }
            _ => {}
        }
    }

    /// What an arrival led to.
    pub(super) fn outcome(&mut self, object: ObjectId, outcome: Outcome) {
        for (group, bytes, cv) in outcome.verified {
            self.events.push_back(Event::Group { object, group, bytes, cv });
        }
        self.orphans.extend(outcome.again.into_iter().map(|what| Work { object, what }));
        for (source, group) in outcome.liars {
            self.strike(source, object, group);
        }
        let state = &self.objects[object as usize];
        if !state.idle.is_empty() {
            self.first_idle = self.first_idle.min(object as usize);
        }
        if state.is_complete() && self.active.contains(&object) {
            self.active.retain(|o| *o != object);
            self.objects[object as usize].retire();
            self.events.push_back(Event::Complete { object });
        }
    }

    /// A cookie came. If the request had one already, the source has forgotten it (it was restarted, or an
    /// hour has passed): what it did not answer is asked again, and nobody is to blame.
    fn cookie(&mut self, now: Time, p: PathId, id: u64, cookie: wire::Cookie) {
        let path = &mut self.paths[p];
        let newest = path.sent_packets.sent_at(id).is_some_and(|at| at >= path.cookie_at);
        if path.cookie != Some(cookie) {
            (path.cookie, path.cookie_at) = (Some(cookie), now);
        }
        path.mtu.begin(now);
        let Some(asked) = path.sent_packets.get(id).filter(|asked| asked.proven) else { return };
        path.cookies_vain += u32::from(newest);
        if path.cookies_vain >= COOKIES_VAIN_MAX {
            // Whatever it is told, it asks for another proof: others have to do its work.
            path.cookies_vain = 0;
            return self.unreachable(now, p);
        }
        let (object, count) = (asked.object, asked.ranges.iter().map(path::packets).sum::<u32>());
        for i in (0..count).rev() {
            let what = path.sent_packets.get(id).and_then(|asked| asked.what(i));
            if path.sent_packets.cancel(id, i)
                && let Some(what) = what
            {
                path.retry.push_front(Work { object, what });
            }
        }
        // A source that forgets every time is not asked as fast as it answers.
        path.hold = now + path.rtt.srtt().max(Span::from_millis(10));
    }

    /// A source will not answer a request; false if nothing of it was pending.
    fn refused(&mut self, now: Time, p: PathId, id: u64, reason: Reason, retry_ms: u16) -> bool {
        let path = &mut self.paths[p];
        let source = path.source;
        let Some(asked) = path.sent_packets.get(id) else { return false };
        let (object, count) = (asked.object, asked.ranges.iter().map(path::packets).sum::<u32>());
        let mut open = Vec::new();
        for i in 0..count {
            let what = path.sent_packets.get(id).and_then(|asked| asked.what(i));
            if path.sent_packets.cancel(id, i) {
                open.extend(what.map(|what| Work { object, what }));
            }
        }
        if open.is_empty() {
            return false;
        }
        for work in open {
            self.orphan(work, source);
        }
        if reason == Reason::Busy {
            self.paths[p].hold = now + Span::from_millis(u64::from(retry_ms).clamp(100, 10_000));
            return true;
        }
        if self.sources[usize::from(source)].lacks.insert(object) {
            self.events.push_back(Event::Refused { source, object, reason });
        }
        for q in 0..self.paths.len() {
            if self.paths[q].source == source {
                self.release(q);
            }
        }
        true
    }
}

/// What one handful of datagrams brought.
#[derive(Default)]
struct Got {
    /// The tag looked up last, and its request: answers come in rows.
    last: Option<(u64, u64)>,
    answered: bool,
    data: bool,
    acked: u32,
    seq: u64,
    sent_at: Option<Time>,
}
