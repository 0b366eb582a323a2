//! One client's leg at the server, shared by the leg's task and the tasks of its flows.
//!
//! The server is not told that a program's flow has ended, so a flow ends after some time without a datagram.
//! A program that opens a flow for each question could use all places in that time. So if a leg has too many
//! flows, the one that was silent the longest ends. No new flow is refused, because a client cannot tell its
//! program about a refusal.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anabranch_algo::Time;
use anabranch_algo::fair_share::{FairShare, Place, Yields};
use anabranch_net::Clock;
use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use crate::leg::{FLOWS_MAX, Leg};
use crate::trunk::Destination;

/// One client's leg.
pub(super) struct Association {
    /// The name of the client, or without keys its host.
    pub(super) owner: String,
    pub(super) client: Option<String>,
    /// The client's address on its trunk.
    pub(super) from: SocketAddr,
    pub(super) state: Mutex<State>,
    pub(super) work: Notify,
    pub(super) clock: Clock,
}

/// The parts of an association that change.
pub(super) struct State {
    pub(super) leg: Leg,
    pub(super) flows: Flows,
    /// For each address of the client, the server's address to which it sends.
    pub(super) locals: BTreeMap<SocketAddr, IpAddr>,
    pub(super) heard_at: Time,
    pub(super) is_ended: bool,
}

impl Association {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the association's task to end.
    pub(super) fn end(&self) {
        self.lock().is_ended = true;
        self.work.notify_one();
    }

    /// Sends datagrams of a flow to the client.
    pub(super) fn send(&self, flow: u32, datagrams: impl IntoIterator<Item = (Destination, Bytes)>) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.flows.heard(now, flow);
        for (peer, bytes) in datagrams {
            state.leg.send(now, flow, &peer, bytes);
        }
        drop(state);
        self.work.notify_one();
    }

    /// Forgets a flow that has ended.
    pub(super) fn forget(&self, flow: FlowId) {
        let mut state = self.lock();
        if state.flows.remove(flow) {
            state.leg.forget(flow.number);
        }
    }
}

/// Identifies a flow by its number and its place. The number may belong to another flow once this one has
/// ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowId {
    pub(super) number: u32,
    place: Place,
}

/// The sender of a flow's datagrams with their destinations.
pub(super) type Datagrams = mpsc::Sender<(Destination, Bytes)>;

/// The flows of a leg.
#[derive(Debug)]
pub(super) struct Flows {
    open: BTreeMap<u32, (Place, Datagrams)>,
    share: FairShare<()>,
}

impl Flows {
    pub(super) fn new() -> Self {
        Self { open: BTreeMap::new(), share: FairShare::new(FLOWS_MAX as u64) }
    }

    /// Notes that a datagram of a flow has moved. Returns the sender of the flow's datagrams, if the flow
    /// exists.
    pub(super) fn heard(&mut self, now: Time, flow: u32) -> Option<&Datagrams> {
        let (place, to_flow) = self.open.get(&flow)?;
        self.share.heard(now, *place);
        Some(to_flow)
    }

    /// Adds a flow. Returns its id, and the number of the flow that ends to make room, if one does.
    ///
    /// # Panics
    /// Never: if all places are taken, one of the same holder is given up.
    pub(super) fn insert(&mut self, now: Time, number: u32, to_flow: Datagrams) -> (FlowId, Option<u32>) {
        let granted = self.share.ask(now, (), Yields::Next);
        let (place, gives_way) = granted.expect("a place is free, or one of the same holder is given up");
        let gone = gives_way.and_then(|gone| {
            let (number, _) = self.open.iter().find(|(_, (place, _))| *place == gone)?;
            Some(FlowId { number: *number, place: gone })
        });
        gone.into_iter().for_each(|gone| _ = self.remove(gone));
        self.open.insert(number, (place, to_flow));
        (FlowId { number, place }, gone.map(|gone| gone.number))
    }

    /// Removes a flow. Returns whether it existed.
    fn remove(&mut self, flow: FlowId) -> bool {
        let is_there = self.open.get(&flow.number).is_some_and(|(place, _)| *place == flow.place);
        if is_there {
            self.open.remove(&flow.number);
            self.share.release(flow.place);
        }
        is_there
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Removes all flows.
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn of_more_flows_than_there_may_be_the_longest_silent_ends() {
        let mut flows = Flows::new();
        let open = |flows: &mut Flows, now, number| flows.insert(now, number, mpsc::channel(1).0);
        let (first, _) = open(&mut flows, at(0), 1);
        let (second, _) = open(&mut flows, at(1), 2);
        for number in 3..=FLOWS_MAX as u32 {
            assert_eq!(open(&mut flows, at(2), number).1, None);
        }
        assert!(flows.heard(at(3), 1).is_some());
        // A program asks 5,000 questions, each in its own flow, while the first flow is in use.
        for number in 0..5_000 {
            flows.heard(at(10 + u64::from(number)), 1);
            let (_, gone) = open(&mut flows, at(10 + u64::from(number)), 100_000 + number);
            assert!(gone.is_some_and(|gone| gone != 1));
        }
        assert_eq!(flows.len(), FLOWS_MAX);
        let (again, _) = open(&mut flows, at(9_000), 2);
        assert!(!flows.remove(second), "that number is another flow's now");
        assert!(flows.remove(again) && flows.remove(first));
    }
}
