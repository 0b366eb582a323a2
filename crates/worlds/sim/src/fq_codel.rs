//! Implements FQ-CoDel, a queue discipline with a queue and a CoDel for each flow.
//!
//! Follows RFC 8290, section 4. Flows are hashed into queues, which are served by deficit round robin: new
//! queues first, a quantum of bytes each, then the old queues. Above the limit of the link, the queue with
//! the most bytes loses its head. [`Packet::flow_key`] tells flows apart.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::codel::{Codel, Queued};
use crate::packet::Packet;
use anabranch_algo::{SplitMix64, Time};

/// Holds all queues of a link, without the packet being sent.
#[derive(Clone, Debug)]
pub(crate) struct FqCodel<P> {
    /// The fresh CoDel with which each queue begins.
    codel: Codel,
    quantum_bytes: i64,
    buckets: u64,
    /// A number mixed into the hash, so that flows that collide in one run do not collide in all (section
    /// 4.1.1).
    perturbation: u64,
    /// The queues that have been used, by bucket: a queue keeps its CoDel's state while it is empty.
    queues: BTreeMap<u64, FlowQueue<P>>,
    /// The queues that are served, in turn.
    new: VecDeque<u64>,
    old: VecDeque<u64>,
    packets: usize,
    /// The queues by their bytes, for [`pop_fattest`](Self::pop_fattest). It is made when that is called
    /// first, so that a link whose limit is never reached has no work with it.
    by_bytes: Option<BySize>,
}

/// Holds buckets by the bytes of their queues; of several with the same bytes the lowest bucket is the last.
#[derive(Clone, Debug, Default)]
struct BySize(BTreeSet<(u64, Reverse<u64>)>);

impl BySize {
    fn change(&mut self, bucket: u64, before: u64, after: u64) {
        self.0.remove(&(before, Reverse(bucket)));
        if after > 0 {
            self.0.insert((after, Reverse(bucket)));
        }
    }
}

/// Holds the queue for the flows of one bucket.
#[derive(Clone, Debug)]
struct FlowQueue<P> {
    packets: VecDeque<Queued<P>>,
    bytes: u64,
    /// The number of bytes that the queue may send before its turn ends.
    credit: i64,
    codel: Codel,
    /// Whether the queue is in `new` or `old`.
    active: bool,
}

impl<P: Packet> FqCodel<P> {
    /// Makes empty queues. `flows` and `quantum_bytes` are at least 1.
    pub(crate) fn new(codel: Codel, flows: u32, quantum_bytes: u32, perturbation: u64) -> Self {
        Self {
            codel,
            quantum_bytes: i64::from(quantum_bytes.max(1)),
            buckets: u64::from(flows.max(1)),
            perturbation,
            queues: BTreeMap::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            packets: 0,
            by_bytes: None,
        }
    }

    /// Returns the number of packets in all queues.
    pub(crate) const fn len(&self) -> usize {
        self.packets
    }

    /// Puts a packet into the queue of its flow.
    pub(crate) fn push(&mut self, queued: Queued<P>) {
        let bucket = SplitMix64(queued.packet.flow_key() ^ self.perturbation).bits() % self.buckets;
        let queue = self.queues.entry(bucket).or_insert_with(|| FlowQueue {
            packets: VecDeque::new(),
            bytes: 0,
            credit: 0,
            codel: self.codel.clone(),
            active: false,
        });
        let before = queue.bytes;
        queue.bytes += u64::from(queued.bytes);
        if let Some(sizes) = &mut self.by_bytes {
            sizes.change(bucket, before, queue.bytes);
        }
        queue.packets.push_back(queued);
        self.packets += 1;
        if !queue.active {
            (queue.active, queue.credit) = (true, self.quantum_bytes);
            self.new.push_back(bucket);
        }
    }

