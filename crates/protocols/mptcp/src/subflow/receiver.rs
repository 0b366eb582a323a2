//! The receiving half of one subflow: order, selective acknowledgements, and when to acknowledge (RFC 9293
//! section 3.10.7.4, RFC 2018, RFC 2883, RFC 7323 section 4.3).

use std::collections::VecDeque;

use anabranch_algo::{Span, Time};
use anabranch_mptcp_wire::{SackBlocks, expand};

use crate::payload::Payload;
use crate::reassembly::Reassembly;
use crate::segment::{EcnField, Flags, Segment};

/// An acknowledgement is sent after this many segments with data (RFC 9293 section 3.8.6.3).
const SEGMENTS_PER_ACK: u32 = 2;
/// The first segments of a connection are acknowledged at once, because the sender's window is small.
const QUICK_ACKS: u32 = 16;
/// The most ranges out of order that are remembered for SACK blocks.
const RECENT_MAX: usize = 8;

/// The time of the next acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckDue {
    No,
    At(Time),
    Now,
}

/// The receiving half of a subflow. Sequence numbers are 64 bits wide; their lowest 32 bits are those on the
/// wire.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    /// The data out of order, and the next number that is expected.
    order: Reassembly,
    /// The number of the peer's SYN.
    first: u64,
    /// The right edge of the window that the peer was told, its end excluded.
    edge: u64,
    /// The data in order that `pop` has not returned yet.
    ready: VecDeque<(u64, Payload)>,
    /// The number of the FIN, once it has arrived.
    fin: Option<u64>,
    /// The first numbers of segments that arrived out of order, the latest first.
    recent: VecDeque<u64>,
    /// A range that arrived twice, to be reported once (RFC 2883).
    duplicate: Option<(u64, u64)>,
    ack: AckDue,
    unacked_segments: u32,
    quick_acks: u32,
    ts_recent: u32,
    /// The value of `next` when the last acknowledgement was sent (RFC 7323 section 4.3).
    last_ack: u64,
    echo_congestion: bool,
    ack_delay: Span,
}

impl Receiver {
    /// Creates a receiver when nothing but the SYN with number `irs` has arrived.
    pub(crate) fn new(irs: u32, ack_delay: Span) -> Self {
        // Numbers begin far from zero, so that numbers below the first one are no special case.
        let next = (1 << 32) + u64::from(irs) + 1;
        Self {
            order: Reassembly::new(next),
            first: next - 1,
            edge: next,
            ready: VecDeque::new(),
            fin: None,
            recent: VecDeque::new(),
            duplicate: None,
            ack: AckDue::No,
            unacked_segments: 0,
            quick_acks: QUICK_ACKS,
            ts_recent: 0,
            last_ack: next,
            echo_congestion: false,
            ack_delay,
        }
    }

