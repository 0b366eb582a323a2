//! A subflow as its sender (or, where receivers drive, its requester) sees it: window, estimator, what is in
//! flight, when to probe and when to give up.
//!
//! It joins [`Control`], [`RttEstimator`] and [`SentPackets`] and adds what none of them knows: rounds,
//! recovery, whether the window was the limit, the probe before a timeout. What is sent is the world's: `T`
//! says so, a batch.

use crate::control::{
    Ack, Algorithm, CongestionCause, CongestionEvent, Control, Flight, Group, SubflowStats,
};
use crate::rtt::{PTO_MIN, RTO_MIN, RttEstimator};
use crate::sent_packets::{Delivery, PacketBitmap, SentPackets};
use crate::{Span, Time};

/// Acknowledgements are handed to [`Control`] together once they amount to this part of the window. It weighs
/// them, so that this does not change the growth, and RFC 6356 section 4.1 asks for at most one look at the
/// siblings per packet of growth.
const ACK_COALESCING: u32 = 16;
const _: () = assert!(PTO_MIN.as_nanos() <= RTO_MIN.as_nanos());
/// Round trips for which what was lost is remembered.
const LOST_KEPT_RTTS: u64 = 4;

/// Packets that are due within this time leave together, where there is a pace.
const PACING_QUANTUM: Span = Span::from_micros(100);

/// What a timer asks for: see [`Subflow::timer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Nothing yet.
    None,
    /// Send one packet above the window if need be, so that a lost tail is noticed (RFC 8985 section 7).
    Probe,
    /// Nothing has come for a retransmission timeout (RFC 6298 section 5).
    Timeout,
}

/// How acknowledgements are taken.
#[derive(Clone, Copy, Debug)]
pub struct AckRule {
    /// A window with fewer unused packets than this counts as used up: senders gather requests into batches.
    pub slack: u32,
    /// Whether they are gathered, up to a sixteenth of the window; for those who get them one by one.
    pub coalesce: bool,
    /// Whether slow start is to pause: too much is unanswered that others have overtaken, and nobody can tell
    /// yet whether it is lost.
    pub hold: bool,
}

impl AckRule {
    /// For packets that leave and are acknowledged one by one.
    pub const ONE_BY_ONE: Self = Self { slack: 1, coalesce: true, hold: false };
}

/// How long a subflow waits for what is in flight.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Whether it probes before a timeout.
    pub probe: bool,
    /// The longest retransmission timeout.
    pub rto_max: Span,
}

/// One subflow; see the [module](self). `M`: as in [`SentPackets`]. `C`: its controller; one of the table
/// unless you bring your own.
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
    /// Packets that arrived since [`Control`] was last told.
    pending_acked: u32,
    slack: u32,
    hold: bool,
    last_rx: Time,
    probed: bool,
    /// Packets declared lost so far; it wraps around.
    lost: u32,
    /// When the packets sent so far have left at the controller's pace.
    paced_until: Time,
}

impl<T, M: PacketBitmap, C: Control> Subflow<T, M, C> {
    /// Nothing sent yet.
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

