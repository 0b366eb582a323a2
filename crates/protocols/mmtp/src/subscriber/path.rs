//! One subflow: a source seen from one local address. Its window, its timers, what it has pending.

use std::collections::BTreeMap;

use anabranch_algo::control::{Algorithm, CongestionCause, Group, SubflowStats};
use anabranch_algo::rtt::RttEstimator;
use anabranch_algo::sent_packets::SentPackets;
use anabranch_algo::subflow::{AckRule, Patience, Subflow};
use anabranch_algo::{RateLimits, Span, Time};

use super::item::{DownloadId, Item, SourceId};
use super::mtu::Mtu;
use super::pacer::{Pacer, PacingRate};
use super::timer::{Reason, Timer};
use crate::wire::{Cookie, DATA_HEADER, Range, RangeKind};

/// Longest time between two attempts on a path that does not answer: a source that returns is back within it.
pub const RETRY_MAX: Span = Span::from_secs(2);
/// Packets one request asks for at most.
pub(super) const REQUEST_PACKETS_MAX: u32 = 64;
/// Timeouts in a row after which packets are tried smaller (RFC 8899 §4.3).
const BLACK_HOLE_TIMEOUTS: u32 = 2;

/// Packets that the buffer of any socket is assumed to hold.
const RECEIVE_LIMIT_MIN: u32 = 16;

/// Where a subflow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// Nothing has been heard from it yet.
    Opening,
    /// It answers.
    Open,
    /// It has stopped answering; it is tried with single requests, its work is done by others.
    Unresponsive,
    /// The world says that it cannot send there now (no interface, no address).
    Down,
    /// Its source was banned.
    Closed,
}

impl PathState {
    /// Whether nothing is to be sent, nor taken, on the path.
    pub(super) const fn is_unusable(self) -> bool {
        matches!(self, Self::Down | Self::Closed)
    }
}

/// What one request asked for.
pub(super) struct PendingRequest {
    pub(super) download: DownloadId,
    /// The last number that the download had given to a block or page by then: see [`super::download`].
    pub(super) epoch: u64,
    pub(super) tag: u64,
    pub(super) ranges: Vec<Range>,
    /// Whether it carried a cookie.
    pub(super) proven: bool,
    /// Whether caches may answer it.
    pub(super) caches: bool,
}

impl PendingRequest {
    /// The packet number `i` of the answer.
    pub(super) fn item(&self, mut i: u32) -> Option<Item> {
        for range in &self.ranges {
            let packets = packets(range);
            if i < packets {
                return Some(match range.kind {
                    RangeKind::Meta => Item::Meta,
                    RangeKind::Hashes { level } => Item::Hash { level, first: range.first },
                    RangeKind::Data(cut) => Item::Data { cut, chunk: range.first + u64::from(i) },
                });
            }
            i -= packets;
        }
        None
    }

    /// The number of `item` in the answer.
    pub(super) fn index(&self, item: Item) -> Option<u32> {
        index(&self.ranges, item)
    }
}

/// The number of `item` among the packets that answer `ranges`.
pub(super) fn index(ranges: &[Range], item: Item) -> Option<u32> {
    let mut before = 0;
    for range in ranges {
        match (range.kind, item) {
            (RangeKind::Data(a), Item::Data { cut, chunk })
                if a == cut && (range.first..range.first + u64::from(range.count)).contains(&chunk) =>
            {
                return Some(before + (chunk - range.first) as u32);
            }
            (RangeKind::Hashes { level: a }, Item::Hash { level, first })
                if a == level && range.first == first =>
            {
                return Some(before);
            }
            (RangeKind::Meta, Item::Meta) => return Some(before),
            _ => before += packets(range),
        }
    }
    None
}

/// Packets that answer a range: our ranges of hashes are never longer than one packet.
pub(super) fn packets(range: &Range) -> u32 {
    match range.kind {
        RangeKind::Data(_) => u32::from(range.count),
        RangeKind::Meta | RangeKind::Hashes { .. } => 1,
    }
}

