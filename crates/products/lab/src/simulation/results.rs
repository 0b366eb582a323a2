//! What happened in a simulation.

use anabranch_algo::Time;
use anabranch_mmtp::subscriber::{Event, PathReport, SourceId};
use anabranch_sim::{Histogram, LinkId, Stats};

use super::{Progress, Receiver, ReceiverId, SimSourceId, Simulation, WantId};

impl Simulation {
    /// What must never happen and did: a window exceeded, a block reported twice or wrong, a storm of polls.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let of = |(r, one): (usize, &Receiver)| -> Vec<String> {
            one.log.violations().iter().map(|what| format!("receiver {r}: {what}")).collect()
        };
        self.receivers.iter().enumerate().flat_map(of).collect()
    }

    /// A number that differs when anything the receivers asked or reported, or a flow received, does.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest.0 ^ self.packet_flows.digest()
    }

    /// How far a want has come.
    #[must_use]
    pub fn progress(&self, receiver: ReceiverId, want: WantId) -> &Progress {
        self.receivers[receiver].log.progress(want)
    }

    /// What a receiver reported, but for the blocks.
    #[must_use]
    pub fn events(&self, receiver: ReceiverId) -> &[(Time, Event)] {
        self.receivers[receiver].log.events()
    }

    /// The paths of a receiver, as numbers. Their sources are those of [`source_of`](Self::source_of).
    #[must_use]
    pub fn paths(&self, receiver: ReceiverId) -> Vec<PathReport> {
        self.receivers[receiver].subscriber.paths().collect()
    }

    /// Which source of the simulation a receiver means.
    #[must_use]
    pub fn source_of(&self, receiver: ReceiverId, id: SourceId) -> Option<SimSourceId> {
        self.receivers[receiver].sources.iter().find(|(_, i)| **i == id).map(|(source, _)| *source)
    }

    /// New payload bytes that came over each path in each whole second: `[path][second]`.
    #[must_use]
    pub fn payload_per_second(&self, receiver: ReceiverId) -> &[Vec<u64>] {
        self.receivers[receiver].log.per_second()
    }

    /// What a link has seen.
    #[must_use]
    pub fn stats(&self, link: LinkId) -> Stats {
        self.net.stats(link)
    }

    /// How long packets stayed at a link, if it plays a trace.
    #[must_use]
    pub fn sojourns(&self, link: LinkId) -> Option<&Histogram> {
        self.net.sojourns(link)
    }

    /// Bytes queued at a link.
    #[must_use]
    pub fn queued_bytes(&self, link: LinkId) -> u64 {
        self.net.queued_bytes(link)
    }

    /// Packets queued or propagating on a link.
    #[must_use]
    pub fn occupancy(&self, link: LinkId) -> usize {
        self.net.occupancy(link)
    }
}
