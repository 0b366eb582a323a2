//! The counters of a link, with which a scenario proves that its conditions happened.

use crate::packet::DropReason;
use anabranch_algo::{Span, Time};

/// Counts dropped packets, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// The queue was full.
    pub queue: u64,
    /// The queue was not full, but its [discipline](crate::Discipline) dropped the packet.
    pub early: u64,
    /// Random loss on the wire.
    pub loss: u64,
    /// A script listed the packet. [`Stats::scripted_left`] counts the entries still to come.
    pub scripted: u64,
    /// The link was down, or went down.
    pub down: u64,
    /// The packet was larger than the MTU.
    pub mtu: u64,
}

impl Drops {
    /// Returns the number of all drops.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.queue + self.early + self.loss + self.scripted + self.down + self.mtu
    }

    /// Returns the number of drops that mean congestion.
    #[must_use]
    pub const fn congestion(&self) -> u64 {
        self.queue + self.early
    }

    pub(crate) const fn count(&mut self, reason: DropReason) {
        match reason {
            DropReason::Queue => self.queue += 1,
            DropReason::Early => self.early += 1,
            DropReason::Loss => self.loss += 1,
            DropReason::Scripted => self.scripted += 1,
            DropReason::Down => self.down += 1,
            DropReason::Mtu => self.mtu += 1,
        }
    }
}

/// Counts the packets and bytes of one link, as of its last input or poll.
///
/// At any moment `offered + duplicated = delivered + dropped.total() + occupancy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets offered to the link.
    pub offered: u64,
    /// Bytes offered to the link.
    pub offered_bytes: u64,
    /// Packets handed out at the end of the link.
    pub delivered: u64,
    /// Bytes handed out at the end of the link.
    pub delivered_bytes: u64,
    /// Packets dropped, by cause.
    pub dropped: Drops,
    /// Entries of the link's scripts that no packet has met. If the number is not zero at the end, the
    /// scenario has failed.
    pub scripted_left: u64,
    /// Congestion events of [`Discipline::TargetedDrop`](crate::Discipline::TargetedDrop) that hit at least
    /// one flow.
    pub congestions: u64,
    /// Packets that the wire duplicated.
    pub duplicated: u64,
    /// Packets that the link gave a congestion mark. Only packets that [can carry one](crate::Packet::is_ect)
    /// are marked.
    pub marked: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
    /// Packets held back to be overtaken.
    pub reordered: u64,
    /// The most bytes that were queued at once, including the packet being sent.
    pub queue_max_bytes: u64,
    /// The most packets that were queued at once, including the packet being sent.
    pub queue_max_packets: u64,
    /// The time integral of the queued bytes, in byte-nanoseconds.
    pub queue_byte_ns: u128,
    /// The time when the first packet was offered.
    pub since: Time,
    /// The time until which the queue has been accounted for.
    pub until: Time,
    /// The total time in which the link had something to send.
    pub busy: Span,
}

impl Stats {
    /// Returns the time-weighted mean of the queued bytes since the first packet.
    #[must_use]
    pub fn queue_mean_bytes(&self) -> f64 {
        match self.until.since(self.since).as_nanos() {
            0 => 0.0,
            nanos => self.queue_byte_ns as f64 / nanos as f64,
        }
    }

    /// Returns the share of the time since the first packet in which the link had something to send, 0 to 1.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        match self.until.since(self.since).as_nanos() {
            0 => 0.0,
            nanos => self.busy.as_nanos() as f64 / nanos as f64,
        }
    }
}