    /// Removes the packet that is sent next at `now`, if there is one, and returns it and whether CoDel
    /// marked it. Hands every packet that CoDel drops to `drop`.
    pub(crate) fn pop(&mut self, now: Time, mut drop: impl FnMut(P)) -> Option<(Queued<P>, bool)> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let bucket = *list.front()?;
            let queue = self.queues.get_mut(&bucket)?;
            if queue.credit <= 0 {
                queue.credit += self.quantum_bytes;
                list.pop_front();
                self.old.push_back(bucket);
                continue;
            }
            let (before, bytes_before) = (queue.packets.len(), queue.bytes);
            let marked = queue.codel.select_head(now, &mut queue.packets, &mut queue.bytes, &mut drop);
            self.packets -= before - queue.packets.len();
            let head = queue.packets.pop_front();
            queue.bytes -= head.as_ref().map_or(0, |head| u64::from(head.bytes));
            if let Some(sizes) = &mut self.by_bytes {
                sizes.change(bucket, bytes_before, queue.bytes);
            }
            if let Some(head) = head {
                queue.credit -= i64::from(head.bytes);
                self.packets -= 1;
                return Some((head, marked));
            }
            list.pop_front();
            if is_new {
                // A queue that is emptied again and again thus does not always come first (section 4.2).
                self.old.push_back(bucket);
            } else {
                queue.active = false;
            }
        }
    }

    /// Removes the head of the queue with the most bytes; of several such queues, the queue with the lowest
    /// bucket.
    pub(crate) fn pop_fattest(&mut self) -> Option<P> {
        let sizes = self.by_bytes.get_or_insert_with(|| {
            let queues = self.queues.iter().filter(|(_, queue)| queue.bytes > 0);
            BySize(queues.map(|(bucket, queue)| (queue.bytes, Reverse(*bucket))).collect())
        });
        let (before, Reverse(bucket)) = *sizes.0.last()?;
        let fattest = self.queues.get_mut(&bucket)?;
        let head = fattest.packets.pop_front()?;
        fattest.bytes -= u64::from(head.bytes);
        sizes.change(bucket, before, fattest.bytes);
        self.packets -= 1;
        Some(head.packet)
    }

    /// Removes all packets.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = P> {
        self.new.clear();
        self.old.clear();
        self.packets = 0;
        self.by_bytes = None;
        std::mem::take(&mut self.queues).into_values().flat_map(|queue| queue.packets).map(|q| q.packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{DropReason, Event, Input, Link};
    use crate::{Discipline, LinkConfig, Stats};
    use anabranch_algo::{Machine, Output, Rate, Span};

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Probe {
        flow: u32,
        bytes: u32,
        sent: Time,
    }

    impl Packet for Probe {
        fn bytes(&self) -> u32 {
            self.bytes
        }
        fn mark(&mut self) {}
        fn flow(&self) -> Option<u32> {
            Some(self.flow)
        }
    }

    const MS: Span = Span::from_millis(1);

    /// Describes a flow: its number, the size of its packets, and the time between them.
    type Flow = (u32, u32, Span);

    /// Holds the packets that arrived, with their times, the packets that were dropped, and the link's
    /// counters.
    type Outcome = (Vec<(Time, Probe)>, Vec<(DropReason, Probe)>, Stats);

    /// Runs flows over a link of 1 MB/s for `secs` seconds.
    fn run(discipline: Discipline, packets: u32, flows: &[Flow], secs: u64) -> Outcome {
        let config = LinkConfig::new(Rate::from_bytes(1_000_000), Span::ZERO).discipline(discipline);
        let mut link: Link<Probe> = Link::new(config.queue_packets(packets), 1, "a");
        let (mut now, end) = (Time::ZERO, Time::ZERO + Span::from_secs(secs));
        let mut next = vec![Time::ZERO; flows.len()];
        let (mut arrived, mut dropped) = (Vec::new(), Vec::new());
        while now < end {
            let (soonest, at) = next.iter().copied().enumerate().min_by_key(|(_, at)| *at).expect("a flow");
            match link.poll(now) {
                Output::Send(arrival) => arrived.push((arrival.at, arrival.packet)),
                Output::Event(Event::Dropped { reason, packet, .. }) => dropped.push((reason, packet)),
                Output::Event(event) => panic!("{event:?}"),
                Output::Wait(due) if due < at => now = due,
                Output::Wait(_) => {
                    now = at;
                    let (flow, bytes, gap) = flows[soonest];
                    link.handle(now, Input::Packet(Probe { flow, bytes, sent: now }));
                    next[soonest] += gap;
                }
            }
            let stats = link.stats();
            assert_eq!(stats.offered, stats.delivered + stats.dropped.total() + link.occupancy() as u64);
        }
        (arrived, dropped, link.stats())
    }

    fn bytes_of(arrived: &[(Time, Probe)], flow: u32) -> f64 {
        arrived.iter().filter(|(_, p)| p.flow == flow).map(|(_, p)| f64::from(p.bytes)).sum()
    }

    #[test]
    fn flows_that_want_more_than_their_share_get_the_same_bytes() {
        // Section 1.1: flows share the link by bytes, regardless of the packets' sizes and of each flow's
        // load.
        let flows = [(1, 1_500, MS), (2, 500, MS.over(2)), (3, 1_000, MS.over(4))];
        let (arrived, ..) = run(Discipline::FQ_CODEL, 10_240, &flows, 20);
        let got: Vec<f64> = [1, 2, 3].map(|flow| bytes_of(&arrived, flow) / 20e6).to_vec();
        assert!(got.iter().all(|share| (share * 3.0 - 1.0).abs() < 0.01), "{got:?}");
    }

    #[test]
    fn a_sparse_flow_waits_for_no_standing_queue() {
        // A packet of a flow below its share finds its own queue empty: it waits for the packet being sent,
        // and for the quantum of another flow at most (section 4.2: new queues come first).
        let flows = [(1, 1_500, MS), (2, 1_500, MS), (3, 200, Span::from_micros(9_973))];
        let longest = |discipline| {
            let (arrived, ..) = run(discipline, 10_240, &flows, 10);
            // At the beginning all queues are new.
            let sparse = arrived.iter().filter(|(_, p)| p.flow == 3 && p.sent > Time::ZERO);
            sparse.map(|(at, p)| at.since(p.sent)).max().expect("some arrived")
        };
        assert!(longest(Discipline::FQ_CODEL) <= Span::from_micros(1_500 + 1_514 + 200));
        assert!(longest(Discipline::CODEL) > Span::from_millis(20));
    }

    #[test]
    fn one_flow_sees_codel() {
        let gap = Span::from_micros(980);
        let (codel, codel_drops, _) = run(Discipline::CODEL, u32::MAX, &[(7, 1_000, gap)], 8);
        let (fair, fair_drops, _) = run(Discipline::FQ_CODEL, u32::MAX, &[(7, 1_000, gap)], 8);
        assert!(!codel_drops.is_empty() && codel == fair && codel_drops == fair_drops);
    }

    #[test]
    fn a_full_link_drops_from_the_longest_queue() {
        // Section 4.1.3: the newcomer is taken in, and the head of the largest queue goes.
        let flows = [(1, 1_500, Span::from_micros(100)), (2, 500, Span::from_micros(2_000))];
        let (_, dropped, stats) = run(Discipline::FQ_CODEL, 50, &flows, 1);
        let full: Vec<_> = dropped.iter().filter(|(reason, _)| *reason == DropReason::Queue).collect();
        assert!(full.len() > 1_000 && full.iter().all(|(_, p)| p.flow == 1), "{}", full.len());
        assert_eq!(stats.queue_max_packets, 50);
    }

    #[test]
    fn the_longest_queue_is_found_as_a_scan_finds_it() {
        let codel = Codel::new(Span::from_millis(5), Span::from_millis(100), false);
        let mut queues = FqCodel::new(codel, 16, 1_514, 3);
        let mut rng = crate::Rng::new(1);
        let mut now = Time::ZERO;
        for number in 0..20_000 {
            now += Span::from_micros(rng.below(900));
            let (flow, bytes) = (rng.below(40) as u32, 1 + rng.below(5) as u32 * 100);
            queues.push(Queued { bytes, since: now, packet: Probe { flow, bytes, sent: now } });
            match rng.below(5) {
                0 | 1 => drop(queues.pop(now, |_| {})),
                2 | 3 if number > 100 => {
                    let scan = queues.queues.iter().rev().max_by_key(|(_, queue)| queue.bytes);
                    let expected = scan.and_then(|(_, queue)| queue.packets.front()).map(|head| head.packet);
                    assert_eq!(queues.pop_fattest(), expected);
                }
                _ => {}
            }
            if rng.chance(0.001) {
                let waiting = queues.len();
                assert_eq!(queues.drain().count(), waiting);
            }
        }
    }

    #[test]
    fn flows_of_one_bucket_share_a_queue() {
        let (target, interval) = (Span::from_millis(5), Span::from_millis(100));
        let one = Discipline::FqCodel { target, interval, ecn: false, flows: 1, quantum_bytes: 1_514 };
        let flows = [(1, 1_000, MS), (2, 1_000, MS.over(3))];
        let (arrived, ..) = run(one, 10_240, &flows, 10);
        assert!(bytes_of(&arrived, 2) > 2.0 * bytes_of(&arrived, 1));
    }
}
