//! A subflow as its sender (or, where receivers drive, its requester) sees it: the window, the estimator, the
//! packets in flight, when to probe and when to give up.
//!
//! It joins [`Control`], [`RttEstimator`] and [`SentPackets`] and adds the parts that none of them has:
//! rounds, recovery, whether the window was the limit, and the probe before a timeout. The world sends the
//! packets; `T` describes a batch of them.

use crate::control::{
    Ack, Algorithm, CongestionCause, CongestionEvent, Control, Flight, Group, SubflowStats,
};
use crate::rtt::{PTO_MIN, RTO_MIN, RttEstimator};
use crate::sent_packets::{Delivery, PacketBitmap, SentPackets};
use crate::{Span, Time};

/// The part of the window, one in this many, that acknowledgements have to reach before [`Control`] gets them
/// together. [`Control`] weighs them, so that this does not change the growth, and RFC 6356 section 4.1 asks
/// for at most one look at the siblings per packet of growth.
const ACK_COALESCING: u32 = 16;
const _: () = assert!(PTO_MIN.as_nanos() <= RTO_MIN.as_nanos());
/// Round trips for which lost packets are remembered.
const LOST_KEPT_RTTS: u64 = 4;

/// Packets that are due within this time leave together, where there is a pace.
const PACING_QUANTUM: Span = Span::from_micros(100);

/// The action that is due: see [`Subflow::timer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// No action is due yet.
    None,
    /// Send one packet, above the window if need be, so that the loss of the last packets is noticed (RFC
    /// 8985 section 7).
    Probe,
    /// Nothing has arrived for a retransmission timeout (RFC 6298 section 5).
    Timeout,
}

/// How acknowledgements are treated.
#[derive(Clone, Copy, Debug)]
pub struct AckRule {
    /// A window with fewer unused packets than this counts as used up, because senders gather requests into
    /// batches.
    pub slack: u32,
    /// Whether acknowledgements are gathered, up to a sixteenth of the window: for callers that get them one
    /// by one.
    pub coalesce: bool,
    /// Whether slow start pauses: too many packets are unanswered that others have overtaken, and it is not
    /// known yet whether they are lost.
    pub hold: bool,
}

impl AckRule {
    /// The rule for packets that leave and are acknowledged one by one.
    pub const ONE_BY_ONE: Self = Self { slack: 1, coalesce: true, hold: false };
}

/// How long a subflow waits for packets in flight.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Whether the subflow probes before a timeout.
    pub probe: bool,
    /// The longest retransmission timeout.
    pub rto_max: Span,
}

/// One subflow; see the [module](self). `M` is that of [`SentPackets`]. `C` is the controller: one of the
/// table unless the caller brings its own.
#[derive(Clone, Debug)]
pub struct Subflow<T, M = u64, C = Algorithm> {
    control: C,
    rtt: RttEstimator,
    sent_packets: SentPackets<T, M>,
    cwnd: u32,
    round: u32,
    round_end: u64,
    peak_in_flight: u32,
    recovery_end: u64,
    /// Packets that arrived since [`Control`] was last told of arrivals.
    pending_acked: u32,
    slack: u32,
    hold: bool,
    last_rx: Time,
    probed: bool,
    /// The number of packets declared lost so far; it wraps around.
    lost: u32,
    /// When the packets sent so far have left at the controller's pace.
    paced_until: Time,
}

/// What a congestion event takes away, for an event that turns out to have been none.
#[derive(Clone, Copy, Debug)]
pub struct Saved<C> {
    control: C,
    cwnd: u32,
    recovery_end: u64,
    highest: Option<u64>,
}

impl<T, M: PacketBitmap, C: Clone> Subflow<T, M, C> {
    /// The algorithm as it stands, before an event that may have to be undone.
    #[must_use]
    pub fn save(&self) -> Saved<C> {
        Saved {
            control: self.control.clone(),
            cwnd: self.cwnd,
            recovery_end: self.recovery_end,
            highest: self.sent_packets.highest_delivered(),
        }
    }

    /// The event after [`save`](Self::save) was none: the algorithm forgets what it has learned since (RFC
    /// 4015 section 3.2 restores window and ssthresh; this restores what is published to the siblings, too).
    /// What arrived since has overtaken nothing.
    pub fn restore(&mut self, saved: Saved<C>) {
        (self.control, self.cwnd, self.recovery_end) = (saved.control, saved.cwnd, saved.recovery_end);
        self.pending_acked = 0;
        self.sent_packets.overtake_from(saved.highest);
    }
}

