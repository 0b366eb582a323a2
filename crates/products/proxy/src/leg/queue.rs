//! Datagrams that wait for room in a window. Each flow has a queue; queues take turns, and CoDel (RFC 8289)
//! limits the waiting time of each. So a program that sends too fast delays only itself, and only a little.

use std::collections::{BTreeMap, VecDeque};

use anabranch_algo::{Span, Time};
use bytes::Bytes;

use crate::trunk::Destination;

/// The most bytes of all flows that wait. Beyond that, the longest queue loses its first datagram.
pub const QUEUE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The longest time that a datagram waits; older ones are dropped.
pub const WAIT_MAX: Span = Span::from_millis(200);
/// CoDel's target: datagrams may wait this long.
pub const TARGET: Span = Span::from_millis(20);
/// CoDel's interval: datagrams may wait longer than the target for this time before some are dropped.
pub const INTERVAL: Span = Span::from_millis(100);
/// The bytes that a datagram counts beside its payload.
const OVERHEAD_BYTES: usize = 64;

/// A datagram that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) flow: u32,
    pub(super) peer: Destination,
    pub(super) bytes: Bytes,
    since: Time,
}

/// The control law of RFC 8289 for one queue.
#[derive(Debug, Default)]
struct CoDel {
    /// When the waiting time will have been above the target for a whole interval.
    above_at: Option<Time>,
    /// The time of the next drop while CoDel drops, and the number of drops so far.
    drop_at: Option<Time>,
    count: u32,
}

impl CoDel {
    /// Whether to drop a datagram that has waited for `waited`.
    fn drops(&mut self, now: Time, waited: Span) -> bool {
        if waited < TARGET {
            (self.above_at, self.drop_at) = (None, None);
            return false;
        }
        let above_at = *self.above_at.get_or_insert(now + INTERVAL);
        match self.drop_at {
            Some(at) if now >= at => {
                self.count += 1;
                self.drop_at = Some(at + self.pause());
                true
            }
            None if now >= above_at => {
                // If CoDel dropped recently, it continues at nearly the same rate.
                self.count = if self.count > 2 { self.count - 2 } else { 1 };
                self.drop_at = Some(now + self.pause());
                true
            }
            _ => false,
        }
    }

    fn pause(&self) -> Span {
        INTERVAL.over(u64::from(self.count.max(1)).isqrt())
    }
}

#[derive(Debug, Default)]
struct FlowQueue {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    codel: CoDel,
}

/// The datagrams that wait; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Queue {
    flows: BTreeMap<u32, FlowQueue>,
    /// The flows with waiting datagrams, in the order of their turns.
    turns: VecDeque<u32>,
    bytes: usize,
    /// The number of datagrams that were dropped in [`take`](Self::take).
    dropped: u64,
}

fn size(bytes: &Bytes) -> usize {
    bytes.len() + OVERHEAD_BYTES
}

impl Queue {
    /// Adds a datagram. Returns how many datagrams were dropped to make room.
    pub(super) fn push(&mut self, now: Time, flow: u32, peer: Destination, bytes: Bytes) -> u64 {
        let queue = self.flows.entry(flow).or_default();
        if queue.waiting.is_empty() {
            self.turns.push_back(flow);
        }
        queue.bytes += size(&bytes);
        self.bytes += size(&bytes);
        queue.waiting.push_back(Waiting { flow, peer, bytes, since: now });
        let mut dropped = 0;
        while self.bytes > QUEUE_BYTES_MAX {
            let longest = self.flows.iter().max_by_key(|(_, queue)| queue.bytes).map(|(flow, _)| *flow);
            let Some(longest) = longest else { break };
            self.pop(longest);
            dropped += 1;
        }
        dropped
    }

    /// Returns the flow that has the next turn.
    pub(super) fn next_flow(&self) -> Option<u32> {
        self.turns.front().copied()
    }

