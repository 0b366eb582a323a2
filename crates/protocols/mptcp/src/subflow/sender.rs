//! The sending half of one subflow: a scoreboard of segments over `algo`'s tracker of packets (RFC 9293, RFC
//! 2018, RFC 6298, RFC 8985).
//!
//! Each transmission is a packet of its own to [`algo::Subflow`](anabranch_algo::subflow::Subflow), as in
//! QUIC. The tracker measures, declares losses and probes by the order of transmissions, so it finds a lost
//! retransmission like any other loss (RFC 8985 section 3). The scoreboard says which bytes a transmission
//! carried. When bytes that were sent twice are acknowledged, the scoreboard decides which of the two
//! transmissions arrived: by the echoed timestamp (RFC 8985 section 6.2, step 2), or without timestamps by
//! whether the later one had time to be answered.

use std::collections::{BTreeSet, VecDeque};

use anabranch_algo::control::{Algorithm, CongestionCause, Group, SubflowStats};
use anabranch_algo::prr::Prr;
use anabranch_algo::rtt::RttEstimator;
use anabranch_algo::subflow::{AckRule, Patience, Subflow, Timer};
use anabranch_algo::{Span, Time};

use super::probe_rule::ProbeRule;
use super::sent::{Chunk, Fate, Sent, Transmission};
use super::told::Told;
use super::undo::{Undo, Verdict};
use crate::overtake::Pace;

/// The content of one acknowledgement. Sequence numbers are 64 bits wide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckInput<'a> {
    /// The acknowledgement number.
    pub(crate) ack: u64,
    /// The blocks of the SACK option, each with its end excluded.
    pub(crate) sacked: &'a [(u64, u64)],
    /// The echoed timestamp.
    pub(crate) echo: Option<u32>,
    /// Whether ECE is set.
    pub(crate) congestion_echo: bool,
    /// The peer's receive window: the bytes from `ack` on that it has room for.
    pub(crate) window: u64,
    /// The segment's own number. Older segments do not change the window (RFC 9293 section 3.10.7.4).
    pub(crate) seq: u64,
}

/// A segment to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) seq: u64,
    pub(crate) chunk: Chunk,
    /// Whether the segment was sent before.
    pub(crate) again: bool,
}

/// The effect of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fired {
    Nothing,
    /// A tail-loss probe must be sent.
    Probe,
    /// Everything in flight was declared lost.
    Timeout,
}

/// Counters of a subflow's whole life.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) timeouts: u32,
    /// Reductions of the window without a timeout.
    pub(crate) reductions: u32,
    pub(crate) resent_packets: u64,
    pub(crate) resent_bytes: u64,
}

/// The sending half of a subflow. Sequence numbers are 64 bits wide; their lowest 32 bits are those on the
/// wire.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    flow: Subflow<Transmission, u8>,
    sent: VecDeque<Sent>,
    /// The sequence numbers of segments that are lost and were not sent again.
    lost: BTreeSet<u64>,
    una: u64,
    next: u64,
    window: PeerWindow,
    probe_rule: ProbeRule,
    /// Whether a tail-loss probe is due.
    probe_due: bool,
    /// The timeouts since the last acknowledgement.
    timeouts: u32,
    /// When the closed window is probed next, and how often it has been probed.
    persist: Option<(Time, u32)>,
    /// Whether CWR must be set on the next new segment.
    reduced: bool,
    recovery: Option<Recovery>,
    undo: Option<Undo>,
    totals: Totals,
    /// How long the handshake took: no less than a round trip.
    handshake: Span,
}

/// The peer's receive window.
#[derive(Clone, Copy, Debug)]
struct PeerWindow {
    /// The first sequence number for which the peer has no room.
    end: u64,
    /// The sequence number and the acknowledgement number of the segment that announced the window (SND.WL1,
    /// SND.WL2).
    seq: u64,
    ack: u64,
    /// The largest window that the peer has announced, bytes.
    max: u64,
}

/// A fast recovery. It ends once everything below `recover` is acknowledged, which had been sent when it
/// began.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    prr: Prr,
    recover: u64,
}

