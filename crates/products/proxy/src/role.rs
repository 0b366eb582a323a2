//! A role that runs.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use crate::error::Error;
use crate::event::{Counters, Door, Event, Reports, Stop, Totals};
use crate::status::{Parts, Status};

/// A client or a server that runs, on threads of its own. Dropping it ends it at once.
pub struct Running {
    /// `None` while it is dropped.
    runtime: Option<Runtime>,
    events: mpsc::Receiver<Event>,
    counters: Arc<Counters>,
    stop: Stop,
    addresses: Vec<(Door, SocketAddr)>,
    reload: Reload,
    status: Status,
}

/// Takes new options; whether they are those of this role.
pub(crate) type Reload = Arc<dyn Fn(&dyn Any) -> bool + Send + Sync>;

/// Gives a role new options, from any thread. Clones do the same.
#[derive(Clone)]
pub struct Reloader(Reload);

impl Reloader {
    /// Takes over what can change while the role runs: users, policy, limits, time-outs. All else stays as it
    /// is; [`config::changes`](crate::config::changes) tells which is which. Policy and users count for new
    /// connections.
    ///
    /// # Errors
    /// These are the options of another role.
    pub fn reload<O: Any>(&self, options: &O) -> Result<(), Error> {
        match (self.0)(options) {
            true => Ok(()),
            false => Err(Error::Usage("these are options of another role".to_owned())),
        }
    }
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reloader")
    }
}

/// What may change while a role runs: a new connection takes what it finds. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Live<T>(Arc<RwLock<Arc<T>>>);

impl<T> Live<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(value))))
    }

    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}

impl Running {
    /// Begins `role`, which ends when it is stopped. `addresses` are those where it listens already.
    pub(crate) fn begin<R>(
        runtime: Runtime,
        addresses: Vec<(Door, SocketAddr)>,
        reload: Reload,
        parts: Parts,
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
        let status = Status::new(parts, Arc::clone(&counters), &addresses, runtime.handle().clone());
        Self { runtime: Some(runtime), events, counters, stop, addresses, reload, status }
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

    /// See [`Reloader::reload`].
    ///
    /// # Errors
    /// These are the options of another role.
    pub fn reload<O: Any>(&self, options: &O) -> Result<(), Error> {
        self.reloader().reload(options)
    }

    /// What gives it new options.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        Reloader(Arc::clone(&self.reload))
    }

    /// What tells what it is doing, from any thread.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.clone()
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

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("addresses", &self.addresses).finish_non_exhaustive()
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
