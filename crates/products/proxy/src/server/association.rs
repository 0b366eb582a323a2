//! One client's leg at the server, for the task that has it and those of its flows.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anabranch_algo::Time;
use anabranch_net::Clock;
use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use crate::leg::Leg;
use crate::trunk::Destination;

/// One client's leg.
pub(super) struct Association {
    /// Whose: its name, or its host.
    pub(super) owner: String,
    pub(super) client: Option<String>,
    /// Its host, as the trunk has it.
    pub(super) from: SocketAddr,
    pub(super) state: Mutex<State>,
    pub(super) work: Notify,
    pub(super) clock: Clock,
}

/// What changes of it.
pub(super) struct State {
    pub(super) leg: Leg,
    pub(super) flows: BTreeMap<u32, mpsc::Sender<(Destination, Bytes)>>,
    /// To which address of ours the client's addresses send.
    pub(super) locals: BTreeMap<SocketAddr, IpAddr>,
    pub(super) heard_at: Time,
    pub(super) is_ended: bool,
}

impl Association {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is to end.
    pub(super) fn end(&self) {
        self.lock().is_ended = true;
        self.work.notify_one();
    }

    /// Sends datagrams of a flow to the client.
    pub(super) fn send(&self, flow: u32, datagrams: impl IntoIterator<Item = (Destination, Bytes)>) {
        let now = self.clock.now();
        let mut state = self.lock();
        for (peer, bytes) in datagrams {
            state.leg.send(now, flow, &peer, bytes);
        }
        drop(state);
        self.work.notify_one();
    }

    /// The flow has ended.
    pub(super) fn forget(&self, flow: u32) {
        let mut state = self.lock();
        state.flows.remove(&flow);
        state.leg.forget(flow);
    }
}