    /// Returns the number of bytes that wait.
    #[cfg(test)]
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the size of the datagram that has the next turn, or 0 if there is none.
    pub(super) fn next_bytes(&self) -> usize {
        let first = self.next_flow().and_then(|flow| self.flows.get(&flow)?.waiting.front());
        first.map_or(0, |waiting| size(&waiting.bytes))
    }

    /// Takes the next datagram, and gives the turn to the next flow. Returns `None` if no datagram is left
    /// that is young enough.
    pub(super) fn take(&mut self, now: Time) -> Option<Waiting> {
        loop {
            let flow = self.next_flow()?;
            let waiting = self.pop(flow)?;
            let waited = now.since(waiting.since);
            let queue = self.flows.get_mut(&flow);
            let is_dropped = waited > WAIT_MAX || queue.is_some_and(|queue| queue.codel.drops(now, waited));
            if is_dropped {
                self.dropped += 1;
                continue;
            }
            if self.next_flow() == Some(flow) {
                self.turns.rotate_left(1);
            }
            return Some(waiting);
        }
    }

    /// Returns how many datagrams `take` has dropped since the last call.
    pub(super) const fn take_dropped(&mut self) -> u64 {
        std::mem::replace(&mut self.dropped, 0)
    }

    fn pop(&mut self, flow: u32) -> Option<Waiting> {
        let queue = self.flows.get_mut(&flow)?;
        let waiting = queue.waiting.pop_front()?;
        queue.bytes -= size(&waiting.bytes);
        self.bytes -= size(&waiting.bytes);
        if queue.waiting.is_empty() {
            self.flows.remove(&flow);
            self.turns.retain(|other| *other != flow);
        }
        Some(waiting)
    }

    pub(super) fn forget(&mut self, flow: u32) {
        while self.pop(flow).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> Destination {
        "192.0.2.1:53".parse().unwrap()
    }

    fn payload(n: usize) -> Bytes {
        Bytes::from(vec![0; n])
    }

    #[test]
    fn flows_take_turns() {
        let mut queue = Queue::default();
        for n in 0..5 {
            queue.push(Time::ZERO, 1, peer(), payload(n));
        }
        queue.push(Time::ZERO, 2, peer(), payload(9));
        let order: Vec<u32> = std::iter::from_fn(|| queue.take(Time::ZERO)).map(|w| w.flow).collect();
        assert_eq!(order, [1, 2, 1, 1, 1, 1]);
        assert!(queue.bytes == 0 && queue.turns.is_empty() && queue.flows.is_empty());
    }

    #[test]
    fn a_program_that_sends_too_fast_loses_its_own_oldest() {
        let mut queue = Queue::default();
        queue.push(Time::ZERO, 2, peer(), payload(9));
        let dropped: u64 = (0..10_000).map(|_| queue.push(Time::ZERO, 1, peer(), payload(1_000))).sum();
        assert!(queue.bytes <= QUEUE_BYTES_MAX);
        assert_eq!(dropped as usize, 10_000 - (QUEUE_BYTES_MAX - 73) / 1_064);
        assert_eq!(queue.take(Time::ZERO).unwrap().flow, 2);
    }

    #[test]
    fn waiting_is_bounded() {
        // Ten datagrams arrive each millisecond, and nine leave.
        let (mut queue, mut longest, mut now) = (Queue::default(), Span::ZERO, Time::ZERO);
        for _ in 0..20_000 {
            for _ in 0..10 {
                queue.push(now, 1, peer(), payload(100));
            }
            for _ in 0..9 {
                let taken = queue.take(now).map_or(Span::ZERO, |w| now.since(w.since));
                longest = longest.max(taken);
            }
            now += Span::from_millis(1);
        }
        assert!(longest <= WAIT_MAX, "{longest}");
        assert!(queue.take_dropped() > 10_000);
    }

    #[test]
    fn what_a_flow_that_is_forgotten_had_is_gone() {
        let mut queue = Queue::default();
        queue.push(Time::ZERO, 1, peer(), payload(1));
        queue.forget(1);
        assert!(queue.bytes == 0 && queue.next_flow().is_none());
    }
}
