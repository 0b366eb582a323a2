//! Measures the delivery rate of a path and keeps the largest of two probing cycles (draft-ietf-ccwg-bbr,
//! section 4.1 and from 5.5.2 to 5.5.6).
//!
//! The draft notes with each packet how many packets had been delivered when it left. This file instead sets
//! a *mark* at an acknowledgement, twice a round trip, and the first packet sent after the mark answers it. A
//! sample then is the number of packets that arrived since the mark, over the time since, which is at least a
//! round trip.

use super::super::{Ack, Flight};
use crate::softfloat::Real;
use crate::{Span, Time};

/// The largest number of unanswered marks; they are half a round trip apart.
const MARKS: usize = 2;

/// Holds the state at an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    at: Time,
    /// The lowest bits of the sequence number of the packet that answers it.
    seq: u32,
    delivered: u32,
    lost: u32,
    /// Packets in flight; zero if the sender had nothing to send, which says nothing about the path.
    flight: u32,
}

/// Holds the measurements of one round trip.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// The delivery rate in packets a nanosecond.
    pub(super) rate: Real,
    /// The number of packets that arrived.
    pub(super) delivered: u32,
    /// The number of packets in flight at its beginning; zero if the sender had nothing to send.
    pub(super) flight: u32,
}

impl Sample {
    /// Returns whether the sender, not the path, was the limit.
    pub(super) const fn is_limited(&self) -> bool {
        self.flight == 0
    }
}

/// Measures the delivery rate of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delivery {
    marks: [Option<Mark>; MARKS],
    marked_at: Time,
    delivered: u32,
    /// The largest rates of the probing cycle before and of this cycle.
    max: [Real; 2],
}

impl Delivery {
    pub(super) const NEW: Self =
        Self { marks: [None; MARKS], marked_at: Time::ZERO, delivered: 0, max: [Real::ZERO; 2] };

    /// Notes packets that arrived. Sets a mark if it is time, and returns a sample if the packets answered a
    /// mark. `needed` is the number of packets that must be in flight for the path, and not the sender, to be
    /// the limit.
    pub(super) fn on_ack(&mut self, ack: &Ack, flight: &Flight, needed: u32) -> Option<Sample> {
        self.delivered = self.delivered.wrapping_add(ack.acked);
        let mut newest: Option<Mark> = None;
        for place in &mut self.marks {
            if let Some(mark) = place.filter(|mark| is_reached(flight.highest as u32, mark.seq)) {
                newest = newest.filter(|other| other.at >= mark.at).or(Some(mark));
                *place = None;
            }
        }
        let half = ack.srtt.over(MARKS as u64);
        if let Some(free) = self.marks.iter_mut().find(|place| place.is_none())
            && (self.marked_at == Time::ZERO || ack.now.since(self.marked_at) >= half)
        {
            self.marked_at = ack.now;
            let before = flight.in_flight.saturating_add(ack.acked);
            *free = Some(Mark {
                at: ack.now,
                seq: flight.next_seq as u32,
                delivered: self.delivered,
                lost: flight.lost,
                flight: if before >= needed { before } else { 0 },
            });
        }
        let mark = newest?;
        let (delivered, elapsed) = (self.delivered.wrapping_sub(mark.delivered), ack.now.since(mark.at));
        if elapsed == Span::ZERO {
            return None;
        }
        let rate = Real::from_u64(u64::from(delivered)) / Real::from_u64(elapsed.as_nanos());
        let sample = Sample { rate, delivered, flight: mark.flight };
        if !sample.is_limited() || rate >= self.max_bw() {
            self.max[1] = self.max[1].max(rate);
        }
        Some(sample)
    }

    /// Returns the largest rate of this cycle and the one before, in packets a nanosecond; zero before the
    /// first sample.
    pub(super) fn max_bw(&self) -> Real {
        self.max[0].max(self.max[1])
    }

    /// Ends a probing cycle.
    pub(super) const fn next_cycle(&mut self) {
        self.max = [self.max[1], Real::ZERO];
    }

    /// Returns the number of packets in flight at the oldest unanswered mark, if more than two percent of
    /// that number have been lost since (section 5.5.10.2).
    pub(super) fn too_high(&self, lost: u32) -> Option<u32> {
        let oldest = self.marks.iter().flatten().min_by_key(|mark| mark.at)?;
        let since = u64::from(lost.wrapping_sub(oldest.lost));
        (since * 50 > u64::from(oldest.flight)).then_some(oldest.flight).filter(|flight| *flight > 0)
    }

    /// Forgets the marks, because the packets in flight are lost.
    pub(super) const fn reset(&mut self) {
        self.marks = [None; MARKS];
    }
}

/// Returns whether the sequence number `highest` is at or after `seq`, comparing their lowest bits.
pub(super) const fn is_reached(highest: u32, seq: u32) -> bool {
    highest.wrapping_sub(seq) <= u32::MAX / 2
}
