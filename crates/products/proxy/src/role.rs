//! A running role.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use crate::error::Error;
use crate::event::{Counters, Door, Event, Reports, Stop, Totals};
use crate::status::{Parts, Status};

/// A running client or server, on its own threads. Dropping it ends it at once.
pub struct Running {
    /// The runtime; `None` while this is dropped.
    runtime: Option<Runtime>,
    events: mpsc::Receiver<Event>,
    counters: Arc<Counters>,
    stop: Stop,
    addresses: Vec<(Door, SocketAddr)>,
    reload: Reload,
    status: Status,
}

/// A function that applies new options, and returns whether they are options of this role.
pub(crate) type Reload = Arc<dyn Fn(&dyn Any) -> bool + Send + Sync>;

/// Gives a role new options, from any thread. Clones serve the same role.
#[derive(Clone)]
pub struct Reloader(Reload);

impl Reloader {
    /// Applies the options that can change while the role runs: users, policy, limits and time-outs. All
    /// others stay; [`config::changes`](crate::config::changes) tells which these are. Policy and users hold
    /// for new connections.
    ///
    /// # Errors
    /// If these are the options of another role.
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

/// A value that may change while a role runs. A new connection takes the present one. Clones share the value.
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
    /// Starts `role`, which ends when it is stopped. `addresses` are those at which it already listens.
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

    /// Waits for the next event. Returns `None` when the role has ended.
    pub async fn event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Waits for the next event on a thread outside the runtime. Returns `None` when the role has ended.
    ///
    /// # Panics
    /// If it is called in a task of tokio.
    pub fn wait_event(&mut self) -> Option<Event> {
        self.events.blocking_recv()
    }

    /// Gives the role new options; see [`Reloader::reload`].
    ///
    /// # Errors
    /// If these are the options of another role.
    pub fn reload<O: Any>(&self, options: &O) -> Result<(), Error> {
        self.reloader().reload(options)
    }

    /// Returns a handle that gives the role new options.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        Reloader(Arc::clone(&self.reload))
    }

    /// Returns a handle that tells the role's state, from any thread.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.clone()
    }

    /// Returns a handle that ends the role: trunks are closed and connections reset.
    #[must_use]
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Returns the sums over the role's life.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.counters.totals()
    }

    /// Returns the addresses at which the role listens.
    #[must_use]
    pub fn addresses(&self) -> &[(Door, SocketAddr)] {
        &self.addresses
    }

    /// Returns the first address at which the role takes such connections.
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

/// Creates the runtime of a role.
pub(crate) fn runtime() -> Result<Runtime, Error> {
    Builder::new_multi_thread().enable_all().thread_name("proxy").build().map_err(Error::Runtime)
}