/// Packets that caches have overtaken and that say nothing yet: a few are always on their way.
const GAPS_MAX: u32 = 8;

/// What went over a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Requests sent.
    pub requests: u64,
    /// Packets that arrived in answer to a request.
    pub packets: u64,
    /// Those of them that caches on the way had.
    pub cached: u64,
    /// Payload bytes of content that arrived and were new.
    pub bytes: u64,
    /// Payload bytes of content that arrived a second time.
    pub bytes_duplicate: u64,
    /// Packets of chaining values that arrived and were new.
    pub hashes: u64,
    /// Packets taken for lost.
    pub lost: u64,
    /// Packets taken for lost that arrived after all.
    pub late: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Probes sent before a timeout.
    pub probes: u64,
    /// Packets that came with the network's congestion mark.
    pub marked: u64,
    /// Packets with a tag that no request has: injected, or from before a restart.
    pub stray: u64,
    /// Packets that could not be parsed.
    pub malformed: u64,
}

/// What a path is made of.
#[derive(Clone, Copy, Debug)]
pub struct PathConfig {
    /// Paths of the same group may share a bottleneck and are coupled.
    pub group: u32,
    /// The uplink by which it leaves this host, as a number of the caller's; `None` if that is not known.
    /// Under
    /// [`Grouping::Auto`](super::Grouping::Auto) paths over different uplinks start apart.
    pub uplink: Option<u32>,
    /// Congestion control.
    pub control: Algorithm,
    /// UDP payload bytes that the local interface takes.
    pub payload_max: usize,
    /// Bytes that the receiving socket can hold while nobody reads it.
    pub receive_buffer: usize,
}

/// One subflow.
pub(super) struct Path {
    pub(super) source: SourceId,
    pub(super) group: u32,
    pub(super) state: PathState,
    /// Its window, its RTT estimator, what it has in flight and when that is overdue.
    pub(super) subflow: Subflow<PendingRequest>,
    pub(super) tags: BTreeMap<u64, u64>,
    /// The download of which it has blocks assigned, or a block begun.
    pub(super) fetches: Option<DownloadId>,
    pub(super) cookie: Option<Cookie>,
    /// When the cookie came.
    pub(super) cookie_at: Time,
    /// Cookies in a row that answered requests with the newest one.
    pub(super) cookies_ignored: u32,
    /// Caches that have sent a part of what is wrong. If there is one, none is to answer.
    pub(super) distrusted: Vec<u16>,
    /// How long a packet takes on average, whoever answers; `None` if no cache ever has.
    turnaround: Option<Span>,
    pub(super) mtu: Mtu,
    pacer: Pacer,
    pub(super) counters: PathCounters,
    /// How fast answers may be asked for.
    pub(super) limits: RateLimits,
    /// No request before this time.
    pub(super) blocked_until: Time,
    /// Its source has said that it is busy until then: what is lost meanwhile is for other paths.
    pub(super) busy_until: Time,
    /// A probe request is due, over the window if need be.
    pub(super) probe_due: bool,
    /// Content has arrived in packets of the size used now.
    data_fits: bool,
    /// Timeouts in a row, with no content between them.
    consecutive_timeouts: u32,
    config: PathConfig,
}

impl Path {
    pub(super) fn new(source: SourceId, config: &PathConfig) -> Self {
        Self {
            source,
            group: config.group,
            state: PathState::Opening,
            subflow: Subflow::new(config.control),
            tags: BTreeMap::new(),
            fetches: None,
            cookie: None,
            cookie_at: Time::ZERO,
            cookies_ignored: 0,
            distrusted: Vec::new(),
            turnaround: None,
            mtu: Mtu::new(config.payload_max),
            pacer: Pacer::default(),
            counters: PathCounters::default(),
            limits: RateLimits::default(),
            blocked_until: Time::ZERO,
            busy_until: Time::ZERO,
            probe_due: false,
            data_fits: false,
            consecutive_timeouts: 0,
            config: *config,
        }
    }

