//! Runs the thread on which clients run.

use std::fmt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::error::StartError;
use super::tls::TlsConfigs;

/// Holds a thread with the sockets and timers of [clients](super::Client). Several clients may share one. The
/// thread ends when its last clone is dropped; each client holds a clone.
#[derive(Clone)]
pub struct Engine(Arc<Shared>);

struct Shared {
    handle: Handle,
    tls: Arc<TlsConfigs>,
    /// Ends the thread when it is dropped.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
    pub fn start() -> Result<Self, StartError> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let thread = thread::Builder::new().name("http".to_owned()).spawn(move || {
            // An error means that the sender was dropped, which is how the thread is ended.
            let _ = runtime.block_on(ended);
        })?;
        let tls = Arc::default();
        Ok(Self(Arc::new(Shared { handle, tls, end: Some(end), thread: Some(thread) })))
    }

    /// Returns the TLS configurations of all clients. With them, a client resumes the TLS sessions of earlier
    /// ones, and the system's certificates are read once.
    pub(super) fn tls(&self) -> Arc<TlsConfigs> {
        Arc::clone(&self.0.tls)
    }

    /// Runs a task on the thread.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.handle.spawn(task);
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
