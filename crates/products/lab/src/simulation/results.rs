//! Reads the results of a simulation.

use anabranch_algo::Time;
use anabranch_mmtp::subscriber::{Event, PathReport, SourceId};
use anabranch_sim::{Histogram, LinkId, Stats};

use super::{Progress, Receiver, ReceiverId, SimSourceId, Simulation, WantId};

impl Simulation {
    /// Returns the invariants that were violated: a window exceeded, a block reported twice or wrong, a
    /// storm of polls.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let of = |(r, one): (usize, &Receiver)| -> Vec<String> {
            one.log.violations().iter().map(|what| format!("receiver {r}: {what}")).collect()
        };
        let receivers = self.receivers.iter().enumerate().flat_map(of);
        receivers.chain(self.tcp_flows.violations()).collect()
    }

    /// Returns a number that differs if any request or event of the receivers, or any arrival of a packet
    /// flow or of TCP, differs.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest.0 ^ self.packet_flows.digest() ^ self.tcp_flows.digest()
    }

    /// Returns the progress of a want.
    #[must_use]
    pub fn progress(&self, receiver: ReceiverId, want: WantId) -> &Progress {
        self.receivers[receiver].log.progress(want)
    }

    /// Returns the events of a receiver with their times, without the reported blocks.
    #[must_use]
    pub fn events(&self, receiver: ReceiverId) -> &[(Time, Event)] {
        self.receivers[receiver].log.events()
    }

    /// Returns reports of a receiver's paths. [`source_of`](Self::source_of) translates the numbers of their
    /// sources.
    #[must_use]
    pub fn paths(&self, receiver: ReceiverId) -> Vec<PathReport> {
        self.receivers[receiver].subscriber.paths().collect()
    }

    /// Returns the simulation's number of the source that a receiver calls `id`.
    #[must_use]
    pub fn source_of(&self, receiver: ReceiverId, id: SourceId) -> Option<SimSourceId> {
        self.receivers[receiver].sources.iter().find(|(_, i)| **i == id).map(|(source, _)| *source)
    }

    /// Returns the new payload bytes of each path in each whole second: `[path][second]`.
    #[must_use]
    pub fn payload_per_second(&self, receiver: ReceiverId) -> &[Vec<u64>] {
        self.receivers[receiver].log.per_second()
    }

    /// Returns the counters of a link.
    #[must_use]
    pub fn stats(&self, link: LinkId) -> Stats {
        self.net.stats(link)
    }

    /// Returns the times that packets stayed at a link; `None` if the link plays no trace.
    #[must_use]
    pub fn sojourns(&self, link: LinkId) -> Option<&Histogram> {
        self.net.sojourns(link)
    }

    /// Returns the bytes queued at a link.
    #[must_use]
    pub fn queued_bytes(&self, link: LinkId) -> u64 {
        self.net.queued_bytes(link)
    }

    /// Returns the number of packets queued or propagating on a link.
    #[must_use]
    pub fn occupancy(&self, link: LinkId) -> usize {
        self.net.occupancy(link)
    }
}
