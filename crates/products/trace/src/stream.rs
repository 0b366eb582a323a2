//! One direction of a connection's data: which subflow sent which byte first, and how far the receiver has
//! come.

use crate::distribution::Distribution;
use crate::plot::Kind;
use crate::round_trips::RoundTrips;
use crate::runs::{Piece, Runs};

/// The time without an advance of the acknowledged data that counts as a stall, ns: Linux's least timeout.
pub const STALL_NS: u64 = 200_000_000;
/// The most stalls that are listed; the others are counted.
const STALLS_MAX: usize = 256;
/// The length of a slot in which a subflow is busy or idle, ns.
pub const SLOT_NS: u64 = 100_000_000;
/// Only subflows with numbers below this have busy and idle slots.
const SLOT_SUBFLOWS: u16 = 64;

/// A time in which the receiver's stream stood still although data was on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    pub(crate) begin_ns: u64,
    pub(crate) duration_ns: u64,
    /// The bytes that were sent and not acknowledged at the end of the stall.
    pub(crate) outstanding_bytes: u64,
}

/// Runs of packets of one direction that one subflow sent (000 section 2.3.5.4).
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    pub(crate) count: u64,
    /// The packets of a block, weighted by packets.
    pub(crate) packets: Distribution,
    current: Option<(u16, u64)>,
}

impl Blocks {
    pub(crate) fn packet(&mut self, subflow: u16) {
        match &mut self.current {
            Some((owner, packets)) if *owner == subflow => *packets += 1,
            _ => {
                self.end();
                self.count += 1;
                self.current = Some((subflow, 1));
            }
        }
    }

    /// Returns the packets of the block that is not over.
    pub(crate) fn current_packets(&self) -> Option<u64> {
        self.current.map(|(_, packets)| packets)
    }

    pub(crate) fn end(&mut self) {
        if let Some((_, packets)) = self.current.take() {
            self.packets.add(packets, packets);
        }
    }
}

/// The parts of a payload: new data, and data that was sent before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) unique_bytes: u64,
    /// Bytes that another subflow sent first.
    pub(crate) reinjected_bytes: u64,
    /// Bytes that the same subflow sent first.
    pub(crate) resent_bytes: u64,
}

impl Split {
    /// Returns the bytes of all parts.
    pub(crate) const fn bytes(&self) -> u64 {
        self.unique_bytes + self.reinjected_bytes + self.resent_bytes
    }
}

/// How long the tap waited for bytes while later ones were there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holes {
    since: Option<u64>,
    pub(crate) total_ns: u64,
    pub(crate) longest_ns: u64,
    pub(crate) queue_bytes_max: u64,
}

impl Holes {
    fn close(&mut self, now: u64) {
        if let Some(since) = self.since.take() {
            let duration = now.saturating_sub(since);
            self.total_ns += duration;
            self.longest_ns = self.longest_ns.max(duration);
        }
    }
}

/// One direction of a connection's data.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// The data sequence number of the first byte, or `None` until it is known.
    pub(crate) first: Option<u64>,
    pub(crate) unique_bytes: u64,
    /// The acknowledged data, in bytes from the first.
    pub(crate) acked: u64,
    pub(crate) ack_bytes: Distribution,
    /// The round trips from data to its data acknowledgement.
    pub(crate) round_trips: RoundTrips,
    pub(crate) blocks: Blocks,
    pub(crate) holes: Holes,
    pub(crate) stalls: Vec<Stall>,
    /// The number and total length of all stalls, and the longest time without an advance, both in ns.
    pub(crate) stalled: (u64, u64, u64),
    pub(crate) last_new_ns: Option<u64>,
    seen: Runs,
    /// The time since which data has been on its way, or of the last advance if that is later.
    waiting_since: Option<u64>,
    slot: (u64, u64),
}

impl Stream {
    /// Returns the bytes from the first byte to a data sequence number, or `None` for numbers before the
    /// first.
    pub(crate) fn offset(&self, data_seq: u64) -> Option<u64> {
        let offset = data_seq.wrapping_sub(self.first?);
        (offset < 1 << 63).then_some(offset)
    }

    /// Returns the highest data sequence number so far. Numbers of 32 bits are expanded to the closest value.
    pub(crate) fn near(&self) -> u64 {
        self.first.unwrap_or(0).wrapping_add(self.seen.high())
    }

    /// Returns the end of the data that was sent, in bytes from the first.
    pub(crate) const fn high(&self) -> u64 {
        self.seen.high()
    }

