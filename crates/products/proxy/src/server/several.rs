//! What a server does for clients that have several: it announces its load, names others, drains.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_algo::Time;

use crate::event::Reports;
use crate::flows::Flows;
use crate::server::draining::{Clients, Draining};
use crate::server::scale::{Scale, Scaling};
use crate::status::ServerLoad;
use crate::trunk::{Announced, Destination};
use crate::trunk_task::TrunkHandle;

/// The part of the capacity from which a change of the load is announced.
const ANNOUNCE_PART: u32 = 50;

/// What the server has for clients of several servers.
pub(super) struct Several {
    pub(super) draining: Draining,
    /// The other servers that are named.
    others: Vec<Destination>,
    capacity: u32,
    flows: Flows,
    /// The number of open connections that was announced last.
    announced: AtomicU32,
    /// Runs a program at thresholds of the load.
    scaling: Mutex<Option<Scaling>>,
}

impl Several {
    pub(super) fn new(
        capacity: u32,
        others: Vec<Destination>,
        scale: Option<Scale>,
        (clients, flows): (Arc<Mutex<Clients>>, Flows),
    ) -> Self {
        let draining = Draining::new(clients, flows.clone());
        let scaling = Mutex::new(scale.map(|scale| Scaling::new(Time::ZERO, scale)));
        Self { draining, others, capacity, flows, announced: AtomicU32::new(0), scaling }
    }

    /// Returns the present load.
    fn load(&self) -> Announced {
        let open = u32::try_from(self.flows.count()).unwrap_or(u32::MAX);
        Announced { open, capacity: self.capacity }
    }

    /// Returns a function that returns the present load for the status.
    pub(super) fn loads(&self) -> impl Fn() -> Option<ServerLoad> + use<> {
        let (flows, capacity) = (self.flows.clone(), self.capacity);
        move || Some(ServerLoad { open: u32::try_from(flows.count()).unwrap_or(u32::MAX), capacity })
    }

    /// Tells a new trunk the load and the other servers.
    pub(super) fn greet(&self, trunk: &TrunkHandle) {
        trunk.announce(self.load());
        self.others.iter().for_each(|other| trunk.name_server(other.clone(), false));
    }

    /// Announces the load to all clients if it has changed, and runs the program of a threshold.
    pub(super) fn announce(&self, now: Time, clients: &Clients, reports: &Reports) {
        let load = self.load();
        if let Some(scaling) = &mut *self.scaling.lock().unwrap_or_else(PoisonError::into_inner) {
            scaling.note(now, load, reports);
        }
        let before = self.announced.load(Ordering::Relaxed);
        if load.open.abs_diff(before) >= (load.capacity / ANNOUNCE_PART).max(1) {
            self.announced.store(load.open, Ordering::Relaxed);
            clients.values().for_each(|trunk| trunk.announce(load));
        }
    }
}
