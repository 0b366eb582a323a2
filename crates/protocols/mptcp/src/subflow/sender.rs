//! What leaves on one subflow, and what has become of it: a scoreboard of segments over `algo`'s tracker of
//! packets (RFC 9293, RFC 2018, RFC 6298, RFC 8985).
//!
//! Each transmission is a packet of its own to [`algo::Subflow`](anabranch_algo::subflow::Subflow), as in
//! QUIC: it measures, declares lost and probes by the order of transmissions, so a lost retransmission is
//! found like any other loss (RFC 8985 section 3). The scoreboard says which bytes a transmission carried.
//! When bytes that were sent twice are acknowledged, it says which of the two transmissions arrived: by the
//! echoed timestamp (RFC 8985 section 6.2, step 2), or without timestamps by whether the later one can have.

use std::collections::{BTreeSet, VecDeque};

use anabranch_algo::control::{Algorithm, CongestionCause, Group, SubflowStats};
use anabranch_algo::prr::Prr;
use anabranch_algo::rtt::RttEstimator;
use anabranch_algo::sent_packets::Delivery;
use anabranch_algo::subflow::{AckRule, Patience, Subflow, Timer};
use anabranch_algo::{Span, Time};

use super::undo::{Evidence, Undo, Verdict};
use crate::payload::Payload;

/// Bytes that a subflow carries, and where they belong in the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// The data sequence number of the first byte.
    pub(crate) data_seq: u64,
    pub(crate) payload: Payload,
    /// Whether the subflow's FIN follows.
    pub(crate) fin: bool,
}

impl Chunk {
    fn sequence_len(&self) -> u64 {
        self.payload.len() as u64 + u64::from(self.fin)
    }
}

/// What a packet of `algo` carried: the segment that begins here, sent for the n-th time.
#[derive(Clone, Copy, Debug)]
struct Transmission {
    seq: u64,
    number: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Outstanding,
    Sacked,
    Lost,
}

/// A segment that has not been acknowledged.
#[derive(Clone, Debug)]
struct Sent {
    seq: u64,
    chunk: Chunk,
    /// Its last transmission, and the one before.
    packet: u64,
    earlier: Option<u64>,
    number: u32,
    sent_at: Time,
    /// The timestamp of the last transmission.
    timestamp: u32,
    fate: Fate,
}

impl Sent {
    fn end(&self) -> u64 {
        self.seq + self.chunk.sequence_len()
    }
}

/// What an acknowledgement tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckInput<'a> {
    /// The whole acknowledgement number.
    pub(crate) ack: u64,
    /// Blocks of whole numbers.
    pub(crate) sacked: &'a [(u64, u64)],
    /// The echoed timestamp.
    pub(crate) echo: Option<u32>,
    /// Whether ECE is set.
    pub(crate) congestion_echo: bool,
    /// Bytes from `ack` on that the peer has room for.
    pub(crate) window: u64,
    /// The segment's own number: older ones don't change the window (RFC 9293 section 3.10.7.4).
    pub(crate) seq: u64,
}

/// A segment to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) seq: u64,
    pub(crate) chunk: Chunk,
    /// Whether it was sent before.
    pub(crate) again: bool,
}

/// What a timer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fired {
    Nothing,
    /// A probe is to be sent.
    Probe,
    /// Everything in flight was declared lost.
    Timeout,
}

/// Whether a lost tail is probed for, and how long the peer may put an acknowledgement off (RFC 8985 section
/// 7.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeRule {
    pub(crate) is_on: bool,
    pub(crate) ack_delay: Span,
}

/// The sending half of a subflow. Numbers are whole: the lowest 32 bits are those on the wire.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    flow: Subflow<Transmission, u8>,
    sent: VecDeque<Sent>,
    /// Numbers of the segments that are lost and were not sent again.
    lost: BTreeSet<u64>,
    una: u64,
    next: u64,
    window: PeerWindow,
    probe_rule: ProbeRule,
    /// Whether a probe is due.
    probe_due: bool,
    /// Timeouts since the last acknowledgement.
    timeouts: u32,
    /// The next probe of a closed window, and how often it was sent.
    persist: Option<(Time, u32)>,
    /// Whether CWR is to be set on the next new segment.
    reduced: bool,
    recovery: Option<Recovery>,
    undo: Option<Undo>,
}

/// What the peer has room for.
#[derive(Clone, Copy, Debug)]
struct PeerWindow {
    /// One beyond the last number that it has room for.
    end: u64,
    /// The number and the acknowledgement of the segment that said so (SND.WL1, SND.WL2).
    seq: u64,
    ack: u64,
    /// The largest that it has had, bytes.
    max: u64,
}

/// A fast recovery, which ends once everything is acknowledged that had been sent when it began.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    prr: Prr,
    recover: u64,
}

