//! Counts the bytes of a connection as the scripts of the study of smartphones do, beside the exact numbers.
//!
//! Sources: De Coninck, Baerts, Hesmans, Bonaventure, *A First Analysis of Multipath TCP on Smartphones*,
//! PAM 2016, and its scripts, <https://github.com/multipath-tcp/mptcp-analysis-scripts>, with mptcptrace
//! below them. The scripts look at the first numbers of mappings, in 32 bits, and add the lengths of
//! mappings. A sender that repeats a mapping on each of its segments counts once here, as it would have with
//! the Linux of the study.

use std::collections::{HashMap, HashSet};

use crate::distribution::Distribution;
use crate::stream::Blocks;

/// The most beginnings of mappings, and of segments, that are remembered; beyond it all are forgotten.
const SEEN_MAX: usize = 1 << 16;

/// The counts of one direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Pam16 {
    /// The subflow that first sent a mapping, by the mapping's first number.
    starts: HashMap<u32, u16>,
    last: Option<(u16, u32)>,
    /// The beginnings of segments with payload, by subflow.
    segments: HashSet<(u16, u32)>,
    reinjected_bytes: u64,
    retransmitted_bytes: u64,
    blocks: Blocks,
}

/// The finished counts of one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pam16Counts {
    /// The lengths of mappings whose first number another subflow had used for a mapping before.
    pub(crate) reinjected_bytes: u64,
    /// The payload of segments whose first sequence number an earlier segment with payload had.
    pub(crate) retransmitted_bytes: u64,
    /// The runs of segments with a mapping on one subflow; `block_packets` has their segments.
    pub(crate) blocks: u64,
    pub(crate) block_packets: Distribution,
}

impl Pam16 {
    /// Counts the mapping of a segment of `subflow`.
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

    /// Counts the payload of a segment of `subflow`.
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
