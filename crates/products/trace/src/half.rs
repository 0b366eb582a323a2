//! One direction of one subflow: its TCP sequence, its mappings, its acknowledgements.

use std::collections::VecDeque;

use anabranch_mptcp_wire::expand;

use crate::distribution::Distribution;
use crate::round_trips::RoundTrips;
use crate::runs::{Piece, Runs};

/// Sequence numbers are counted from here, so that none is below zero.
const EPOCH: u64 = 1 << 32;
/// Mappings that are remembered: a sender repeats the one of the segment, rarely an old one.
const MAPPINGS_MAX: usize = 64;

/// A piece of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PayloadPiece {
    /// Its first number on the subflow, and the number after its last.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Whether the subflow sends it for the first time.
    pub(crate) is_new: bool,
}

/// Where bytes of the subflow belong in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The first byte's number on the subflow.
    pub(crate) seq: u64,
    /// Its data sequence number.
    pub(crate) data_seq: u64,
    /// How many bytes.
    pub(crate) bytes: u64,
}

/// What a direction of a subflow has carried, in packets or in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Segments with and without payload.
    pub(crate) packets: u64,
    /// Payload of all segments.
    pub(crate) payload_bytes: u64,
    /// Data that no subflow had sent before.
    pub(crate) unique_bytes: u64,
    /// Payload with TCP sequence numbers that were sent before, and its segments.
    pub(crate) retransmitted: (u64, u64),
    /// Data that another subflow had sent first.
    pub(crate) reinjected: (u64, u64),
    /// Data that this subflow had sent first, under new sequence numbers.
    pub(crate) resent: (u64, u64),
    /// Payload without a mapping.
    pub(crate) unmapped_bytes: u64,
}

/// When things were last seen, nanoseconds; `None`: never.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// Any segment.
    pub(crate) segment: Option<u64>,
    /// The first payload.
    pub(crate) first_data: Option<u64>,
    /// Payload whose TCP sequence numbers are new.
    pub(crate) new_data: Option<u64>,
    /// An acknowledgement on no SYN and no RST.
    pub(crate) ack: Option<u64>,
    /// The first FIN.
    pub(crate) fin: Option<u64>,
    /// The first RST.
    pub(crate) reset: Option<u64>,
}

/// One direction of a subflow.
#[derive(Debug, Default)]
pub(crate) struct Half {
    /// The sender's initial sequence number, if its SYN was captured.
    pub(crate) isn: Option<u64>,
    pub(crate) counts: Counts,
    pub(crate) times: Times,
    /// The receiver's acknowledgements, and how far they have come.
    pub(crate) acked: Option<u64>,
    pub(crate) ack_bytes: Distribution,
    /// From a segment to its acknowledgement.
    pub(crate) round_trips: RoundTrips,
    /// Slots of time in which it carried new data, and in which only siblings did.
    pub(crate) slots: (u32, u32),
    seen: Option<Runs>,
    mappings: VecDeque<Mapping>,
    /// The pieces of the last payload: kept, so that none is allocated for each segment.
    pub(crate) pieces: Vec<PayloadPiece>,
}

impl Half {
    /// A sequence number in 64 bits: the one closest to what was seen last.
    pub(crate) fn number(&self, seq: u32) -> u64 {
        let near = self.seen.as_ref().map_or(EPOCH + u64::from(seq), Runs::high);
        expand(seq, near)
    }

    /// A SYN: the first byte of data has the next number.
    pub(crate) fn syn(&mut self, seq: u32) {
        let isn = EPOCH + u64::from(seq);
        self.isn = Some(isn);
        self.seen.get_or_insert_with(|| Runs::new(isn + 1));
    }

    /// The first number of payload.
    pub(crate) fn first(&self) -> Option<u64> {
        self.isn.map(|isn| isn + 1)
    }