impl<T, M: PacketBitmap, C: Control> Subflow<T, M, C> {
    /// Creates a subflow that has sent nothing yet.
    #[must_use]
    pub fn new(control: C) -> Self {
        Self {
            cwnd: control.stats(Span::ZERO).cwnd.floor().max(1),
            control,
            rtt: RttEstimator::new(),
            sent_packets: SentPackets::default(),
            round: 0,
            round_end: 0,
            peak_in_flight: 0,
            recovery_end: 0,
            pending_acked: 0,
            slack: 1,
            hold: false,
            last_rx: Time::ZERO,
            probed: false,
            lost: 0,
            paced_until: Time::ZERO,
        }
    }

    /// Returns the congestion window, in packets: at least 1.
    #[must_use]
    pub const fn cwnd(&self) -> u32 {
        self.cwnd
    }
    /// Returns the round-trip time estimator.
    #[must_use]
    pub const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }
    /// Returns the record of sent packets.
    #[must_use]
    pub const fn sent_packets(&self) -> &SentPackets<T, M> {
        &self.sent_packets
    }
    /// Returns how many packets the window allows now, but no more than can be recorded as batches of one
    /// packet.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.cwnd.saturating_sub(self.sent_packets.in_flight()).min(self.sent_packets.free())
    }
    /// Returns how many packets may be sent now: [`room`](Self::room), and no more than the controller's
    /// [pace](Control::pace) allows, if it has one.
    #[must_use]
    pub fn paced_room(&self, now: Time) -> u32 {
        let Some(pace) = self.pace() else { return self.room() };
        if self.paced_until > now {
            return 0;
        }
        let due = (now + PACING_QUANTUM).since(self.paced_until.max(now)).as_nanos() / pace.as_nanos().max(1);
        self.room().min(u32::try_from(due).unwrap_or(u32::MAX).saturating_add(1))
    }
    /// Returns when the controller's [pace](Control::pace) allows the next packet; in the past if there is no
    /// pace.
    #[must_use]
    pub const fn paced_until(&self) -> Time {
        self.paced_until
    }
    /// Returns the controller's [pace](Control::pace).
    #[must_use]
    pub fn pace(&self) -> Option<Span> {
        self.control.pace()
    }
    /// Returns the numbers that this subflow publishes for its siblings. Before the first sample they have no
    /// RTT, and so no weight.
    #[must_use]
    pub fn stats(&self) -> SubflowStats {
        self.control.stats(self.rtt.srtt())
    }

    /// Returns the numbers without an RTT, and so without weight: for a subflow that does not answer.
    #[must_use]
    pub fn stats_without_rtt(&self) -> SubflowStats {
        self.control.stats(Span::ZERO)
    }

    /// Records that `count` packets go out. Returns the identifier of their batch.
    #[inline]
    pub fn sent(&mut self, now: Time, count: u32, what: T) -> u64 {
        if self.sent_packets.in_flight() == 0 {
            self.last_rx = now;
            self.probed = false;
        }
        if let Some(pace) = self.control.pace() {
            self.paced_until = self.paced_until.max(now) + pace.times(u64::from(count));
        }
        let id = self.sent_packets.send(now, count, what);
        self.peak_in_flight = self.peak_in_flight.max(self.sent_packets.in_flight());
        id
    }

    /// Records that packet `i` of batch `id` has arrived at the other end, as is known at `now`.
    #[inline]
    pub fn delivered(&mut self, now: Time, id: u64, i: u32) -> Delivery {
        let delivery = self.sent_packets.deliver(now, id, i);
        if matches!(delivery, Delivery::Acked { .. } | Delivery::SpuriousLoss { .. }) {
            (self.last_rx, self.probed) = (now, false);
        }
        delivery
    }

    /// Records that packet `i` of batch `id` has arrived from a cache on the way: see
    /// [`SentPackets::deliver_aside`]. Its time is no [sample](Self::sample).
    pub fn delivered_aside(&mut self, now: Time, id: u64, i: u32) -> Delivery {
        let delivery = self.sent_packets.deliver_aside(id, i);
        if matches!(delivery, Delivery::Acked { .. } | Delivery::SpuriousLoss { .. }) {
            (self.last_rx, self.probed) = (now, false);
        }
        delivery
    }

    /// Records another sign that the other end is there.
    pub const fn heard(&mut self, now: Time) {
        (self.last_rx, self.probed) = (now, false);
    }

    /// Records that packet `i` of batch `id` is no longer expected, which is no loss. Returns whether it was
    /// in flight.
    pub fn cancel(&mut self, id: u64, i: u32) -> bool {
        self.sent_packets.cancel(id, i)
    }

    /// Makes packet `i` of batch `id`, which was declared lost, outstanding again: see
    /// [`SentPackets::reclaim`].
    pub fn reclaim(&mut self, id: u64, i: u32) -> bool {
        self.sent_packets.reclaim(id, i)
    }

    /// Takes a sample of the round-trip time from a packet that was sent at `sent_at` and has arrived. A
    /// caller that publishes the RTT to the siblings before they see the acknowledgement calls this instead
    /// of giving [`acked`](Self::acked) the time.
    pub fn sample(&mut self, now: Time, sent_at: Time) {
        self.rtt.sample(now, now.since(sent_at));
    }

    /// Records that `acked` packets arrived, up to sequence number `seq`, the last of them sent at `sent_at`.
    /// Returns whether the algorithm was told; if not, only the smoothed RTT of the [published](Self::stats)
    /// numbers has changed.
    #[inline]
    pub fn acked(
        &mut self,
        now: Time,
        acked: u32,
        seq: u64,
        sent_at: Option<Time>,
        rule: AckRule,
        group: &Group<'_>,
    ) -> bool {
        if let Some(sent_at) = sent_at {
            self.rtt.sample(now, now.since(sent_at));
        }
        self.pending_acked += acked;
        let ends = seq >= self.round_end;
        let recovering = seq < self.recovery_end;
        if rule.coalesce && !ends && !recovering && self.pending_acked <= self.cwnd / ACK_COALESCING {
            return false;
        }
        if ends {
            self.round = self.round.wrapping_add(1);
            self.round_end = self.sent_packets.next_seq();
            self.peak_in_flight = self.sent_packets.in_flight() + acked;
        }
        (self.slack, self.hold) = (rule.slack, rule.hold);
        self.report_acked(now, recovering, group);
        true
    }

    /// Tells the algorithm of the packets that arrived since it was last told.
    fn report_acked(&mut self, now: Time, recovering: bool, group: &Group<'_>) {
        // A window that was not used up says nothing about the path; in slow start half of it is enough (as
        // Linux' is_cwnd_limited).
        let slow_start = self.control.stats(Span::ZERO).slow_start;
        let used = if slow_start { self.cwnd / 2 } else { self.cwnd };
        let ack = Ack {
            now,
            acked: core::mem::take(&mut self.pending_acked),
            round: self.round,
            srtt: self.rtt.srtt(),
            rtt: self.rtt.latest(),
            min_rtt: self.rtt.min(),
            cwnd_limited: self.peak_in_flight + self.slack > used && !(slow_start && self.hold),
            recovering,
        };
        self.control.on_flight(&Flight {
            highest: self.sent_packets.highest_delivered().unwrap_or(0),
            next_seq: self.sent_packets.next_seq(),
            in_flight: self.sent_packets.in_flight(),
            lost: self.lost,
        });
        self.cwnd = self.control.on_ack(&ack, group).max(1);
    }

    /// Tells the algorithm that the network lost or marked the packet with sequence number `seq`, at most
    /// once a window. Returns whether it was told.
    pub fn congestion(&mut self, now: Time, cause: CongestionCause, seq: u64, group: &Group<'_>) -> bool {
        if seq < self.recovery_end && cause != CongestionCause::Timeout {
            return false;
        }
        self.recovery_end = self.sent_packets.next_seq();
        if self.pending_acked > 0 {
            // Arrivals in recovery are reported at once, so the pending ones arrived outside of recovery.
            self.report_acked(now, false, group);
        }
        let event = CongestionEvent { now, cause, srtt: self.rtt.srtt() };
        self.cwnd = self.control.on_congestion(&event, group).max(1);
        true
    }

    /// Declares packets lost that others have overtaken, and calls `lost` with the description of the batch
    /// and the position of each. Returns the highest sequence number among them, for
    /// [`congestion`](Self::congestion).
    #[inline]
    pub fn detect(&mut self, now: Time, mut lost: impl FnMut(&T, u32)) -> Option<u64> {
        let mut newest = None;
        let count = self.sent_packets.detect(now, &self.rtt, |what, i, seq| {
            newest = newest.max(Some(seq));
            lost(what, i);
        });
        self.lost = self.lost.wrapping_add(count);
        newest
    }

    /// Forgets delivered packets, and packets that were lost too long ago to teach anything by arriving late:
    /// beyond the widest reordering window (twice the RTT, RFC 8985 section 6.2) and a round trip more. If
    /// there would be no room to send otherwise, forgets all lost packets.
    #[inline]
    pub fn forget(&mut self, now: Time) {
        let before = now.as_nanos().saturating_sub(self.rtt.srtt().times(LOST_KEPT_RTTS).as_nanos());
        let before = if self.sent_packets.is_full() { Time::NEVER } else { Time::from_nanos(before) };
        self.forget_before(before, |_| {});
    }

    /// Forgets delivered packets, and lost packets that were sent before `before`. Hands the description of
    /// each forgotten batch to `dropped`.
    #[inline]
    pub fn forget_before(&mut self, before: Time, dropped: impl FnMut(T)) {
        self.sent_packets.forget(before, dropped);
    }

    /// Declares everything in flight lost after a timeout, and calls `lost` with the description of the batch
    /// and the position of each packet. Calls [`congestion`](Self::congestion) with
    /// [`CongestionCause::Timeout`], which sets the window.
    pub fn expire(&mut self, now: Time, group: &Group<'_>, lost: impl FnMut(&T, u32)) {
        self.congestion(now, CongestionCause::Timeout, self.sent_packets.next_seq(), group);
        self.abandon(lost);
        self.back_off(now);
    }

    /// Declares everything in flight lost, because nothing is expected any more; the algorithm is not told.
    /// Calls `lost` with the description of the batch and the position of each packet. Returns how many.
    pub fn abandon(&mut self, mut lost: impl FnMut(&T, u32)) -> u32 {
        self.sent_packets.expire(|what, i, _| lost(what, i))
    }

    /// Doubles the next timeout (RFC 6298 section 5.5).
    pub fn back_off(&mut self, now: Time) {
        self.rtt.back_off();
        self.last_rx = now;
    }

    /// Sets a window of one packet without telling the algorithm: a peer that has not answered yet says
    /// nothing about the path, and ssthresh would stay low (RFC 5681 section 3.1 sets none for a lost SYN
    /// either).
    pub const fn collapse(&mut self) {
        self.cwnd = 1;
    }

    /// Begins all measurements anew, because the path may have changed. Packets in flight may still arrive.
    pub fn restart(&mut self, control: C) {
        let sent_packets = core::mem::take(&mut self.sent_packets);
        *self = Self { sent_packets, ..Self::new(control) };
    }

    /// Returns when [`detect`](Self::detect) or [`timer`](Self::timer) would next do something.
    #[must_use]
    pub fn deadline(&self) -> Time {
        if self.sent_packets.in_flight() == 0 {
            return Time::NEVER;
        }
        let mut at = self.timeout_at(Span::MAX);
        if self.rtt.has_sample()
            && let Some(probe) = self.probe_at()
        {
            at = at.min(probe);
        }
        match self.sent_packets.next_deadline(&self.rtt) {
            Some(reorder) => at.min(reorder),
            None => at,
        }
    }

    /// Returns when a probe is due; `None` if this silence has had one.
    #[must_use]
    #[inline]
    pub fn probe_at(&self) -> Option<Time> {
        (!self.probed).then(|| self.last_rx + self.rtt.probe_timeout())
    }

    /// Returns the [`deadline`](Self::deadline) if it is before `limit`, the earlier deadline. The call is
    /// nearly free if an arrival has just put the deadline off.
    #[must_use]
    #[inline]
    pub fn deadline_before(&self, limit: Time) -> Option<Time> {
        // No timeout is shorter than the shortest probe timeout.
        if limit <= self.last_rx + PTO_MIN && !self.sent_packets.is_overtaken() {
            return None;
        }
        Some(self.deadline()).filter(|at| *at < limit)
    }

    /// Returns when packets in flight count as lost. No retransmission timeout is longer than `rto_max`.
    #[must_use]
    pub fn timeout_at(&self, rto_max: Span) -> Time {
        let oldest = self.sent_packets.oldest_outstanding().unwrap_or(self.last_rx);
        oldest.max(self.last_rx) + self.rtt.rto().min(rto_max)
    }

    /// Returns the action that is due at `now`. A probe is asked for once in a silence.
    pub fn timer(&mut self, now: Time) -> Timer {
        self.timer_with(now, Patience { probe: self.rtt.has_sample(), rto_max: Span::MAX })
    }

    /// Returns the action that is due at `now`, as [`timer`](Self::timer) does, with another patience.
    pub fn timer_with(&mut self, now: Time, patience: Patience) -> Timer {
        if self.sent_packets.in_flight() == 0 {
            return Timer::None;
        }
        if now >= self.timeout_at(patience.rto_max) {
            return Timer::Timeout;
        }
        if patience.probe && self.probe_at().is_some_and(|at| now >= at) {
            self.probed = true;
            return Timer::Probe;
        }
        Timer::None
    }
}
