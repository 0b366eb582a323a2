//! What happened in a swarm.

use algo::Time;
use algo::shared_bottleneck::Detector;
use mmtp::publisher::Counters;
use mmtp::subscriber::{Event, ObjectId, PathReport, SourceId};
use sim::{LinkId, Stats};

use super::{Progress, Receiver, ReceiverNo, SourceNo, Swarm, WantNo};
use crate::peer::Tally;

impl Swarm {
    /// What must never happen and did: a window exceeded, a group reported twice or wrong, a storm of polls.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let of = |(r, one): (usize, &Receiver)| -> Vec<String> {
            one.record.violations().iter().map(|what| format!("receiver {r}: {what}")).collect()
        };
        self.receivers.iter().enumerate().flat_map(of).collect()
    }

    /// A number that differs when anything the receivers asked or reported, or a flow received, does.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest.0 ^ self.crowd.digest()
    }

    /// How far a wish has come.
    #[must_use]
    pub fn progress(&self, receiver: ReceiverNo, want: WantNo) -> &Progress {
        self.receivers[receiver].record.progress(want)
    }

    /// What a receiver reported, but for the groups.
    #[must_use]
    pub fn events(&self, receiver: ReceiverNo) -> &[(Time, Event)] {
        self.receivers[receiver].record.events()
    }

    /// The wish that an event's content belongs to.
    #[must_use]
    pub fn want_of(&self, receiver: ReceiverNo, object: ObjectId) -> Option<WantNo> {
        self.receivers[receiver].record.want_of(object)
    }

    /// The paths of a receiver, as numbers. Their sources are those of [`source_of`](Self::source_of).
    #[must_use]
    pub fn paths(&self, receiver: ReceiverNo) -> Vec<PathReport> {
        self.receivers[receiver].subscriber.paths().collect()
    }

    /// What a receiver knows of its paths' bottlenecks, if it [looks](Swarm::grouping).
    #[must_use]
    pub fn detector(&self, receiver: ReceiverNo) -> &Detector {
        self.receivers[receiver].subscriber.detector()
    }

    /// Which source of the swarm a receiver means.
    #[must_use]
    pub fn source_of(&self, receiver: ReceiverNo, id: SourceId) -> Option<SourceNo> {
        self.receivers[receiver].sources.iter().find(|(_, i)| **i == id).map(|(source, _)| *source)
    }

    /// New payload bytes that came over each path in each whole second: `[path][second]`.
    #[must_use]
    pub fn payload_per_second(&self, receiver: ReceiverNo) -> &[Vec<u64>] {
        self.receivers[receiver].record.per_second()
    }

    /// Packets that a receiver asked for twice at the end.
    #[must_use]
    pub fn doubled(&self, receiver: ReceiverNo) -> u64 {
        self.receivers[receiver].subscriber.doubled()
    }

    /// What a link has seen.
    #[must_use]
    pub fn stats(&self, link: LinkId) -> Stats {
        self.net.stats(link)
    }

    /// Bytes queued at a link.
    #[must_use]
    pub fn queued_bytes(&self, link: LinkId) -> u64 {
        self.net.queued_bytes(link)
    }

    /// Packets queued or propagating on a link.
    #[must_use]
    pub fn inside(&self, link: LinkId) -> usize {
        self.net.inside(link)
    }

    /// What a source has sent.
    #[must_use]
    pub fn tally(&self, source: SourceNo) -> Tally {
        self.peers[source].tally
    }

    /// What a source's publisher has counted since it was last restarted.
    #[must_use]
    pub fn counters(&self, source: SourceNo) -> Counters {
        self.peers[source].publisher().counters()
    }
}