    /// The highest number that was sent, and with it that nothing is sent which was not acknowledged.
    pub(crate) fn outstanding_bytes(&self) -> u64 {
        let high = self.seen.as_ref().map_or(0, Runs::high);
        self.acked.map_or(0, |acked| high.saturating_sub(acked))
    }

    /// Remembers a mapping; returns whether it was not known.
    pub(crate) fn map(&mut self, mapping: Mapping) -> bool {
        if self.mappings.iter().rev().any(|known| *known == mapping) {
            return false;
        }
        if self.mappings.len() == MAPPINGS_MAX {
            self.mappings.pop_front();
        }
        self.mappings.push_back(mapping);
        true
    }

    /// The mapping of the same data and subflow numbers, wherever its first byte is: for captures without the
    /// SYN, where a mapping is placed by the segment on which it is first seen.
    pub(crate) fn known(&self, data_seq: u64, bytes: u64) -> Option<Mapping> {
        let same = |known: &&Mapping| known.data_seq == data_seq && known.bytes == bytes;
        self.mappings.iter().rev().find(same).copied()
    }

    /// The data sequence numbers of `start..end`, piece by piece: `None` where no mapping is known.
    pub(crate) fn data(&self, start: u64, end: u64, mut each: impl FnMut(Option<u64>, u64)) {
        let mut at = start;
        while at < end {
            let covers = |known: &&Mapping| at.wrapping_sub(known.seq) < known.bytes;
            match self.mappings.iter().rev().find(covers) {
                Some(known) => {
                    let stop = end.min(known.seq.saturating_add(known.bytes));
                    each(Some(known.data_seq.wrapping_add(at - known.seq)), stop - at);
                    at = stop;
                }
                None => {
                    let begins = |known: &Mapping| (known.seq > at).then_some(known.seq);
                    let stop = self.mappings.iter().filter_map(begins).min().unwrap_or(end).min(end);
                    each(None, stop - at);
                    at = stop;
                }
            }
        }
    }

    /// Takes payload at `start..end` apart into `pieces`. Returns whether any is new on this subflow.
    pub(crate) fn payload(&mut self, now: u64, start: u64, end: u64) -> bool {
        let seen = self.seen.get_or_insert_with(|| Runs::new(start));
        let pieces = &mut self.pieces;
        pieces.clear();
        let is_higher = end > seen.high();
        seen.insert(start, end, 0, |start, end, piece| {
            pieces.push(PayloadPiece { start, end, is_new: piece == Piece::New });
        });
        let old_bytes: u64 =
            pieces.iter().filter(|piece| !piece.is_new).map(|piece| piece.end - piece.start).sum();
        let is_new = pieces.iter().any(|piece| piece.is_new);
        self.counts.payload_bytes += end - start;
        self.times.first_data.get_or_insert(now);
        if old_bytes > 0 {
            self.counts.retransmitted.0 += old_bytes;
            self.counts.retransmitted.1 += 1;
            self.round_trips.sent_again(start);
        } else if is_higher {
            self.round_trips.sent(now, end);
        }
        if is_new {
            self.times.new_data = Some(now);
        }
        is_new
    }

    /// Records that the other end acknowledges everything below `ack`.
    pub(crate) fn acknowledge(&mut self, now: u64, ack: u32) {
        let Some(seen) = &self.seen else { return };
        let ack = expand(ack, seen.high());
        let Some(before) = self.acked else {
            self.acked = Some(ack);
            return;
        };
        // An acknowledgement of more than was sent belongs to segments that were not captured.
        if ack <= before || ack - before > 1 << 31 {
            return;
        }
        self.acked = Some(ack);
        self.ack_bytes.add(ack - before, ack - before);
        self.round_trips.acknowledged(now, ack);
    }

    /// Whether it has ended by itself.
    pub(crate) fn is_closed(&self) -> bool {
        self.times.fin.is_some() || self.times.reset.is_some()
    }

    /// Runs that were forgotten.
    pub(crate) fn forgotten(&self) -> u64 {
        self.seen.as_ref().map_or(0, Runs::forgotten)
    }
}