    /// The interface is there again, perhaps in another network: everything is to be learnt anew.
    pub(super) fn restart(&mut self) {
        let (limits, distrusted) = (std::mem::take(&mut self.limits), std::mem::take(&mut self.distrusted));
        let mut new =
            Self { counters: self.counters, limits, distrusted, ..Self::new(self.source, &self.config) };
        std::mem::swap(&mut new.subflow, &mut self.subflow);
        new.subflow.restart(self.config.control);
        *self = new;
    }

    /// Congestion window, packets.
    pub(super) const fn cwnd(&self) -> u32 {
        self.subflow.cwnd()
    }

    pub(super) const fn rtt(&self) -> &RttEstimator {
        self.subflow.rtt()
    }

    /// The requests under way.
    pub(super) const fn sent_packets(&self) -> &SentPackets<PendingRequest> {
        self.subflow.sent_packets()
    }

    /// The group that it was put into.
    pub(super) const fn configured_group(&self) -> u32 {
        self.config.group
    }

    /// Puts it into another group from now on.
    pub(super) const fn set_configured_group(&mut self, group: u32) {
        self.config.group = group;
    }

    /// Packets that may be asked for now.
    pub(super) fn room(&self, now: Time) -> u32 {
        self.window_room(now).min(self.pacer.budget(now, self.pacing_rate()))
    }

    /// The same without pacing.
    fn window_room(&self, now: Time) -> u32 {
        if self.state.is_unusable() || now < self.blocked_until || self.sent_packets().is_full() {
            return 0;
        }
        self.cwnd().min(self.receive_limit()).saturating_sub(self.sent_packets().in_flight())
    }

    fn pacing_rate(&self) -> PacingRate {
        PacingRate { cwnd: self.cwnd(), srtt: self.turnaround() }
    }

    /// How long a packet takes on average. A window in this time is the rate of the path (Little's law):
    /// where caches answer most of it, it is far more than a window in a round trip to the source.
    fn turnaround(&self) -> Span {
        self.turnaround.unwrap_or(self.rtt().srtt())
    }

    /// `count` packets arrived that took `total` together, some of them from a cache if `cached`. They are
    /// averaged over about a window.
    pub(super) fn took(&mut self, total: Span, count: u32, cached: bool) {
        if count == 0 || (self.turnaround.is_none() && !cached) {
            return;
        }
        let (before, weight) = match self.turnaround {
            Some(before) => (before, u128::from(self.cwnd())),
            None => (Span::ZERO, 0),
        };
        let sum = u128::from(before.as_nanos()) * weight + u128::from(total.as_nanos());
        let mean = u64::try_from(sum / (weight + u128::from(count))).unwrap_or(u64::MAX);
        self.turnaround = Some(Span::from_nanos(mean.max(1)));
    }

    /// Whether a request may leave now: there is room for a quantum, and it has been held for as long as it
    /// was to be. If nothing is under way, for any packet and at once.
    pub(super) fn may_ask(&mut self, now: Time) -> bool {
        let (room, idle) = (self.room(now), self.sent_packets().in_flight() == 0);
        let is_worth_it = room > 0 && (idle || room >= self.quantum());
        self.pacer.note_room(now, is_worth_it);
        is_worth_it && (idle || now >= self.pacer.held_until(self.pacing_rate()))
    }

    /// When pacing lets a request go that the window allows already.
    fn paced_until(&self, now: Time) -> Option<Time> {
        let rate = self.pacing_rate();
        let at = self.pacer.ready_at(self.quantum(), rate).max(self.pacer.held_until(rate));
        (self.window_room(now) >= self.quantum() && at > now).then_some(at)
    }

    /// Packets that may be under way without overflowing our own socket, should we not read for a moment:
    /// what its buffer holds, and twice what the path itself holds (its bandwidth times its smallest RTT).
    /// Losing packets at the last step would tell the sender of a congestion that is not there.
    fn receive_limit(&self) -> u32 {
        let buffer = self.config.receive_buffer / (self.mtu.cut().chunk_bytes() + DATA_HEADER);
        let path = if self.rtt().has_sample() {
            u64::from(self.cwnd()) * self.rtt().min().as_nanos() / self.rtt().srtt().as_nanos()
        } else {
            0
        };
        u32::try_from(buffer as u64 + 2 * path).unwrap_or(u32::MAX).max(RECEIVE_LIMIT_MIN)
    }

