//! State that threads share. One that panics leaves it whole, for nothing is half done between two calls:
//! so the others go on.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks it, whatever became of those who had it before.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A state, and the wait for its next change.
#[derive(Debug, Default)]
pub(crate) struct Monitor<T> {
    state: Mutex<T>,
    changed: Condvar,
}

impl<T> Monitor<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        lock(&self.state)
    }

    /// Waits for a change, or for nothing.
    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, no longer than `max`.
    pub(crate) fn wait_for<'a>(&self, state: MutexGuard<'a, T>, max: Duration) -> MutexGuard<'a, T> {
        self.changed.wait_timeout(state, max).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Ends the waits.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }
}
