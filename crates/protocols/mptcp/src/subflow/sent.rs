//! What the scoreboard remembers of a segment until it is acknowledged.

use anabranch_algo::Time;

use crate::payload::Payload;

/// Bytes that a subflow carries, and their position in the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// The data sequence number of the first byte.
    pub(crate) data_seq: u64,
    pub(crate) payload: Payload,
    /// Whether the subflow's FIN follows the bytes.
    pub(crate) fin: bool,
}

impl Chunk {
    pub(super) fn sequence_len(&self) -> u64 {
        self.payload.len() as u64 + u64::from(self.fin)
    }
}

/// The content of one packet of `algo`: the segment that begins at `seq`, in its transmission `number` (from
/// 1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Transmission {
    pub(super) seq: u64,
    pub(super) number: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Outstanding,
    Sacked,
    Lost,
}

/// A segment that has not been acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) seq: u64,
    pub(super) chunk: Chunk,
    /// The packet numbers of the last transmission and of the one before.
    pub(super) packet: u64,
    pub(super) earlier: Option<u64>,
    pub(super) number: u32,
    pub(super) sent_at: Time,
    /// The timestamp of the last transmission.
    pub(super) timestamp: u32,
    pub(super) fate: Fate,
}

impl Sent {
    pub(super) fn end(&self) -> u64 {
        self.seq + self.chunk.sequence_len()
    }
}