    /// How much room makes a request worth sending: see [`PacingRate::quantum`].
    pub(super) fn quantum(&self) -> u32 {
        self.pacing_rate().quantum()
    }

    /// UDP payload bytes of `count` packets, as their request is charged to the limits.
    fn payload_bytes(&self, count: u32) -> usize {
        count as usize * (DATA_HEADER + self.mtu.cut().chunk_bytes())
    }

    /// Packets that one request may ask for by the limits: at least one.
    pub(super) fn piece(&self) -> u32 {
        u32::try_from(self.limits.piece_bytes() / self.payload_bytes(1)).unwrap_or(u32::MAX).max(1)
    }

    /// What this subflow publishes for its siblings; no RTT, and so no weight, while it does not answer.
    pub(super) fn member(&self) -> SubflowStats {
        let counts = matches!(self.state, PathState::Open);
        if counts { self.subflow.stats() } else { self.subflow.stats_without_rtt() }
    }

    /// Expected rate in bytes per second.
    pub(super) fn rate_bytes(&self) -> u64 {
        if self.state != PathState::Open || !self.rtt().has_sample() {
            return 0;
        }
        let window = u64::from(self.cwnd()) * self.mtu.cut().chunk_bytes() as u64;
        anabranch_algo::Rate::of(window, self.turnaround().max(Span::from_micros(1))).as_bytes()
    }

    /// A request of `count` packets goes out.
    pub(super) fn sent(&mut self, now: Time, count: u32, asked: PendingRequest) {
        let tag = asked.tag;
        self.pacer.sent(now, count, self.pacing_rate(), (tag >> 32) as u32);
        let id = self.subflow.sent(now, count, asked);
        self.tags.insert(tag, id);
        self.counters.requests += 1;
        if !self.limits.is_none() {
            let due = self.limits.charge(now, self.payload_bytes(count));
            self.blocked_until = self.blocked_until.max(due);
        }
    }

    /// Something arrived in answer to a request.
    pub(super) fn on_reply(&mut self, now: Time, data: bool) {
        self.subflow.heard(now);
        self.probe_due = false;
        if data {
            self.data_fits = true;
            // Hashes are smaller than most content: that they arrive says nothing of its packets.
            self.consecutive_timeouts = 0;
            self.cookies_ignored = 0;
        }
        if self.cookie.is_some() {
            self.mtu.begin(now);
        }
        if matches!(self.state, PathState::Opening | PathState::Unresponsive) {
            self.state = PathState::Open;
        }
    }

    /// `acked` packets arrived, up to sequence number `seq`. Requests wait for a quantum of room, so the
    /// window counts as used up when less than that is free. The caller has gathered the packets of a batch.
    pub(super) fn acked(&mut self, now: Time, acked: u32, seq: u64, group: &Group<'_>) {
        let rule = AckRule { slack: self.quantum(), coalesce: false, hold: self.has_gaps() };
        self.subflow.acked(now, acked, seq, None, rule, group);
    }

    /// Whether more of what caches have overtaken is unanswered than they can be expected not to have. It may
    /// be lost; only a round trip to the source tells, and in slow start the window would double several
    /// times meanwhile, for the cache is nearer.
    fn has_gaps(&self) -> bool {
        let (Some(turnaround), PathCounters { packets, cached, .. }) = (self.turnaround, self.counters)
        else {
            return false;
        };
        // What the source is asked for in a round trip to it, at the rate of the path (Little's law).
        let misses =
            u128::from(packets - cached) * u128::from(self.cwnd()) * u128::from(self.rtt().srtt().as_nanos());
        let expected = misses / (u128::from(packets.max(1)) * u128::from(turnaround.as_nanos().max(1)));
        let overtaken = u128::from(self.sent_packets().overtaken_aside_count());
        overtaken > u128::from(GAPS_MAX) + 2 * expected
    }

