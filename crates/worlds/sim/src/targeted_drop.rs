//! Implements congestion events whose victims the experiment chooses: the global and the partial events of
//! Fig. 4.9 of the dissertation behind NMCC (section 4.1.3 there), for single packets.

use crate::Rng;
use crate::codel::Queued;
use crate::config::VictimPolicy;
use crate::packet::Packet;
use anabranch_algo::{Span, Time};
use std::collections::{BTreeMap, VecDeque};

/// Holds the state of the discipline for one queue.
#[derive(Clone, Debug)]
pub(crate) struct TargetedDrop {
    above_packets: u32,
    hold: Span,
    policy: VictimPolicy,
    /// The time of the last event, or of the last draw that hit no flow.
    last: Option<Time>,
    rng: Rng,
}

impl TargetedDrop {
    pub(crate) const fn new(above_packets: u32, hold: Span, policy: VictimPolicy, rng: Rng) -> Self {
        Self { above_packets, hold, policy, last: None, rng }
    }

    /// Removes and returns the packets that the queue loses because of an arrival at `now`: the first data
    /// packet of each victim, in the order of the queue. The head, which is being sent, is never among them.
    pub(crate) fn congestion_event<P: Packet>(
        &mut self,
        now: Time,
        queue: &mut VecDeque<Queued<P>>,
    ) -> Vec<P> {
        let due = self.last.is_none_or(|last| now >= last + self.hold);
        if queue.len() <= self.above_packets as usize || !due {
            return Vec::new();
        }
        self.last = Some(now);
        // The map has, for each flow, the index of its first packet and the number of its packets. It is
        // sorted, so that draws repeat.
        let mut flows: BTreeMap<u32, (usize, u64)> = BTreeMap::new();
        for (i, flow) in queue.iter().enumerate().skip(1).filter_map(|(i, q)| Some((i, q.packet.flow()?))) {
            flows.entry(flow).or_insert((i, 0)).1 += 1;
        }
        let all: u64 = flows.values().map(|(_, packets)| packets).sum();
        let mut hit: Vec<usize> = match self.policy {
            VictimPolicy::All => flows.into_values().map(|(first, _)| first).collect(),
            VictimPolicy::Share => {
                let mut hit_by_lot = |packets: u64| self.rng.below(all) < packets;
                flows
                    .into_values()
                    .filter(|(_, packets)| hit_by_lot(*packets))
                    .map(|(first, _)| first)
                    .collect()
            }
            VictimPolicy::Largest => {
                // `max_by_key` returns the last of several maxima, so reversed order gives the flow with the
                // lowest number.
                let largest = flows.into_values().rev().max_by_key(|(_, packets)| *packets);
                largest.into_iter().map(|(first, _)| first).collect()
            }
        };
        hit.sort_unstable();
        let gone = hit.iter().enumerate().filter_map(|(before, i)| queue.remove(i - before));
        gone.map(|queued| queued.packet).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Probe(Option<u32>, u64);

    impl Packet for Probe {
        fn bytes(&self) -> u32 {
            1_000
        }
        fn mark(&mut self) {}
        fn flow(&self) -> Option<u32> {
            self.0
        }
    }

    /// Makes a queue with one packet per flow number; `u32::MAX` stands for an acknowledgement.
    fn queue(flows: &[u32]) -> VecDeque<Queued<Probe>> {
        let probe = |(i, flow): (usize, &u32)| Probe(Some(*flow).filter(|flow| *flow < u32::MAX), i as u64);
        let queued = |packet| Queued { bytes: 1_000, since: Time::ZERO, packet };
        flows.iter().enumerate().map(probe).map(queued).collect()
    }

    fn ids(hit: &[Probe]) -> Vec<u64> {
        hit.iter().map(|probe| probe.1).collect()
    }

    const fn ms(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn each_flow_s_first_waiting_packet() {
        let flows = [7, 3, u32::MAX, 7, 7, 5, 3, 7];
        let mut all = TargetedDrop::new(7, Span::from_millis(10), VictimPolicy::All, Rng::new(1));
        let mut line = queue(&flows);
        // The head is being sent, and the acknowledgement belongs to no flow.
        assert_eq!(ids(&all.congestion_event(ms(0), &mut line)), [1, 3, 5]);
        assert_eq!(line.iter().map(|q| q.packet.1).collect::<Vec<_>>(), [0, 2, 4, 6, 7]);
        // There is no event before `hold` is over, and none while the queue is short.
        assert_eq!(all.congestion_event(ms(9), &mut queue(&flows)), []);
        assert_eq!(ids(&all.congestion_event(ms(10), &mut queue(&flows))), [1, 3, 5]);
        assert_eq!(all.congestion_event(ms(30), &mut queue(&flows[..7])), []);
        let mut largest = TargetedDrop::new(3, Span::ZERO, VictimPolicy::Largest, Rng::new(1));
        assert_eq!(ids(&largest.congestion_event(ms(0), &mut queue(&flows))), [3]);
        // Of two equal flows, the one with the lower number is hit.
        assert_eq!(ids(&largest.congestion_event(ms(0), &mut queue(&[9, 9, 4, 9, 4]))), [2]);
        assert_eq!(largest.congestion_event(ms(0), &mut queue(&[1; 3])), []);
        assert_eq!(largest.congestion_event(ms(0), &mut queue(&[u32::MAX; 5])), []);
    }

    #[test]
    fn shares_are_probabilities() {
        // Flow 1 has three of the four waiting packets.
        let mut share = TargetedDrop::new(1, Span::from_millis(1), VictimPolicy::Share, Rng::new(1));
        let (n, mut first, mut second, mut nobody) = (40_000u64, 0u64, 0u64, 0u64);
        for i in 0..n {
            let hit = share.congestion_event(ms(i), &mut queue(&[2, 1, 1, 2, 1]));
            first += hit.iter().filter(|probe| probe.0 == Some(1)).count() as u64;
            second += hit.iter().filter(|probe| probe.0 == Some(2)).count() as u64;
            nobody += u64::from(hit.is_empty());
        }
        let near = |seen: u64, p: f64| {
            let (mean, sigma) = (n as f64 * p, (n as f64 * p * (1.0 - p)).sqrt());
            assert!((seen as f64 - mean).abs() < 4.0 * sigma, "{seen} of {n} at {p}");
        };
        near(first, 0.75);
        near(second, 0.25);
        near(nobody, 0.25 * 0.75);
    }
}
