//! One subflow: a source seen from one local address, with its window, its timers and its pending requests.

use std::collections::BTreeMap;

use anabranch_algo::control::{CongestionCause, Group, SubflowStats};
use anabranch_algo::controller::{Controller, ControllerKind};
use anabranch_algo::rtt::RttEstimator;
use anabranch_algo::sent_packets::SentPackets;
use anabranch_algo::subflow::{AckRule, Patience, Subflow};
use anabranch_algo::{RateLimits, Span, Time};

use super::item::{DownloadId, Item, SourceId};
use super::mtu::Mtu;
use super::pacer::{Pacer, PacingRate};
use super::timer::{Reason, Timer};
use crate::wire::{Cookie, DATA_HEADER, Range, RangeKind};

/// The longest time between two attempts on a path that does not answer. A source that returns is noticed
/// within this time.
pub const RETRY_MAX: Span = Span::from_secs(2);
/// The most packets that one request asks for.
pub(super) const REQUEST_PACKETS_MAX: u32 = 64;
/// After this many timeouts in a row, smaller packets are tried (RFC 8899 §4.3).
const BLACK_HOLE_TIMEOUTS: u32 = 2;

/// The packets that the buffer of any socket is assumed to hold.
const RECEIVE_LIMIT_MIN: u32 = 16;

/// The state of a subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// The path has not answered yet.
    Opening,
    /// The path answers.
    Open,
    /// The path has stopped answering. It is tried with single requests, and other paths do its work.
    Unresponsive,
    /// The caller says that it cannot send on the path now (no interface, no address).
    Down,
    /// The path's source was banned.
    Closed,
}

impl PathState {
    /// Whether packets are neither sent nor accepted on the path.
    pub(super) const fn is_unusable(self) -> bool {
        matches!(self, Self::Down | Self::Closed)
    }
}

/// A request that was sent, and what it asked for.
pub(super) struct PendingRequest {
    pub(super) download: DownloadId,
    /// The last number that the download had given to a block or page when the request was sent; see
    /// [`super::download`].
    pub(super) epoch: u64,
    pub(super) tag: u64,
    pub(super) ranges: Vec<Range>,
    /// Whether the request carried a cookie.
    pub(super) proven: bool,
    /// Whether caches may answer the request.
    pub(super) caches: bool,
}

impl PendingRequest {
    /// Returns packet number `i` of the answer.
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

    /// Returns the number of `item` in the answer.
    pub(super) fn index(&self, item: Item) -> Option<u32> {
        index(&self.ranges, item)
    }
}

/// Returns the number of `item` among the packets that answer `ranges`.
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

/// Returns how many packets answer a range. Our ranges of hashes are never longer than one packet.
pub(super) fn packets(range: &Range) -> u32 {
    match range.kind {
        RangeKind::Data(_) => u32::from(range.count),
        RangeKind::Meta | RangeKind::Hashes { .. } => 1,
    }
}

/// Up to this many packets that caches have overtaken mean nothing, because a few are always on their way.
const GAPS_MAX: u32 = 8;

/// The counters of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Requests that were sent.
    pub requests: u64,
    /// Packets that arrived in answer to a request.
    pub packets: u64,
    /// Packets among `packets` that came from caches on the way.
    pub cached: u64,
    /// Payload bytes of content that arrived and were new.
    pub bytes: u64,
    /// Payload bytes of content that arrived a second time.
    pub bytes_duplicate: u64,
    /// Packets of chaining values that arrived and were new.
    pub hashes: u64,
    /// Packets that were declared lost.
    pub lost: u64,
    /// Packets that were declared lost and arrived after all.
    pub late: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Probes that were sent before a timeout.
    pub probes: u64,
    /// Packets that came with the network's congestion mark.
    pub marked: u64,
    /// Packets with a tag that no request has: they are injected, or from before a restart.
    pub stray: u64,
    /// Packets that could not be parsed.
    pub malformed: u64,
}

/// The configuration of a path.
#[derive(Clone, Debug)]
pub struct PathConfig {
    /// The path's group. Paths of the same group may share a bottleneck and are coupled.
    pub group: u32,
    /// The uplink by which the path leaves this host, as a number that the caller chooses; `None` if it is
    /// not known. Under [`Grouping::Auto`](super::Grouping::Auto), paths over different uplinks start in
    /// different groups.
    pub uplink: Option<u32>,
    /// The congestion control.
    pub control: ControllerKind,
    /// The most bytes of a UDP payload that the local interface takes.
    pub payload_max: usize,
    /// The bytes that the receiving socket can hold while it is not read.
    pub receive_buffer: usize,
}

