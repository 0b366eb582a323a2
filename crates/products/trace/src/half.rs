//! One direction of one subflow: its TCP sequence numbers, its mappings and its acknowledgements.

use std::collections::VecDeque;

use anabranch_mptcp_wire::expand;

use crate::distribution::Distribution;
use crate::round_trips::RoundTrips;
use crate::runs::{Piece, Runs};

/// The offset of all sequence numbers, so that none is below zero.
const EPOCH: u64 = 1 << 32;
/// The most mappings that are remembered. A sender repeats the mapping of the segment, rarely an old one.
const MAPPINGS_MAX: usize = 64;

/// A piece of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PayloadPiece {
    /// The first number of the piece on the subflow, and the number after its last.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Whether the subflow sends the piece for the first time.
    pub(crate) is_new: bool,
}

/// The position of a range of the subflow's bytes in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The first byte's number on the subflow.
    pub(crate) seq: u64,
    /// The first byte's data sequence number.
    pub(crate) data_seq: u64,
    /// The number of bytes.
    pub(crate) bytes: u64,
}

/// Counts of the segments and bytes that one direction of a subflow has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The segments, with and without payload.
    pub(crate) packets: u64,
    /// The payload of all segments, bytes.
    pub(crate) payload_bytes: u64,
    /// The bytes of data that no subflow had sent before.
    pub(crate) unique_bytes: u64,
    /// The payload with TCP sequence numbers that were sent before, in bytes, and its segments.
    pub(crate) retransmitted: (u64, u64),
    /// The bytes of data that another subflow had sent first, and their segments.
    pub(crate) reinjected: (u64, u64),
    /// The bytes of data that this subflow had sent first, under other sequence numbers, and their segments.
    pub(crate) resent: (u64, u64),
    /// The payload without a mapping, bytes.
    pub(crate) unmapped_bytes: u64,
}

/// The times of certain segments, ns; `None` if there was no such segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// The last segment of any kind.
    pub(crate) segment: Option<u64>,
    /// The first segment with payload.
    pub(crate) first_data: Option<u64>,
    /// The last segment with payload that has new TCP sequence numbers.
    pub(crate) new_data: Option<u64>,
    /// The last such segment before which all data was acknowledged.
    pub(crate) waiting: Option<u64>,
    /// The last acknowledgement on no SYN and no RST.
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
    /// The highest number that the receiver has acknowledged.
    pub(crate) acked: Option<u64>,
    pub(crate) ack_bytes: Distribution,
    /// The round trips from a segment to its acknowledgement.
    pub(crate) round_trips: RoundTrips,
    /// The slots of time in which the subflow carried new data, and those in which only other subflows did.
    pub(crate) slots: (u32, u32),
    seen: Option<Runs>,
    mappings: VecDeque<Mapping>,
    /// The pieces of the last payload, kept so that no list is allocated for each segment.
    pub(crate) pieces: Vec<PayloadPiece>,
}

impl Half {
    /// Returns a sequence number in 64 bits: the value closest to the highest number so far.
    pub(crate) fn number(&self, seq: u32) -> u64 {
        let near = self.seen.as_ref().map_or(EPOCH + u64::from(seq), Runs::high);
        expand(seq, near)
    }

    /// Takes a SYN with number `seq`; the first byte of data has the next number.
    pub(crate) fn syn(&mut self, seq: u32) {
        let isn = EPOCH + u64::from(seq);
        self.isn = Some(isn);
        self.seen.get_or_insert_with(|| Runs::new(isn + 1));
    }

    /// Returns the first number of payload, if the SYN was captured.
    pub(crate) fn first(&self) -> Option<u64> {
        self.isn.map(|isn| isn + 1)
    }

    /// Returns the bytes between the highest number that was sent and the highest that was acknowledged.
    pub(crate) fn outstanding_bytes(&self) -> u64 {
        let high = self.seen.as_ref().map_or(0, Runs::high);
        self.acked.map_or(0, |acked| high.saturating_sub(acked))
    }

    /// Remembers a mapping. Returns whether it was not known.
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

    /// Returns the remembered mapping with this data sequence number and length, wherever its first byte is.
    /// Captures without the SYN need it, because they place a mapping by the segment on which it is first
    /// seen.
    pub(crate) fn known(&self, data_seq: u64, bytes: u64) -> Option<Mapping> {
        let same = |known: &&Mapping| known.data_seq == data_seq && known.bytes == bytes;
        self.mappings.iter().rev().find(same).copied()
    }

    /// Hands the data sequence numbers of `start..end` to `each`, piece by piece; `None` where no mapping is
    /// known.
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

    /// Cuts the payload at `start..end` into `pieces`. Returns whether any of them is new on this subflow.
    pub(crate) fn payload(&mut self, now: u64, start: u64, end: u64) -> bool {
        let was_idle = self.outstanding_bytes() == 0;
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
            if was_idle {
                self.times.waiting = Some(now);
            }
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
        // An acknowledgement beyond the numbers that were sent belongs to segments that were not captured.
        if ack <= before || ack - before > 1 << 31 {
            return;
        }
        self.acked = Some(ack);
        self.ack_bytes.add(ack - before, ack - before);
        self.round_trips.acknowledged(now, ack);
    }

    /// Returns whether this direction has ended by FIN or RST.
    pub(crate) fn is_closed(&self) -> bool {
        self.times.fin.is_some() || self.times.reset.is_some()
    }

    /// Returns how many runs were forgotten.
    pub(crate) fn forgotten(&self) -> u64 {
        self.seen.as_ref().map_or(0, Runs::forgotten)
    }
}