    /// A path that does not answer is not probed, but tried again at least every [`RETRY_MAX`].
    fn patience(&self) -> Patience {
        let answers = self.state == PathState::Open;
        let rto_max = if answers { Span::MAX } else { RETRY_MAX };
        Patience { probe: answers, rto_max }
    }

    /// When there is something to do after `now`: what is due by then has been done.
    pub(super) fn next_timer(&self, now: Time) -> Timer {
        let mut next = Timer::NEVER;
        if self.state.is_unusable() {
            return next;
        }
        if self.state == PathState::Open {
            // Probes wait for a path that answers.
            next = next.min(Timer::new(self.mtu.deadline(), Reason::MtuProbe));
        }
        if self.blocked_until > now {
            next = next.min(Timer::new(self.blocked_until, Reason::Unblock));
        }
        if let Some(at) = self.paced_until(now) {
            next = next.min(Timer::new(at, Reason::Pacing));
        }
        if self.sent_packets().in_flight() > 0 {
            let Patience { probe, rto_max } = self.patience();
            next = next.min(Timer::new(self.subflow.timeout_at(rto_max), Reason::Timeout));
            if let Some(at) = self.subflow.probe_at().filter(|_| probe) {
                next = next.min(Timer::new(at, Reason::TailProbe));
            }
            if let Some(reorder) = self.sent_packets().next_deadline(self.rtt()) {
                next = next.min(Timer::new(reorder, Reason::Reordering));
            }
        }
        next
    }

    /// Whether the retransmission timeout has passed; marks a probe as due if only its time has.
    pub(super) fn timer(&mut self, now: Time) -> bool {
        if self.state.is_unusable() {
            return false;
        }
        match self.subflow.timer_with(now, self.patience()) {
            anabranch_algo::subflow::Timer::Timeout => return true,
            anabranch_algo::subflow::Timer::Probe => self.probe_due = true,
            anabranch_algo::subflow::Timer::None => {}
        }
        false
    }

    /// The path does not answer: everything pending has expired.
    pub(super) fn timed_out(&mut self, now: Time, group: &Group<'_>) {
        self.counters.timeouts += 1;
        self.consecutive_timeouts += 1;
        let suspect = self.consecutive_timeouts >= BLACK_HOLE_TIMEOUTS;
        if suspect && self.mtu.shrink(self.data_fits) {
            self.data_fits = false;
            self.consecutive_timeouts = 0;
        }
        if self.state == PathState::Open {
            let seq = self.sent_packets().next_seq();
            self.subflow.congestion(now, CongestionCause::Timeout, seq, group);
        } else {
            self.subflow.collapse();
        }
        self.subflow.back_off(now);
        self.state =
            if self.state == PathState::Opening { PathState::Opening } else { PathState::Unresponsive };
        self.probe_due = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_that_pass_do_not_hide_a_black_hole() {
        let control = Algorithm::by_name("reno").expect("it is there");
        let config =
            PathConfig { group: 0, uplink: None, control, payload_max: 1_472, receive_buffer: 1 << 22 };
        let mut path = Path::new(0, &config);
        let members = [path.member()];
        let group = Group { members: &members, me: 0 };
        let now = Time::ZERO;
        path.cookie = Some(Cookie([0; 16]));
        path.on_reply(now, true);
        for (size, tag) in path.mtu.probes(now, Span::from_millis(1), || 7) {
            path.mtu.confirm(tag, usize::from(size));
        }
        path.on_reply(now, true);
        let cuts = [13, 14, 14, 16].map(|_| {
            path.timed_out(now, &group);
            path.on_reply(now, false);
            path.mtu.cut().get()
        });
        assert_eq!(cuts[1], 14, "after the second timeout: {cuts:?}");
        assert_eq!(cuts[3], 16, "two more with nothing at the base: {cuts:?}");
    }
}