    /// Returns the bytes that have arrived in order.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.order.next() - self.first - 1 - u64::from(self.is_finished())
    }

    pub(crate) const fn next(&self) -> u64 {
        self.order.next()
    }
    /// Returns the 64-bit sequence number for the wire number `seq`.
    pub(crate) const fn whole(&self, seq: u32) -> u64 {
        expand(seq, self.next())
    }
    pub(crate) const fn ts_recent(&self) -> u32 {
        self.ts_recent
    }
    /// Returns whether the FIN and everything before it have arrived.
    pub(crate) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.next() > fin)
    }

    /// Returns whether any of `len` numbers from `seq` on is within the window (RFC 9293 section 3.10.7.4,
    /// step 1).
    pub(crate) const fn accepts(&self, seq: u64, len: u64) -> bool {
        let next = self.next();
        let window = self.edge.saturating_sub(next);
        match (len, window) {
            (0, 0) => seq == next,
            (0, _) => seq >= next && seq < self.edge,
            (_, 0) => false,
            _ => seq < self.edge && seq + len > next,
        }
    }

    /// Returns the distance from the peer's SYN to the 64-bit number `whole`.
    pub(crate) const fn offset(&self, whole: u64) -> u64 {
        whole - self.first
    }

    /// Returns whether a timestamp is older than the last one that was noted (PAWS, RFC 7323 section 5.3).
    pub(crate) const fn is_old(&self, timestamp: u32) -> bool {
        (timestamp.wrapping_sub(self.ts_recent) as i32) < 0
    }

    /// Remembers the peer's timestamp (RFC 7323 section 4.3).
    pub(crate) fn note_timestamp(&mut self, value: u32, seq: u64) {
        if seq <= self.last_ack && !self.is_old(value) {
            self.ts_recent = value;
        }
    }

    /// Remembers the timestamp of the SYN.
    pub(crate) const fn first_timestamp(&mut self, value: u32) {
        self.ts_recent = value;
    }

    /// Takes the data and the FIN of a segment that was [accepted](Self::accepts). `seq` is its 64-bit
    /// number.
    pub(crate) fn take(&mut self, now: Time, seq: u64, segment: &Segment) {
        if segment.ecn == EcnField::Ce {
            self.echo_congestion = true;
        }
        if segment.flags.has(Flags::CWR) {
            self.echo_congestion = segment.ecn == EcnField::Ce;
        }
        let has_fin = segment.flags.has(Flags::FIN);
        let len = segment.payload.len() as u64;
        if len == 0 && !has_fin {
            return;
        }
        let (before, end) = (self.next(), seq + len);
        if has_fin && self.fin.is_none() {
            self.fin = Some(end);
        }
        let is_duplicate = end + u64::from(has_fin) <= before;
        let inserted = self.order.insert(seq, segment.payload.clone(), self.edge);
        self.duplicate = inserted.duplicate.or(self.duplicate);
        if inserted.is_new {
            self.note_recent(seq);
        }
        self.advance();
        if self.fin == Some(self.next()) {
            self.order.skip_one();
        }
        let in_order = self.next() > before && self.order.is_empty();
        self.unacked_segments += 1;
        let at_once = is_duplicate || !in_order || has_fin || self.quick_acks > 0;
        self.quick_acks = self.quick_acks.saturating_sub(1);
        if at_once || self.unacked_segments >= SEGMENTS_PER_ACK {
            self.ack = AckDue::Now;
        } else if self.ack == AckDue::No {
            self.ack = AckDue::At(now + self.ack_delay);
        }
    }

    fn note_recent(&mut self, seq: u64) {
        if seq > self.next() {
            self.recent.push_front(seq);
            self.recent.truncate(RECENT_MAX);
        }
    }

    /// Moves the data that is in order now to `ready`.
    fn advance(&mut self) {
        while let Some(piece) = self.order.pop() {
            self.ready.push_back(piece);
        }
        let next = self.next();
        self.recent.retain(|seq| *seq > next);
    }

    /// Returns the next piece in order with its 64-bit number, if there is one.
    pub(crate) fn pop(&mut self) -> Option<(u64, Payload)> {
        self.ready.pop_front()
    }

    /// Returns the first number that [`pop`](Self::pop) has not returned.
    pub(crate) fn unread(&self) -> u64 {
        self.ready.front().map_or(self.next(), |(seq, _)| *seq)
    }

    /// Returns at most `room` SACK blocks: the range that arrived twice first, then the latest ranges (RFC
    /// 2018 section 4).
    pub(crate) fn sack_blocks(&mut self, room: usize) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        let mut used = 0;
        if let Some((left, right)) = self.duplicate.take().filter(|_| room > 0) {
            blocks.push(left as u32, right as u32);
            used = 1;
        }
        let mut reported: Vec<u64> = Vec::new();
        for seq in &self.recent {
            let Some((left, right)) = self.order.range_of(*seq).filter(|_| used < room) else { continue };
            if !reported.contains(&left) {
                blocks.push(left as u32, right as u32);
                reported.push(left);
                used += 1;
            }
        }
        blocks
    }

    /// Returns whether there are ranges to report in a SACK option.
    pub(crate) fn has_sack(&self) -> bool {
        self.duplicate.is_some() || !self.recent.is_empty()
    }

    /// Has an acknowledgement sent at once.
    pub(crate) const fn ack_now(&mut self) {
        self.ack = AckDue::Now;
    }

    pub(crate) fn ack_due(&self, now: Time) -> bool {
        match self.ack {
            AckDue::No => false,
            AckDue::At(at) => at <= now,
            AckDue::Now => true,
        }
    }

    pub(crate) const fn deadline(&self) -> Time {
        match self.ack {
            AckDue::No => Time::NEVER,
            AckDue::At(at) => at,
            AckDue::Now => Time::ZERO,
        }
    }

    /// Returns whether ECE must be set on outgoing segments.
    pub(crate) const fn echo_congestion(&self) -> bool {
        self.echo_congestion
    }

    /// Records that an acknowledgement leaves with a window of `window` bytes, so the peer may send up to its
    /// end. A smaller window does not move the edge back.
    pub(crate) fn acked(&mut self, window: u64) {
        self.ack = AckDue::No;
        self.unacked_segments = 0;
        self.last_ack = self.next();
        self.edge = self.edge.max(self.next() + window);
    }
}