    /// Adds data of `subflow`. Adds the bytes of each piece to `split` by its kind, and hands each piece to
    /// `mark`.
    pub(crate) fn add(
        &mut self,
        now: u64,
        (data_seq, bytes): (u64, u64),
        subflow: u16,
        split: &mut Split,
        mut mark: impl FnMut((u64, u64), Kind),
    ) {
        self.first.get_or_insert(data_seq);
        let Some(start) = self.offset(data_seq) else { return };
        let end = start.saturating_add(bytes).min(1 << 63);
        let unique_before = split.unique_bytes;
        let before = self.seen.high();
        self.seen.insert(start, end, subflow, |from, to, piece| {
            let (sum, kind) = match piece {
                Piece::New => (&mut split.unique_bytes, Kind::New),
                Piece::Seen(owner) if owner != subflow => (&mut split.reinjected_bytes, Kind::Reinjected),
                Piece::Seen(_) | Piece::Forgotten => (&mut split.resent_bytes, Kind::Resent),
            };
            *sum += to - from;
            mark((from, to), kind);
        });
        let unique_bytes = split.unique_bytes - unique_before;
        self.unique_bytes += unique_bytes;
        if unique_bytes == 0 {
            self.round_trips.sent_again(start);
            return;
        }
        self.last_new_ns = Some(now);
        if end > before {
            self.round_trips.sent(now, end);
        }
        if self.seen.high() > self.acked && self.waiting_since.is_none() {
            self.waiting_since = Some(now);
        }
        self.hole(now);
    }

    fn hole(&mut self, now: u64) {
        let is_open = self.has_hole();
        let holes = &mut self.holes;
        match holes.since {
            None if is_open => holes.since = Some(now),
            Some(_) if !is_open => holes.close(now),
            _ => {}
        }
        if is_open {
            let queue = self.unique_bytes.saturating_sub(self.seen.front());
            holes.queue_bytes_max = holes.queue_bytes_max.max(queue);
        }
    }

    /// Records that the receiver has all data below the data sequence number `ack`. Returns the range that is
    /// newly acknowledged, if there is one.
    pub(crate) fn acknowledge(&mut self, now: u64, ack: u64) -> Option<(u64, u64)> {
        let ack = self.offset(ack)?;
        if ack <= self.acked || ack > self.seen.high() + (1 << 32) {
            return None;
        }
        let before = std::mem::replace(&mut self.acked, ack);
        let advance = ack - before;
        self.ack_bytes.add(advance, advance);
        if let Some(since) = self.waiting_since {
            self.stood_still(since, now);
            self.waiting_since = (ack < self.seen.high()).then_some(now);
        }
        self.round_trips.acknowledged(now, ack);
        Some((before, ack))
    }

    fn stood_still(&mut self, begin_ns: u64, now: u64) {
        let duration_ns = now.saturating_sub(begin_ns);
        self.stalled.2 = self.stalled.2.max(duration_ns);
        if duration_ns < STALL_NS {
            return;
        }
        self.stalled.0 += 1;
        self.stalled.1 += duration_ns;
        if self.stalls.len() < STALLS_MAX {
            let outstanding_bytes = self.seen.high().saturating_sub(self.acked);
            self.stalls.push(Stall { begin_ns, duration_ns, outstanding_bytes });
        }
    }

    /// Returns how long the receiver's stream has stood still at `now`, ns; 0 if no data is on its way.
    pub(crate) fn standing_ns(&self, now: u64) -> u64 {
        self.waiting_since.map_or(0, |since| now.saturating_sub(since))
    }

    /// Returns whether the tap has seen bytes beyond bytes that are missing.
    pub(crate) const fn has_hole(&self) -> bool {
        self.seen.front() < self.seen.high()
    }

    /// Ends the stream at `now`. A stall that is still going on counts only if the connection `is_open`.
    pub(crate) fn finish(&mut self, now: u64, is_open: bool) {
        if is_open && let Some(since) = self.waiting_since.take() {
            self.stood_still(since, now);
        }
        self.holes.close(now);
        self.blocks.end();
    }

    /// Records new data of `subflow` in its slot of time. Returns the subflows of the slot that ended, as
    /// bits.
    pub(crate) fn busy(&mut self, now: u64, subflow: u16) -> Option<u64> {
        let slot = now / SLOT_NS;
        let bit = if subflow < SLOT_SUBFLOWS { 1 << subflow } else { 0 };
        if self.slot.0 == slot {
            self.slot.1 |= bit;
            return None;
        }
        let ended = std::mem::replace(&mut self.slot, (slot, bit)).1;
        (ended != 0).then_some(ended)
    }

    /// Returns the subflows of the slot that is not over, as bits.
    pub(crate) fn last_slot(&mut self) -> Option<u64> {
        let ended = std::mem::take(&mut self.slot.1);
        (ended != 0).then_some(ended)
    }

    /// Returns the bytes that were never seen although later ones were: lost before the tap, or not captured.
    pub(crate) fn missing_bytes(&self) -> u64 {
        self.seen.high().saturating_sub(self.unique_bytes)
    }

    /// Returns the first `count_max` ranges of bytes that were never seen.
    pub(crate) fn gaps(&self, count_max: usize) -> Vec<(u64, u64)> {
        self.seen.gaps(count_max)
    }

    /// Returns how many runs were forgotten. In these, a reinjection may count as a re-send.
    pub(crate) const fn forgotten(&self) -> u64 {
        self.seen.forgotten()
    }
}