/// One subflow.
pub(super) struct Path {
    pub(super) source: SourceId,
    pub(super) group: u32,
    pub(super) state: PathState,
    /// The window, the RTT estimator, the packets in flight and their timeouts.
    pub(super) subflow: Subflow<PendingRequest, u64, Controller>,
    pub(super) tags: BTreeMap<u64, u64>,
    /// The download that the path has assigned blocks of, or has begun a block of.
    pub(super) fetches: Option<DownloadId>,
    pub(super) cookie: Option<Cookie>,
    /// When the cookie came.
    pub(super) cookie_at: Time,
    /// How many cookies in a row answered requests that carried the newest one.
    pub(super) cookies_ignored: u32,
    /// Caches that have sent a part of a wrong block or page. If there is one, no cache may answer.
    pub(super) distrusted: Vec<u16>,
    /// How long a packet takes on average, from the source or from caches; `None` if no cache has ever
    /// answered.
    turnaround: Option<Span>,
    pub(super) mtu: Mtu,
    pacer: Pacer,
    pub(super) counters: PathCounters,
    /// The limits on the rate of answers that may be asked for.
    pub(super) limits: RateLimits,
    /// No request may be sent before this time.
    pub(super) blocked_until: Time,
    /// The source has said that it is busy until this time. Packets lost meanwhile are for other paths.
    pub(super) busy_until: Time,
    /// Whether a probe request is due, which may exceed the window.
    pub(super) probe_due: bool,
    /// Whether content has arrived in packets of the current size.
    data_fits: bool,
    /// The timeouts in a row without content between them.
    consecutive_timeouts: u32,
    config: PathConfig,
}

impl Path {
    pub(super) fn new(source: SourceId, config: &PathConfig) -> Self {
        Self {
            source,
            group: config.group,
            state: PathState::Opening,
            subflow: Subflow::new(config.control.fresh()),
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
            config: config.clone(),
        }
    }

    /// Forgets what was learned about the path, because its interface has returned, perhaps in another
    /// network.
    pub(super) fn restart(&mut self) {
        let (limits, distrusted) = (std::mem::take(&mut self.limits), std::mem::take(&mut self.distrusted));
        let mut new =
            Self { counters: self.counters, limits, distrusted, ..Self::new(self.source, &self.config) };
        std::mem::swap(&mut new.subflow, &mut self.subflow);
        new.subflow.restart(self.config.control.fresh());
        *self = new;
    }

    /// Returns the congestion window in packets.
    pub(super) const fn cwnd(&self) -> u32 {
        self.subflow.cwnd()
    }

    pub(super) const fn rtt(&self) -> &RttEstimator {
        self.subflow.rtt()
    }

    /// Returns the requests that are pending.
    pub(super) const fn sent_packets(&self) -> &SentPackets<PendingRequest> {
        self.subflow.sent_packets()
    }

    /// Returns the group that the path was configured with.
    pub(super) const fn configured_group(&self) -> u32 {
        self.config.group
    }

    /// Configures another group from now on.
    pub(super) const fn set_configured_group(&mut self, group: u32) {
        self.config.group = group;
    }

    /// Returns how many packets may be asked for now.
    pub(super) fn room(&self, now: Time) -> u32 {
        self.window_room(now).min(self.pacer.budget(now, self.pacing_rate()))
    }

    /// Returns how many packets the window allows now, without pacing.
    fn window_room(&self, now: Time) -> u32 {
        if self.state.is_unusable() || now < self.blocked_until || self.sent_packets().is_full() {
            return 0;
        }
        self.cwnd().min(self.receive_limit()).saturating_sub(self.sent_packets().in_flight())
    }

    fn pacing_rate(&self) -> PacingRate {
        PacingRate { cwnd: self.cwnd(), srtt: self.turnaround(), pace: self.subflow.pace() }
    }

    /// Returns how long a packet takes on average. A window in this time is the rate of the path (Little's
    /// law). If caches answer most requests, it is far more than a window in a round trip to the source.
    fn turnaround(&self) -> Span {
        self.turnaround.unwrap_or(self.rtt().srtt())
    }

    /// Records that `count` packets arrived that took `total` together; `cached` says that some came from a
    /// cache. The average spans about a window.
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

    /// Whether a request may leave now: there is room for a quantum, and the request has been held for its
    /// random time. If nothing is in flight, room for one packet is enough, and the request is not held.
    pub(super) fn may_ask(&mut self, now: Time) -> bool {
        let (room, idle) = (self.room(now), self.sent_packets().in_flight() == 0);
        let is_worth_it = room > 0 && (idle || room >= self.quantum());
        self.pacer.note_room(now, is_worth_it);
        is_worth_it && (idle || now >= self.pacer.held_until(self.pacing_rate()))
    }

    /// Returns until when pacing delays a request that the window already allows.
    fn paced_until(&self, now: Time) -> Option<Time> {
        let rate = self.pacing_rate();
        let at = self.pacer.ready_at(self.quantum(), rate).max(self.pacer.held_until(rate));
        (self.window_room(now) >= self.quantum() && at > now).then_some(at)
    }

