//! Lets a caller stop an operation: a transfer, a source, or hashing.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_net::{WakeReceiver, Waker};

use crate::{Error, Result};

/// Stops the operation to which it was given. Clones stop the same operation. Any thread and any signal
/// handler may call [`stop`](Self::stop).
#[derive(Clone, Debug)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    wake: Arc<WakeReceiver>,
    waker: Waker,
    /// The flag of a parent, which stops this one too. It ends no wait here, but waits are short.
    parent: Option<Arc<AtomicBool>>,
}

impl Stop {
    /// Makes a stop that has not been used.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if the system has no descriptors left.
    pub fn new() -> Result<Self> {
        let wake = WakeReceiver::new()
            .map_err(|e| Error::system(format!("the system has no descriptors left: {e}")).because(e))?;
        Ok(Self { flag: Arc::default(), waker: wake.waker(), wake: Arc::new(wake), parent: None })
    }

    /// Makes a stop that `parent` uses too, within a tenth of a second. It does not stop `parent`.
    pub(crate) fn below(parent: &Self) -> Result<Self> {
        Ok(Self { parent: Some(parent.flag()), ..Self::new()? })
    }

    /// Stops the operation soon; what has arrived is kept.
    pub fn stop(&self) {
        self.flag.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Returns whether this stop, or its parent, has been used.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let is_set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        is_set(&self.flag) || self.parent.as_ref().is_some_and(is_set)
    }

    /// Returns the flag, for a signal handler to set. The handler must also end the wait: see
    /// [`Self::stream`].
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Returns a stream into which a signal handler writes one byte to end the wait.
    ///
    /// # Errors
    /// If the system has no descriptors left.
    pub fn stream(&self) -> io::Result<UnixStream> {
        self.waker.stream()
    }

    /// Returns the descriptor that a loop waits for beside its sockets. Once the stop is used, it stays
    /// readable for all loops, because none reads the wake-up.
    pub(crate) fn wake(&self) -> &WakeReceiver {
        &self.wake
    }
}