impl Sender {
    /// After a SYN with number `iss` that is not acknowledged yet.
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
        }
    }

    /// The SYN has been acknowledged; `rtt` if it was sent once.
    pub(crate) fn established(&mut self, now: Time, sent_at: Option<Time>, window: u64, seq: u64) {
        self.una = self.next;
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
    pub(crate) fn stats(&self) -> SubflowStats {
        self.flow.stats()
    }
    pub(crate) const fn rtt(&self) -> &RttEstimator {
        self.flow.rtt()
    }
    pub(crate) const fn cwnd(&self) -> u32 {
        self.flow.cwnd()
    }
    pub(crate) const fn in_flight(&self) -> u32 {
        self.flow.sent_packets().in_flight()
    }
    /// Whether everything that was sent has been acknowledged.
    pub(crate) fn is_idle(&self) -> bool {
        self.sent.is_empty()
    }

    fn set_window(&mut self, window: u64, seq: u64, ack: u64) {
        self.window = PeerWindow { end: ack + window, seq, ack, max: self.window.max.max(window) };
        if window > 0 {
            self.persist = None;
        }
    }

    /// Packets that may leave now.
    fn allowance(&self) -> u32 {
        match self.recovery {
            Some(Recovery { prr, .. }) => prr.room(self.in_flight()).min(self.flow.sent_packets().free()),
            None => self.flow.room(),
        }
    }

    /// A packet leaves.
    fn transmit(&mut self, now: Time, transmission: Transmission) -> u64 {
        if let Some(recovery) = &mut self.recovery {
            recovery.prr.sent();
        }
        self.flow.sent(now, 1, transmission)
    }

    /// Bytes of new data that may leave now, at most `mss`; 0 if the congestion window or the peer's is full,
    /// or lost segments go first.
    pub(crate) fn room(&self, mss: u64) -> u64 {
        if self.allowance() == 0 || !self.lost.is_empty() {
            return 0;
        }
        self.window_room().min(mss)
    }

    /// Bytes that the peer's window has room for.
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

    /// The place of the segment that begins at `seq`, or of the first after it.
    fn place(&self, seq: u64) -> usize {
        self.sent.partition_point(|sent| sent.seq < seq)
    }

    /// The first lost segment is sent again, if there is one and the window has room.
    pub(crate) fn resend_lost(&mut self, now: Time, timestamp: u32) -> Option<Outgoing> {
        if self.allowance() == 0 {
            return None;
        }
        let seq = self.lost.pop_first()?;
        self.resend(now, self.place(seq), timestamp)
    }

    /// The last segment that is still missing is sent again, as the probe that a timer asked for (RFC 8985
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
        sent.number = number;
        sent.earlier = Some(sent.packet);
        (sent.packet, sent.sent_at, sent.timestamp, sent.fate) = (packet, now, timestamp, Fate::Outstanding);
        Some(Outgoing { seq: sent.seq, chunk: sent.chunk.clone(), again: true })
    }

    /// Takes an acknowledgement that is within what was sent. Whether it shows that a timeout was wrong.
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
                    // Out of order, the echo is that of an earlier segment (RFC 7323 section 4.3).
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
                self.reduced |= self.flow.congestion(now, CongestionCause::EcnCe, newest, group);
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
        // A timeout can only be undone as long as what it declared lost is remembered.
        if self.undo.is_none() || self.flow.sent_packets().is_full() {
            self.flow.forget(now);
        }
        is_undone
    }

    /// Decides what an acknowledgement shows of a timeout; whether that it was wrong.
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
        // The round trip takes longer than was known (RFC 4015 section 3.3).
        self.flow.sample(now, sent_at);
        for sent in self.sent.iter_mut().filter(|sent| sent.fate == Fate::Lost && sent.sent_at < at) {
            if self.flow.reclaim(sent.packet, 0) {
                sent.fate = Fate::Outstanding;
                self.lost.remove(&sent.seq);
            }
        }
        true
    }

    /// Declares lost what later transmissions have overtaken; whether there was any. `flight`: what was in
    /// flight before.
    fn detect(&mut self, now: Time, flight: u32, group: &Group<'_>) -> bool {
        let (sent, lost) = (&mut self.sent, &mut self.lost);
        let (mut has_lost, mut is_reduced) = (false, false);
        // An episode of losses may narrow the reordering window, by which more is lost at once.
        while let Some(newest) =
            self.flow.detect(now, |transmission, _| declare_lost(sent, lost, *transmission))
        {
            has_lost = true;
            is_reduced |= self.flow.congestion(now, CongestionCause::Loss, newest, group);
        }
        self.reduced |= is_reduced;
        if is_reduced {
            let prr = Prr::new(flight, self.in_flight(), self.cwnd());
            self.recovery = Some(Recovery { prr, recover: self.next });
        }
        has_lost
    }

    /// Does what is due at `now`.
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
                self.probe_due = false;
                self.recovery = None;
                let (saved, recover) = (self.flow.save(), self.next);
                self.undo.get_or_insert_with(|| Undo::new(saved, now, recover));
                // What the peer reported selectively may have been discarded (RFC 2018 section 8).
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

    /// Whether a probe is due.
    pub(crate) const fn probe_due(&self) -> bool {
        self.probe_due
    }

    /// A probe that was due has been sent as new data.
    pub(crate) const fn probed(&mut self) {
        self.probe_due = false;
    }

    /// There is data to send and the peer's window is closed: when the window is to be probed (RFC 9293
    /// section 3.8.6.1).
    pub(crate) fn blocked_by_window(&mut self, now: Time) {
        if self.sent.is_empty() && self.persist.is_none() {
            self.persist = Some((now + self.flow.rtt().rto(), 0));
        }
    }

    /// Whether the closed window is to be probed now.
    pub(crate) fn window_probe_due(&mut self, now: Time) -> bool {
        let Some((at, count)) = self.persist.filter(|(at, _)| *at <= now) else { return false };
        let _ = at;
        let wait = self.flow.rtt().rto().times(1 << count.min(6)).min(PERSIST_MAX);
        self.persist = Some((now + wait, count + 1));
        true
    }

    /// When [`timer`](Self::timer) or [`window_probe_due`](Self::window_probe_due) would next do something.
    pub(crate) fn deadline(&self) -> Time {
        let persist = self.persist.map_or(Time::NEVER, |(at, _)| at);
        let packets = self.flow.sent_packets();
        if packets.in_flight() == 0 {
            return persist;
        }
        let overtaken = packets.next_deadline(self.flow.rtt()).unwrap_or(Time::NEVER);
        persist.min(overtaken).min(self.flow.timeout_at(Span::MAX)).min(self.probe_at())
    }

    /// When the tail is to be probed for. A single segment may be acknowledged late, which is waited for.
    fn probe_at(&self) -> Time {
        let Some(at) = self.flow.probe_at().filter(|_| self.probe_rule.is_on && self.rtt().has_sample())
        else {
            return Time::NEVER;
        };
        let ack_delay = if self.in_flight() == 1 { self.probe_rule.ack_delay } else { Span::ZERO };
        (at + ack_delay).min(self.flow.timeout_at(Span::MAX))
    }

    /// Whether CWR is to be set on this new segment; asked once.
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