    /// Congestion window, packets: at least 1.
    #[must_use]
    pub const fn cwnd(&self) -> u32 {
        self.cwnd
    }
    /// The round-trip time estimator.
    #[must_use]
    pub const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }
    /// What is in flight.
    #[must_use]
    pub const fn sent_packets(&self) -> &SentPackets<T, M> {
        &self.sent_packets
    }
    /// Packets that the window allows now, and that can be remembered each for itself.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.cwnd.saturating_sub(self.sent_packets.in_flight()).min(self.sent_packets.free())
    }
    /// The same, if the controller has a [pace](Control::pace) what that allows, too.
    #[must_use]
    pub fn paced_room(&self, now: Time) -> u32 {
        let Some(pace) = self.pace() else { return self.room() };
        if self.paced_until > now {
            return 0;
        }
        let due = (now + PACING_QUANTUM).since(self.paced_until.max(now)).as_nanos() / pace.as_nanos().max(1);
        self.room().min(u32::try_from(due).unwrap_or(u32::MAX).saturating_add(1))
    }
    /// When the controller's [pace](Control::pace) allows the next packet; in the past if there is none.
    #[must_use]
    pub const fn paced_until(&self) -> Time {
        self.paced_until
    }
    /// The controller's [pace](Control::pace).
    #[must_use]
    pub fn pace(&self) -> Option<Span> {
        self.control.pace()
    }
    /// What this subflow publishes for its siblings; without an RTT, and so without weight, before it has
    /// one.
    #[must_use]
    pub fn stats(&self) -> SubflowStats {
        self.control.stats(self.rtt.srtt())
    }

    /// The same without an RTT, and so without weight: of one that does not answer.
    #[must_use]
    pub fn stats_without_rtt(&self) -> SubflowStats {
        self.control.stats(Span::ZERO)
    }

    /// `count` packets go out; returns their batch.
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

    /// Packet `i` of batch `id` has arrived at the other end, as is known at `now`.
    #[inline]
    pub fn delivered(&mut self, now: Time, id: u64, i: u32) -> Delivery {
        let delivery = self.sent_packets.deliver(now, id, i);
        if matches!(delivery, Delivery::Acked { .. } | Delivery::SpuriousLoss { .. }) {
            (self.last_rx, self.probed) = (now, false);
        }
        delivery
    }

    /// The same, from a cache on the way: see [`SentPackets::deliver_aside`]. Its time is no
    /// [sample](Self::sample).
    pub fn delivered_aside(&mut self, now: Time, id: u64, i: u32) -> Delivery {
        let delivery = self.sent_packets.deliver_aside(id, i);
        if matches!(delivery, Delivery::Acked { .. } | Delivery::SpuriousLoss { .. }) {
            (self.last_rx, self.probed) = (now, false);
        }
        delivery
    }

    /// Something else that shows that the other end is there.
    pub const fn heard(&mut self, now: Time) {
        (self.last_rx, self.probed) = (now, false);
    }

    /// Packet `i` of batch `id` is not expected any more, which is no loss; whether it was in flight.
    pub fn cancel(&mut self, id: u64, i: u32) -> bool {
        self.sent_packets.cancel(id, i)
    }

    /// A packet sent at `sent_at` has arrived: a sample of the round-trip time. Who publishes it to the
    /// siblings before they see the acknowledgement calls this instead of giving [`acked`](Self::acked) the
    /// time.
    pub fn sample(&mut self, now: Time, sent_at: Time) {
        self.rtt.sample(now, now.since(sent_at));
    }

    /// `acked` packets arrived, up to sequence number `seq`, the last of them sent at `sent_at`.
    /// Says whether the algorithm was told; if not, all that changes of what is [published](Self::stats) is
    /// the smoothed RTT.
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

    /// Hands what arrived since the last time to the algorithm.
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

    /// The network lost or marked the packet with sequence number `seq`; counts once a window. Whether so.
    pub fn congestion(&mut self, now: Time, cause: CongestionCause, seq: u64, group: &Group<'_>) -> bool {
        if seq < self.recovery_end && cause != CongestionCause::Timeout {
            return false;
        }
        self.recovery_end = self.sent_packets.next_seq();
        if self.pending_acked > 0 {
            // What arrives in recovery is never put off, so what is pending arrived outside of one.
            self.report_acked(now, false, group);
        }
        let event = CongestionEvent { now, cause, srtt: self.rtt.srtt() };
        self.cwnd = self.control.on_congestion(&event, group).max(1);
        true
    }

    /// Declares lost what others have overtaken: calls `lost` with what each was, returns the highest
    /// sequence number among them, which [`congestion`](Self::congestion) wants to know.
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

    /// Forgets what was delivered, and what was lost too long ago to teach anything by arriving late: beyond
    /// the widest reordering window (twice the RTT, RFC 8985 section 6.2) and a round trip more. Forgets all
    /// that was lost if there would be no room to send otherwise.
    #[inline]
    pub fn forget(&mut self, now: Time) {
        let before = now.as_nanos().saturating_sub(self.rtt.srtt().times(LOST_KEPT_RTTS).as_nanos());
        let before = if self.sent_packets.is_full() { Time::NEVER } else { Time::from_nanos(before) };
        self.forget_before(before, |_| {});
    }

    /// Forgets what was delivered, and what was sent before `before` and lost; hands it to `dropped`.
    #[inline]
    pub fn forget_before(&mut self, before: Time, dropped: impl FnMut(T)) {
        self.sent_packets.forget(before, dropped);
    }

    /// Everything in flight has expired: calls `lost` with what each was. The window follows from
    /// [`congestion`](Self::congestion) with [`CongestionCause::Timeout`], which this calls.
    pub fn expire(&mut self, now: Time, group: &Group<'_>, lost: impl FnMut(&T, u32)) {
        self.congestion(now, CongestionCause::Timeout, self.sent_packets.next_seq(), group);
        self.abandon(lost);
        self.back_off(now);
    }

    /// Nothing in flight is expected any more: calls `lost` with what each was; returns how many.
    pub fn abandon(&mut self, mut lost: impl FnMut(&T, u32)) -> u32 {
        self.sent_packets.expire(|what, i, _| lost(what, i))
    }

    /// The next timeout takes twice as long (RFC 6298 section 5.5).
    pub fn back_off(&mut self, now: Time) {
        self.rtt.back_off();
        self.last_rx = now;
    }

    /// Sets a window of one packet without telling the algorithm: a peer that has not answered yet tells
    /// nothing about the path, and ssthresh would stay low (RFC 5681 section 3.1 sets none for a lost SYN
    /// either).
    pub const fn collapse(&mut self) {
        self.cwnd = 1;
    }

    /// The path may have changed: all measurements begin anew, but packets in flight may still arrive.
    pub fn restart(&mut self, control: C) {
        let sent_packets = core::mem::take(&mut self.sent_packets);
        *self = Self { sent_packets, ..Self::new(control) };
    }

    /// When [`detect`](Self::detect) or [`timer`](Self::timer) would next do something.
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

    /// When a probe would be due, unless this silence has had one.
    #[must_use]
    #[inline]
    pub fn probe_at(&self) -> Option<Time> {
        (!self.probed).then(|| self.last_rx + self.rtt.probe_timeout())
    }

    /// The [`deadline`](Self::deadline), if it is before `limit`: nearly free where an arrival has just put
    /// it off, and `limit` is what it was before.
    #[must_use]
    #[inline]
    pub fn deadline_before(&self, limit: Time) -> Option<Time> {
        // No timeout is shorter than the shortest probe timeout.
        if limit <= self.last_rx + PTO_MIN && !self.sent_packets.is_overtaken() {
            return None;
        }
        Some(self.deadline()).filter(|at| *at < limit)
    }

    /// When what is in flight is taken for lost; no retransmission timeout is longer than `rto_max`.
    #[must_use]
    pub fn timeout_at(&self, rto_max: Span) -> Time {
        let oldest = self.sent_packets.oldest_outstanding().unwrap_or(self.last_rx);
        oldest.max(self.last_rx) + self.rtt.rto().min(rto_max)
    }

    /// What is due at `now`. A probe is asked for once in a silence.
    pub fn timer(&mut self, now: Time) -> Timer {
        self.timer_with(now, Patience { probe: self.rtt.has_sample(), rto_max: Span::MAX })
    }

    /// The same, with another patience.
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