impl Sender {
    /// Creates the sender of a subflow whose SYN has the number `iss` and is not acknowledged yet.
    pub(crate) fn new(iss: u32, algorithm: Algorithm, probe_rule: ProbeRule) -> Self {
        let una = (1 << 32) + u64::from(iss);
        Self {
            flow: Subflow::new(algorithm),
            sent: VecDeque::new(),
            lost: BTreeSet::new(),
            una,
            next: una + 1,
            window: PeerWindow { end: una + 1, seq: 0, ack: 0, max: 0 },
            probe_rule,
            probe_due: false,
            timeouts: 0,
            persist: None,
            reduced: false,
            recovery: None,
            undo: None,
            totals: Totals::default(),
            handshake: Span::ZERO,
        }
    }

    /// Records that the SYN has been acknowledged, which was first sent at `began`. `sent_at` is the time of
    /// the transmission that was answered, if it is known which one that was, and gives a round trip.
    pub(crate) fn established(
        &mut self,
        now: Time,
        (began, sent_at): (Time, Option<Time>),
        window: u64,
        seq: u64,
    ) {
        self.una = self.next;
        self.handshake = now.since(began);
        if let Some(sent_at) = sent_at {
            self.flow.sample(now, sent_at);
        }
        self.set_window(window, seq, self.una);
    }