    /// Returns how many packets may be in flight without overflowing our own socket if it is not read for a
    /// moment. These are the packets that its buffer holds, and twice those that the path holds (its
    /// bandwidth times its smallest RTT). Losing packets at the last step would report a congestion that is
    /// not there.
    fn receive_limit(&self) -> u32 {
        let buffer = self.config.receive_buffer / (self.mtu.cut().chunk_bytes() + DATA_HEADER);
        let path = if self.rtt().has_sample() {
            u64::from(self.cwnd()) * self.rtt().min().as_nanos() / self.rtt().srtt().as_nanos()
        } else {
            0
        };
        u32::try_from(buffer as u64 + 2 * path).unwrap_or(u32::MAX).max(RECEIVE_LIMIT_MIN)
    }

    /// Returns how many packets of room make a request worth sending; see [`PacingRate::quantum`].
    pub(super) fn quantum(&self) -> u32 {
        self.pacing_rate().quantum()
    }

    /// Returns the UDP payload bytes of `count` packets, as the limits count them.
    fn payload_bytes(&self, count: u32) -> usize {
        count as usize * (DATA_HEADER + self.mtu.cut().chunk_bytes())
    }

    /// Returns how many packets one request may ask for by the limits: at least one.
    pub(super) fn piece(&self) -> u32 {
        u32::try_from(self.limits.piece_bytes() / self.payload_bytes(1)).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the figures that this subflow publishes for its siblings. While it does not answer, they have
    /// no RTT and thus no weight.
    pub(super) fn member(&self) -> SubflowStats {
        let counts = matches!(self.state, PathState::Open);
        if counts { self.subflow.stats() } else { self.subflow.stats_without_rtt() }
    }

    /// Returns the expected rate in bytes per second.
    pub(super) fn rate_bytes(&self) -> u64 {
        if self.state != PathState::Open || !self.rtt().has_sample() {
            return 0;
        }
        let chunk = self.mtu.cut().chunk_bytes() as u64;
        if let Some(pace) = self.subflow.pace() {
            return anabranch_algo::Rate::of(chunk, pace).as_bytes();
        }
        let window = u64::from(self.cwnd()) * chunk;
        anabranch_algo::Rate::of(window, self.turnaround().max(Span::from_micros(1))).as_bytes()
    }

    /// Records that a request of `count` packets is sent.
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

    /// Records that an answer to a request has arrived. `data` says that it brought content.
    pub(super) fn on_reply(&mut self, now: Time, data: bool) {
        self.subflow.heard(now);
        self.probe_due = false;
        if data {
            self.data_fits = true;
            // Hashes come in smaller packets than most content. That they arrive says nothing about packets
            // of content.
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

    /// Records that `acked` packets arrived, up to sequence number `seq`. Requests wait for a quantum of
    /// room, so the window counts as used up when less than that is free. The caller has gathered the packets
    /// of a batch.
    pub(super) fn acked(&mut self, now: Time, acked: u32, seq: u64, group: &Group<'_>) {
        let rule = AckRule { slack: self.quantum(), coalesce: false, hold: self.has_gaps() };
        self.subflow.acked(now, acked, seq, None, rule, group);
    }

    /// Whether more packets than expected are unanswered among those that caches have overtaken. They may be
    /// lost, and only a round trip to the source tells. In slow start the window would double several times
    /// meanwhile, because the cache is nearer.
    fn has_gaps(&self) -> bool {
        let (Some(turnaround), PathCounters { packets, cached, .. }) = (self.turnaround, self.counters)
        else {
            return false;
        };
        // The source is asked for this many packets in a round trip to it, at the rate of the path (Little's
        // law).
        let misses =
            u128::from(packets - cached) * u128::from(self.cwnd()) * u128::from(self.rtt().srtt().as_nanos());
        let expected = misses / (u128::from(packets.max(1)) * u128::from(turnaround.as_nanos().max(1)));
        let overtaken = u128::from(self.sent_packets().overtaken_aside_count());
        overtaken > u128::from(GAPS_MAX) + 2 * expected
    }

    /// Returns how long to wait for answers. A path that does not answer is not probed, but tried again at
    /// least every [`RETRY_MAX`].
    fn patience(&self) -> Patience {
        let answers = self.state == PathState::Open;
        let rto_max = if answers { Span::MAX } else { RETRY_MAX };
        Patience { probe: answers, rto_max }
    }

    /// Returns when there is something to do after `now`. Everything that is due by `now` has been done.
    pub(super) fn next_timer(&self, now: Time) -> Timer {
        let mut next = Timer::NEVER;
        if self.state.is_unusable() {
            return next;
        }
        if self.state == PathState::Open {
            // Probes of the packet size wait for a path that answers.
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

    /// Returns whether the retransmission timeout has passed. If only the time of a probe has passed, marks
    /// the probe as due.
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

    /// Records a timeout: the path does not answer. The caller gives up all pending packets.
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
    use anabranch_algo::control::Algorithm;

    use super::*;

    #[test]
    fn hashes_that_pass_do_not_hide_a_black_hole() {
        let control = Algorithm::by_name("reno").expect("it is there").into();
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
