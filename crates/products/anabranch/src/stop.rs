//! How a caller stops what runs: a transfer, a source, a hash of a large file.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_net::{WakeReceiver, Waker};

use crate::{Error, Result};

/// Stops what it was given to. Clones stop the same; any thread and any signal handler may call
/// [`stop`](Self::stop).
#[derive(Clone, Debug)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    wake: Arc<WakeReceiver>,
    waker: Waker,
    /// The flag of another that stops this one too. It ends no wait here, but waits are short.
    parent: Option<Arc<AtomicBool>>,
}

impl Stop {
    /// One that has not been used.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if the system has no descriptors left.
    pub fn new() -> Result<Self> {
        let wake = WakeReceiver::new()
            .map_err(|e| Error::system(format!("the system has no descriptors left: {e}")).because(e))?;
        Ok(Self { flag: Arc::default(), waker: wake.waker(), wake: Arc::new(wake), parent: None })
    }

    /// One that `parent` stops too, within a tenth of a second; but it does not stop `parent`.
    pub(crate) fn below(parent: &Self) -> Result<Self> {
        Ok(Self { parent: Some(parent.flag()), ..Self::new()? })
    }

    /// Ends what runs soon, in order: what arrived is kept.
    pub fn stop(&self) {
        self.flag.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Whether it has been stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let is_set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        is_set(&self.flag) || self.parent.as_ref().is_some_and(is_set)
    }

    /// The flag, for those who set it in a signal handler; the wait must be ended too: [`Self::stream`].
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// A stream into which a signal handler writes one byte to end the wait.
    ///
    /// # Errors
    /// If the system has no descriptors left.
    pub fn stream(&self) -> io::Result<UnixStream> {
        self.waker.stream()
    }

    /// What a loop waits on beside its sockets. It stays readable once it is stopped, for all who wait:
    /// nobody takes the wake-up away.
    pub(crate) fn wake(&self) -> &WakeReceiver {
        &self.wake
    }
}
