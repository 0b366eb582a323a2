//! A role that runs.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use crate::error::Error;
use crate::event::{Counters, Door, Event, Reports, Stop, Totals};

/// A client or a server that runs, on threads of its own. Dropping it ends it at once.
#[derive(Debug)]
pub struct Running {
    /// `None` while it is dropped.
    runtime: Option<Runtime>,
    events: mpsc::Receiver<Event>,
    counters: Arc<Counters>,
    stop: Stop,
    addresses: Vec<(Door, SocketAddr)>,
}

impl Running {
    /// Begins `role`, which ends when it is stopped. `addresses` are those where it listens already.
    pub(crate) fn begin<R>(
        runtime: Runtime,
        addresses: Vec<(Door, SocketAddr)>,
        role: impl FnOnce(Reports, Stop) -> R,
    ) -> Self
    where
        R: Future<Output = ()> + Send + 'static,
    {
        let (reports, events) = Reports::new();
        let (counters, stop) = (reports.counters(), Stop::default());
        for (door, address) in &addresses {
            reports.put(Event::Listening { door: *door, address: *address });
        }
        runtime.spawn(role(reports, stop.clone()));
        Self { runtime: Some(runtime), events, counters, stop, addresses }
    }

    /// The next thing that happened; `None` when it has ended.
    pub async fn event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// The same, for a thread that has nothing else to do.
    ///
    /// # Panics
    /// In a task of tokio.
    pub fn wait_event(&mut self) -> Option<Event> {
        self.events.blocking_recv()
    }

    /// What ends it: trunks are closed, connections reset.
    #[must_use]
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// What it did in all.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.counters.totals()
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> &[(Door, SocketAddr)] {
        &self.addresses
    }

    /// Where it listens first for these.
    #[must_use]
    pub fn address(&self, door: Door) -> Option<SocketAddr> {
        self.addresses.iter().find(|(of, _)| *of == door).map(|(_, address)| *address)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The runtime of a role.
pub(crate) fn runtime() -> Result<Runtime, Error> {
    Builder::new_multi_thread().enable_all().thread_name("proxy").build().map_err(Error::Runtime)
}
