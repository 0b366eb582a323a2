//! What the scripts of the study of smartphones count of a connection, beside the exact numbers.
//!
//! Sources: De Coninck, Baerts, Hesmans, Bonaventure, *A First Analysis of Multipath TCP on Smartphones*,
//! PAM 2016, and its scripts, <https://github.com/multipath-tcp/mptcp-analysis-scripts>, with mptcptrace
//! below them. They look at where mappings begin, in 32 bits, and add the lengths of mappings. A sender that
//! repeats a mapping on each of its segments counts once here, as it would have with the Linux of the study.

use std::collections::{HashMap, HashSet};

use crate::distribution::Distribution;
use crate::stream::Blocks;

/// Beginnings of mappings, and sequence numbers, that are remembered; then all are forgotten.
const SEEN_MAX: usize = 1 << 16;

/// One direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Pam16 {
    /// Who sent a mapping first.
    starts: HashMap<u32, u16>,
    last: Option<(u16, u32)>,
    /// The beginnings of segments with payload, by subflow.
    segments: HashSet<(u16, u32)>,
    reinjected_bytes: u64,
    retransmitted_bytes: u64,
    blocks: Blocks,
}

/// What it has counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pam16Counts {
    /// Lengths of mappings that another subflow began at the same number before.
    pub(crate) reinjected_bytes: u64,
    /// Payload of segments that began at a sequence number at which one began before.
    pub(crate) retransmitted_bytes: u64,
    /// Runs of segments with a mapping on one subflow, and their segments.
    pub(crate) blocks: u64,
    pub(crate) block_packets: Distribution,
}

impl Pam16 {
    /// A segment of `subflow` has a mapping.
    pub(crate) fn mapping(&mut self, subflow: u16, data_seq: u64, bytes: u64) {
        let start = data_seq as u32;
        self.blocks.packet(subflow);
        if self.last.replace((subflow, start)) == Some((subflow, start)) {
            return;
        }
        if self.starts.len() == SEEN_MAX {
            self.starts.clear();
        }
        if *self.starts.entry(start).or_insert(subflow) != subflow {
            self.reinjected_bytes += bytes;
        }
    }

    /// A segment of `subflow` has payload.
    pub(crate) fn payload(&mut self, subflow: u16, seq: u32, bytes: u64) {
        if self.segments.len() == SEEN_MAX {
            self.segments.clear();
        }
        if !self.segments.insert((subflow, seq)) {
            self.retransmitted_bytes += bytes;
        }
    }

    pub(crate) fn counts(&self) -> Pam16Counts {
        let mut block_packets = self.blocks.packets.clone();
        if let Some(packets) = self.blocks.current_packets() {
            block_packets.add(packets, packets);
        }
        Pam16Counts {
            reinjected_bytes: self.reinjected_bytes,
            retransmitted_bytes: self.retransmitted_bytes,
            blocks: self.blocks.count,
            block_packets,
        }
    }
}