/// What one acknowledgement tells `algo`.
struct Told<'a> {
    count: u32,
    /// The highest packet number that arrived.
    newest: Option<u64>,
    /// When the newest packet was sent whose round trip is certain.
    sample: Option<Time>,
    /// A timeout of which it may tell something.
    undo: Option<&'a mut Undo>,
}

impl Told<'_> {
    /// A segment has arrived: which of its transmissions?
    fn arrived(&mut self, flow: &mut Subflow<Transmission, u8>, now: Time, sent: &Sent, echo: Option<u32>) {
        let is_earlier = match (sent.earlier, echo) {
            (None, _) => false,
            // The echo is older than the last transmission, so an earlier one caused it.
            (Some(_), Some(echo)) if echo != sent.timestamp => (echo.wrapping_sub(sent.timestamp) as i32) < 0,
            (Some(_), _) => now.since(sent.sent_at) < flow.rtt().min(),
        };
        let packet = sent.earlier.filter(|_| is_earlier).unwrap_or(sent.packet);
        let is_certain = sent.earlier.is_none() || echo.is_some_and(|echo| echo != sent.timestamp);
        match flow.delivered(now, packet, 0) {
            Delivery::Acked { sent_at, seq } => {
                self.newest = self.newest.max(Some(seq));
                if is_certain && !is_earlier {
                    self.sample = self.sample.max(Some(sent_at));
                }
                self.count += 1;
                self.tell(sent, sent_at, echo);
            }
            Delivery::SpuriousLoss { seq, sent_at, .. } => {
                self.newest = self.newest.max(Some(seq));
                self.count += 1;
                self.tell(sent, sent_at, echo);
            }
            Delivery::Duplicate | Delivery::Unknown => {}
        }
        match sent.earlier {
            // The later one is on its way for nothing.
            Some(_) if is_earlier => drop(flow.cancel(sent.packet, 0)),
            // Nothing shows that the earlier one is lost.
            Some(earlier) if !is_certain => drop(flow.cancel(earlier, 0)),
            _ => {}
        }
    }

    /// A transmission of a segment has arrived that was sent at `sent_at`.
    fn tell(&mut self, sent: &Sent, sent_at: Time, echo: Option<u32>) {
        if let Some(undo) = &mut self.undo {
            let is_certain = sent.earlier.is_none() || echo.is_some();
            undo.arrived(&Evidence { sent_at, last_sent_at: sent.sent_at, seq: sent.seq, is_certain });
        }
    }
}