    pub(crate) const fn una(&self) -> u64 {
        self.una
    }
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }
    pub(crate) const fn window_max(&self) -> u64 {
        self.window.max
    }
    pub(crate) const fn timeouts(&self) -> u32 {
        self.timeouts
    }
    pub(crate) const fn totals(&self) -> Totals {
        self.totals
    }
    pub(crate) fn stats(&self) -> SubflowStats {
        self.flow.stats()
    }
    pub(crate) const fn rtt(&self) -> &RttEstimator {
        self.flow.rtt()
    }
    /// Returns the round trip that a segment sent now is expected to take: the smoothed one, or as long as
    /// the oldest segment in flight has waited, if that is longer. Before the first sample the handshake
    /// counts for it.
    pub(crate) fn expected_round_trip(&self, now: Time) -> Span {
        let rtt = self.rtt();
        let known = if rtt.has_sample() { rtt.srtt() } else { self.handshake };
        let waited = self.flow.sent_packets().oldest_outstanding().map_or(Span::ZERO, |at| now.since(at));
        known.max(waited)
    }

    /// Returns the state of the subflow for those that may overtake it, without `acked`.
    pub(crate) fn pace(&self, now: Time) -> Pace {
        let (rtt, rule) = (self.rtt(), self.probe_rule);
        let usual = if rtt.has_sample() { rtt.srtt() } else { self.handshake };
        let (one_way, round_trip) = (usual - rtt.min().over(2), self.expected_round_trip(now));
        let spread = rtt.rttvar().times(4).max(rtt.srtt().over(4));
        let overdue =
            if rtt.has_sample() { (rtt.srtt() + spread).min(rtt.probe_timeout()) } else { rtt.rto() };
        Pace { one_way, round_trip, overdue, delay: rule.single, timeout: rtt.rto(), acked: 0 }
    }

    pub(crate) const fn cwnd(&self) -> u32 {
        self.flow.cwnd()
    }
    pub(crate) const fn in_flight(&self) -> u32 {
        self.flow.sent_packets().in_flight()
    }
    /// Returns whether everything that was sent has been acknowledged.
    pub(crate) fn is_idle(&self) -> bool {
        self.sent.is_empty()
    }

    fn set_window(&mut self, window: u64, seq: u64, ack: u64) {
        self.window = PeerWindow { end: ack + window, seq, ack, max: self.window.max.max(window) };
        if window > 0 {
            self.persist = None;
        }
    }

    /// Returns how many packets the congestion window, or the recovery, lets leave now.
    fn allowance(&self) -> u32 {
        match self.recovery {
            Some(Recovery { prr, .. }) => prr.room(self.in_flight()).min(self.flow.sent_packets().free()),
            None => self.flow.room(),
        }
    }

    /// Records that a packet leaves, and returns its packet number.
    fn transmit(&mut self, now: Time, transmission: Transmission) -> u64 {
        if let Some(recovery) = &mut self.recovery {
            recovery.prr.sent();
        }
        self.flow.sent(now, 1, transmission)
    }

    /// Returns the bytes of new data that may leave now, at most `mss`. Returns 0 if the congestion window or
    /// the peer's window is full, or if lost segments must go first.
    pub(crate) fn room(&self, mss: u64) -> u64 {
        if self.allowance() == 0 || !self.lost.is_empty() {
            return 0;
        }
        self.window_room().min(mss)
    }

    /// Returns the bytes that the peer's window has room for.
    pub(crate) const fn window_room(&self) -> u64 {
        self.window.end.saturating_sub(self.next)
    }

    /// Sends new data or the FIN.
    pub(crate) fn send_new(&mut self, now: Time, chunk: Chunk, timestamp: u32) -> Outgoing {
        let (seq, number) = (self.next, 1);
        let packet = self.transmit(now, Transmission { seq, number });
        self.next += chunk.sequence_len();
        let outgoing = Outgoing { seq, chunk: chunk.clone(), again: false };
        let fate = Fate::Outstanding;
        self.sent.push_back(Sent {
            seq,
            chunk,
            packet,
            earlier: None,
            number,
            sent_at: now,
            timestamp,
            fate,
        });
        outgoing
    }

    /// Returns the index of the segment that begins at `seq`, or of the first one after it.
    fn place(&self, seq: u64) -> usize {
        self.sent.partition_point(|sent| sent.seq < seq)
    }

    /// Sends the first lost segment again, if there is one and the congestion window has room.
    pub(crate) fn resend_lost(&mut self, now: Time, timestamp: u32) -> Option<Outgoing> {
        if self.allowance() == 0 {
            return None;
        }
        let seq = self.lost.pop_first()?;
        self.resend(now, self.place(seq), timestamp)
    }

    /// Sends the last segment that is still missing again, as the probe that a timer asked for (RFC 8985
    /// section 7.3).
    pub(crate) fn resend_last(&mut self, now: Time, timestamp: u32) -> Option<Outgoing> {
        self.probe_due = false;
        let at = self.sent.iter().rposition(|sent| sent.fate != Fate::Sacked)?;
        let seq = self.sent.get(at)?.seq;
        self.lost.remove(&seq);
        self.resend(now, at, timestamp)
    }

    fn resend(&mut self, now: Time, at: usize, timestamp: u32) -> Option<Outgoing> {
        if self.flow.sent_packets().is_full() {
            return None;
        }
        let (seq, number) = self.sent.get(at).map(|sent| (sent.seq, sent.number + 1))?;
        let packet = self.transmit(now, Transmission { seq, number });
        let sent = self.sent.get_mut(at)?;
        self.totals.resent_packets += 1;
        self.totals.resent_bytes += sent.chunk.payload.len() as u64;
        sent.number = number;
        sent.earlier = Some(sent.packet);
        (sent.packet, sent.sent_at, sent.timestamp, sent.fate) = (packet, now, timestamp, Fate::Outstanding);
        Some(Outgoing { seq: sent.seq, chunk: sent.chunk.clone(), again: true })
    }

    /// Takes an acknowledgement within the numbers that were sent. Returns whether it shows that a timeout
    /// was wrong.
    pub(crate) fn acknowledged(&mut self, now: Time, input: &AckInput<'_>, group: &Group<'_>) -> bool {
        let mut undo = self.undo.take();
        let mut told = Told { count: 0, newest: None, sample: None, undo: undo.as_mut() };
        let (advanced, flight) = (input.ack > self.una, self.in_flight());
        for &(left, right) in input.sacked {
            for at in self.place(left)..self.sent.len() {
                let Some(sent) = self.sent.get_mut(at).filter(|sent| sent.end() <= right) else { break };
                if sent.fate != Fate::Sacked {
                    self.lost.remove(&sent.seq);
                    sent.fate = Fate::Sacked;
                    // For a segment out of order, the echo is that of an earlier segment (RFC 7323 section
                    // 4.3).
                    told.arrived(&mut self.flow, now, sent, None);
                }
            }
        }
        while let Some(sent) = self.sent.front().filter(|sent| sent.end() <= input.ack) {
            if sent.fate != Fate::Sacked {
                self.lost.remove(&sent.seq);
                told.arrived(&mut self.flow, now, sent, input.echo);
            }
            self.sent.pop_front();
        }
        self.una = self.una.max(input.ack);
        let is_newer =
            input.seq > self.window.seq || (input.seq == self.window.seq && input.ack >= self.window.ack);
        if is_newer {
            self.set_window(input.window, input.seq, input.ack);
        }
        if advanced || told.count > 0 {
            self.timeouts = 0;
            self.probe_due = false;
        }
        if let Some(newest) = told.newest {
            self.flow.acked(now, told.count, newest, told.sample, AckRule::ONE_BY_ONE, group);
            if input.congestion_echo {
                let is_reduced = self.flow.congestion(now, CongestionCause::EcnCe, newest, group);
                self.totals.reductions += u32::from(is_reduced);
                self.reduced |= is_reduced;
            }
        }
        let count = told.count;
        let is_undone = undo.is_some_and(|undo| self.settle(now, undo, count > 0));
        self.recovery = self.recovery.filter(|recovery| self.una < recovery.recover);
        let has_lost = self.detect(now, flight, group);
        let (in_flight, cwnd) = (self.in_flight(), self.cwnd());
        if let Some(recovery) = &mut self.recovery {
            recovery.prr.acked(count, in_flight, cwnd, advanced && !has_lost);
        }
        // A timeout can be undone only while the tracker remembers the packets that it declared lost.
        if self.undo.is_none() || self.flow.sent_packets().is_full() {
            self.flow.forget(now);
        }
        is_undone
    }

    /// Decides whether an acknowledgement shows that a timeout was wrong, and if so undoes it and returns
    /// true.
    fn settle(&mut self, now: Time, mut undo: Undo, is_news: bool) -> bool {
        let (saved, at, sent_at) = match undo.decide(self.una, is_news) {
            Verdict::Open => {
                self.undo = Some(undo);
                return false;
            }
            Verdict::Stays => return false,
            Verdict::Wrong(saved, at, sent_at) => (saved, at, sent_at),
        };
        self.flow.restore(saved);
        // The round trip takes longer than the estimate said (RFC 4015 section 3.3).
        self.flow.sample(now, sent_at);
        for sent in self.sent.iter_mut().filter(|sent| sent.fate == Fate::Lost && sent.sent_at < at) {
            if self.flow.reclaim(sent.packet, 0) {
                sent.fate = Fate::Outstanding;
                self.lost.remove(&sent.seq);
            }
        }
        true
    }

    /// Declares the segments lost that later transmissions have overtaken, and returns whether there were
    /// any. `flight` is the number of packets in flight before the acknowledgement.
    fn detect(&mut self, now: Time, flight: u32, group: &Group<'_>) -> bool {
        let (sent, lost) = (&mut self.sent, &mut self.lost);
        let (mut has_lost, mut is_reduced) = (false, false);
        // An episode of losses may narrow the reordering window, and then more segments count as lost at
        // once.
        while let Some(newest) =
            self.flow.detect(now, |transmission, _| declare_lost(sent, lost, *transmission))
        {
            has_lost = true;
            is_reduced |= self.flow.congestion(now, CongestionCause::Loss, newest, group);
        }
        self.reduced |= is_reduced;
        if is_reduced {
            self.totals.reductions += 1;
            let prr = Prr::new(flight, self.in_flight(), self.cwnd());
            self.recovery = Some(Recovery { prr, recover: self.next });
        }
        has_lost
    }

    /// Handles the timers that are due at `now`.
    pub(crate) fn timer(&mut self, now: Time, group: &Group<'_>) -> Fired {
        self.detect(now, self.in_flight(), group);
        match self.flow.timer_with(now, Patience { probe: self.probe_at() <= now, rto_max: Span::MAX }) {
            Timer::None => Fired::Nothing,
            Timer::Probe => {
                self.probe_due = true;
                Fired::Probe
            }
            Timer::Timeout => {
                self.timeouts += 1;
                self.totals.timeouts += 1;
                self.probe_due = false;
                self.recovery = None;
                let (saved, recover) = (self.flow.save(), self.next);
                self.undo.get_or_insert_with(|| Undo::new(saved, now, recover));
                // The peer may have discarded segments that it reported selectively (RFC 2018 section 8).
                let reneged = self.sent.front().is_some_and(|sent| sent.fate == Fate::Sacked);
                let (sent, lost) = (&mut self.sent, &mut self.lost);
                self.flow.expire(now, group, |transmission, _| declare_lost(sent, lost, *transmission));
                if reneged {
                    for sent in &mut self.sent {
                        sent.fate = Fate::Lost;
                        self.lost.insert(sent.seq);
                    }
                }
                Fired::Timeout
            }
        }
    }

    /// Returns whether a tail-loss probe is due.
    pub(crate) const fn probe_due(&self) -> bool {
        self.probe_due
    }

    /// Records that the probe that was due has been sent as new data.
    pub(crate) const fn probed(&mut self) {
        self.probe_due = false;
    }

    /// Records that there is data to send while the peer's window is closed, and sets the time of the first
    /// probe of the window (RFC 9293 section 3.8.6.1).
    pub(crate) fn blocked_by_window(&mut self, now: Time) {
        if self.sent.is_empty() && self.persist.is_none() {
            self.persist = Some((now + self.flow.rtt().rto(), 0));
        }
    }

    /// Returns whether the closed window must be probed now, and sets the time of the next probe.
    pub(crate) fn window_probe_due(&mut self, now: Time) -> bool {
        let Some((at, count)) = self.persist.filter(|(at, _)| *at <= now) else { return false };
        let _ = at;
        let wait = self.flow.rtt().rto().times(1 << count.min(6)).min(PERSIST_MAX);
        self.persist = Some((now + wait, count + 1));
        true
    }

    /// Returns the time at which [`timer`](Self::timer) or [`window_probe_due`](Self::window_probe_due) next
    /// does something.
    pub(crate) fn deadline(&self) -> Time {
        let persist = self.persist.map_or(Time::NEVER, |(at, _)| at);
        let packets = self.flow.sent_packets();
        if packets.in_flight() == 0 {
            return persist;
        }
        let overtaken = packets.next_deadline(self.flow.rtt()).unwrap_or(Time::NEVER);
        persist.min(overtaken).min(self.flow.timeout_at(Span::MAX)).min(self.probe_at())
    }

    /// Returns when the tail is probed for.
    fn probe_at(&self) -> Time {
        let Some(at) = self.flow.probe_at().filter(|_| self.probe_rule.is_on && self.rtt().has_sample())
        else {
            return Time::NEVER;
        };
        let rule = self.probe_rule;
        let more = if self.in_flight() == 1 { rule.single } else { rule.several };
        (at + more).min(self.flow.timeout_at(Span::MAX))
    }

    /// Returns whether CWR must be set on this new segment, and clears the mark.
    pub(crate) const fn take_reduced(&mut self) -> bool {
        std::mem::replace(&mut self.reduced, false)
    }
}

/// The longest time between probes of a closed window.
const PERSIST_MAX: Span = Span::from_secs(60);

fn declare_lost(sent: &mut VecDeque<Sent>, lost: &mut BTreeSet<u64>, transmission: Transmission) {
    let at = sent.partition_point(|sent| sent.seq < transmission.seq);
    if let Some(sent) = sent.get_mut(at).filter(|sent| sent.seq == transmission.seq)
        && sent.number == transmission.number
        && sent.fate == Fate::Outstanding
    {
        sent.fate = Fate::Lost;
        lost.insert(sent.seq);
    }
}
